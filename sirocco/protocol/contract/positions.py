"""Positions in a source, the intervals that records cover, and who accepts them (rule R2).

A position is `offset * 2^21 + row`: the Kafka offset of a record in its source and a row within it,
so positions of one source are totally ordered and an interval may end inside a record. A record on
`slots` or `partials` states which interval [begin, end) of each source it covers. The consumer
accepts it if `begin <= its position < end`, trims the rows that it has, and moves to `end`:

- `end <= position`: a repeat, by a restarted predecessor or a zombie; dropped.
- `begin > position`: something in between is missing; dropped. The process that lost it sends it
  again from its checkpoint. Accepting would lose it for good.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# A position has 21 bits for the row, which leaves 2^42 records a Kafka partition. On `slots` half
# of the rows are for objects; the last 10 bits number the parts of one object's matches. An object
# that meets a million queries makes more than one record, one that meets twenty million still fewer
# than a thousand. The upper half comes after the objects and holds what the record's time
# completes: if time did not advance for an hour, that may well be more than a thousand records.
ROW_BITS = 21
PART_BITS = 10
SLOT_ROWS_MAX = 1 << (ROW_BITS - 1 - PART_BITS)

# The greatest offset that has positions.
OFFSET_MAX = (1 << 63 - ROW_BITS) - 1

# The time of a source that has never reported one.
NO_TIME_MS = -(1 << 63)


def position_of(offset: int, row: int = 0) -> int:
    """Returns the position of a row of the record at a Kafka offset."""
    return offset << ROW_BITS | row


def position_after(offset: int) -> int:
    """Returns the first position after the objects of the record at a Kafka offset of `slots`."""
    return offset << ROW_BITS | SLOT_ROWS_MAX << PART_BITS


def offset_of(position: int) -> int:
    """Returns the Kafka offset of the record that contains a position."""
    return position >> ROW_BITS


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals of its sources that a record covers; k rows.

    Attributes:
        sources: u4[k], number of the source.
        begins: i8[k], first position covered.
        ends: i8[k], position after the last one covered.
        times_ms: i8[k], the source's time at `ends`, epoch ms; no later arrival is older.
    """

    sources: NDArray[np.uint32]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    times_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int]]) -> Intervals:
        """Makes a table from (source, begin, end, time_ms) rows."""
        table = np.array(rows, np.int64).reshape(-1, 4)
        return cls(
            table[:, 0].astype(np.uint32),
            np.ascontiguousarray(table[:, 1]),
            np.ascontiguousarray(table[:, 2]),
            np.ascontiguousarray(table[:, 3]),
        )


NO_INTERVALS = Intervals.of([])


@dataclass(slots=True)
class Reached:
    """How far each source has been taken: the state of the acceptance rule.

    Attributes:
        positions: source → position up to which everything was taken.
        times_ms: source → its time there.
        gaps: number of intervals dropped because something before them is missing.
        repeats: number of intervals dropped because they had been taken before.
    """

    positions: dict[int, int] = field(default_factory=dict)
    times_ms: dict[int, int] = field(default_factory=dict)
    gaps: int = 0
    repeats: int = 0

    def accept(self, intervals: Intervals) -> NDArray[np.int64]:
        """Takes the new part of each interval.

        Returns:
            i8[k], for each interval the position from which its rows are new; rows before it
            are repeats. For a dropped interval it is beyond all its rows.
        """
        fresh_from = np.empty(len(intervals), np.int64)
        rows = zip(
            intervals.sources.tolist(),
            intervals.begins.tolist(),
            intervals.ends.tolist(),
            intervals.times_ms.tolist(),
            strict=True,
        )
        for i, (source, begin, end, time_ms) in enumerate(rows):
            position = self.positions.get(source, 0)
            if begin > position:
                self.gaps += 1
                fresh_from[i] = np.iinfo(np.int64).max
                continue
            # An equal end carries no rows, but may carry a later time: an idle source's mark.
            self.times_ms[source] = max(time_ms, self.times_ms.get(source, NO_TIME_MS))
            if end <= position:
                self.repeats += end < position
                fresh_from[i] = np.iinfo(np.int64).max
                continue
            fresh_from[i] = position
            self.positions[source] = end
        return fresh_from

    def time_ms(self, sources: int) -> int:
        """Returns the least time over sources 0 … sources - 1: nothing older arrives any more."""
        return min(self.times_ms.get(source, NO_TIME_MS) for source in range(sources))


def object_begin(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the first position of the object that each position belongs to."""
    return np.asarray(positions >> PART_BITS << PART_BITS)


def place_of(pinned: int, sent: int) -> int:
    """Returns the position of the next record for a target, within the record of `pinned`.

    Raises:
        OverflowError: that record of the slot's log has no positions left; a further one would get
            those of the next record's objects, and be lost as a repeat.
    """
    place = max(pinned, sent)
    if offset_of(place) != offset_of(pinned):
        raise OverflowError(f"too many reports for the record at offset {offset_of(pinned)}")
    return place
