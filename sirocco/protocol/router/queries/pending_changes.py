"""Pending change requests of clients: which wait, and when they are answered.

A request for one query waits for the earlier append for it, in order. A client's call is answered
when all of its requests are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import AlreadyExists, NotFound, ResourceExhausted, SiroccoError
from sirocco.model.query import digest_of_query
from sirocco.protocol.contract.effects import (
    Answer,
    ChangeRequest,
    Effect,
    Outcome,
    Outcomes,
    PlainRequests,
    RemovalRequests,
)
from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.contract.plain_queries import ChangeColumns

_NONE = "no query is registered under this id"


def digest_of(request: ChangeRequest) -> int:
    """Returns 64 bits over all that makes two registrations equal; 0 for a removal."""
    if request.query is None:
        return 0
    return digest_of_query(request.query, request.subscriber)


@dataclass(slots=True)
class RequestBatch:
    """One pending `ChangeRequests`: the outcomes so far, and how many are open."""

    token: int
    outcomes: list[Outcome | None]
    open: int

    def settle(self, row: int, outcome: Outcome) -> list[Effect]:
        """Notes the outcome of a change request; answers the call when it was the last one."""
        self.outcomes[row] = outcome
        self.open -= 1
        if self.open:
            return []
        return [Answer(self.token, tuple(o for o in self.outcomes if o is not None))]


class ColumnBatch:
    """One pending `ColumnRequests`: the outcomes so far, and how many are open.

    Attributes:
        requests: what was asked for.
        changes: what each was appended as, if it was; of the other rows they are void.
    """

    def __init__(
        self, token: int, requests: PlainRequests | RemovalRequests, changes: ChangeColumns
    ) -> None:
        self.requests = requests
        self.changes = changes
        self._token = token
        self._revisions = np.full(len(requests), NO_REVISION, np.int64)
        self._errors: dict[int, SiroccoError] = {}
        self._open = len(requests)

    def settle(self, row: int, outcome: Outcome) -> list[Effect]:
        """As of `RequestBatch`."""
        self._revisions[row] = outcome.revision
        if outcome.error is not None:
            self._errors[row] = outcome.error
        self._open -= 1
        return self._answer()

    def settle_valid(self, rows: NDArray[np.integer], revisions: NDArray[np.int64]) -> list[Effect]:
        """The same for many changes that are in force."""
        self._revisions[rows] = revisions
        self._open -= len(rows)
        return self._answer()

    def _answer(self) -> list[Effect]:
        return [] if self._open else [Answer(self._token, Outcomes(self._revisions, self._errors))]


AnyBatch: TypeAlias = RequestBatch | ColumnBatch
QueuedRequest: TypeAlias = tuple[AnyBatch, int, ChangeRequest]


@dataclass(slots=True)
class Pending:
    """An append for one query that the log has not shown yet, and the requests that wait for it.

    Attributes:
        change: what was appended, a change of the query or a probe.
        waiting: later requests, in order.
        covered: how many of them arrived before the append.
    """

    batch: AnyBatch
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


def are_same(
    changes: ChangeColumns,
    rows: NDArray[np.integer],
    own: ChangeColumns,
    own_rows: NDArray[np.integer],
) -> NDArray[np.bool_]:
    """Returns bool[n]: `is_same`, for pairs of changes of queries with one handle each."""
    same: NDArray[np.bool_] = (
        (changes.digests[rows] == own.digests[own_rows])
        # The digest is over the id as well; that of a removal is none.
        & (changes.fingerprints[rows] == own.fingerprints[own_rows])
        & (changes.expected_revisions[rows] == own.expected_revisions[own_rows])
        & (changes.starts_ms[rows] == own.starts_ms[own_rows])
    )
    return same


def queue(
    pending: Pending, batch: AnyBatch, row: int, request: ChangeRequest, waiting_max: int
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
            return AlreadyExists(
                "another query is registered under this id: update or remove that one, or choose "
                "another id",
                field="id",
            )
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


def settle(batch: AnyBatch, row: int, outcome: Outcome) -> list[Effect]:
    """Notes the outcome of a change request; answers the call when it was the last one."""
    return batch.settle(row, outcome)
