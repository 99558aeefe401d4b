"""Objects that a publisher has accepted but not finished; the decisions of both publishers.

No I/O; the time is an argument. Objects are collected into batches, a session numbers the batches,
and acknowledgements remove them. Numbers in the public API run through all sessions of a publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import PublishRequest, PublishResponse
from sirocco_api.v1.trace_pb2 import TraceContext

from sirocco_client.base.caller_trace import caller_trace
from sirocco_client.base.numbers import read_real, read_whole
from sirocco_client.connection.flow import FlowWindow
from sirocco_client.errors import (
    ObjectsRejected,
    PublishFailed,
    Rejected,
    SiroccoError,
)
from sirocco_client.objects.columns import MEMBER_BYTES_MAX, split_columns
from sirocco_client.objects.encode import ObjectEncoder
from sirocco_client.objects.object import Object
from sirocco_client.publishing.session import PublishSession

# Servers forget a session that was silent for 24 hours, and could then accept a resend as new. A
# client replaces it long before.
SESSION_IDLE_S_MAX = 3_600.0

# Objects per request; servers refuse more.
REQUEST_OBJECTS_MAX = 16_384

# Bytes of the objects of one request: as much as the largest single object, which gets its own
# request. Servers write a request as one log record with little overhead (sessions, refusals), and
# permanently refuse one that would make a record of more than 4 MiB.
REQUEST_BYTES_MAX = 3 * MEMBER_BYTES_MAX

# An hour: an object that waits longer for others is not published at all.
LINGER_MS_MAX = 3_600_000.0

# More than a process can hold.
COUNT_MAX = 1 << 53


@dataclass(frozen=True, slots=True)
class PublishFlow:
    """Batch sizes of a publisher, and when it pauses.

    Attributes:
        batch_objects: A batch is sent when it holds this many objects,
        batch_bytes: or about this many bytes,
        linger_ms: or when its first object has waited this long, milliseconds.
        outstanding_objects_max: Publishing pauses when this many objects are unacknowledged, and
            resumes at 80 %.
        outstanding_bytes_max: The same in bytes.
        rejections_max: Refused objects kept for `ObjectsRejected`; all are counted.
    """

    batch_objects: int = 1_000
    batch_bytes: int = 1 << 20
    linger_ms: float = 5.0
    outstanding_objects_max: int = 10_000
    outstanding_bytes_max: int = 16 << 20
    rejections_max: int = 100

    def __post_init__(self) -> None:
        read_whole(self.batch_objects, "batch_objects", 1, REQUEST_OBJECTS_MAX)
        read_whole(self.batch_bytes, "batch_bytes", 1, REQUEST_BYTES_MAX)
        read_real(self.linger_ms, "linger_ms", 0, LINGER_MS_MAX)
        for name in ("outstanding_objects_max", "outstanding_bytes_max", "rejections_max"):
            read_whole(getattr(self, name), name, 1, COUNT_MAX)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Result for all objects that a publisher has accepted so far.

    Attributes:
        acknowledged: Number of objects that are in the log or were refused.
        rejected: Number of them that were refused.
        position_token: Pass it to a search to find at least these objects; empty if the server
            sends none.
    """

    acknowledged: int
    rejected: int
    position_token: str


