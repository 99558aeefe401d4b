"""The answers of standing knn, terms and ranked queries, made from the reports of all slots.

The state here is a function of the records of a Kafka partition of `partials` up to an offset,
however they were polled. So a successor that rereads them from a checkpoint has the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_RANKED, KIND_TERMS, KIND_TRACKED
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Found
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals, Reached
from sirocco.protocol.contract.query_specs import (
    KIND_END,
    KIND_ENDED,
    Spec,
    query_number,
    read_spec,
    subscription_number,
)
from sirocco.protocol.merger.former_keys import FormerKeys
from sirocco.protocol.merger.knn_changes import Candidates
from sirocco.protocol.merger.knn_lists import KnnLists
from sirocco.protocol.merger.list_batch import ListBatch
from sirocco.protocol.merger.query_ends import QueryEnds
from sirocco.protocol.merger.query_versions import Versions
from sirocco.protocol.merger.state_pieces import InTurns, joined_in_turns
from sirocco.protocol.merger.step_merge import StepMerges

# Ends of queries that take as long as a step.
_ENDS_A_STEP = 16

_NEVER_FRESH = np.iinfo(np.int64).max
_PLAIN = Spec(kind=KIND_RANGE, key=0)


@dataclass(slots=True, kw_only=True)
class LiveLists:
    """The lists of one Kafka partition's subscribers.

    Attributes:
        slots: number of slots.
        is_live: whether there has ever been any state.
        is_completing: whether steps or ends are still to be sent at the time of all slots.
        changes: grows with every change of the state.
    """

    slots: int
    is_live: bool = False
    is_completing: bool = False
    changes: int = 0
    knn: KnnLists = field(default_factory=KnnLists)
    steps: StepMerges = field(default_factory=StepMerges)
    versions: Versions = field(default_factory=Versions)
    former: FormerKeys = field(default_factory=FormerKeys)
    ends: QueryEnds = field(default_factory=QueryEnds)
    # `steps.settled_total` when ends were looked at last.
    _settled: int = 0
    # The least time of all slots, and a slot that was at it.
    _time_ms: int = NO_TIME_MS
    _slowest: int = 0

    def __len__(self) -> int:
        """Returns the number of queries whose lists are known."""
        return len(self.knn) + len(self.steps)

    @property
    def has_output(self) -> bool:
        """Whether there may be something to send."""
        return self.knn.has_candidates or self.steps.has_output or self.ends.has_output

    @property
    def bytes_waiting(self) -> int:
        """About how many bytes wait to be sent."""
        return self.knn.bytes_waiting + self.steps.bytes_waiting

    def take(
        self,
        found: Found,
        is_fresh: NDArray[np.bool_],
        fresh_from: NDArray[np.int64],
        objects_from: NDArray[np.int64],
        reached: Reached,
        before_ms: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Takes the new part of a record.

        Args:
            found: the record.
            is_fresh: for each of its matches, whether it is new.
            fresh_from: i8[k], position from which rows of each interval are new.
            objects_from: i8[k], the begin of the first object that is not complete before it.
            reached: how far the slots have come, with this record.
            before_ms: i8[k], the time of each interval's slot before it.

        Returns:
            Rows of the new matches that are to be sent as they are.
        """
        specs = [read_spec(text) if text else _PLAIN for text in found.queries.specs or ()]
        specs = specs or [_PLAIN] * len(found.queries)
        if self.former:
            specs = [self.former.known(spec) for spec in specs]
        kinds = np.array([spec.kind for spec in specs], np.uint8)
        slots = found.intervals.sources.tolist()
        now_ms = max(reached.times_ms.values(), default=NO_TIME_MS)
        fresh = np.flatnonzero(is_fresh)
        fresh_kinds = kinds[found.matches.queries[fresh]]
        are_candidates = kinds[found.matches.queries] == KIND_KNN
        if are_candidates.any():
            # Another owner of the slot may know another radius, and so send other candidates in
            # other parts. All of them count until the object is complete, however often they come.
            is_open = found.positions >= objects_from[found.interval_rows]
            are_candidates &= is_fresh | is_open[found.matches.objects]
            self._take_candidates(found, specs, np.flatnonzero(are_candidates))
        if found.steps is not None:
            is_new = found.steps.positions >= fresh_from[found.steps.interval_rows]
            # A new owner of a slot may need fewer records for a ranked step. Candidates that its
            # predecessor had not yet sent may then be at positions where it had sent others. They
            # count, however often they arrive, until the slot's time shows that all were sent. For
            # a step that looks back that time shows nothing.
            is_ranked = kinds[found.steps.queries] == KIND_RANKED
            is_unreported = found.steps.at_ms >= before_ms[found.steps.interval_rows]
            if self.steps.is_awaiting:
                awaited = np.array([self.steps.awaits(spec.key) for spec in specs], np.bool_)
                is_unreported |= awaited[found.steps.queries]
            is_new |= is_ranked & is_unreported
            self._take_steps(found, specs, np.flatnonzero(is_new), now_ms)
        if len(slots) == 1 and fresh_from[0] != _NEVER_FRESH:
            for row in np.flatnonzero(kinds == KIND_ENDED).tolist():
                self._end(specs[row], _subscription(found, specs[row].ended, row), slots[0])
            for row in np.flatnonzero(kinds == KIND_END).tolist():
                self.ends.take_report(specs[row], *_named(found, row), slots[0], self.slots)
                self.is_live = True
                self.changes += 1
        to_send: NDArray[np.int64] = fresh[
            (fresh_kinds == KIND_RANGE) | (fresh_kinds == KIND_TRACKED)
        ]
        return to_send

    def advance(self, reached: Reached, intervals: Intervals) -> None:
        """Takes how far the slots have come; called after every record, and `complete` after it.

        Args:
            reached: how far the slots have come, with this record.
            intervals: those of the record.
        """
        if not self.steps.has_pending and not self.ends.is_waiting:
            return
        if self.steps.is_awaiting:
            sources, times_ms = intervals.sources.tolist(), intervals.times_ms.tolist()
            for slot, time_ms in zip(sources, times_ms, strict=True):
                # Other times belong to intervals that are repeated or too early.
                if reached.times_ms.get(slot) == time_ms:
                    self.steps.pause(slot)
        if reached.times_ms.get(self._slowest, NO_TIME_MS) > self._time_ms:
            times = [reached.times_ms.get(slot, NO_TIME_MS) for slot in range(self.slots)]
            self._time_ms = min(times)
            self._slowest = times.index(self._time_ms)
        self.is_completing = True

    def complete(self, weight_max: int) -> int:
        """Completes steps as far as the time of all slots allows, or so many of them.

        Nothing else may be taken, and no checkpoint, while `is_completing`.

        Args:
            weight_max: see `weight_of`.

        Returns:
            The weight of what was done.
        """
        weight = self.steps.complete(self._time_ms, weight_max)
        if weight < weight_max:
            # After the steps up to then.
            ends_max = _ENDS_A_STEP * (weight_max - weight)
            looks_again = self.steps.settled_total != self._settled
            self._settled = self.steps.settled_total
            looks = self.ends.complete(
                self._time_ms, self._awaits_steps, ends_max, looks_again=looks_again
            )
            weight += -(-looks // _ENDS_A_STEP)
        self.is_completing = weight >= weight_max
        return weight

    def _awaits_steps(self, query: str, subscriber: str, revision: int) -> bool:
        return self.steps.awaits_query(
            subscription_number(query_number(query), subscriber), revision
        )

    def forget(self, reached: Reached) -> None:
        """Forgets versions of which nothing more is reported; called from time to time."""
        if not self.versions.has_ends:
            return
        slots = range(self.slots)
        positions = np.array([reached.positions.get(slot, 0) for slot in slots], np.int64)
        time_ms = min(reached.times_ms.get(slot, NO_TIME_MS) for slot in slots)
        expired = self.versions.forget(positions, time_ms)
        for key in expired:
            self.steps.drop(key)
            self.former.forget(key)
        self.changes += bool(expired)

    def flush(self, *, sends: bool = True) -> list[ListBatch]:
        """Updates the lists; returns what is to be sent since the last call."""
        to_send = self.knn.flush(sends=sends) + self.steps.flush() + self.ends.flush()
        return to_send if sends else []

    # --- records

    def _take_candidates(
        self,
        found: Found,
        specs: list[Spec],
        rows: NDArray[np.int64],
    ) -> None:
        matches = found.matches
        if not len(rows) or matches.distances_m is None:
            # A candidate without a distance cannot be ranked.
            return
        if self.versions.has_ends:
            has_expired = np.array([self.versions.has_ended(spec.key) for spec in specs], np.bool_)
            rows = rows[~has_expired[matches.queries[rows]]]
            if not len(rows):
                return
        present, places = np.unique(matches.queries[rows], return_inverse=True)
        live_specs = [specs[row] for row in present.tolist()]
        keys = np.array([spec.key for spec in live_specs], np.uint64)[places]
        ks = np.array([spec.k for spec in live_specs], np.int32)[places]
        queries = [_subscription(found, specs[row], row) for row in present.tolist()]
        self.knn.add(
            Candidates(
                found,
                self.knn.rows_of(
                    keys,
                    ks,
                    np.array(queries, np.uint64)[places],
                    np.array([spec.revision for spec in live_specs], np.int64)[places],
                ),
                matches.objects[rows],
                matches.queries[rows],
                matches.distances_m[rows],
            )
        )
        self.is_live = True
        self.changes += 1

    def _take_steps(
        self,
        found: Found,
        specs: list[Spec],
        rows: NDArray[np.int64],
        now_ms: int,
    ) -> None:
        steps = found.steps
        assert steps is not None
        for row in rows.tolist():
            query = int(steps.queries[row])
            spec = specs[query]
            if spec.kind not in (KIND_TERMS, KIND_RANKED):
                continue
            self.steps.take(found, row, spec, now_ms, _subscription(found, spec, query))
            self.is_live = True
            self.changes += 1

    def _end(self, end: Spec, query: int, slot: int) -> None:
        assert end.ended is not None
        key = end.ended.key
        if self.versions.end(key, end.ended_by, end.ended_ms):
            # Applies to whichever version is the newest here: a slot may have skipped some.
            self.knn.end(query, end.ended_by[1], is_continued=end.is_continued)
            if not end.is_continued:
                self.knn.drop(np.array([key], np.uint64))
                if query and end.ended.kind == KIND_RANKED:
                    self.steps.note_dropped(end.ended, query, end.ended_by[1])
            for early in self.versions.forget_early():
                self.steps.drop(early)
                self.former.forget(early)
        elif end.is_continued:
            self.steps.note_continued(key, query, end.ended_by[1])
        if end.ended.kind in (KIND_TERMS, KIND_RANKED):
            self.steps.end(end.ended, query, slot, end.ended_ms)
        self.is_live = True
        self.changes += 1

    # --- as a checkpoint

    def state_in_turns(self, rows_max: int, bytes_max: int) -> InTurns:
        """Makes the columns of the state; everything to be sent must have been fetched.

        Args:
            rows_max: of queries, steps and the like, which are made at a time.
            bytes_max: of columns that are copied at a time.

        Yields:
            The weight of what was done; nothing may change the state in between.
        """
        state: dict[str, NDArray[Any]] = {}
        for pieces in (
            self.knn.pieces(rows_max),
            self.steps.pieces(rows_max),
            self.versions.pieces(rows_max),
            self.former.pieces(rows_max),
            self.ends.pieces(rows_max),
        ):
            state |= yield from joined_in_turns(pieces, bytes_max)
        return state

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, into an empty object."""
        self.is_live = True
        self.knn.restore(state)
        self.steps.restore(state)
        self.versions.restore(state)
        self.former.restore(state)
        self.ends.restore(state)


def _subscription(found: Found, spec: Spec | None, row: int) -> int:
    """Returns the number of a row's query, for as long as its subscriber has it."""
    names = found.queries
    query = 0 if spec is None else spec.query
    return subscription_number(query, names.subscribers[int(names.subscriber_rows[row])])


def _named(found: Found, row: int) -> tuple[str, str]:
    """Returns the id and subscriber of the query of a row."""
    names = found.queries
    begin, end = names.id_offsets[row : row + 2].tolist()
    query = names.ids[begin:end].tobytes().decode()
    return query, names.subscribers[int(names.subscriber_rows[row])]
