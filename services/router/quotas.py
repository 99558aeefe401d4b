"""Limits of tenants: queries and their steps in the cluster, publishing rates in this router.

Each router limits rates separately: with n routers a tenant may publish up to n times its rates.
Queries are counted where they are registered, and looked up here at intervals: until then, two
routers that admit queries at the same time do not know each other's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sirocco.internal_api.v1 import owner_service_pb2 as pb
from sirocco.model.access import SEPARATOR, Limits
from sirocco.model.errors import InvalidArgument, ResourceExhausted, Unavailable
from sirocco.model.query import fingerprint_of
from sirocco.model.quotas.footprint import compiled_bytes
from sirocco.model.quotas.quota import Bucket
from sirocco.model.quotas.step_load import step_load
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router.machine import RouterMachine
from sirocco.protocol.router.queries.live_queries import UNKNOWN
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.runtime.grpc.authentication import Caller
from sirocco.runtime.process.clock import monotonic_ms, now_ms
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.registry_definitions import StoredQueries
from sirocco.telemetry.metrics.router import RouterMetrics

T = TypeVar("T")

# Pause for a tenant at its limit: other queries have to be removed, or end, first.
QUERIES_RETRY_MS = 5_000

# Tenants with metrics of their own; the others share one label.
LABELS_MAX = 200
OTHERS = "(others)"


class TenantFigures:
    """Metrics by tenant, for a bounded number of tenants."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._labels: set[str] = set()

    def published(self, tenant: str, objects: int, size: int) -> None:
        """Counts admitted objects and bytes."""
        label = self._label(tenant)
        self._metrics.tenant_objects.labels(tenant=label).inc(objects)
        self._metrics.tenant_bytes.labels(tenant=label).inc(size)

    def refused(self, tenant: str, limit: str) -> None:
        """Counts a refusal."""
        self._metrics.tenant_refusals.labels(tenant=self._label(tenant), limit=limit).inc()

    def _label(self, tenant: str) -> str:
        if tenant not in self._labels:
            if len(self._labels) >= LABELS_MAX:
                return OTHERS
            self._labels.add(tenant)
        return tenant


class PublishRates:
    """Objects and bytes a second of each tenant through this router."""

    def __init__(self, figures: TenantFigures, times: FrontTimes = TIMES) -> None:
        self._held_up_ms_max = times.held_up_ms_max
        self._figures = figures
        self._buckets: dict[tuple[str, str], Bucket] = {}

    @asynccontextmanager
    async def room(self, client: Caller, objects: int, size: int) -> AsyncIterator[None]:
        """Enters when the caller's tenant may publish this amount, and charges it.

        If the body fails, the amount is returned.

        Raises:
            ResourceExhausted: the wait would be too long.
        """
        tenant = client.grant.tenant
        if not tenant:
            yield
            return
        amounts = {"objects_per_s": objects, "bytes_per_s": size}
        buckets = await self._filled(tenant, client)
        for name, bucket in buckets.items():
            bucket.take(amounts[name], monotonic_ms())
        try:
            yield
        except BaseException:
            # Its publisher sends the same again, and would be charged twice.
            for name, bucket in buckets.items():
                bucket.give_back(amounts[name])
            raise
        self._figures.published(tenant, objects, size)

    async def _filled(self, tenant: str, client: Caller) -> dict[str, Bucket]:
        """Returns the tenant's buckets, once each may be charged."""
        end_ms = monotonic_ms() + self._held_up_ms_max
        while True:
            now_ms = monotonic_ms()
            buckets = self._of(tenant, client.limits, now_ms)
            waits = {name: bucket.wait_ms(now_ms) for name, bucket in buckets.items()}
            longest = max(waits, key=waits.__getitem__, default=None)
            if longest is None or waits[longest] == 0:
                return buckets
            if now_ms + waits[longest] > end_ms:
                self._figures.refused(tenant, longest)
                raise ResourceExhausted(
                    f"tenant {tenant} publishes more than its {longest}",
                    retry_after_ms=waits[longest],
                )
            await asyncio.sleep(waits[longest] / 1_000)

    def _of(self, tenant: str, limits: Limits, now_ms: int) -> dict[str, Bucket]:
        found: dict[str, Bucket] = {}
        rates = {"objects_per_s": limits.objects_per_s, "bytes_per_s": limits.bytes_per_s}
        for name, rate in rates.items():
            if rate is None:
                self._buckets.pop((tenant, name), None)
                continue
            bucket = self._buckets.get((tenant, name))
            if bucket is None:
                bucket = self._buckets[tenant, name] = Bucket(rate, now_ms)
            elif bucket.rate_per_s != rate:
                bucket.change(rate, now_ms)
            found[name] = bucket
        return found


