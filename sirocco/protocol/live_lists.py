"""The answers of standing knn, terms and ranked queries, made of what all slots report.

What is known here is a function of the records of a Kafka partition of `partials` up to an offset,
however they were polled: so a successor that reads them again from a checkpoint knows the same.

A version of a query ends when every slot in which it stood has said so (`specs.END_MS`). What a
slot reports behind its own word belongs to a later version, which may ask the very same: such
versions go by numbered keys, and move up when the one before them is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.kinds import KIND_KNN, KIND_RANGE, KIND_RANKED, KIND_TERMS, KIND_TRACKED
from sirocco.protocol.effects import State
from sirocco.protocol.knn_changes import Candidates
from sirocco.protocol.knn_lists import KnnLists
from sirocco.protocol.messages import Found, QueryNames
from sirocco.protocol.positions import NO_TIME_MS, Reached
from sirocco.protocol.specs import END_MS, KIND_GONE, Spec, read_spec
from sirocco.protocol.step_merges import StepMerges
from sirocco.protocol.told_lists import ToldLists

_NEVER_FRESH = np.iinfo(np.int64).max
_PLAIN = Spec(KIND_RANGE, 0)


@dataclass(frozen=True, slots=True)
class _Record:
    """A record that names queries of other kinds than range.

    Attributes:
        found: the record.
        specs: of each of its queries.
        kinds: u1[q]
        slots: i8[k], slot of each interval.
        matches: rows of its matches that are new candidates of knn queries.
        steps: rows of its steps that are new.
    """

    found: Found
    specs: list[Spec]
    kinds: NDArray[np.uint8]
    slots: list[int]
    matches: NDArray[np.int64]
    steps: NDArray[np.int64]


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
    # Key of a version → slot → how often the slot has said that it ended, while some have not.
    _ends: dict[int, dict[int, int]] = field(default_factory=dict)
    # The least time of all slots, and a slot that had no later one.
    _time_ms: int = NO_TIME_MS
    _slowest: int = 0

    @property
    def has_news(self) -> bool:
        """Whether there may be something to tell."""
        return self.knn.has_candidates or self.steps.has_news

    def take(
        self, found: Found, is_fresh: NDArray[np.bool_], fresh_from: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Takes what is new of a record.

        Args:
            found: the record.
            is_fresh: of each of its matches.
            fresh_from: i8[k], position from which rows of each interval are new.

        Returns:
            Rows of the new matches that are to be told as they are.
        """
        specs = [read_spec(text) if text else _PLAIN for text in found.queries.specs or ()]
        specs = specs or [_PLAIN] * len(found.queries)
        kinds = np.array([spec.kind for spec in specs], np.uint8)
        fresh = np.flatnonzero(is_fresh)
        fresh_kinds = kinds[found.matches.queries[fresh]]
        candidates = fresh[fresh_kinds == KIND_KNN]
        if found.matches.distances_m is None:
            # Nothing can be said of candidates without a distance.
            candidates = candidates[:0]
        steps = np.empty(0, np.int64)
        if found.steps is not None:
            is_new = found.steps.positions >= fresh_from[found.steps.interval_rows]
            steps = np.flatnonzero(is_new)
        slots = found.intervals.sources.tolist()
        record = _Record(found, specs, kinds, slots, candidates, steps)
        for matches, rows, end in _stretches(record):
            self._take_candidates(record, matches)
            self._take_steps(record, rows)
            if end is not None:
                self._end(record, end)
        if (kinds == KIND_GONE).any() and (fresh_from != _NEVER_FRESH).any():
            self._gone(found.queries, kinds == KIND_GONE)
        told: NDArray[np.int64] = fresh[(fresh_kinds == KIND_RANGE) | (fresh_kinds == KIND_TRACKED)]
        return told

    def advance(self, reached: Reached) -> None:
        """Completes steps, as far as the time of all slots has come; after every record."""
        if not self.steps.has_pending:
            return
        if reached.times_ms.get(self._slowest, NO_TIME_MS) > self._time_ms:
            times = [reached.times_ms.get(slot, NO_TIME_MS) for slot in range(self.slots)]
            self._time_ms = min(times)
            self._slowest = times.index(self._time_ms)
        self.steps.complete(self._time_ms)

    def flush(self, *, tell: bool = True) -> list[ToldLists]:
        """Brings the lists up to date; returns what there is to tell since it was asked last."""
        told = self.knn.flush(tell=tell) + self.steps.flush()
        return told if tell else []

    # --- records

    def _take_candidates(self, record: _Record, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        found, matches = record.found, record.found.matches
        assert matches.distances_m is not None
        present, places = np.unique(matches.queries[rows], return_inverse=True)
        specs = [record.specs[row] for row in present.tolist()]
        keys = np.array([spec.key for spec in specs], np.uint64)[places]
        if self._ends:
            slots = found.interval_rows[matches.objects[rows]].tolist()
            for i, key in enumerate(keys.tolist()):
                if key in self._ends:
                    keys[i] = self._key(key, record.slots[slots[i]])
        handles = found.queries.handles[present][places]
        ks = np.array([spec.k for spec in specs], np.int32)[places]
        self.knn.add(
            Candidates(
                found,
                self.knn.rows_of(keys, handles, ks),
                matches.objects[rows],
                matches.queries[rows],
                matches.distances_m[rows],
            )
        )
        self.is_live = True
        self.changes += 1

    def _take_steps(self, record: _Record, rows: NDArray[np.int64]) -> None:
        steps = record.found.steps
        if steps is None or not len(rows):
            return
        for row in rows.tolist():
            spec = record.specs[int(steps.queries[row])]
            if spec.kind not in (KIND_TERMS, KIND_RANKED):
                continue
            slot = record.slots[int(steps.interval_rows[row])]
            self.steps.take(record.found, row, spec, self._key(spec.key, slot))
            self.is_live = True
            self.changes += 1

    # --- versions that end

    def _key(self, key: int, slot: int) -> int:
        """The key of the version that a slot speaks of."""
        ends = self._ends.get(key)
        return key if ends is None else _numbered(key, ends.get(slot, 0))

    def _end(self, record: _Record, row: int) -> None:
        steps = record.found.steps
        assert steps is not None
        key = record.specs[int(steps.queries[row])].key
        slot = record.slots[int(steps.interval_rows[row])]
        self.changes += 1
        ends = self._ends.setdefault(key, {})
        ends[slot] = ends.get(slot, 0) + 1
        while ends and len(ends) >= int(steps.totals[row, 0]):
            self._forget(key, max(ends.values()))
            for each in list(ends):
                ends[each] -= 1
                if not ends[each]:
                    del ends[each]
        if not ends:
            del self._ends[key]
        self.is_live |= bool(ends)

    def _forget(self, key: int, versions: int) -> None:
        """Forgets the oldest version; so many later ones move up."""
        self.knn.drop(np.array([key], np.uint64))
        self.steps.drop(key)
        for number in range(versions):
            old, new = _numbered(key, number + 1), _numbered(key, number)
            self.knn.move(old, new)
            self.steps.move(old, new)

    def _gone(self, names: QueryNames, is_gone: NDArray[np.bool_]) -> None:
        self.knn.drop_handles(names.handles[is_gone])
        self.steps.drop_handles(names.handles[is_gone])
        self.changes += 1

    # --- as a checkpoint

    def state(self) -> State:
        """What is known, as columns; only when everything that there was to tell was fetched."""
        ends = [
            (key, slot, count)
            for key, of_slots in self._ends.items()
            for slot, count in of_slots.items()
        ]
        return {
            **self.knn.state(),
            **self.steps.state(),
            "ends.keys": np.array([key for key, _, _ in ends], np.uint64),
            "ends.slots": np.array([slot for _, slot, _ in ends], np.int64),
            "ends.counts": np.array([count for _, _, count in ends], np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, where nothing was known before."""
        self.is_live = True
        self.knn.restore(state)
        self.steps.restore(state)
        columns = (state["ends.keys"], state["ends.slots"], state["ends.counts"])
        for key, slot, count in zip(*(column.tolist() for column in columns), strict=True):
            self._ends.setdefault(key, {})[slot] = count


def _numbered(key: int, number: int) -> int:
    """The key of a version behind so many that are not gone everywhere."""
    return (key + number * 0x9E3779B97F4A7C15) % (1 << 64)


def _stretches(
    record: _Record,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int | None]]:
    """Cuts a record at the ends of versions: rows of matches and steps, and the end behind them.

    What a slot reports before it says that a version has ended still belongs to that version.
    """
    found, matches, rows = record.found, record.matches, record.steps
    steps = found.steps
    is_end = np.zeros(len(rows), np.bool_)
    if steps is not None:
        is_end = steps.at_ms[rows] == END_MS
    if steps is None or not is_end.any():
        yield matches, rows, None
        return
    ends, rows = rows[is_end], rows[~is_end]
    objects = found.matches.objects[matches]
    match_slots, match_positions = found.interval_rows[objects], found.positions[objects]
    step_slots, step_positions = steps.interval_rows[rows], steps.positions[rows]
    left_matches, left_steps = np.ones(len(matches), np.bool_), np.ones(len(rows), np.bool_)
    for end in ends[np.argsort(steps.positions[ends], kind="stable")].tolist():
        slot, position = steps.interval_rows[end], steps.positions[end]
        now_matches = left_matches & (match_slots == slot) & (match_positions < position)
        now_steps = left_steps & (step_slots == slot) & (step_positions < position)
        left_matches &= ~now_matches
        left_steps &= ~now_steps
        yield matches[now_matches], rows[now_steps], end
    yield matches[left_matches], rows[left_steps], None
