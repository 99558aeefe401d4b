"""Which numbers of which publishing sessions have been taken (rule R1).

The log may hold an object twice (a client that lost an acknowledgement sends again), and may hold
numbers after a gap (a front whose append failed in the middle). What counts of a session is the run
of numbers without gaps, each once. The back decides that in log order, from the records alone:

- a record that begins beyond the next number is dropped: something before it never reached the log,
  nothing of it was acknowledged, and the client sends it again;
- numbers already taken are dropped as repeats;
- an unknown session begins after the number that the client reports as acknowledged: 0 for a new
  session, more for one that was forgotten because it was idle too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.protocol.contract.messages import IntakeObjects
from sirocco.protocol.router.limits import LIMITS

# A session that is idle this long, by the time at the fronts, is forgotten. The client ends a
# session after an hour of idleness, so no session that still sends is forgotten.
SESSION_IDLE_MS_MAX = 24 * 3_600_000

# The greatest number of an object; tables hold numbers as i8.
NUMBER_MAX = (1 << 63) - 1


class SessionTable:
    """The last number taken of each session, in arrays.

    Args:
        sessions_max: see `RouterLimits`.

    Attributes:
        dropped_gap: records dropped because something before them is missing.
        dropped_repeat: objects dropped because they had been taken.
    """

    def __init__(self, sessions_max: int = LIMITS.sessions_max) -> None:
        self._sessions_max = sessions_max
        self._rows = HandleTable()
        self._handles = np.zeros(64, np.uint64)
        self._last = np.zeros(64, np.int64)
        self._seen_ms = np.zeros(64, np.int64)
        self._count = 0
        self.dropped_gap = 0
        self.dropped_repeat = 0

    def __len__(self) -> int:
        return self._count

    def take(self, record: IntakeObjects, received_ms: int) -> int:
        """Decides which numbers of a record are new.

        Returns:
            How many leading numbers of the record are repeats; `record.span` or more: all of it
            is dropped.
        """
        handle = np.array([record.session], np.uint64)
        row = int(self._rows.get(handle)[0])
        last = int(self._last[row]) if row >= 0 else record.acknowledged_to
        if record.first_number > last + 1:
            self.dropped_gap += 1
            return record.span
        end = record.first_number + record.span - 1
        repeats = min(last + 1 - record.first_number, record.span)
        self.dropped_repeat += repeats
        if end <= last:
            return record.span
        if row < 0:
            row = self._add(handle)
        self._last[row] = end
        self._seen_ms[row] = received_ms
        return repeats

    def forget(self, before_ms: int) -> None:
        """Drops the sessions last seen before a time, and the oldest beyond `sessions_max`."""
        seen = self._seen_ms[: self._count]
        most = self._sessions_max
        if self._count > most:
            before_ms = max(before_ms, int(np.partition(seen, -most)[-most]))
        keep = seen >= before_ms
        if keep.all():
            return
        self.restore(
            {
                "sessions": self._handles[: self._count][keep],
                "numbers": self._last[: self._count][keep],
                "seen_ms": seen[keep],
            }
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all sessions as columns, for a checkpoint."""
        return {
            "sessions": self._handles[: self._count].copy(),
            "numbers": self._last[: self._count].copy(),
            "seen_ms": self._seen_ms[: self._count].copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replaces all sessions by those of a checkpoint."""
        self._handles = np.array(state["sessions"], np.uint64)
        self._last = np.array(state["numbers"], np.int64)
        self._seen_ms = np.array(state["seen_ms"], np.int64)
        self._count = len(self._handles)
        self._rows = HandleTable(self._count)
        self._rows.put(self._handles, np.arange(self._count, dtype=np.int32))

    def _add(self, handle: NDArray[np.uint64]) -> int:
        row = self._count
        if row == len(self._last):
            room = max(64, 2 * row)
            self._handles = np.resize(self._handles, room)
            self._last = np.resize(self._last, room)
            self._seen_ms = np.resize(self._seen_ms, room)
        self._handles[row] = handle[0]
        self._rows.put(handle, np.array([row], np.int32))
        self._count += 1
        return row
