"""The last progress that a merger wrote: how far its input has been delivered."""

from __future__ import annotations

import numpy as np

from sirocco.protocol.effects import State
from sirocco.protocol.messages import DELIVERIES, Progress
from sirocco.runtime.hops import HopReader
from sirocco.transport.log import Log

# A read of the committed tail ends when nothing comes for so long; a broker answers sooner.
TAIL_S = 0.5


def last_progress(log: Log, partition: int) -> Progress | None:
    """Finds the newest Progress of a `deliveries` partition, None when there is none.

    Ends of transactions take offsets too, so the last record's place is not known: it is looked for
    in a stretch before the end that doubles until one is found.
    """
    low, high = log.bounds(DELIVERIES, partition)
    stretch = 8
    while high > low:
        begin = max(low, high - stretch)
        found = _newest(log, partition, begin, high)
        if found is not None or begin == low:
            return found
        stretch *= 4
    return None


def _newest(log: Log, partition: int, begin: int, end: int) -> Progress | None:
    found: Progress | None = None
    reader = HopReader(lambda *_: None)
    consumer = log.consumer(f"progress-{partition}")
    try:
        consumer.assign({(DELIVERIES, partition): begin})
        while consumer.positions()[DELIVERIES, partition] < end:
            records = consumer.poll(256, TAIL_S)
            if not records:
                break
            for entry in reader.entries([r for r in records if r.offset < end]):
                if isinstance(entry.message, Progress):
                    found = entry.message
    finally:
        consumer.close()
    return found


def progress_state(progress: Progress, end: int) -> State:
    """As the columns that a merger starts from; `end` is that of the `deliveries` partition."""
    return {
        "end": np.array([end], np.int64),
        "slots": progress.slots.astype(np.int64),
        "positions": progress.positions,
        "times_ms": progress.times_ms,
    }
