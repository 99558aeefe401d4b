"""Clients that search while everything else continues, and once more after all faults."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from sirocco.model.durations import parse_duration_ms
from sirocco.model.query import parse_query
from sirocco.services.router.publish import intake_partition
from tests.simulation.node import Node
from tests.simulation.search_ledger import Searched
from tests.simulation.searches import Request, Result, Search, SearchNet
from tests.simulation.services import EvaluatorNode
from tests.simulation.world import Members, random_query

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

# Before this there is nothing to find.
FIRST_MS = 1_000.0

KINDS = ("range", "range", "range", "knn", "knn", "terms", "ranked")

# Searches after all faults: one of each kind, and their time: a slot that has just moved may load
# its past for 20 s.
LAST_KINDS = ("range", "knn", "terms", "ranked")
LAST_MS = 40_000


class Searchers:
    """All searching clients."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._ledger = cluster.ledger.searches
        self._dice = Random(f"searches {seed}")
        profile = cluster.profile
        self.is_searching = self._dice.random() < profile.searched and cluster.world.shape.store
        self._net = SearchNet(cluster, self._dice)
        self._asked = 0
        if not self.is_searching:
            return
        for _ in range(self._dice.randint(*profile.searches)):
            at_ms = self._dice.uniform(FIRST_MS, profile.duration_ms + 4_000)
            self._scheduler.at(at_ms, partial(self._ask, self._dice.choice(KINDS), is_last=False))

    @property
    def is_done(self) -> bool:
        """Whether all searches have an answer, or will never have one."""
        return all(search.is_over for search in self._ledger.searches)

    def ask_last(self) -> None:
        """Searches after all faults: no slot may be missing."""
        if self.is_searching:
            self._net.is_calm = True
            for kind in LAST_KINDS:
                self._ask(kind, is_last=True)

    def _ask(self, kind: str, *, is_last: bool) -> None:
        mergers = [
            node
            for node in self._cluster.of("merger")
            # At the end clients ask only mergers that report ready; before, any.
            if not is_last or node.machine.holdings.view.map_version  # type: ignore[attr-defined]
        ]
        if not mergers:
            return
        merger = self._dice.choice(mergers)
        self._asked += 1
        members = self._question(f"search-{self._asked}", kind)
        search = Searched(
            name=f"search-{self._asked} ({kind})",
            members=members,
            request=self._request(members, is_last=is_last),
            taken=self._taken(),
            processed=self._ledger.processed(),
            must_be_whole=is_last,
        )
        self._ledger.searches.append(search)

        def begin() -> None:
            Search(self._net, merger, search.request, partial(self._take_answer, search))

        self._net.threads(merger).later(self._net.call_ms(), begin)
        self._watch(search, merger)

    def _question(self, name: str, kind: str) -> Members:
        members = random_query(self._dice, name, kind, mode="snapshot")
        members = {k: v for k, v in members.items() if k not in ("step", "window")}
        if self._dice.random() < 0.3:
            members["window"] = f"{self._dice.randint(500, 30_000)}ms"
        return members

    def _request(self, members: Members, *, is_last: bool) -> Request:
        window_ms = None
        if "window" in members:
            window_ms = parse_duration_ms(members["window"], "window")
        wants_token = is_last or self._dice.random() < 0.6
        timeout_ms = LAST_MS if is_last else round(10 ** self._dice.uniform(2, 4))
        token = self._token() if wants_token else {}
        return Request(parse_query(members), window_ms, token, timeout_ms)

    def _token(self) -> dict[int, int]:
        """Returns the position of all that publishers know to be acknowledged."""
        token: dict[int, int] = {}
        for publisher in self._cluster.publishers:
            if publisher.token_offset >= 0:
                source = intake_partition(publisher.session, self._cluster.world.shape.intake)
                token[source] = max(publisher.token_offset, token.get(source, 0))
        return token

    def _taken(self) -> dict[tuple[str, int], int]:
        return {
            (node.member, number): slot.offset
            for node in self._cluster.of("evaluator")
            if isinstance(node, EvaluatorNode)
            for number, slot in node.machine.slots.items()
        }

    def _take_answer(self, search: Searched, result: Result) -> None:
        search.result, search.end_ms = result, self._scheduler.now_ms

    def _watch(self, search: Searched, merger: Node) -> None:
        """Informs a client that its merger is gone."""
        if search.is_over:
            return
        if not merger.is_alive:
            self._cluster.events["search lost"] += 1
            self._ledger.searches.remove(search)
            return
        self._scheduler.after(self._net.between(50, 200), lambda: self._watch(search, merger))
