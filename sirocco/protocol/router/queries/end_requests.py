"""The queries whose end is to be reported, as the registry knows them, change by change.

A query ends with a change of the registry: it is removed, by a client or because its lifetime is
over, or another one is registered in its place. After an update it continues. What the change
itself does not contain (id, subscriber, the ended version) is kept here, of these queries alone.

A change names the version that it replaces. In a compacted log that may be another than the one
known here: the record between is missing. In it the query may have ceased to ask, or the former
owner may have reported its end. So nothing is reported then (docs/adr/0036).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.model.query import ENDED, Query, query_handle
from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NEVER_MS, NO_REVISION, Change
from sirocco.protocol.router.queries.live_queries import has_expired


def reports_end(query: Query | None) -> bool:
    """Whether the end of a query is to be reported."""
    return query is not None and ENDED in query.events


@dataclass(frozen=True, slots=True)
class End:
    """The end of a version of a query, to be reported.

    Attributes:
        query, subscriber: its id, and the receiver of the report.
        revision: of the version.
        by: offset of the change that ended it.
        has_expired: whether its lifetime was over by then.
    """

    query: str
    subscriber: str
    revision: int
    by: int
    has_expired: bool

    @property
    def handle(self) -> int:
        """Returns the handle of the query."""
        return query_handle(self.query)


@dataclass(frozen=True, slots=True)
class _EndRequest:
    query: str
    subscriber: str
    revision: int
    expires_ms: int


@dataclass(slots=True)
class EndRequests:
    """The live queries of one registry partition whose end is to be reported."""

    _known: dict[int, _EndRequest] = field(default_factory=dict)

    def learn(self, revision: int, change: Change) -> End | None:
        """Takes a change in force; returns the end that it causes, if that is to be reported.

        Args:
            revision: as `ChangeValidation.validate` returns it: for a removal, the offset of its
                record.
            change: the change.
        """
        known = self._known.get(change.handle)
        if known is None and not reports_end(change.query):
            return None
        if known is not None and known.revision == revision:
            return None
        request = _request_of(revision, change)
        if request is None:
            self._known.pop(change.handle, None)
        else:
            self._known[change.handle] = request
        if known is None or change.expected_revision != known.revision:
            return None
        if change.query is not None and change.since != NO_REVISION:
            return None
        has_ended = bool(has_expired(known.expires_ms, change.start_ms))
        return End(known.query, known.subscriber, known.revision, revision, has_ended)

    def knows(self, handles: NDArray[np.uint64]) -> bool:
        """Whether the end of one of these queries is to be reported."""
        return bool(self._known) and not self._known.keys().isdisjoint(handles.tolist())

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        end_requests = list(self._known.values())
        return {
            **packed("askers.queries", [each.query.encode() for each in end_requests]),
            **packed("askers.subscribers", [each.subscriber.encode() for each in end_requests]),
            "askers.revisions": np.array([each.revision for each in end_requests], np.int64),
            "askers.expires_ms": np.array([each.expires_ms for each in end_requests], np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one of an older version has none."""
        if "askers.queries" not in state:
            return
        rows = zip(
            unpacked("askers.queries", state),
            unpacked("askers.subscribers", state),
            state["askers.revisions"].tolist(),
            state["askers.expires_ms"].tolist(),
            strict=True,
        )
        for query, subscriber, revision, expires_ms in rows:
            request = _EndRequest(query.decode(), subscriber.decode(), revision, expires_ms)
            self._known[query_handle(request.query)] = request


def _request_of(revision: int, change: Change) -> _EndRequest | None:
    query = change.query
    if query is None or not reports_end(query):
        return None
    expires_ms = NEVER_MS if query.ttl_ms is None else change.start_ms + query.ttl_ms
    return _EndRequest(query.id, change.subscriber, revision, expires_ms)
