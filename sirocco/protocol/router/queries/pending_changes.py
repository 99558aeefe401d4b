"""Pending change requests of clients: which wait, and when they are answered.

A request for one query waits for the earlier append for it, in order. A client's call is answered
when all of its requests are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import xxhash

from sirocco.model.errors import AlreadyExists, NotFound, ResourceExhausted, SiroccoError
from sirocco.model.query import identity_of
from sirocco.protocol.contract.effects import Answer, ChangeRequest, Effect, Outcome
from sirocco.protocol.contract.messages import NO_REVISION, Change

_NONE = "no query is registered under this id"


def digest_of(request: ChangeRequest) -> int:
    """Returns 64 bits over all that makes two registrations equal; 0 for a removal."""
    if request.query is None:
        return 0
    # The first part is one JSON value, so its end is unambiguous.
    return xxhash.xxh3_64_intdigest(identity_of(request.query) + request.subscriber.encode())


@dataclass(slots=True)
class RequestBatch:
    """One pending `ChangeRequests`: the outcomes so far, and how many are open."""

    token: int
    outcomes: list[Outcome | None]
    open: int


QueuedRequest: TypeAlias = tuple[RequestBatch, int, ChangeRequest]


@dataclass(slots=True)
class Pending:
    """An append for one query that the log has not shown yet, and the requests that wait for it.

    Attributes:
        change: what was appended, a change of the query or a probe.
        waiting: later requests, in order.
        covered: how many of them arrived before the append.
    """

    batch: RequestBatch
    row: int
    request: ChangeRequest
    change: Change
    waiting: deque[QueuedRequest] = field(default_factory=deque)
    covered: int = 0


def is_same(change: Change, own: Change) -> bool:
    """Whether a change that the log shows is the one that was appended for a request."""
    # An equal change by another owner may have been made and undone before the request arrived: the
    # replaced revision and the time of the request distinguish them.
    return (
        change.digest == own.digest
        and _id_of(change) == _id_of(own)
        and change.expected_revision == own.expected_revision
        and change.start_ms == own.start_ms
    )


def _id_of(change: Change) -> str | None:
    return None if change.query is None else change.query.id


def queue(
    pending: Pending, batch: RequestBatch, row: int, request: ChangeRequest, waiting_max: int
) -> list[Effect]:
    """Makes a request wait for an append for its query, if there is room."""
    if len(pending.waiting) < waiting_max:
        pending.waiting.append((batch, row, request))
        return []
    # Not `Unavailable`: a front would then look for another owner, with all changes of the call.
    crowded = ResourceExhausted("too many changes of this query are under way", field="id")
    return settle(batch, row, Outcome(NO_REVISION, crowded))


def objection(request: ChangeRequest, *, exists: bool) -> SiroccoError | None:
    """Returns why a request is refused, given whether its query exists; None if it is not."""
    if request.action == "register":
        if exists:
            return AlreadyExists("another query is registered under this id", field="id")
    elif not exists:
        return NotFound(_NONE, field="id")
    return None


def collision(request: ChangeRequest) -> SiroccoError:
    """Returns why a request is refused while a live query with another id has its handle."""
    if request.action == "register":
        return AlreadyExists(
            "the hash of this id equals that of another query's id; choose another id", field="id"
        )
    return NotFound(_NONE, field="id")


def settle(batch: RequestBatch, row: int, outcome: Outcome) -> list[Effect]:
    """Notes the outcome of a change request; answers the call when it was the last one."""
    batch.outcomes[row] = outcome
    batch.open -= 1
    if batch.open:
        return []
    return [Answer(batch.token, tuple(o for o in batch.outcomes if o is not None))]
