"""The last progress that a merger wrote: how far its input has been delivered."""

from __future__ import annotations

import time

import numpy as np

from sirocco.protocol.effects import State
from sirocco.protocol.messages import DELIVERIES, Progress
from sirocco.runtime.hops import HopReader
from sirocco.transport.errors import Unavailable
from sirocco.transport.log import Log

# How long one look may take. What is committed is there to be read, so that only a log that is
# away, or comes back just now, lets it pass.
READ_S = 10.0
POLL_S = 0.5


def last_progress(log: Log, partition: int) -> Progress | None:
    """Finds the newest Progress of a `deliveries` partition, None when there is none.

    Ends of transactions take offsets too, so the last record's place is not known: it is looked for
    in a stretch before the end that doubles until one is found.

    Raises:
        Unavailable: the log did not hand out what it has. Whoever took that for "there is none"
            would deliver everything again.
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
    deadline_s = time.monotonic() + READ_S
    try:
        consumer.assign({(DELIVERIES, partition): begin})
        while consumer.positions()[DELIVERIES, partition] < end:
            if time.monotonic() > deadline_s:
                raise Unavailable(f"{DELIVERIES}/{partition}: cannot be read up to {end}")
            records = consumer.poll(256, POLL_S)
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
