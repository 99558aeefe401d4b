"""What tenants may still register: limits on the number of their queries, and on their bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from sirocco.internal_api.v1 import owner_service_pb2 as owner_pb
from sirocco.model.errors import ResourceExhausted
from sirocco.model.footprint import compiled_bytes
from sirocco.model.query import fingerprint_of, query_handle
from sirocco.protocol.contract.effects import ChangeRequest
from sirocco.protocol.router.queries.live_queries import UNKNOWN
from sirocco.runtime.grpc.authentication import Caller
from sirocco.services.router.limits import FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.quotas import QueryQuota, TenantFigures


class TenantRoom:
    """Lets in changes as far as the limits of their tenants allow."""

    def __init__(
        self, owners: Owners, partitions: int, figures: TenantFigures, times: FrontTimes
    ) -> None:
        """Counts queries with the `owners` of so many registry partitions."""
        self._owners = owners
        self._partitions = partitions
        self._times = times
        self._quota = QueryQuota(self._counted, figures, times=times)
        self._byte_quota = QueryQuota(self._counted_bytes, figures, "query_bytes", times)

    @asynccontextmanager
    async def room(
        self, client: Caller, wanted: Sequence[tuple[int, ChangeRequest]]
    ) -> AsyncIterator[dict[int, ResourceExhausted]]:
        """Enters with the rows beyond the tenant's limits and their errors.

        What is within the limits counts as being under way until the body has ended.
        """
        let_in: list[tuple[QueryQuota, int]] = []

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
        let_in: list[tuple[QueryQuota, int]],
    ) -> dict[int, ResourceExhausted]:
        """Returns rows beyond the tenant's limits, with errors; repeated registrations never are.

        Args:
            client: the caller.
            wanted: rows and their changes, all of one action.
            let_in: gets the quotas and what they have let in.
        """
        if not wanted or not (self._quota.concerns(client) or self._byte_quota.concerns(client)):
            return {}
        # Rows of one id pass together: any of them may be the one that is in force afterwards.
        rows: dict[str, list[int]] = {}
        sizes: Counter[str] = Counter()
        for row, change in wanted:
            assert change.query is not None
            rows.setdefault(change.id, []).append(row)
            sizes[change.id] = max(
                sizes[change.id], compiled_bytes(change.query, change.subscriber)
            )
        is_update = wanted[0][1].action == "update"
        live = await self._live(rows)
        new = [name for name in rows if is_update or name not in live]
        refused: dict[str, ResourceExhausted] = {}
        if not is_update:
            fitting = await self._quota.room(client, len(new))
            let_in.append((self._quota, fitting))
            refused = dict.fromkeys(new[fitting:], QueryQuota.refusal(client))
        # An update counts in full until its bytes are counted again.
        asked = [name for name in new if name not in refused]
        amounts = [sizes[name] for name in asked]
        fitting = await self._byte_quota.fitting(client, amounts)
        let_in.append((self._byte_quota, sum(amounts[:fitting])))
        for name in asked[fitting:]:
            refused[name] = QueryQuota.refusal_by_size(client, sizes[name])
        return {row: error for name, error in refused.items() for row in rows[name]}

    async def _live(self, names: Iterable[str]) -> set[str]:
        """Returns those ids that have a live query."""
        known = {name: (query_handle(name), fingerprint_of(name)) for name in names}
        requests: dict[int, owner_pb.CountQueriesRequest] = {}
        for handle, fingerprint in known.values():
            partition = handle % self._partitions
            request = requests.setdefault(
                partition, owner_pb.CountQueriesRequest(partition=partition)
            )
            request.handles.append(handle)
            request.fingerprints.append(fingerprint)
        answers = await asyncio.gather(*(self._owners.count(r) for r in requests.values()))
        live = {each for answer in answers for each in _live(answer)}
        # An owner of an earlier version does not know fingerprints.
        return {name for name, each in known.items() if each in live or (each[0], UNKNOWN) in live}

    async def _counted(self, prefix: str) -> int:
        return (await self._totals(prefix))[0]

    async def _counted_bytes(self, prefix: str) -> int:
        return (await self._totals(prefix))[1]

    async def _totals(self, prefix: str) -> tuple[int, int]:
        """Returns the number of live queries with this id prefix, and their bytes."""
        requests = [
            owner_pb.CountQueriesRequest(partition=partition, id_prefix=prefix)
            for partition in range(self._partitions)
        ]
        answers = await asyncio.gather(*(self._owners.count(each) for each in requests))
        return sum(each.queries for each in answers), sum(each.bytes for each in answers)


def _live(answer: owner_pb.CountQueriesResponse) -> list[tuple[int, int]]:
    """Handles and fingerprints of the live queries of an answer."""
    fingerprints = list(answer.live_fingerprints) or [UNKNOWN] * len(answer.live_handles)
    return list(zip(answer.live_handles, fingerprints, strict=True))
