"""Reads the last progress that a merger wrote: how far its input has been delivered."""

from __future__ import annotations

import time

import numpy as np

from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import DELIVERIES, Progress
from sirocco.runtime.loop.hops import HopReader
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.log import Log

# How long one search may take. Committed records can be read, so only a log that is unreachable, or
# has just come back, exceeds it.
READ_S = 10.0
POLL_S = 0.5


def last_progress(
    log: Log, partition: int, read_s: float = READ_S, poll_s: float = POLL_S
) -> Progress | None:
    """Finds the newest Progress of a `deliveries` partition, None when there is none.

    Ends of transactions take offsets too, so the offset of the last record is unknown. It is
    searched in a stretch before the end, which grows until one is found.

    Args:
        log, partition: where it is.
        read_s: how long one search may take.
        poll_s: how long one poll waits.

    Raises:
        Unavailable: the log did not return what it has. If that were taken for "there is none",
            everything would be delivered again.
    """
    low, high = log.bounds(DELIVERIES, partition)
    stretch = 8
    while high > low:
        begin = max(low, high - stretch)
        found = _newest(log, partition, (begin, high), read_s, poll_s)
        if found is not None or begin == low:
            return found
        stretch *= 4
    return None


def _newest(
    log: Log, partition: int, span: tuple[int, int], read_s: float, poll_s: float
) -> Progress | None:
    begin, end = span
    found: Progress | None = None
    reader = HopReader(lambda *_: None)
    consumer = log.consumer(f"progress-{partition}")
    deadline_s = time.monotonic() + read_s
    try:
        consumer.assign({(DELIVERIES, partition): begin})
        while consumer.positions()[DELIVERIES, partition] < end:
            if time.monotonic() > deadline_s:
                raise TransportUnavailable(f"{DELIVERIES}/{partition}: cannot be read up to {end}")
            records = consumer.poll(256, poll_s)
            for entry in reader.entries([r for r in records if r.offset < end]):
                if isinstance(entry.message, Progress):
                    found = entry.message
    finally:
        consumer.close()
    return found


def progress_state(progress: Progress, end: int) -> State:
    """Returns a merger's columns to start from; `end` is that of the `deliveries` partition."""
    return {
        "end": np.array([end], np.int64),
        "input_offset": np.array([progress.input_offset], np.int64),
        "slots": progress.slots.astype(np.int64),
        "positions": progress.positions,
        "times_ms": progress.times_ms,
        "has_lists": np.array([progress.has_lists]),
    }


def merger_start(
    progress: tuple[Progress, int] | None, checkpoint: tuple[State, int] | None, low: int
) -> tuple[int, State | None]:
    """Returns where a merger continues, and from which state.

    Args:
        progress: the last one, and the end of the `deliveries` partition.
        checkpoint: the newest state of lists, and the offset in `partials` that it is for.
        low: where the `partials` partition begins.

    Returns:
        The offset to read from: that of the checkpoint, as everything sent after it is read again,
            or that of the progress; and the columns of both.
    """
    state = {} if progress is None else progress_state(*progress)
    offset = 0 if progress is None else progress[0].input_offset
    # Only a merger that never sent a list truncates beyond a checkpoint: an empty one that a
    # predecessor declared late.
    if checkpoint is not None and checkpoint[1] >= low:
        state, offset = {**checkpoint[0], **state}, checkpoint[1]
    return offset, state or None