@dataclass(slots=True)
class _Seen:
    """Queries of a tenant (or what they take) at the last look, and those admitted here since."""

    amount: float
    at_ms: int
    added: float = 0


class QueryQuota:
    """Limit on the number of tenants' standing queries, on their bytes, or on their steps.

    Args:
        counted: asks the owners for the number, the bytes, or the steps of live queries with an id
            prefix.
        figures: counts refusals.
        limit: which of a tenant's limits this is.
        times: between looks.
        usual: the limit of tenants that have none of their own; None: they have none.
    """

    def __init__(
        self,
        counted: Callable[[str], Awaitable[float]],
        figures: TenantFigures,
        limit: str = "queries",
        times: FrontTimes = TIMES,
        usual: float | None = None,
    ) -> None:
        self._usual = usual
        self._times = times
        self._limit = limit
        self._counted = counted
        self._figures = figures
        self._seen: dict[str, _Seen] = {}
        self._looking: dict[str, asyncio.Lock] = {}
        # Let in by tenant, with unknown outcomes.
        self._under_way: defaultdict[str, float] = defaultdict(float)

    async def room(self, client: Caller, queries: int) -> int:
        """Returns how many new queries the caller may register; see `fitting`."""
        return await self.fitting(client, [1] * queries)

    def concerns(self, client: Caller) -> bool:
        """Whether the caller has such a limit."""
        return self.limit_of(client) is not None

    def limit_of(self, client: Caller) -> float | None:
        """Returns the limit of the caller's tenant; None: it has none."""
        if not client.grant.tenant:
            return None
        own: float | None = getattr(client.limits, self._limit)
        return self._usual if own is None else own

    async def fitting(self, client: Caller, amounts: Sequence[float]) -> int:
        """Returns how many of the first amounts fit, and counts them as registered.

        The caller says `settled` when their outcome is known.
        """
        tenant = client.grant.tenant
        limit = self.limit_of(client)
        if limit is None or not amounts:
            return len(amounts)
        wanted = sum(amounts)
        async with self._looking.setdefault(tenant, asyncio.Lock()):
            now_ms = monotonic_ms()
            seen = self._seen.get(tenant)
            is_full = seen is not None and seen.amount + seen.added + wanted > limit
            times = self._times
            age_max_ms = times.counted_at_limit_ms if is_full else times.counted_ms
            if seen is None or now_ms - seen.at_ms > age_max_ms:
                # The count may miss them.
                under_way = self._under_way[tenant]
                seen = _Seen(await self._counted(client.grant.prefix), now_ms, under_way)
                self._seen[tenant] = seen
            let_in = 0
            for amount in amounts:
                if seen.amount + seen.added + amount > limit:
                    break
                seen.added += amount
                self._under_way[tenant] += amount
                let_in += 1
        if let_in < len(amounts):
            self._figures.refused(tenant, self._limit)
        return let_in

    def settled(self, client: Caller, amount: float) -> None:
        """Records that the outcome of admitted changes is known: the next count includes them."""
        # Not below 0: the tenant may have had no limit when they were let in.
        tenant = client.grant.tenant
        self._under_way[tenant] = max(0, self._under_way[tenant] - amount)

    def refusal_by_steps(self, client: Caller, load: float) -> ResourceExhausted:
        """Returns the error for a query whose steps, or what it has more of them, have no room."""
        return ResourceExhausted(
            f"tenant {client.grant.tenant} has no room for {load:g} steps a second more, its "
            f"steps_per_s are {self.limit_of(client):g}; a longer step or a shorter window counts "
            "less",
            field="step",
            retry_after_ms=QUERIES_RETRY_MS,
        )

    @staticmethod
    def refusal_by_size(client: Caller, size: int) -> ResourceExhausted:
        """Returns the error for a query whose bytes, or what it has more, have no room."""
        return ResourceExhausted(
            f"tenant {client.grant.tenant} has no room for {size} bytes more of standing queries, "
            f"its query_bytes are {client.limits.query_bytes}",
            retry_after_ms=QUERIES_RETRY_MS,
        )

    @staticmethod
    def refusal(client: Caller) -> ResourceExhausted:
        """Returns the error for a query for which there is no room."""
        return ResourceExhausted(
            f"tenant {client.grant.tenant} has its {client.limits.queries} standing queries",
            retry_after_ms=QUERIES_RETRY_MS,
        )


