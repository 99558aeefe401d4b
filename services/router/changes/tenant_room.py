"""What tenants may still register: limits on their queries, and on what these take."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from sirocco.internal_api.v1 import owner_service_pb2 as owner_pb
from sirocco.model.errors import ResourceExhausted
from sirocco.model.query import fingerprint_of, query_handle
from sirocco.model.quotas.footprint import compiled_bytes
from sirocco.model.quotas.step_load import step_load
from sirocco.protocol.contract.effects import ChangeRequest
from sirocco.protocol.router.queries.live_queries import UNKNOWN
from sirocco.runtime.grpc.authentication import Caller
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.services.router.limits import FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.quotas import QueryQuota, TenantFigures

# Bytes of a query, and the load of its steps.
Amounts: TypeAlias = tuple[int, float]


class TenantRoom:
    """Lets in changes as far as the limits of their tenants allow."""

    def __init__(
        self,
        owners: Owners,
        partitions: int,
        figures: TenantFigures,
        times: FrontTimes,
        pool: WorkPool,
        steps_per_s: float | None = None,
    ) -> None:
        """Counts queries with the `owners` of so many registry partitions.

        Args:
            owners: of so many `partitions`.
            figures: count refusals.
            times: between looks.
            pool: where the bytes of many queries are counted.
            steps_per_s: of tenants without a limit of their own.
        """
        self._owners = owners
        self._partitions = partitions
        self._times = times
        self._pool = pool
        self._quota = QueryQuota(self._counted, figures, times=times)
        self._byte_quota = QueryQuota(self._counted_bytes, figures, "query_bytes", times)
        self._step_quota = QueryQuota(
            self._counted_steps, figures, "steps_per_s", times, usual=steps_per_s
        )

    @asynccontextmanager
    async def room(
        self, client: Caller, wanted: Sequence[tuple[int, ChangeRequest]]
    ) -> AsyncIterator[dict[int, ResourceExhausted]]:
        """Enters with the rows beyond the tenant's limits and their errors.

        What is within the limits counts as being under way until the body has ended.
        """
        let_in: list[tuple[QueryQuota, float]] = []

        def settle() -> None:
            for quota, amount in let_in:
                quota.settled(client, amount)

        try:
            yield await self._refused(client, wanted, let_in)
        except asyncio.CancelledError:
            # The client has gone, but an owner may still apply its changes.
            asyncio.get_running_loop().call_later(self._times.seek_s, settle)
            raise
        except BaseException:
            settle()
            raise
        else:
            settle()

    async def _refused(
        self,
        client: Caller,
        wanted: Sequence[tuple[int, ChangeRequest]],
        let_in: list[tuple[QueryQuota, float]],
    ) -> dict[int, ResourceExhausted]:
        """Returns rows beyond the tenant's limits, with errors; repeated registrations never are.

        Args:
            client: the caller.
            wanted: rows and their changes, all of one action.
            let_in: gets the quotas and what they have let in.
        """
        # Rows of one id pass together: any of them may be the one that is in force afterwards.
        rows: dict[str, list[int]] = {}
        sizes: defaultdict[str, float] = defaultdict(float)
        loads: defaultdict[str, float] = defaultdict(float)
        counts_bytes = self._byte_quota.concerns(client)
        counted = await self._counted_rows(wanted) if counts_bytes else [0] * len(wanted)
        for (row, change), size in zip(wanted, counted, strict=True):
            query = change.query
            assert query is not None
            rows.setdefault(change.id, []).append(row)
            sizes[change.id] = max(sizes[change.id], size)
            loads[change.id] = max(loads[change.id], step_load(query))
        has_steps = self._step_quota.concerns(client) and any(loads.values())
        if not rows or not (self._quota.concerns(client) or counts_bytes or has_steps):
            return {}
        is_update = wanted[0][1].action == "update"
        counts_amounts = is_update and (counts_bytes or has_steps)
        live = await self._live(rows, client.grant.prefix if counts_amounts else "")
        if counts_amounts:
            # What the version before takes is free again. One that takes less is always let in.
            for name, (size, load) in live.items():
                sizes[name] = max(0, sizes[name] - size)
                loads[name] = max(0, loads[name] - load)
        new = [name for name in rows if is_update or name not in live]
        refused: dict[str, ResourceExhausted] = {}
        if not is_update:
            fitting = await self._quota.room(client, len(new))
            let_in.append((self._quota, fitting))
            refused = dict.fromkeys(new[fitting:], QueryQuota.refusal(client))
        asked = [name for name in new if name not in refused and sizes[name]]
        for name in await self._beyond(self._byte_quota, client, asked, sizes, let_in):
            refused[name] = QueryQuota.refusal_by_size(client, int(sizes[name]))
        asked = [name for name in new if name not in refused and loads[name]]
        for name in await self._beyond(self._step_quota, client, asked, loads, let_in):
            refused[name] = self._step_quota.refusal_by_steps(client, loads[name])
        return {row: error for name, error in refused.items() for row in rows[name]}

    async def _counted_rows(self, wanted: Sequence[tuple[int, ChangeRequest]]) -> Sequence[int]:
        """Returns the bytes of each row's query.

        Those of many are counted beside the loop: the longest expressions take 2 ms each.
        """
        if len(wanted) == 1:
            return [_bytes_of(wanted[0])]
        return await self._pool.map(_bytes_of, wanted)

    @staticmethod
    async def _beyond(
        quota: QueryQuota,
        client: Caller,
        names: Sequence[str],
        amounts: Mapping[str, float],
        let_in: list[tuple[QueryQuota, float]],
    ) -> Sequence[str]:
        """Returns those for which a quota has no room: the last ones."""
        wanted = [amounts[name] for name in names]
        fitting = await quota.fitting(client, wanted)
        let_in.append((quota, sum(wanted[:fitting])))
        return names[fitting:]

    async def _live(self, names: Iterable[str], amounts_of: str) -> dict[str, Amounts]:
        """Returns those ids that have a live query, and what it takes if that is asked.

        Args:
            names: ids of queries.
            amounts_of: prefix of the tenant's ids; empty: amounts are not asked.
        """
        known = {name: (query_handle(name), fingerprint_of(name)) for name in names}
        requests: dict[int, owner_pb.CountQueriesRequest] = {}
        for handle, fingerprint in known.values():
            partition = handle % self._partitions
            request = requests.setdefault(
                partition,
                owner_pb.CountQueriesRequest(partition=partition, amounts_of=amounts_of),
            )
            request.handles.append(handle)
            request.fingerprints.append(fingerprint)
        answers = await asyncio.gather(*(self._owners.count(r) for r in requests.values()))
        live = {key: amounts for answer in answers for key, amounts in _live(answer)}
        # An owner of an earlier version does not know fingerprints.
        found = {name: live.get(key, live.get((key[0], UNKNOWN))) for name, key in known.items()}
        return {name: amounts for name, amounts in found.items() if amounts is not None}

    async def _counted(self, prefix: str) -> int:
        return (await self._totals(prefix))[0]

    async def _counted_bytes(self, prefix: str) -> int:
        return (await self._totals(prefix))[1]

    async def _counted_steps(self, prefix: str) -> float:
        return (await self._totals(prefix))[2]

    async def _totals(self, prefix: str) -> tuple[int, int, float]:
        """Returns the number of live queries with this id prefix, their bytes, and their steps."""
        requests = [
            owner_pb.CountQueriesRequest(partition=partition, id_prefix=prefix)
            for partition in range(self._partitions)
        ]
        answers = await asyncio.gather(*(self._owners.count(each) for each in requests))
        return (
            sum(each.queries for each in answers),
            sum(each.bytes for each in answers),
            sum(each.steps_per_s for each in answers),
        )


def _bytes_of(each: tuple[int, ChangeRequest]) -> int:
    _, change = each
    assert change.query is not None
    return compiled_bytes(change.query, change.subscriber)


def _live(answer: owner_pb.CountQueriesResponse) -> Iterator[tuple[tuple[int, int], Amounts]]:
    """Yields handle and fingerprint of each live query of an answer, and what it takes.

    Amounts are 0 if they were not asked, or if the owner is of an earlier version.
    """
    count = len(answer.live_handles)
    fingerprints = list(answer.live_fingerprints) or [UNKNOWN] * count
    sizes = list(answer.live_bytes) or [0] * count
    loads = list(answer.live_steps_per_s) or [0.0] * count
    yield from zip(
        zip(answer.live_handles, fingerprints, strict=True),
        zip(sizes, loads, strict=True),
        strict=True,
    )
