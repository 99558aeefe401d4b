"""Checks the contents of lists: brute force by the oracle, over the logs of the slots.

A version of a query counts, in each slot, the records between its installation and its end. For a
knn query these decide which objects may be in the list; the last list must be exact, and each list
follows from the one before. Terms and ranked queries depend on arrivals only: a step is exact, and
reported once, if every slot held the version when its time passed the step. Earlier steps, while
the version is still being installed, may be missing, and count at most all objects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_KNN, KIND_RANKED, KIND_TERMS
from sirocco.model.query import query_handle
from sirocco.protocol.contract.columns import NO_ROW, ListColumns
from sirocco.protocol.contract.messages import DELIVERIES, NO_PAST, Delivered, Progress
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.record_sizes import partition_of
from tests.oracle import Members, knn, ranked
from tests.oracle.ranking import Ranking
from tests.oracle.table import Objects
from tests.simulation.log import SimLog
from tests.simulation.query_versions import EventKey, QueryVersion
from tests.simulation.world import World


class Placed(Protocol):
    """The position of a published object."""

    members: Members
    places: dict[int, tuple[int, int]]
    arrival_ms: int


@dataclass(frozen=True, slots=True)
class SentList:
    """One list, as a subscriber receives it.

    Attributes:
        at_ms: the step; None for a knn query.
        keys: event keys of its objects; none for terms.
        entries: (object id or term, figure).
        new: which of them are new.
        removed: ids of those that left.
        ended: why the query has ended; then it is not a list.
    """

    at_ms: int | None
    keys: tuple[EventKey, ...]
    entries: tuple[tuple[int | str, float], ...]
    new: tuple[bool, ...]
    removed: tuple[int, ...]
    ended: int = 0

    @property
    def ids(self) -> list[int | str]:
        """The ids of its objects, or its terms."""
        return [name for name, _ in self.entries]

    @property
    def values(self) -> list[float]:
        """The figures of its entries."""
        return [value for _, value in self.entries]

    @property
    def is_first(self) -> bool:
        """Whether it may be the first list of its query."""
        return all(self.new) and not self.removed


class ListLedger:
    """Records the lists that were sent and checks them in the end."""

    def __init__(
        self,
        log: SimLog,
        world: World,
        objects: Mapping[EventKey, Placed],
        fail: Callable[[str], None],
    ) -> None:
        self._log = log
        self._world = world
        self._objects = objects
        self._fail = fail
        # (subscriber, query handle) → its lists in the order of `deliveries`.
        self.sent: dict[tuple[str, int], list[SentList]] = defaultdict(list)

    @property
    def lists_total(self) -> int:
        """How many lists were sent."""
        return sum(map(len, self.sent.values()))

    def delivered(self, delivered: Delivered) -> None:
        """Records a record of `deliveries`."""
        for subscriber, handle, reported in sent_lists(delivered):
            if reported.ended:
                continue
            for name, key in zip(reported.ids, reported.keys, strict=False):
                published = self._objects.get(key)
                if published is None or published.members["id"] != name:
                    self._fail(f"a list names object {key} as {name}")
            self.sent[subscriber, handle].append(reported)

    # --- the checks

    def check(self, versions: Callable[[int], list[QueryVersion]]) -> None:
        """Compares all lists with the required ones.

        Args:
            versions: of a query, by its handle.
        """
        self._build()
        for query_id in self._world.life_starts:
            handle = query_handle(query_id)
            registered = versions(handle)
            for subscriber in {version.subscriber for version in registered}:
                own = [version for version in registered if version.subscriber == subscriber]
                lists = self.sent.pop((subscriber, handle), [])
                name = f"{query_id} of {subscriber}"
                nearest = [each for each in lists if each.at_ms is None]
                self._check_nearest(name, own, nearest, registered)
                steps = [each for each in lists if each.at_ms is not None]
                self._check_steps(name, own, steps, registered)
        for subscriber, handle in self.sent:
            self._fail(f"{subscriber} was sent a list of query {handle}, which it never had")

    def _build(self) -> None:
        placed = [(key, each) for key, each in self._objects.items() if each.places]
        placed.sort(key=lambda pair: (pair[1].arrival_ms, pair[0]))
        self._keys = [key for key, _ in placed]
        self._placed = [each for _, each in placed]
        self._table = Objects([{**each.members, "ts": each.arrival_ms} for each in self._placed])
        self._words = np.zeros((len(placed), len(self._table.vocabulary)), np.int64)
        rows = np.repeat(np.arange(len(placed)), np.diff(self._table.term_offsets))
        self._words[rows, self._table.terms] = 1
        self._complete_ms = [
            self._progress_ms(partition) for partition in range(self._world.shape.partials)
        ]

    def _progress_ms(self, partition: int) -> int:
        """Returns the time that all slots have passed, by a merger's last progress."""
        for stored in reversed(self._log.partition(DELIVERIES, partition).records):
            if isinstance(stored.message, Progress):
                slots, times_ms = stored.message.slots.tolist(), stored.message.times_ms.tolist()
                known = dict(zip(slots, times_ms, strict=True))
                return min(known.get(s, NO_TIME_MS) for s in range(self._world.shape.slots))
        return NO_TIME_MS

    # --- knn

    def _eligible(self, version: QueryVersion) -> NDArray[np.int64]:
        """Returns the rows of the objects that may be in the lists of a knn query."""
        return np.array(
            [
                row
                for row in self._table.satisfying(version.members, 0, len(self._table)).tolist()
                if self._counts(version, self._placed[row])
            ],
            np.int64,
        )

    @staticmethod
    def _counts(version: QueryVersion, placed: Placed) -> bool:
        if not version.lives_at(placed.arrival_ms):
            return False
        for slot, (offset, _) in placed.places.items():
            stay = version.stays.get(slot)
            if stay is None or (stay.end is not None and offset > stay.end):
                continue
            if offset > stay.begin:
                return True
            if version.past_ms != NO_PAST and placed.arrival_ms >= version.since_ms:
                return True
        return False

    def _check_nearest(
        self,
        name: str,
        registered: list[QueryVersion],
        lists: list[SentList],
        others: list[QueryVersion],
    ) -> None:
        versions = [version for version in registered if version.kind == KIND_KNN]
        if not versions:
            if lists:
                self._fail(f"{name}: a list without a step, and it never was a knn query")
            return
        rankings = {
            version.revision: knn.nearest(self._table, version.members, self._eligible(version))
            for version in versions
        }
        # Versions to which the last sent list may belong.
        possible = list(rankings)
        before = SentList(None, (), (), (), ())
        for number, reported in enumerate(lists, 1):
            follows = _follows(before, reported)
            if not follows and not reported.is_first:
                self._fail(f"{name}: list {number} does not follow from the one before")
            later = [r for r in rankings if r > possible[0] and r not in possible]
            fitting = [r for r in possible if follows and self._may_be(rankings[r], reported)]
            # It follows the list of the version before, unless the query began again.
            fitting += [
                revision
                for revision in later
                if self._may_be(rankings[revision], reported)
                # A slot that skipped versions sent to others may report a continuation.
                and (follows or not _goes_on(others, possible[0], revision))
            ]
            if not follows:
                fitting += [
                    revision
                    for revision in possible[1:]
                    if self._may_be(rankings[revision], reported)
                    and not _goes_on(others, possible[0], revision)
                ]
            possible = sorted(set(fitting))
            if not possible:
                self._fail(f"{name}: list {number} is of no version, or of one before another's")
            before = reported
        last = versions[-1]
        is_in_force = all(stay.end is None for stay in last.stays.values())
        # A version that ends before its report is complete is no longer reported.
        if is_in_force and last.is_whole and rankings[last.revision].size:
            if last.revision not in possible or not lists:
                self._fail(f"{name}: nothing was sent of its last version")
            wrong = rankings[last.revision].difference(before.ids, before.values)
            if wrong:
                self._fail(f"{name}: the last list {wrong}")

    def _may_be(self, ranking: Ranking, sent: SentList) -> bool:
        """Returns whether a list may belong to a version that is still being installed."""
        places = {self._keys[row]: place for place, row in enumerate(ranking.rows.tolist())}
        found = [places.get(key, -1) for key in sent.keys]
        if min(found, default=0) < 0 or len(found) > ranking.k:
            return False
        # Objects of one id at one distance may be in either order.
        ranks = [(ranking.values[place], self._table.keys[ranking.rows[place]]) for place in found]
        if len(set(found)) < len(found) or ranks != sorted(ranks):
            return False
        return bool(np.allclose(ranking.values[found], sent.values, rtol=0, atol=0.001_001))

    # --- terms and ranked

    def _check_steps(
        self,
        name: str,
        registered: list[QueryVersion],
        lists: list[SentList],
        others: list[QueryVersion],
    ) -> None:
        versions = [version for version in registered if version.kind in (KIND_TERMS, KIND_RANKED)]
        reported: QueryVersion | None = None
        for each in lists:
            assert each.at_ms is not None
            fitting = [version for version in versions if version.has_step(each.at_ms)]
            if not fitting:
                self._fail(f"{name}: {each.at_ms} is a step of no version")
            # Steps of two versions may have the same time.
            fitting.sort(key=lambda version: self._objections(version, each))
            version = fitting[0]
            if each.at_ms in version.sent:
                self._fail(f"{name}: step {each.at_ms} was sent twice")
            if version.sent and max(version.sent) > each.at_ms:
                self._fail(f"{name}: step {each.at_ms} was sent after {max(version.sent)}")
            if each.at_ms >= version.bounds_ms()[1]:
                self._fail(f"{name}: step {each.at_ms} was sent when a slot had ended it")
            version.sent[each.at_ms] = each
            if reported is not version:
                version.resumed_ms.add(each.at_ms)
            reported = version
        former: QueryVersion | None = None
        stands: list[int | str] = []
        for version in versions:
            if version.kind == KIND_TERMS:
                self._check_terms(name, version)
                continue
            goes_on = former and _goes_on(others, former.revision, version.revision)
            # For a version that replaced another by registration, the removal of the former list
            # may or may not be reported.
            clears = bool(stands)
            stands = self._check_ranked(name, version, stands if goes_on else [], clears=clears)
            former = version
            is_last = version is versions[-1] and any(self._required_ms(version))
            is_last &= reported is not None and reported.kind == KIND_RANKED
            # Steps of an earlier version may be reported between those of a later one. One that was
            # registered anew need not report that it has nothing.
            is_last &= bool(version.sent)
            if is_last and lists[-1].ids != stands:
                self._fail(f"{name}: the last list reported is of an earlier version")

    def _objections(self, version: QueryVersion, sent: SentList) -> int:
        """Returns the number of contradictions between a step and a version."""
        assert sent.at_ms is not None
        from_ms, before_ms = version.bounds_ms()
        return (
            8 * (not self._is_possible(version, sent))
            + 4 * (sent.at_ms >= before_ms or sent.at_ms in version.sent)
            + 2 * (not self._is_right(version, sent))
            + (sent.at_ms < from_ms)
        )

    def _is_possible(self, version: QueryVersion, sent: SentList) -> bool:
        """Returns whether a step can be a version's: it may count only a part of the objects."""
        assert sent.at_ms is not None
        if len(sent.entries) > version.members["k"]:
            return False
        if version.kind == KIND_TERMS:
            counts = self._terms(version, sent.at_ms)
            return all(value <= counts[str(term)] for term, value in sent.entries)
        ranking = self._ranking(ranked.Scorer(self._table, version.members), version, sent.at_ms)
        return {self._keys[row] for row in ranking.rows.tolist()}.issuperset(sent.keys)

    def _is_right(self, version: QueryVersion, sent: SentList) -> bool:
        assert sent.at_ms is not None
        if version.kind == KIND_TERMS:
            counts = self._terms(version, sent.at_ms)
            return list(sent.entries) == _first(counts, version.members["k"])
        ranking = self._ranking(ranked.Scorer(self._table, version.members), version, sent.at_ms)
        return ranking.difference(sent.ids, sent.values) is None

    def _required_ms(self, version: QueryVersion) -> Iterator[int]:
        """Yields the steps that have to be exact."""
        from_ms, before_ms = version.bounds_ms()
        complete_ms = self._complete_ms[partition_of(version.subscriber, len(self._complete_ms))]
        for at_ms in version.steps_ms():
            if at_ms >= min(before_ms, complete_ms):
                return
            if at_ms >= from_ms:
                yield at_ms

    def _check_terms(self, name: str, version: QueryVersion) -> None:
        required = set(self._required_ms(version))
        if missing := sorted(required - set(version.sent)):
            self._fail(f"{name}: steps {missing[:3]} were not sent")
        for at_ms, reported in version.sent.items():
            if at_ms in required:
                wanted = _first(self._terms(version, at_ms), version.members["k"])
                if list(reported.entries) != wanted:
                    self._fail(f"{name}: step {at_ms} says {reported.entries}, wanted {wanted}")
            elif not self._is_possible(version, reported):
                self._fail(f"{name}: early step {at_ms} counts more than there is")

    def _terms(self, version: QueryVersion, at_ms: int) -> Counter[str]:
        """Returns how many objects of a step's window hold each term."""
        first, last = self._arrived(*version.window_ms(at_ms))
        rows = self._table.satisfying(version.members, first, last)
        counts = self._words[rows].sum(axis=0).tolist()
        return Counter({t: n for t, n in zip(self._table.vocabulary, counts, strict=True) if n})

    def _check_ranked(
        self, name: str, version: QueryVersion, before: list[int | str], *, clears: bool
    ) -> list[int | str]:
        """Checks the steps of a version; returns the last sent list.

        Args:
            name: of the query.
            version: of it.
            before: the last sent list of the version that it continues.
            clears: there is a list of an earlier version: the first list is sent, even if empty.
        """
        scorer = ranked.Scorer(self._table, version.members)
        steps = sorted({*self._required_ms(version), *version.sent})
        required = set(self._required_ms(version))
        first = min(version.sent, default=None)
        for at_ms in steps:
            reported = version.sent.get(at_ms)
            # A repeat replaces the list of another version that was reported since.
            is_repeat = at_ms not in version.resumed_ms
            is_repeat &= not (at_ms == first and clears)
            if reported is not None and reported.ids == before and is_repeat:
                self._fail(f"{name}: step {at_ms} repeats the list")
            if at_ms in required:
                ranking = self._ranking(scorer, version, at_ms)
                wrong = (
                    ranking.difference(before, None)
                    if reported is None
                    else ranking.difference(reported.ids, reported.values)
                )
                if wrong:
                    self._fail(
                        f"{name}: step {at_ms}, {'not' if reported is None else ''} sent: {wrong}"
                    )
            elif reported is not None and not self._is_possible(version, reported):
                self._fail(f"{name}: early step {at_ms} names what it cannot")
            before = before if reported is None else reported.ids
        return before

    def _ranking(self, scorer: ranked.Scorer, version: QueryVersion, at_ms: int) -> Ranking:
        return scorer.ranking(at_ms, *self._arrived(*version.window_ms(at_ms)))

    def _arrived(self, from_ms: int, upto_ms: int) -> tuple[int, int]:
        arrivals = self._table.arrivals
        first = int(np.searchsorted(arrivals, from_ms))
        return first, max(first, int(np.searchsorted(arrivals, upto_ms, "right")))


