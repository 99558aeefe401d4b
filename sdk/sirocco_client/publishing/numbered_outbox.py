"""Objects that have numbers of their own, accepted but not finished; the decisions alone, no I/O.

The numbers are positions in another log: they ascend, and may skip some. After a crash the log is
read again from a known number, and the servers drop what they have.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import (
    PublishNumberedRequest,
    PublishNumberedResponse,
    Rejection,
)

from sirocco_client.base.numbers import read_whole
from sirocco_client.connection.error_messages import error_from_message
from sirocco_client.connection.flow import FlowWindow
from sirocco_client.errors import Internal, InvalidArgument, PublishFailed, Rejected, SiroccoError
from sirocco_client.objects.columns import columns_bytes, object_id, split_columns
from sirocco_client.publishing.outbox import REQUEST_BYTES_MAX, REQUEST_OBJECTS_MAX, PublishFlow

NUMBER_MAX = (1 << 62) - 1

# Of the numbers that one request takes; servers refuse more.
SPAN_MAX = 1 << 31


@dataclass(frozen=True, slots=True)
class _Batch:
    """One request on its way."""

    request: PublishNumberedRequest
    numbers: Sequence[int]
    bytes_total: int

    @property
    def last_number(self) -> int:
        return self.numbers[-1]


def _last_number(batch: _Batch) -> int:
    return batch.last_number


class NumberedOutbox:
    """The state of one numbered session.

    Attributes:
        generation: Always 0: there is one session.
        acknowledged: Every object up to this number is in the log, or was refused.
        added: The last number that was given.
        outstanding_bytes: Approximate size of what is not acknowledged.
        failure: Why the publisher gave up, None while it works.
    """

    generation = 0

    def __init__(self, flow: PublishFlow, session: int, acknowledged: int) -> None:
        """Starts empty.

        Args:
            flow: Limits of what is outstanding.
            session: Its name on the wire, unsigned 64-bit.
            acknowledged: Every object up to this number was acknowledged before, or never sent.
        """
        self.session = read_whole(session, "session", 0, (1 << 64) - 1)
        self.acknowledged = self.added = read_whole(acknowledged, "acknowledged", 0, NUMBER_MAX)
        self._flow = flow
        self._window = FlowWindow(flow.outstanding_objects_max, flow.outstanding_bytes_max)
        self._batches: deque[_Batch] = deque()
        # Number of `_batches`, from the left, that were sent on the present stream.
        self._sent = 0
        self._objects = 0
        self.outstanding_bytes = 0
        self._refused: dict[int, Rejected] = {}
        self.failure: PublishFailed | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the caller has to wait before it adds more."""
        return self._window.is_paused

    @property
    def has_work(self) -> bool:
        """Whether anything still has to be sent or acknowledged."""
        return bool(self._batches)

    def needs_stream(self, now_s: float) -> bool:
        """Whether something has to be sent now."""
        return bool(self._batches)

    def due_in_s(self, now_s: float) -> float | None:
        """Nothing waits for more objects."""
        return None

    def add(self, columns: ObjectColumns, numbers: Sequence[int]) -> None:
        """Accepts valid columns.

        Raises:
            InvalidArgument: There is not one number for each object, they do not ascend, or they
                skip too many; or an object is too large. Nothing was accepted.
        """
        given = list(numbers)
        if len(given) != columns.count:
            raise InvalidArgument(
                f"{len(given)} for {columns.count} objects: one each", field="numbers"
            )
        if not given:
            return
        ascending = all(a < b for a, b in pairwise(given))
        if given[0] <= self.added or not ascending or given[-1] > NUMBER_MAX:
            raise InvalidArgument(f"must ascend from {self.added}", field="numbers")
        parts = list(split_columns(columns, REQUEST_OBJECTS_MAX, REQUEST_BYTES_MAX))
        begin = 0
        batches = []
        first = self.added + 1
        for part in parts:
            batches.append(self._batch(part, given[begin : begin + part.count], first))
            begin += part.count
            first = given[begin - 1] + 1
        for batch in batches:
            self._batches.append(batch)
            self._objects += batch.request.objects.count
            self.outstanding_bytes += batch.bytes_total
        self.added = given[-1]
        self._update()

    def _batch(self, columns: ObjectColumns, numbers: list[int], first: int) -> _Batch:
        if numbers[-1] - first >= SPAN_MAX:
            raise InvalidArgument(f"skip more than {SPAN_MAX} after {first - 1}", field="numbers")
        request = PublishNumberedRequest(session=self.session, first_number=first, objects=columns)
        if numbers[-1] - first >= len(numbers):
            request.number_deltas = array("I", [each - first for each in numbers]).tobytes()
        return _Batch(request, numbers, columns_bytes(columns))

    def next_request(self, now_s: float) -> PublishNumberedRequest | None:
        """Returns the next request for the present stream, None if all were sent."""
        if self._sent >= len(self._batches):
            return None
        request = self._batches[self._sent].request
        self._sent += 1
        request.acknowledged_to = self.acknowledged
        return request

    def rewind(self) -> None:
        """Prepares to resend after a broken stream."""
        self._sent = 0
        self._refused.clear()

    def acknowledge(self, response: PublishNumberedResponse, now_s: float) -> list[Rejected]:
        """Processes an answer; returns the refused objects, each once, in order.

        Raises:
            Internal: The server acknowledges what was never sent.
        """
        self._note(response.rejections)
        upto = response.acknowledged_to
        if upto <= self.acknowledged:
            return []
        while self._batches and self._batches[0].last_number <= upto:
            batch = self._batches.popleft()
            self.acknowledged = batch.last_number
            self._objects -= batch.request.objects.count
            self.outstanding_bytes -= batch.bytes_total
            # The answer of an earlier stream may arrive before the request is sent again.
            self._sent = max(0, self._sent - 1)
        if self.acknowledged != upto:
            # Objects would be in the log under numbers that are not theirs.
            raise Internal(f"the server acknowledged number {upto}, which ends no request")
        self._update()
        known = sorted(number for number in self._refused if number <= upto)
        return [self._refused.pop(number) for number in known]

    def _note(self, rejections: Iterable[Rejection]) -> None:
        for rejection in rejections:
            number = rejection.number
            if number <= self.acknowledged:
                continue
            # Searched in halves: a server may refuse all of 16,384 objects.
            place = bisect_left(self._batches, number, key=_last_number)
            if place == len(self._batches):
                raise Internal(f"number {number} was refused, but is not outstanding")
            found = self._batches[place]
            row = bisect_left(found.numbers, number)
            if found.numbers[row] != number:
                raise Internal(f"number {number} was refused, but is not outstanding")
            name = object_id(found.request.objects, row)
            self._refused[number] = Rejected(number, name, error_from_message(rejection.error))

    def _update(self) -> None:
        self._window.update(self._objects, self.outstanding_bytes)

    def fail(self, cause: SiroccoError) -> None:
        """Marks the publisher as failed."""
        if self.failure is None:
            self.failure = PublishFailed(cause, self.acknowledged, self._objects)
            self.failure.__cause__ = cause

    def check(self) -> None:
        """Raises PublishFailed if the publisher has failed."""
        if self.failure is not None:
            raise self.failure

    def missing(self, wanted: int) -> str:
        """Describes what is not acknowledged yet, up to a number."""
        return f"acknowledged up to {self.acknowledged} of {wanted}"

    def state(self, *, is_closed: bool) -> str:
        """Describes the progress in words."""
        words = f"acknowledged up to {self.acknowledged}, {self._objects} objects under way"
        if self.failure is not None:
            return f"{words}, failed"
        return f"{words}, closed" if is_closed else words
