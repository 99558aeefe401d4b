"""Checks the answers of searches: brute force over the logs and the clients' knowledge.

An answer covers all slots except those that it names as missing. Of the objects in these slots
that satisfy the search, it must hold

- all up to its position token;
- without a token: in a slot that an evaluator answered for, all that its log held when that
  evaluator loaded it, and all that the evaluator had taken when the search began; elsewhere all
  that was reported as processed by all slots when the search began (`AwaitProcessed`).

A merger without an answer for a slot may not know that the map has changed, and so which slots to
ask: for slots that were not asked, an answer with missing slots promises nothing.

It may hold more: objects that arrived meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from sirocco.model.errors import DeadlineExceeded, PartialResult, Unavailable
from sirocco.protocol.contract.messages import DELIVERIES, Progress
from sirocco.protocol.contract.positions import ROW_BITS, position_of
from tests.oracle import Members, knn, ranked
from tests.oracle.table import Objects
from tests.simulation.log import SimLog
from tests.simulation.searches import EventKey, Request, Result, keys_of
from tests.simulation.slot_truth import SlotTruth
from tests.simulation.world import World


class Placed(Protocol):
    """The position of a published object."""

    members: Members
    places: dict[int, tuple[int, int]]
    arrival_ms: int
    source: int
    position: int
    home_ms: float


@dataclass(slots=True, kw_only=True)
class Searched:
    """One search.

    Attributes:
        name: for the reader of a failure.
        members: the query in JSON form.
        taken: (evaluator, slot) → position up to which the evaluator had taken it when the search
            began.
        processed: intake partition → position reported as processed at that time.
        must_be_whole: no fault excuses a missing slot.
    """

    name: str
    members: Members
    request: Request
    taken: dict[tuple[str, int], int]
    processed: dict[int, int]
    must_be_whole: bool
    result: Result | None = None
    end_ms: float = 0.0
    required: list[EventKey] = field(default_factory=list)
    possible: list[EventKey] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether it has an answer, or will never have one."""
        return self.result is not None