class TenantQueries:
    """The tenants of the live queries in owned registry partitions.

    The machine knows queries by the hashes of their ids. Their tenants are read from the log at the
    first request, and updated from there: without limits it costs nothing.
    """

    def __init__(
        self, stored: StoredQueries, machine: RouterMachine, times: FrontTimes = TIMES
    ) -> None:
        self._tidy_ms = times.tidy_ms
        self._stored = stored
        self._machine = machine
        self._read: dict[int, _Tenants] = {}
        self._reading: dict[int, asyncio.Lock] = {}

    async def answer(self, request: pb.CountQueriesRequest) -> pb.CountQueriesResponse:
        """Counts live queries of an owned partition, and reports which of some are live.

        Raises:
            Unavailable: this router does not own the partition.
        """
        registry = self._machine.registries.get(request.partition)
        if registry is None:
            self._read.pop(request.partition, None)
            raise Unavailable("this router does not own that part of the registry")
        response = pb.CountQueriesResponse()
        if len(request.handles):
            handles = np.array(request.handles, np.uint64)
            fingerprints = np.array(request.fingerprints or [UNKNOWN] * len(handles), np.uint64)
            if len(fingerprints) != len(handles):
                raise InvalidArgument("must be as many as handles", field="fingerprints")
            found = np.flatnonzero(self._are_live(registry, handles, fingerprints))
            response.live_handles.extend(handles[found].tolist())
            response.live_fingerprints.extend(fingerprints[found].tolist())
            if prefix := request.amounts_of:
                live = list(response.live_handles)
                amounts = await self._asked(registry, lambda read: read.amounts(prefix, live))
                response.live_bytes.extend(size for size, _ in amounts)
                response.live_steps_per_s.extend(load for _, load in amounts)
        if request.id_prefix:
            response.queries, response.bytes, response.steps_per_s = await self._asked(
                registry, lambda read: self._totals(registry, read, request.id_prefix)
            )
        return response

    async def _asked(self, registry: Registry, question: Callable[[_Tenants], T]) -> T:
        """Answers a question in a thread, once the log is read."""

        async def answered() -> T:
            async with self._reading.setdefault(registry.partition, asyncio.Lock()):
                return await asyncio.to_thread(lambda: question(self._up_to_date(registry)))

        # The reading thread does not notice that its caller has gone: the next one waits.
        return await asyncio.shield(asyncio.ensure_future(answered()))

    def _up_to_date(self, registry: Registry) -> _Tenants:
        partition = registry.partition
        known = self._read.get(partition)
        if known is None or known.epoch != registry.epoch:
            known = self._read[partition] = _Tenants(registry.epoch)
        end = registry.offset
        for offset, change in self._stored.changes(partition, known.offset, end):
            if change.query is not None:
                known.take(change, offset)
            known.offset = offset + 1
        known.offset = max(known.offset, end)
        known.tidy(registry, self._tidy_ms)
        return known

    def _totals(self, registry: Registry, known: _Tenants, prefix: str) -> tuple[int, int, float]:
        """Returns the number of a tenant's queries, their bytes, and their steps."""
        handles, fingerprints, sizes, loads = known.of(prefix)
        # A query whose change was void, or that was removed again, is not live.
        is_live = self._are_live(registry, handles, fingerprints)
        count = int(np.count_nonzero(is_live))
        return count, int(sizes[is_live].sum()), float(loads[is_live].sum())

    def _are_live(
        self, registry: Registry, handles: NDArray[np.uint64], fingerprints: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Returns which queries are live; by their handles alone if they have no fingerprint."""
        live = registry.live
        found: NDArray[np.bool_] = live.have(handles, fingerprints) | (fingerprints == UNKNOWN)
        found &= live.are_standing(handles, self._machine.lifetimes_ms(now_ms()))
        return found


@dataclass(slots=True)
class _Tenants:
    """Handles of queries by id prefix, up to the position read in the log.

    Attributes:
        epoch: epoch of the ownership under which it was read.
        offset: next offset to read.
        handles: prefix → handle → offset of the newest change that was read, compiled bytes,
            fingerprint, and load of its steps.
    """

    epoch: int
    offset: int = 0
    handles: dict[str, dict[int, tuple[int, int, int, float]]] = field(default_factory=dict)
    _tidied_ms: int = field(default_factory=monotonic_ms)
    _tidied_offset: int = 0

    def take(self, change: Change, offset: int) -> None:
        """Adds the next change, of a query."""
        query = change.query
        assert query is not None
        tenant, separator, _ = query.id.partition(SEPARATOR)
        if separator:
            found = self.handles.setdefault(tenant + separator, {})
            size = compiled_bytes(query, change.subscriber)
            found[change.handle] = offset, size, fingerprint_of(query.id), step_load(query)

    def amounts(self, prefix: str, handles: Sequence[int]) -> list[tuple[int, float]]:
        """Returns the bytes, and the load of the steps, of some of a tenant's queries.

        Of one that is not the tenant's they are 0.
        """
        found = self.handles.get(prefix, {})
        each = (found.get(handle) for handle in handles)
        return [(0, 0.0) if one is None else (one[1], one[3]) for one in each]

    def of(
        self, prefix: str
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.float64]]:
        """Returns a tenant's queries, some of which may be gone.

        Returns:
            handles u8[n], fingerprints u8[n], bytes i8[n], loads of their steps f8[n].
        """
        found = self.handles.get(prefix, {})
        each, count = found.values(), len(found)
        sizes = np.fromiter((size for _, size, _, _ in each), np.int64, count)
        fingerprints = np.fromiter((known for _, _, known, _ in each), np.uint64, count)
        loads = np.fromiter((load for *_, load in each), np.float64, count)
        return np.fromiter(found, np.uint64, count), fingerprints, sizes, loads

    def tidy(self, registry: Registry, interval_ms: int) -> None:
        """Forgets removed queries from time to time.

        Queries read since the last time are kept: the machine may be about to add them.
        """
        if monotonic_ms() - self._tidied_ms < interval_ms:
            return
        for prefix, offsets in self.handles.items():
            handles, fingerprints, *_ = self.of(prefix)
            live = registry.live.have(handles, fingerprints).tolist()
            self.handles[prefix] = {
                handle: known
                for (handle, known), is_live in zip(offsets.items(), live, strict=True)
                if is_live or known[0] >= self._tidied_offset
            }
        self._tidied_ms, self._tidied_offset = monotonic_ms(), self.offset
