"""Positions in a source, the intervals that records cover, and who accepts them (rule R2).

A position is `offset * 2^21 + row`: the Kafka offset of a record in its source and a row within it,
so positions of one source are totally ordered and an interval may end inside a record. A record on
`slots` or `partials` says which interval [begin, end) of each source it covers; the consumer
accepts it if `begin <= its position < end`, trims the rows that it has, and stands at `end`:

- `end <= position`: a repeat, by a restarted predecessor or a zombie; dropped.
- `begin > position`: something in between is missing; dropped, since whoever lost it says it again
  from its checkpoint. Accepting would lose it for good.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# A position has 21 bits for the row, and 2^42 records a Kafka partition remain. On `slots` half of
# them is for objects, and the last 10 bits there number the parts of one object's matches: one that
# meets a million queries makes more than one record, one that meets twenty million still less than
# a thousand. The upper half is the place behind them, where what the record's time
# completes is said: after an hour without time that may well be more than a thousand records.
ROW_BITS = 21
PART_BITS = 10
SLOT_ROWS_MAX = 1 << (ROW_BITS - 1 - PART_BITS)

# The greatest offset that has positions.
OFFSET_MAX = (1 << 63 - ROW_BITS) - 1

# A source that never said its time.
NO_TIME_MS = -(1 << 63)


def position_of(offset: int, row: int = 0) -> int:
    """The position of a row of the record at a Kafka offset."""
    return offset << ROW_BITS | row


def behind(offset: int) -> int:
    """The first position behind the objects of the record at a Kafka offset of `slots`."""
    return offset << ROW_BITS | SLOT_ROWS_MAX << PART_BITS


def offset_of(position: int) -> int:
    """The Kafka offset of the record that a position lies in."""
    return position >> ROW_BITS


@dataclass(frozen=True, slots=True)
class Intervals:
    """What a record covers of its sources; k rows.

    Attributes:
        sources: u4[k], number of the source.
        begins: i8[k], first position covered.
        ends: i8[k], position behind the last one covered.
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
    """How far each source has been taken; the state behind the rule of acceptance.

    Attributes:
        positions: source → position up to which everything was taken.
        times_ms: source → its time there.
        gaps: intervals that were dropped since something before them is missing.
        repeats: intervals that were dropped since they had been taken.
    """

    positions: dict[int, int] = field(default_factory=dict)
    times_ms: dict[int, int] = field(default_factory=dict)
    gaps: int = 0
    repeats: int = 0

    def accept(self, intervals: Intervals) -> NDArray[np.int64]:
        """Takes what is new of the intervals.

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
        """The least time over all sources 0 … sources - 1: nothing older arrives any more."""
        return min(self.times_ms.get(source, NO_TIME_MS) for source in range(sources))


def place_of(pinned: int, sent: int) -> int:
    """Where the next record for a target stands that is pinned to a position.

    Raises:
        OverflowError: the places of that record of the slot's log are used up; what followed would
            stand where the next one's objects do, and be lost as a repeat.
    """
    place = max(pinned, sent)
    if offset_of(place) != offset_of(pinned):
        raise OverflowError(f"too much is said of the record at offset {offset_of(pinned)}")
    return place
