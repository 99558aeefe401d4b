"""Reads changes of queries from the registry, apart from the loop that follows it."""

from __future__ import annotations

from collections.abc import Generator

from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.messages import REGISTRY, Change
from sirocco.runtime.loop.hops import HopReader
from sirocco.transport.log import Log

# How long the log may return nothing of what it has before the read is given up.
READ_S = 2.0


def read_changes(
    log: Log, partition: int, begin: int, end: int
) -> Generator[tuple[int, Change], None, None]:
    """Yields the changes in the log from `begin` to before `end`, with their offsets; blocks.

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
            for entry in reader.entries(records):
                if isinstance(entry.message, Change):
                    yield entry.offset, entry.message
    finally:
        consumer.close()
