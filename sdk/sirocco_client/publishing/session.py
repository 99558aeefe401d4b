"""One publishing session: numbers objects, keeps unacknowledged ones, decides what to send next.

No I/O and no clock. Objects are numbered from 1 without gaps. A batch is kept until the server has
acknowledged all of it. After a break the session is rewound: everything unacknowledged is sent
again under the same numbers, so that the server can drop what it already has.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import PublishRequest, Rejection

from sirocco_client.connection.error_messages import error_from_message
from sirocco_client.errors import Internal, Rejected
from sirocco_client.objects.columns import columns_bytes, object_id, slice_columns


@dataclass(slots=True)
class Batch:
    """Objects that are sent in one request.

    Attributes:
        request: Holds their columns and first number.
        bytes_total: Approximate size of the objects.
    """

    request: PublishRequest
    bytes_total: int

    @property
    def last_number(self) -> int:
        """Number of the last object."""
        return self.request.first_number + self.request.objects.count - 1


class PublishSession:
    """The state of one session.

    Attributes:
        session: Its name on the wire, unsigned 64-bit.
        next_number: Number of the next object.
        acknowledged_to: Every number up to this one is in the log or was refused.
        outstanding_bytes: Approximate size of all batches that are not fully acknowledged.
        position_token: The last token from the server, empty for none.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.next_number = 1
        self.acknowledged_to = 0
        self.outstanding_bytes = 0
        self.position_token = ""
        self._batches: deque[Batch] = deque()
        # Number of `_batches`, from the left, that were sent on the present stream.
        self._sent = 0
        # Refused numbers above `acknowledged_to`.
        self._refused: dict[int, Rejected] = {}

    @property
    def outstanding(self) -> int:
        """Number of unacknowledged objects."""
        return self.next_number - 1 - self.acknowledged_to

    @property
    def has_unsent(self) -> bool:
        """Whether `next_request` has something to send."""
        return self._sent < len(self._batches)

    def add(self, request: PublishRequest) -> None:
        """Numbers the objects of a request; it holds at least one object and nothing else."""
        request.session = self.session
        request.first_number = self.next_number
        batch = Batch(request, columns_bytes(request.objects))
        self._batches.append(batch)
        self.next_number += request.objects.count
        self.outstanding_bytes += batch.bytes_total

    def next_request(self) -> PublishRequest | None:
        """Returns the next request for the present stream, None if all were sent."""
        if not self.has_unsent:
            return None
        batch = self._batches[self._sent]
        if batch.request.first_number <= self.acknowledged_to:
            self._trim(batch)
        self._sent += 1
        batch.request.acknowledged_to = self.acknowledged_to
        return batch.request

    def rewind(self) -> None:
        """Prepares to resend everything unacknowledged after a broken stream."""
        self._sent = 0
        self._refused.clear()

    def _trim(self, batch: Batch) -> None:
        """Drops the acknowledged part of a batch before it is sent again."""
        known = self.acknowledged_to + 1 - batch.request.first_number
        objects: ObjectColumns = batch.request.objects
        rest = PublishRequest(
            session=self.session,
            first_number=self.acknowledged_to + 1,
            objects=slice_columns(objects, known, objects.count),
        )
        self.outstanding_bytes -= batch.bytes_total
        batch.request, batch.bytes_total = rest, columns_bytes(rest.objects)
        self.outstanding_bytes += batch.bytes_total

    def acknowledge(
        self, acknowledged_to: int, rejections: Iterable[Rejection], position_token: str = ""
    ) -> list[Rejected]:
        """Processes an answer; returns the newly refused objects, each once.

        Raises:
            Internal: The server acknowledges objects that were never sent.
        """
        for rejection in rejections:
            if self.acknowledged_to < rejection.number < self.next_number:
                self._refused[rejection.number] = self._rejected(rejection)
        if acknowledged_to <= self.acknowledged_to:
            return []
        if acknowledged_to >= self.next_number:
            raise Internal(
                f"the server acknowledged number {acknowledged_to}, "
                f"the last one given is {self.next_number - 1}"
            )
        self.acknowledged_to = acknowledged_to
        self.position_token = position_token or self.position_token
        while self._batches and self._batches[0].last_number <= acknowledged_to:
            self.outstanding_bytes -= self._batches.popleft().bytes_total
            # The answer to a request of an earlier stream may arrive before the request is sent
            # again.
            self._sent = max(0, self._sent - 1)
        known = sorted(number for number in self._refused if number <= acknowledged_to)
        return [self._refused.pop(number) for number in known]

    def _rejected(self, rejection: Rejection) -> Rejected:
        error = error_from_message(rejection.error)
        for batch in self._batches:
            if batch.request.first_number <= rejection.number <= batch.last_number:
                row = rejection.number - batch.request.first_number
                found = object_id(batch.request.objects, row)
                return Rejected(rejection.number, found, error)
        raise Internal(f"number {rejection.number} was refused, but is not outstanding")


def new_session() -> int:
    """Returns a random name for a session, never 0."""
    return secrets.randbits(64) or 1