def _first(counts: Counter[str], k: int) -> list[tuple[int | str, float]]:
    """Returns the k most frequent terms, ties by code point."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(term, float(number)) for term, number in ordered[:k]]


def _goes_on(versions: list[QueryVersion], before: int, after: int) -> bool:
    """Returns whether a later version continues an earlier one, with all versions between them."""
    passed = [version for version in versions if before <= version.revision <= after]
    first = passed[0]
    return all(
        0 <= each.since <= before and (each.kind, each.subscriber) == (first.kind, first.subscriber)
        for each in passed[1:]
    )


def _follows(before: SentList, sent: SentList) -> bool:
    """Returns whether the removed and new entries lead from one list to the next."""
    kept = Counter(before.keys)
    known = Counter(key for key, is_new in zip(sent.keys, sent.new, strict=True) if not is_new)
    if known - kept:
        return False
    left = kept - known
    id_of = dict(zip(before.keys, before.ids, strict=True))
    return Counter(id_of[key] for key in left.elements()) == Counter(sent.removed)


def sent_lists(delivered: Delivered) -> Iterator[tuple[str, int, SentList]]:
    """Yields (subscriber, query handle, list) of a record, in order."""
    lists, offsets = delivered.lists, delivered.list_offsets
    if lists is None or offsets is None:
        return
    for row, subscriber in enumerate(delivered.queries.subscribers):
        for at in range(int(offsets[row]), int(offsets[row + 1])):
            yield subscriber, int(delivered.queries.handles[lists.queries[at]]), _sent(lists, at)


def _sent(lists: ListColumns, at: int) -> SentList:
    begin, end = lists.entry_offsets[at : at + 2].tolist()
    data, bounds = lists.names.tobytes(), lists.name_offsets.tolist()
    at_ms = int(lists.at_ms[at])
    names = [data[bounds[row] : bounds[row + 1]].decode() for row in range(begin, end)]
    sessions, numbers = lists.sessions[begin:end].tolist(), lists.numbers[begin:end].tolist()
    is_terms = any(names)
    ids = names if is_terms else lists.ids[begin:end].tolist()
    removed = slice(*lists.removed_offsets[at : at + 2].tolist())
    return SentList(
        None if at_ms == NO_TIME_MS else at_ms,
        () if is_terms else tuple(zip(sessions, numbers, strict=True)),
        tuple(zip(ids, lists.values[begin:end].tolist(), strict=True)),
        tuple((lists.objects[begin:end] != NO_ROW).tolist()),
        tuple(lists.removed_ids[removed].tolist()),
        0 if lists.ended is None else int(lists.ended[at]),
    )