class SearchLedger:
    """Records searches and checks them in the end."""

    def __init__(
        self,
        log: SimLog,
        world: World,
        objects: Mapping[EventKey, Placed],
        truth: SlotTruth,
        fail: Callable[[str], None],
    ) -> None:
        self._log = log
        self._shape = world.shape
        self._objects = objects
        self._truth = truth
        self._fail = fail
        self.searches: list[Searched] = []
        # Slot → offsets of its records, and the position of each source after each record.
        self._offsets: dict[int, list[int]] = {}
        self._reached: dict[int, list[list[int]]] = {}

    def routed(self, slot: int, offset: int) -> None:
        """Records that a slot's log has one more record."""
        sources = range(self._shape.intake)
        self._offsets.setdefault(slot, []).append(offset)
        self._reached.setdefault(slot, []).append([self._truth.reached(slot, s) for s in sources])

    def processed(self) -> dict[int, int]:
        """Returns, by intake partition, the position reported as processed by all slots."""
        reported: dict[int, int] = {}
        for partition in range(self._shape.partials):
            progress = self._progress(partition)
            for slot in range(self._shape.slots):
                reported[slot] = min(reported.get(slot, 1 << 62), progress.get(slot, 0))
        found = [self._reached_at(slot, position) for slot, position in reported.items()]
        return {source: min(each[source] for each in found) for source in range(self._shape.intake)}

    def _progress(self, partition: int) -> dict[int, int]:
        for stored in reversed(self._log.partition(DELIVERIES, partition).records):
            if isinstance(stored.message, Progress):
                slots, positions = stored.message.slots.tolist(), stored.message.positions.tolist()
                return dict(zip(slots, positions, strict=True))
        return {}

    def _reached_at(self, slot: int, position: int) -> list[int]:
        """Returns the position of each source in a slot's log before a position."""
        offsets = self._offsets.get(slot, [])
        count = bisect_right(offsets, position, key=lambda offset: position_of(offset + 1))
        return self._reached[slot][count - 1] if count else [0] * self._shape.intake

    # --- the checks

    def check(self) -> None:
        """Compares all answers with the required ones."""
        for search in self.searches:
            if search.result is not None:
                self._check(search, search.result)

    def _check(self, search: Searched, result: Result) -> None:
        error = result.error
        if isinstance(error, Unavailable) and result.answer is None and not search.must_be_whole:
            return
        if error is not None and not isinstance(error, PartialResult | DeadlineExceeded):
            self._fail(f"{search.name} was refused: {error}")
        if (error is None) != (not result.missing):
            self._fail(f"{search.name} says {error}, and that {result.missing} is missing")
        if search.must_be_whole and error is not None:
            self._fail(f"{search.name} is not whole when all is well: {error}")
        satisfying = self._satisfying(search, result)
        self._doubt(search, result)
        search.possible = [k for k in satisfying if self._objects[k].home_ms <= search.end_ms]
        search.required = [k for k in satisfying if self._is_required(search, result, k)]
        match search.members["kind"]:
            case "range":
                self._check_range(search, result)
            case "knn":
                self._check_nearest(search, result)
            case "terms":
                self._check_terms(search, result)
            case _:
                self._check_ranked(search, result)

    def _satisfying(self, search: Searched, result: Result) -> list[EventKey]:
        """Returns all satisfying objects of any time; of a ranked query, all that affect scores."""
        keys = [
            key
            for key, one in self._objects.items()
            if one.places and one.arrival_ms >= result.from_ms
        ]
        condition = search.members
        if condition["kind"] == "ranked":
            # All objects within the radius, with or without `where`. Farther ones may be in slots
            # that were not asked, before or after the token.
            circle = {**condition["point"], "radius_m": condition["radius_m"]}
            condition = {"region": {"circle": circle}}
        table = Objects([self._objects[key].members for key in keys], "wall")
        return [keys[row] for row in table.satisfying(condition, 0, len(keys)).tolist()]

    def _doubt(self, search: Searched, result: Result) -> None:
        """Adds doubts: destinations are known only as far as the searched slots have read."""
        for slot, (member, log_end) in result.answered.items():
            taken = max(log_end, search.taken.get((member, slot), 0))
            for source, position in enumerate(self._reached_at(slot, position_of(taken))):
                search.processed[source] = min(position, search.processed[source])

    def _is_required(self, search: Searched, result: Result, key: EventKey) -> bool:
        one = self._objects[key]
        ((slot, (offset, _)),) = one.places.items()
        if slot in result.missing:
            return False
        answered = result.answered.get(slot)
        if answered is None and result.missing:
            return False
        token = search.request.token.get(one.source)
        if token is not None and one.position < position_of(token + 1):
            return True
        if answered is None:
            return one.position < search.processed[one.source]
        member, log_end = answered
        return offset < max(log_end, search.taken.get((member, slot), 0))

    def _why(self, search: Searched, key: EventKey) -> str:
        one, result = self._objects[key], search.result
        assert result is not None
        ((slot, place),) = one.places.items()
        return (
            f"{search.name} lacks {key}, at {place} of slot {slot} ({result.answered.get(slot)}), "
            f"intake {one.source} {one.position >> ROW_BITS}, token {search.request.token}, "
            f"missing {result.missing}"
        )

    def _check_range(self, search: Searched, result: Result) -> None:
        counts = Counter(result.keys)
        if doubled := [key for key, number in counts.items() if number > 1]:
            self._fail(f"{search.name} names {doubled[0]} twice")
        if strange := counts.keys() - set(search.possible):
            self._fail(f"{search.name} names {min(strange)} without reason")
        for key in search.required:
            if key not in counts:
                self._fail(self._why(search, key))

    def _check_nearest(self, search: Searched, result: Result) -> None:
        assert result.answer is not None
        keys = keys_of(result.answer.events)
        if strange := set(keys) - set(search.possible):
            self._fail(f"{search.name} names {min(strange)} without reason")
        # The best of the searched objects are the best of those named and those required.
        considered = sorted({*keys, *search.required})
        table = Objects([self._objects[key].members for key in considered], "wall")
        ranking = knn.nearest(table, search.members, np.arange(len(considered)))
        ids, values = result.answer.objects.ids.tolist(), result.answer.values.tolist()
        if wrong := ranking.difference(ids, values):
            self._fail(f"{search.name} {wrong}, missing {result.missing}")

    def _check_terms(self, search: Searched, result: Result) -> None:
        assert result.answer is not None
        terms = result.answer.terms
        data, bounds = terms.terms.tobytes(), terms.offsets.tolist()
        names = [data[a:b].decode() for a, b in pairwise(bounds)]
        reported = dict(zip(names, terms.counts.tolist(), strict=True))
        least, most = self._terms(search.required), self._terms(search.possible)
        for term, number in reported.items():
            if not least[term] <= number <= most[term]:
                self._fail(
                    f"{search.name} counts {number} of {term}, not {least[term]} to {most[term]}"
                )
        bound = min(reported.values()) if len(reported) == search.members["k"] else 0
        for term, number in least.items():
            if term not in reported and number > bound:
                self._fail(f"{search.name} leaves out {term}, of which there are {number}")

    def _terms(self, keys: list[EventKey]) -> Counter[str]:
        table = Objects([self._objects[key].members for key in keys], "wall")
        return Counter(table.vocabulary[term] for term in table.terms.tolist())

    def _check_ranked(self, search: Searched, result: Result) -> None:
        assert result.answer is not None
        if set(keys_of(result.answer.events)) - set(search.possible):
            self._fail(f"{search.name} names something without reason")
        if lacking := set(search.required) - set(search.possible):
            self._fail(self._why(search, min(lacking)))
        if len(search.required) < len(search.possible):
            # Scores depend on all searched objects, which are not known exactly.
            return
        keys = sorted(search.required, key=lambda key: (self._objects[key].arrival_ms, key))
        objects = [self._objects[key] for key in keys]
        table = Objects([{**one.members, "ts": one.arrival_ms} for one in objects])
        ranking = ranked.Scorer(table, search.members).ranking(result.now_ms, 0, len(table))
        ids, values = result.answer.objects.ids.tolist(), result.answer.values.tolist()
        if wrong := ranking.difference(ids, values):
            self._fail(f"{search.name} {wrong}")
