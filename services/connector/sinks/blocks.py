"""Rows → blocks that a target takes as a whole: by count, bytes and time. No I/O and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from sirocco.services.connector.sinks.rows import (
    Form,
    Headers,
    Place,
    Row,
    event_headers,
    time_text,
)
from sirocco.services.connector.sinks.state import Saved
from sirocco.services.connector.sinks.throttle import Digest, Throttle

# A place without rows is kept this often, also one that has not moved: the cursor of a silent
# subscriber must not grow too old, and other instances see by it that the sink works.
MOVED_MS = 10_000

# The same while a throttle drops all that arrives.
DROPPED_MS = 1_000

# Rows of a planned batch may come in several messages. If its end does not come at all, since
# something else than rows filled it, the sink goes on.
PLANNED_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """How rows are gathered.

    Attributes:
        rows: Of a block.
        bytes_total: Of a block's payloads; a single row may have more.
        wait_ms: How long the first row of a block waits for others.
        held_rows: Rows that wait in all; beyond it no message is read.
        held_bytes: The same in bytes. One message may exceed it.
    """

    rows: int
    bytes_total: int
    wait_ms: int = 0
    held_rows: int = 20_000
    held_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that are written together, and the state after them.

    Attributes:
        rows: Empty if only the place has moved.
        saved: The state after them.
        end: Id of the last notification in it or dropped in it; empty if there is none.
        dropped: Notifications that a digest will count.
    """

    rows: Sequence[Row]
    saved: Saved
    end: str = ""
    dropped: int = 0

    @property
    def id(self) -> str:
        """The same for the same rows: the id of the only one, or one made of all."""
        first = self.rows[0].id
        if len(self.rows) == 1:
            return first
        digest = blake2b("\n".join(row.id for row in self.rows).encode(), digest_size=8)
        return f"{first}+{len(self.rows) - 1}.{digest.hexdigest()}"


class Blocks:
    """The rows that wait, and how they are cut.

    Args:
        limits: of blocks, and of what waits.
        saved: the state at the begin.
        throttle: decides what passes; None: all does.
        form: of digests.
        source: of digests that are CloudEvents.
        now_ms: the time.
    """

    def __init__(
        self,
        limits: BlockLimits,
        saved: Saved,
        throttle: Throttle | None,
        form: Form,
        source: str,
        now_ms: int,
    ) -> None:
        self._limits = limits
        self._throttle = throttle
        self._form: Form = form
        self._source = source
        self._waiting: deque[Row] = deque()
        self._waiting_bytes = 0
        # When the first of the waiting rows was taken.
        self._since_ms = now_ms
        # Ends of batches that were planned before the restart, and whether the first has arrived.
        self._ends = deque(saved.ends)
        self._has_end = False
        self._place = saved.place
        self._kept_ms = now_ms
        # Since the last block.
        self._end = ""
        self._dropped = 0

    @property
    def has_room(self) -> bool:
        """Whether another message may be read."""
        limits = self._limits
        return len(self._waiting) < limits.held_rows and self._waiting_bytes < limits.held_bytes

    @property
    def oldest_ms(self) -> int | None:
        """Arrival of the first row that waits."""
        return self._waiting[0].arrival_ms if self._waiting else None

    @property
    def held(self) -> int:
        """Rows that wait."""
        return len(self._waiting)

    def take(self, rows: Sequence[Row], now_ms: int) -> None:
        """Adds the rows of a message."""
        if not self._waiting:
            self._since_ms = now_ms
        self._waiting.extend(rows)
        self._waiting_bytes += sum(len(row.value) for row in rows)
        if self._ends and not self._has_end:
            self._has_end = any(row.id == self._ends[0] for row in rows)

    def moved(self, cursor: str) -> None:
        """Notes where a silent subscriber is. Only while nothing waits."""
        if cursor and not self._waiting:
            self._place = Place(cursor)

    def due_ms(self, now_ms: int) -> int:
        """When `cut` may return something without another row."""
        times = [self._kept_until_ms()]
        if self._waiting:
            times.append(self._ready_ms(now_ms))
        if self._throttle is not None and (due_ms := self._throttle.due_ms()) is not None:
            times.append(due_ms)
        return min(times)

    def _ready_ms(self, now_ms: int) -> int:
        limits = self._limits
        is_full = len(self._waiting) >= limits.rows or self._waiting_bytes >= limits.bytes_total
        if is_full or self._has_end:
            return now_ms
        if self._ends:
            return self._since_ms + max(limits.wait_ms, PLANNED_MS)
        return self._since_ms + limits.wait_ms

    def cut(self, now_ms: int) -> Block | None:
        """Returns the next block that is due."""
        rows: list[Row] = []
        if self._throttle is not None:
            for digest in self._throttle.ended(now_ms):
                rows.append(self._digest_row(digest, now_ms))
                if len(rows) >= self._limits.rows:
                    break
        taken: list[Row] = []
        if self._waiting and now_ms >= self._ready_ms(now_ms):
            taken = self._take_out(self._limits.rows - len(rows))
        passed = taken
        if self._throttle is not None:
            passed = [row for row in taken if self._throttle.admits(row, now_ms)]
        rows += passed
        if taken:
            self._since_ms = now_ms
            self._place, self._end = taken[-1].place, taken[-1].id
            self._dropped += len(taken) - len(passed)
        if not rows and now_ms < self._kept_until_ms():
            return None
        windows = {} if self._throttle is None else self._throttle.snapshot()
        block = Block(rows, Saved(self._place, windows=windows), self._end, self._dropped)
        self._kept_ms = now_ms
        self._end, self._dropped = "", 0
        return block

    def _kept_until_ms(self) -> int:
        """Until when the kept place is good enough without rows."""
        return self._kept_ms + (DROPPED_MS if self._dropped else MOVED_MS)

    def _take_out(self, count: int) -> list[Row]:
        taken: list[Row] = []
        size = 0
        end = self._ends[0] if self._ends else None
        while self._waiting and len(taken) < count and size < self._limits.bytes_total:
            row = self._waiting.popleft()
            size += len(row.value)
            taken.append(row)
            if row.id == end:
                self._ends.popleft()
                self._has_end = bool(self._ends) and any(
                    one.id == self._ends[0] for one in self._waiting
                )
                break
        self._waiting_bytes -= size
        return taken

    def _digest_row(self, digest: Digest, now_ms: int) -> Row:
        window = digest.window
        members = {
            "event": "digest",
            "count": window.held,
            "first": window.first,
            "last": window.last,
            "from": window.first_ms,
            "until": window.last_ms,
        }
        if digest.query:
            members = {"query": digest.query, **members}
        headers: Headers = ()
        if self._form == "json":
            value = orjson.dumps({"id": digest.id, **members})
        elif self._form == "cloudevents-binary":
            value = orjson.dumps(members)
            headers = event_headers(self._source, digest.id, "digest", digest.query, window.last_ms)
        else:
            value = orjson.dumps(
                {
                    "specversion": "1.0",
                    "datacontenttype": "application/json",
                    "source": self._source,
                    "id": digest.id,
                    "type": "sirocco.digest",
                    "subject": digest.query,
                    "time": time_text(window.last_ms),
                    "data": members,
                }
            )
        key = digest.query or None
        return Row(digest.id, digest.query, key, "", value, now_ms, self._place, headers)
