"""Has the owners of queries apply changes, within the limits of tenants."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from sirocco.model.errors import ResourceExhausted, SiroccoError
from sirocco.model.query import query_handle
from sirocco.protocol.contract.effects import (
    ChangeRequest,
    Outcome,
    Outcomes,
    PlainRequests,
    RemovalRequests,
    errors_of,
)
from sirocco.protocol.contract.messages import NO_REVISION
from sirocco.runtime.grpc.authentication import Caller
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.services.router.changes.change_rates import ChangeRates, change_bytes
from sirocco.services.router.changes.column_rows import ColumnRows, Queries
from sirocco.services.router.changes.query_checks import steps_behind
from sirocco.services.router.changes.tenant_room import TenantRoom
from sirocco.services.router.owners import Owners
from sirocco.telemetry.metrics.router import RouterMetrics

# Registry partition → rows of a bulk request and their changes.
_Changes: TypeAlias = dict[int, list[tuple[int, ChangeRequest]]]


class QueryChanges:
    """Applies changes, one or many, and counts their outcomes."""

    def __init__(
        self,
        owners: Owners,
        partitions: int,
        tenants: TenantRoom,
        rates: ChangeRates,
        pool: WorkPool,
        metrics: RouterMetrics,
    ) -> None:
        """Takes the owners of so many registry partitions; rows are read in the pool."""
        self._owners = owners
        self._partitions = partitions
        self._tenants = tenants
        self._rates = rates
        self._pool = pool
        self._metrics = metrics

    async def apply(self, change: ChangeRequest, client: Caller) -> int:
        """Applies one change; returns the revision, or raises why there is none."""
        if change.action == "unregister":
            (outcome,) = await self._owners.apply(self._partition_of(change), [change])
        else:
            async with self._tenants.room(client, [(0, change)]) as refused:
                for error in refused.values():
                    raise error
                await self._wait_for_room(change, client)
                (outcome,) = await self._owners.apply(self._partition_of(change), [change])
        self._count(change.action, [outcome])
        if outcome.error is not None:
            raise outcome.error
        return outcome.revision

    async def apply_rows(
        self, action: str, rows: Sequence[ChangeRequest | SiroccoError], client: Caller
    ) -> list[Outcome]:
        """Applies the changes of a bulk request, grouped by owner."""
        outcomes: list[Outcome | None] = [None] * len(rows)
        good: list[tuple[int, ChangeRequest]] = []
        for row, change in enumerate(rows):
            if isinstance(change, SiroccoError):
                outcomes[row] = Outcome(NO_REVISION, change)
            else:
                good.append((row, change))
        changes = self._grouped(good)
        if action == "unregister":
            await self._put_outcomes(changes, outcomes)
        else:
            async with self._tenants.room(
                client, [each for some in changes.values() for each in some]
            ) as refused:
                await self._put_in_time(_without(changes, refused), outcomes, client)
            for row, error in refused.items():
                outcomes[row] = Outcome(NO_REVISION, error)
        every = [outcome for outcome in outcomes if outcome is not None]
        assert len(every) == len(rows)
        self._count(action, every)
        return every

    async def apply_columns(
        self,
        action: str,
        count: int,
        columns: ColumnRows[Queries],
        requests_of: Callable[[Queries], PlainRequests | RemovalRequests],
        read: Callable[[int], ChangeRequest | SiroccoError],
        client: Caller,
    ) -> Outcomes:
        """Applies the changes of a bulk request with so many rows: columns, and those beside them.

        Args:
            action, count: of the request.
            columns: some of its rows.
            requests_of: makes change requests of them.
            read: reads one of the other rows.
            client: the caller.
        """
        outcomes = Outcomes(np.full(count, NO_REVISION, np.int64), {})

        async def decide(partition: int, some: ColumnRows[Queries]) -> None:
            decided = await self._owners.apply(partition, requests_of(some.queries))
            outcomes.put(some.rows, decided)
            self._count(action, decided)

        async def decide_others() -> None:
            if others := columns.others(count):
                decided = await self.apply_rows(action, await self._pool.map(read, others), client)
                outcomes.put(np.array(others), decided)

        of_partitions = columns.of_partitions(self._partitions)
        await asyncio.gather(*(decide(*each) for each in of_partitions.items()), decide_others())
        return outcomes

    async def _wait_for_room(self, change: ChangeRequest, client: Caller) -> None:
        """Waits until the caller's tenant may append a change to slots.

        Raises:
            ResourceExhausted: That would take too long.
        """
        query = change.query
        if query is None or self._rates.limit_of(client) is None:
            return
        end_ms = self._rates.deadline_ms()
        for *_, size in self._rates.parts(client, [query], [_bytes_of((0, change))]):
            await self._rates.room(client, size, end_ms)

    async def _put_in_time(
        self, changes: _Changes, outcomes: list[Outcome | None], client: Caller
    ) -> None:
        """As `_put_outcomes`, in parts for which the caller's tenant has room."""
        if self._rates.limit_of(client) is None:
            await self._put_outcomes(changes, outcomes)
            return
        rows = [each for some in changes.values() for each in some]
        # Elsewhere, as a long one takes a millisecond.
        sizes = await self._pool.map(_bytes_of, rows)
        queries = [change.query for _, change in rows if change.query is not None]
        end_ms = self._rates.deadline_ms()
        for begin, end, size in self._rates.parts(client, queries, sizes):
            part = rows[begin:end]
            try:
                await self._rates.room(client, size, end_ms)
            except ResourceExhausted as error:
                for row, _ in part:
                    outcomes[row] = Outcome(NO_REVISION, error)
                continue
            is_all = len(part) == len(rows)
            await self._put_outcomes(changes if is_all else self._grouped(part), outcomes)

    def _grouped(self, rows: Iterable[tuple[int, ChangeRequest]]) -> _Changes:
        """Returns changes by the registry partition of their queries."""
        changes: _Changes = {}
        for row, change in rows:
            changes.setdefault(self._partition_of(change), []).append((row, change))
        return changes

    async def _put_outcomes(self, changes: _Changes, outcomes: list[Outcome | None]) -> None:
        """Has the owners apply changes, and sets the outcomes of their rows."""

        async def decide(partition: int, some: Sequence[tuple[int, ChangeRequest]]) -> None:
            decided = await self._owners.apply(partition, [change for _, change in some])
            for (row, _), outcome in zip(some, decided, strict=True):
                outcomes[row] = outcome

        await asyncio.gather(*(decide(partition, some) for partition, some in changes.items()))

    def _partition_of(self, change: ChangeRequest) -> int:
        """Returns the registry partition of a change's query."""
        return query_handle(change.id) % self._partitions

    def _count(self, action: str, outcomes: Sequence[Outcome]) -> None:
        errors = errors_of(outcomes)
        names = Counter(each.code for each in errors)
        names["ok"] = len(outcomes) - len(errors)
        for name, count in names.items():
            self._metrics.query_changes.labels(action=action, outcome=name).inc(count)


def _bytes_of(each: tuple[int, ChangeRequest]) -> tuple[int, int]:
    _, change = each
    assert change.query is not None
    # Without a start of the client's, it is this router's clock.
    steps = steps_behind(change.query, change.start_ms) if change.is_start_given else 0
    return change_bytes(change.query, change.subscriber, change.past_ms, steps)


def _without(changes: _Changes, refused: Container[int]) -> _Changes:
    """Returns the changes whose rows are not refused."""
    kept = {
        partition: [each for each in some if each[0] not in refused]
        for partition, some in changes.items()
    }
    return {partition: some for partition, some in kept.items() if some}
