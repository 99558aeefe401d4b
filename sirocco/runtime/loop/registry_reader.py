"""Reads changes of queries from the registry, apart from the loop that follows it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.messages import REGISTRY, Change
from sirocco.runtime.loop.hops import HopReader
from sirocco.transport.log import Log, Record

# How long the log may return nothing of what it has before the read is given up.
READ_S = 2.0

# Records of one read: of all, as many as one piece of work takes; where few are wanted, more, since
# each read has its price.
RECORDS, RECORDS_SIFTED = 500, 5_000

# Records that are decoded together: a query of 2 KB may take 100 KB.
_DECODED = 100


def read_changes(
    log: Log, partition: int, begin: int, end: int, wanted: NDArray[np.int64] | None = None
) -> Generator[tuple[int, Change], None, None]:
    """Yields the changes in the log from `begin` to before `end`, with their offsets; blocks.

    Args:
        log: the log.
        partition: of the registry.
        begin, end: offsets.
        wanted: i8[n], ascending: only changes at these offsets are decoded; None: all.

    Raises:
        Unavailable: The log does not return what it has.
    """
    low, high = log.bounds(REGISTRY, partition)
    position = max(begin, low)
    end = min(end, high)
    if position >= end:
        return
    reader = HopReader(lambda *_: None)
    consumer = log.consumer(f"stored-{partition}")
    records_max = RECORDS if wanted is None else RECORDS_SIFTED
    try:
        consumer.assign({(REGISTRY, partition): position})
        while consumer.positions()[REGISTRY, partition] < end:
            records = consumer.poll(records_max, READ_S)
            if not records and consumer.positions()[REGISTRY, partition] < end:
                # Without the error this would look like the end of the log.
                raise Unavailable("the registry cannot be read at the moment; try again")
            due = _at(records, wanted)
            for first in range(0, len(due), _DECODED):
                for entry in reader.entries(due[first : first + _DECODED]):
                    if isinstance(entry.message, Change) and entry.offset < end:
                        yield entry.offset, entry.message
    finally:
        consumer.close()


def _at(records: Sequence[Record], wanted: NDArray[np.int64] | None) -> Sequence[Record]:
    if wanted is None or not records:
        return records
    first, last = records[0].offset, records[-1].offset
    begin, end = np.searchsorted(wanted, (first, last + 1)).tolist()
    due = wanted[begin:end].tolist()
    if last - first + 1 == len(records):
        # Nothing was compacted away: a record's place follows from its offset.
        return [records[offset - first] for offset in due]
    is_due = set(due)
    return [each for each in records if each.offset in is_due]
