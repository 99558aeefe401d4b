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
    try:
        consumer.assign({(REGISTRY, partition): position})
        while consumer.positions()[REGISTRY, partition] < end:
            records = consumer.poll(500, READ_S)
            if not records and consumer.positions()[REGISTRY, partition] < end:
                # Without the error this would look like the end of the log.
                raise Unavailable("the registry cannot be read at the moment; try again")
            for entry in reader.entries(_at(records, wanted)):
                if isinstance(entry.message, Change) and entry.offset < end:
                    yield entry.offset, entry.message
    finally:
        consumer.close()


def _at(records: Sequence[Record], wanted: NDArray[np.int64] | None) -> Sequence[Record]:
    if wanted is None or not records:
        return records
    offsets = np.array([each.offset for each in records])
    rows = np.searchsorted(wanted, offsets)
    is_wanted = rows < len(wanted)
    is_wanted[is_wanted] = wanted[rows[is_wanted]] == offsets[is_wanted]
    return [records[row] for row in np.flatnonzero(is_wanted).tolist()]
