"""Bytes that changes of a tenant's queries append to the logs of slots, through this router.

A query is sent, compiled, to every slot that it meets: a change of a kilobyte may append a hundred
in each of them. Evaluators read these records between those of objects, and slots take no objects
while they search the past for new queries. So a tenant that changes its queries without end would
hold up its neighbours. Its changes wait while it is over its rate; those of others do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import box_rows_of, region_of
from sirocco.index.base.kinds import KIND_KNN, KIND_TRACKED, kind_number
from sirocco.model.errors import ResourceExhausted
from sirocco.model.query import ENDED, Query
from sirocco.model.quotas.quota import Bucket
from sirocco.protocol.contract.messages import NO_PAST
from sirocco.protocol.contract.record_sizes import record_bytes
from sirocco.protocol.router.queries.install_records import REMOVED_BYTES
from sirocco.runtime.grpc.authentication import Caller
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.quotas import TenantFigures

_EVERYWHERE = frozenset((KIND_KNN, KIND_TRACKED))

LIMIT = "change_bytes_per_s"

# What the end of a query that asks for it takes in each slot of the cluster, besides its names.
_END_BYTES = 64

# Of a second's amount, what is applied at once: a bulk request of thousands of large queries would
# otherwise be a debt of minutes.
PART = 0.25


# What it counts to search the past of a slot once, which takes it some ms to some 100 ms.
PAST_BYTES = 1 << 20

# What it counts in a slot that a step is due when its query is registered: some tenths of a
# millisecond if there is nothing to count.
STEP_BYTES = 16 << 10


def change_bytes(
    query: Query, subscriber: str, past_ms: int = NO_PAST, steps: int = 0
) -> tuple[int, int]:
    """Returns about how many bytes a version of a query appends.

    Args:
        query: the version.
        subscriber: its name.
        past_ms: how far back it asks; the search counts as well.
        steps: how many of its steps are due when it is registered; they count as well.

    Returns:
        In each slot that it meets, with its removal; in each slot of the cluster.
    """
    own = record_bytes(query, subscriber) + REMOVED_BYTES + steps * STEP_BYTES
    if past_ms != NO_PAST:
        own += PAST_BYTES
    if ENDED not in query.events:
        return own, 0
    return own, _END_BYTES + len(query.id.encode()) + len(subscriber.encode())


def slots_met(queries: Sequence[Query], routing: RoutingArrays) -> NDArray[np.int64]:
    """Returns i8[n], in how many slots queries are."""
    boxes = [box_rows_of(region_of(query)) for query in queries]
    offsets = np.cumsum([0, *map(len, boxes)]).astype(np.int64)
    flat = np.array([box for some in boxes for box in some], np.float64).reshape(-1, 4)
    counts = np.diff(routing.route_boxes(flat, offsets).slot_offsets)
    are_everywhere = [kind_number(query) in _EVERYWHERE for query in queries]
    return np.where(are_everywhere, routing.slots, counts)


class ChangeRates:
    """Holds up the changes of tenants that append too much.

    Args:
        routing: of the map in force; None before there is one.
        figures: counts refusals.
        times: how long changes wait.
        usual: bytes a second of tenants without a limit of their own; None: they have none.
    """

    def __init__(
        self,
        routing: Callable[[], RoutingArrays | None],
        figures: TenantFigures,
        times: FrontTimes = TIMES,
        usual: float | None = None,
    ) -> None:
        self._routing = routing
        self._figures = figures
        self._times = times
        self._usual = usual
        self._buckets: dict[str, Bucket] = {}

    def limit_of(self, client: Caller) -> float | None:
        """Returns the limit of the caller's tenant; None: it has none."""
        if not client.grant.tenant:
            return None
        own = client.limits.change_bytes_per_s
        return self._usual if own is None else own

    def parts(
        self, client: Caller, queries: Sequence[Query], sizes: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int, int]]:
        """Yields begin and end of parts that are applied one after the other, and their bytes.

        Args:
            client: a caller with a limit.
            queries: the new versions.
            sizes: `change_bytes` of each.
        """
        limit = self.limit_of(client)
        assert limit is not None
        totals = self._totals(queries, sizes)
        begin = held = 0
        for row, total in enumerate(totals):
            if row > begin and held + total > PART * limit:
                yield begin, row, held
                begin = row
                held = 0
            held += total
        if totals:
            yield begin, len(totals), held

    def _totals(self, queries: Sequence[Query], sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Returns what each query appends in all slots together."""
        routing = self._routing()
        # Before there is a map nothing is sent.
        if routing is None or not queries:
            return [0] * len(queries)
        each = np.array(sizes, np.int64)
        totals: list[int] = (
            slots_met(queries, routing) * each[:, 0] + routing.slots * each[:, 1]
        ).tolist()
        return totals

    def deadline_ms(self) -> int:
        """Returns until when changes that come now may wait, by the monotonic clock."""
        return monotonic_ms() + self._times.changes_held_up_ms_max

    async def room(self, client: Caller, size: int, end_ms: int) -> None:
        """Returns when the caller's tenant may append so much, in the order of the calls.

        Raises:
            ResourceExhausted: That would be after `end_ms`.
        """
        limit = self.limit_of(client)
        if limit is None:
            return
        tenant, now_ms = client.grant.tenant, monotonic_ms()
        bucket = self._bucket(tenant, limit, now_ms)
        wait_ms = bucket.wait_ms(now_ms)
        if now_ms + wait_ms > end_ms:
            self._figures.refused(tenant, LIMIT)
            raise ResourceExhausted(
                f"tenant {tenant} changes queries faster than its {LIMIT} allow: each change is "
                "sent to every slot that its query meets",
                retry_after_ms=wait_ms,
            )
        # Charged before the wait: who comes later waits for this one as well.
        bucket.take(size, now_ms)
        if wait_ms:
            try:
                await asyncio.sleep(wait_ms / 1_000)
            except asyncio.CancelledError:
                bucket.give_back(size)
                raise

    def _bucket(self, tenant: str, limit: float, now_ms: int) -> Bucket:
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = Bucket(limit, now_ms)
        elif bucket.rate_per_s != limit:
            bucket.change(limit, now_ms)
        return bucket