class Outbox:
    """The state of one publisher.

    Attributes:
        generation: Grows when a new session begins; a stream serves one generation.
        added: Number of accepted objects.
        rejected: Number of refused objects.
        failure: Why the publisher gave up, None while it works.
    """

    def __init__(self, flow: PublishFlow, new_session: Callable[[], int]) -> None:
        """Starts empty; `new_session` returns a random name for a session."""
        self.flow = flow
        self._new_session = new_session
        self._window = FlowWindow(flow.outstanding_objects_max, flow.outstanding_bytes_max)
        self._encoder = ObjectEncoder()
        self._session = PublishSession(new_session())
        self.generation = 0
        # Number of objects of earlier sessions, the offset of this session's numbers.
        self._base = 0
        self._used_s: float | None = None
        self._due_s: float | None = None
        # The span in which the open batch was begun.
        self._trace: TraceContext | None = None
        self.added = 0
        self.rejected = 0
        self._rejections: list[Rejected] = []
        self._unreported = 0
        self.failure: PublishFailed | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the caller has to wait before it adds more."""
        return self._window.is_paused

    @property
    def acknowledged(self) -> int:
        """Every object up to this number is in the log or was refused."""
        return self._base + self._session.acknowledged_to

    @property
    def has_work(self) -> bool:
        """Whether anything still has to be sent or acknowledged."""
        return self.acknowledged < self.added

    def needs_stream(self, now_s: float) -> bool:
        """Whether something has to be sent now: a stream without a request would be ended."""
        return bool(self._session.outstanding) or (self._due_s is not None and now_s >= self._due_s)

    def room(self) -> int:
        """Number of objects that still fit into the open batch, at least 1."""
        return max(1, self.flow.batch_objects - len(self._encoder))

    def add(self, source: Mapping[str, Any] | Object, now_s: float) -> bool:
        """Accepts one object; True when the sender should wake.

        Raises:
            InvalidArgument: It cannot be sent; nothing was accepted.
        """
        self._encoder.add(source)
        self.added += 1
        return self._collected(1, now_s)

    def add_many(
        self, sources: Sequence[Mapping[str, Any] | Object], first: int, now_s: float
    ) -> bool:
        """Accepts objects, at most `room()`; True when the sender should wake.

        Args:
            sources: The objects.
            first: Index of the first in error messages, as in `objects[17].lon`.
            now_s: The time, seconds.

        Raises:
            InvalidArgument: One cannot be sent; those before it were accepted, and the sender
                should wake.
        """
        before = len(self._encoder)
        try:
            self._encoder.add_many(sources, first)
        finally:
            count = len(self._encoder) - before
            self.added += count
            wakes = self._collected(count, now_s)
        return wakes

    def split(self, columns: ObjectColumns) -> Iterator[ObjectColumns]:
        """Splits valid columns into parts for `add_columns`."""
        objects_max = min(REQUEST_OBJECTS_MAX, self.flow.outstanding_objects_max)
        return split_columns(columns, objects_max, REQUEST_BYTES_MAX)

    def add_columns(self, columns: ObjectColumns, now_s: float) -> None:
        """Accepts a part from `split`; the sender should wake."""
        self.seal(now_s)
        self._begin_use(now_s)
        request = PublishRequest(objects=columns, trace=caller_trace())
        self._session.add(request)
        self.added += columns.count
        self._update()

    def _collected(self, count: int, now_s: float) -> bool:
        held = len(self._encoder)
        if not held:
            return False
        if held == count:
            self._trace = caller_trace()
        is_full = (
            held >= self.flow.batch_objects or self._encoder.bytes_total >= self.flow.batch_bytes
        )
        if is_full:
            self.seal(now_s)
        elif held == count:
            self._due_s = now_s + self.flow.linger_ms / 1_000
        self._update()
        return is_full or held == count

    def _update(self) -> None:
        self._window.update(
            self.added - self.acknowledged,
            self._session.outstanding_bytes + self._encoder.bytes_total,
        )

    def seal(self, now_s: float) -> None:
        """Closes the open batch, to be sent at once."""
        if not len(self._encoder):
            return
        self._begin_use(now_s)
        request = PublishRequest(trace=self._trace)
        self._encoder.take(request.objects)
        self._due_s = None
        whole = request.objects
        parts = list(split_columns(whole, self.flow.batch_objects, REQUEST_BYTES_MAX))
        if len(parts) == 1:
            self._session.add(request)
            return
        for part in parts:
            self._session.add(PublishRequest(objects=part, trace=self._trace))

    def _begin_use(self, now_s: float) -> None:
        """Starts a new session if the present one was idle for too long."""
        is_stale = self._used_s is not None and now_s - self._used_s > SESSION_IDLE_S_MAX
        if is_stale and not self._session.outstanding and self._session.next_number > 1:
            self._base += self._session.acknowledged_to
            token = self._session.position_token
            self._session = PublishSession(self._new_session())
            self._session.position_token = token
            self.generation += 1
        self._used_s = now_s

    def next_request(self, now_s: float) -> PublishRequest | None:
        """Returns the next request; None: nothing before `due_in_s` or the next addition."""
        if self._due_s is not None and now_s >= self._due_s and not self._session.has_unsent:
            self.seal(now_s)
        return self._session.next_request()

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until the open batch has waited long enough; None if there is none."""
        return None if self._due_s is None else max(0.0, self._due_s - now_s)

    def rewind(self) -> None:
        """Prepares to resend after a broken stream."""
        self._session.rewind()
        self._update()

    def acknowledge(self, response: PublishResponse, now_s: float) -> list[Rejected]:
        """Processes an answer; returns the refused objects, each once.

        Raises:
            Internal: The server acknowledges objects that were never sent.
        """
        refused = [
            Rejected(self._base + each.number, each.object, each.error)
            for each in self._session.acknowledge(
                response.acknowledged_to, response.rejections, response.position_token
            )
        ]
        self._used_s = now_s
        self.rejected += len(refused)
        self._update()
        return refused

    def keep(self, refused: Sequence[Rejected]) -> None:
        """Keeps refused objects until `raise_rejections`."""
        self._unreported += len(refused)
        self._rejections += refused[: self.flow.rejections_max - len(self._rejections)]

    def raise_rejections(self) -> None:
        """Raises ObjectsRejected if any were kept since the last time."""
        if self._unreported:
            count, kept = self._unreported, self._rejections
            self._unreported, self._rejections = 0, []
            raise ObjectsRejected(count, kept)

    def fail(self, cause: SiroccoError) -> None:
        """Marks the publisher as failed."""
        if self.failure is None:
            acknowledged = self.acknowledged
            self.failure = PublishFailed(cause, acknowledged, self.added - acknowledged)
            self.failure.__cause__ = cause

    def check(self) -> None:
        """Raises PublishFailed if the publisher has failed."""
        if self.failure is not None:
            raise self.failure

    def missing(self, wanted: int) -> str:
        """Describes what is not acknowledged yet, up to a number."""
        return f"{wanted - self.acknowledged} objects are not acknowledged yet"

    def state(self, *, is_closed: bool) -> str:
        """Describes the result so far in words."""
        under_way = self.added - self.acknowledged
        words = f"{self.acknowledged} objects acknowledged, {self.rejected} of them refused"
        words += f", {under_way} under way"
        if self.failure is not None:
            return f"{words}, failed"
        return f"{words}, closed" if is_closed else words

    def result(self) -> PublishResult:
        """Returns the result for all objects so far."""
        return PublishResult(self.acknowledged, self.rejected, self._session.position_token)
