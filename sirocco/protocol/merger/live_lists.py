"""The answers of standing knn, terms and ranked queries, made of what all slots report.

What is known here is a function of the records of a Kafka partition of `partials` up to an offset,
however they were polled: so a successor that reads them again from a checkpoint knows the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_RANKED, KIND_TERMS, KIND_TRACKED
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Found
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals, Reached
from sirocco.protocol.contract.query_specs import (
    KIND_GONE,
    KIND_OVER,
    Spec,
    query_number,
    read_spec,
    told_to,
)
from sirocco.protocol.merger.former_keys import FormerKeys
from sirocco.protocol.merger.knn_changes import Candidates
from sirocco.protocol.merger.knn_lists import KnnLists
from sirocco.protocol.merger.list_batch import ToldLists
from sirocco.protocol.merger.query_ends import QueryEnds
from sirocco.protocol.merger.query_versions import Versions
from sirocco.protocol.merger.step_merge import StepMerges

_NEVER_FRESH = np.iinfo(np.int64).max
_PLAIN = Spec(KIND_RANGE, 0)


@dataclass(slots=True)
class LiveLists:
    """The lists of one Kafka partition's subscribers.

    Attributes:
        slots: how many there are.
        is_live: whether there ever was anything to know.
        changes: grows with whatever changes what is known.
    """

    slots: int
    is_live: bool = False
    changes: int = 0
    knn: KnnLists = field(default_factory=KnnLists)
    steps: StepMerges = field(default_factory=StepMerges)
    versions: Versions = field(default_factory=Versions)
    former: FormerKeys = field(default_factory=FormerKeys)
    ends: QueryEnds = field(default_factory=QueryEnds)
    # The least time of all slots, and a slot that had no later one.
    _time_ms: int = NO_TIME_MS
    _slowest: int = 0

    def __len__(self) -> int:
        """How many queries' lists are known."""
        return len(self.knn) + len(self.steps)

    @property
    def has_news(self) -> bool:
        """Whether there may be something to tell."""
        return self.knn.has_candidates or self.steps.has_news or self.ends.has_news

    def take(
        self,
        found: Found,
        is_fresh: NDArray[np.bool_],
        fresh_from: NDArray[np.int64],
        reached: Reached,
        before_ms: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Takes what is new of a record.

        Args:
            found: the record.
            is_fresh: of each of its matches.
            fresh_from: i8[k], position from which rows of each interval are new.
            reached: how far the slots have come with it.
            before_ms: i8[k], the time of each interval's slot before it.

        Returns:
            Rows of the new matches that are to be told as they are.
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
        self._take_candidates(found, specs, fresh[fresh_kinds == KIND_KNN])
        if found.steps is not None:
            is_new = found.steps.positions >= fresh_from[found.steps.interval_rows]
            # Of a ranked step, who takes a slot over may need fewer records: what its predecessor
            # did not come to say then stands where others of its candidates did. It counts, however
            # often it comes, until the slot's time says that all was told. Of a step that looks
            # back that time says nothing.
            is_ranked = kinds[found.steps.queries] == KIND_RANKED
            is_untold = found.steps.at_ms >= before_ms[found.steps.interval_rows]
            if self.steps.is_awaiting:
                awaited = np.array([self.steps.awaits(spec.key) for spec in specs], np.bool_)
                is_untold |= awaited[found.steps.queries]
            is_new |= is_ranked & is_untold
            self._take_steps(found, specs, np.flatnonzero(is_new), now_ms)
        if len(slots) == 1 and fresh_from[0] != _NEVER_FRESH:
            for row in np.flatnonzero(kinds == KIND_GONE).tolist():
                self._end(specs[row], _told_to(found, specs[row].ended, row), slots[0])
            for row in np.flatnonzero(kinds == KIND_OVER).tolist():
                self.ends.hear(specs[row], *_named(found, row), slots[0], self.slots)
                self.is_live = True
                self.changes += 1
        told: NDArray[np.int64] = fresh[(fresh_kinds == KIND_RANGE) | (fresh_kinds == KIND_TRACKED)]
        return told

    def advance(self, reached: Reached, intervals: Intervals) -> None:
        """Completes steps, as far as the time of all slots has come; after every record.

        Args:
            reached: how far the slots have come with it.
            intervals: those of the record.
        """
        if not self.steps.has_pending and not self.ends.is_waiting:
            return
        if self.steps.is_awaiting:
            sources, times_ms = intervals.sources.tolist(), intervals.times_ms.tolist()
            for slot, time_ms in zip(sources, times_ms, strict=True):
                # Others are of what is repeated, or of what comes too early.
                if reached.times_ms.get(slot) == time_ms:
                    self.steps.pause(slot)
        if reached.times_ms.get(self._slowest, NO_TIME_MS) > self._time_ms:
            times = [reached.times_ms.get(slot, NO_TIME_MS) for slot in range(self.slots)]
            self._time_ms = min(times)
            self._slowest = times.index(self._time_ms)
        self.steps.complete(self._time_ms)
        # Behind the steps until then.
        self.ends.complete(self._time_ms, self._awaits_steps)

    def _awaits_steps(self, query: str, subscriber: str, revision: int) -> bool:
        return self.steps.awaits_query(told_to(query_number(query), subscriber), revision)

    def forget(self, reached: Reached) -> None:
        """Forgets versions of which nothing more comes; now and then."""
        if not self.versions.has_ends:
            return
        slots = range(self.slots)
        positions = np.array([reached.positions.get(slot, 0) for slot in slots], np.int64)
        time_ms = min(reached.times_ms.get(slot, NO_TIME_MS) for slot in slots)
        over = self.versions.forget(positions, time_ms)
        for key in over:
            self.steps.drop(key)
            self.former.forget(key)
        self.changes += bool(over)

    def flush(self, *, tell: bool = True) -> list[ToldLists]:
        """Brings the lists up to date; returns what there is to tell since it was asked last."""
        told = self.knn.flush(tell=tell) + self.steps.flush() + self.ends.flush()
        return told if tell else []

    # --- records

    def _take_candidates(
        self,
        found: Found,
        specs: list[Spec],
        rows: NDArray[np.int64],
    ) -> None:
        matches = found.matches
        if not len(rows) or matches.distances_m is None:
            # Nothing can be said of candidates without a distance.
            return
        if self.versions.has_ends:
            is_over = np.array([self.versions.has_ended(spec.key) for spec in specs], np.bool_)
            rows = rows[~is_over[matches.queries[rows]]]
            if not len(rows):
                return
        present, places = np.unique(matches.queries[rows], return_inverse=True)
        asked = [specs[row] for row in present.tolist()]
        keys = np.array([spec.key for spec in asked], np.uint64)[places]
        ks = np.array([spec.k for spec in asked], np.int32)[places]
        queries = [_told_to(found, specs[row], row) for row in present.tolist()]
        self.knn.add(
            Candidates(
                found,
                self.knn.rows_of(
                    keys,
                    ks,
                    np.array(queries, np.uint64)[places],
                    np.array([spec.revision for spec in asked], np.int64)[places],
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
            self.steps.take(found, row, spec, now_ms, _told_to(found, spec, query))
            self.is_live = True
            self.changes += 1

    def _end(self, gone: Spec, query: int, slot: int) -> None:
        assert gone.ended is not None
        key = gone.ended.key
        if self.versions.end(key, gone.ended_by, gone.ended_ms):
            # Whichever of its versions is the newest here: a slot may have passed over some.
            self.knn.end(query, gone.ended_by[1], goes_on=gone.goes_on)
            if not gone.goes_on:
                self.knn.drop(np.array([key], np.uint64))
                if query and gone.ended.kind == KIND_RANKED:
                    self.steps.leave(gone.ended, query, gone.ended_by[1])
            for early in self.versions.forget_early():
                self.steps.drop(early)
                self.former.forget(early)
        elif gone.goes_on:
            self.steps.stay(key, query, gone.ended_by[1])
        if gone.ended.kind in (KIND_TERMS, KIND_RANKED):
            self.steps.end(key, slot, gone.ended_ms)
        self.is_live = True
        self.changes += 1

    # --- as a checkpoint

    def state(self) -> State:
        """What is known, as columns; only when everything that there was to tell was fetched."""
        return {
            **self.knn.state(),
            **self.steps.state(),
            **self.versions.state(),
            **self.former.state(),
            **self.ends.state(),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, where nothing was known before."""
        self.is_live = True
        self.knn.restore(state)
        self.steps.restore(state)
        self.versions.restore(state)
        self.former.restore(state)
        self.ends.restore(state)


def _told_to(found: Found, spec: Spec | None, row: int) -> int:
    """By what the query of a row is known, as long as its subscriber has it."""
    names = found.queries
    query = 0 if spec is None else spec.query
    return told_to(query, names.subscribers[int(names.subscriber_rows[row])])


def _named(found: Found, row: int) -> tuple[str, str]:
    """Id and subscriber of the query of a row."""
    names = found.queries
    begin, end = names.id_offsets[row : row + 2].tolist()
    query = names.ids[begin:end].tobytes().decode()
    return query, names.subscribers[int(names.subscriber_rows[row])]
