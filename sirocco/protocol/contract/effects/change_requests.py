"""Requests to register, update or remove queries, and records read again for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from sirocco.model.query import Query
from sirocco.protocol.contract.messages import NO_PAST, Change
from sirocco.protocol.contract.plain_queries import PlainQueries, RemovedQueries


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A change request of a client; `query` None removes the query.

    `past_ms`: also answer from the objects of this many milliseconds before; not part of the query.
    `is_start_given`: as in `Change`.
    """

    action: str
    id: str
    query: Query | None
    subscriber: str
    start_ms: int
    past_ms: int = NO_PAST
    is_start_given: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRequests:
    """Change requests for one registry partition; one `Answer` with the token answers them."""

    token: int
    partition: int
    requests: tuple[ChangeRequest, ...]


class _RequestColumns(Sequence[ChangeRequest]):
    """Change requests that are columns: a sequence of their values."""

    __slots__ = ()

    @overload
    def __getitem__(self, row: int) -> ChangeRequest: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[ChangeRequest]: ...

    def __getitem__(self, row: int | slice) -> ChangeRequest | Sequence[ChangeRequest]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        return self.request(row)

    def __iter__(self) -> Iterator[ChangeRequest]:
        return map(self.request, range(len(self)))

    @abstractmethod
    def request(self, row: int) -> ChangeRequest:
        """Returns a request as a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRequests(_RequestColumns):
    """Change requests for plain queries, all registered or all updated; n rows.

    Attributes:
        is_update: else they are registered.
        queries: the queries; no id twice.
        start_ms, is_start_given: as of `ChangeRequest`, of all.
    """

    is_update: bool
    queries: PlainQueries
    start_ms: int
    is_start_given: bool = False

    def __len__(self) -> int:
        return len(self.queries)

    def request(self, row: int) -> ChangeRequest:
        """Returns a request as a value."""
        query = self.queries.query(row)
        return ChangeRequest(
            action="update" if self.is_update else "register",
            id=query.id,
            query=query,
            subscriber=self.queries.subscriber(row),
            start_ms=self.start_ms,
            is_start_given=self.is_start_given,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRequests(_RequestColumns):
    """Change requests that remove queries of any kind; n rows.

    Attributes:
        queries: no id twice.
        start_ms: as of `ChangeRequest`, of all.
    """

    queries: RemovedQueries
    start_ms: int

    def __len__(self) -> int:
        return len(self.queries)

    def request(self, row: int) -> ChangeRequest:
        """Returns a request as a value."""
        return ChangeRequest(
            action="unregister",
            id=self.queries.id(row),
            query=None,
            subscriber="",
            start_ms=self.start_ms,
        )


@dataclass(frozen=True, slots=True)
class ColumnRequests:
    """`ChangeRequests` as columns."""

    token: int
    partition: int
    requests: PlainRequests | RemovalRequests


@dataclass(frozen=True, slots=True)
class RecoveredDefinition:
    """A record, read again, that holds the definition of one of `Registry.hidden`."""

    partition: int
    offset: int
    change: Change


@dataclass(frozen=True, slots=True)
class RegistryRecords:
    """Records of a registry partition, read again because their queries are to be copied."""

    partition: int
    changes: tuple[tuple[int, Change], ...]
