"""Publishes the members that the queries of a registry partition track.

Each ownership publishes each member before it answers a query with it: a predecessor may have
published an old list late. When many of the published members are tracked no more, it publishes the
full list. It does so only if the log of the registry has shown a record of its own and nothing is
missing: then it knows every query in force. From there on other members are forgotten
(`followed_members`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from sirocco.model.access import tenant_of
from sirocco.model.errors import ResourceExhausted
from sirocco.model.query import Query, RangeQuery
from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Change, TrackedMember, TrackedMemberSet
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.queries.live_queries import definition_places


class MemberCounts:
    """Members, with the number of queries that track them, in all and of each tenant."""

    def __init__(self, tracked: Iterable[tuple[str, str]] = ()) -> None:
        """Starts with some queries: the tenant and the member of each."""
        self._counts: Counter[str] = Counter()
        self._of_tenants: dict[str, Counter[str]] = {}
        for tenant, member in tracked:
            self.add(tenant, member)

    def __len__(self) -> int:
        """Returns how many members are tracked."""
        return len(self._counts)

    def __contains__(self, member: str) -> bool:
        return member in self._counts

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def of_tenant(self, tenant: str) -> int:
        """Returns how many members the queries of a tenant track."""
        return len(self._of_tenants.get(tenant, ()))

    def add(self, tenant: str, member: str) -> None:
        """Adds a query."""
        self._counts[member] += 1
        self._of_tenants.setdefault(tenant, Counter())[member] += 1

    def remove(self, tenant: str, member: str) -> None:
        """Removes a query."""
        _remove_one(self._counts, member)
        own = self._of_tenants[tenant]
        _remove_one(own, member)
        if not own:
            del self._of_tenants[tenant]


def _remove_one(counts: Counter[str], member: str) -> None:
    counts[member] -= 1
    if not counts[member]:
        del counts[member]


class MemberDeclarations:
    """The members that the queries of one owned registry partition track.

    Args:
        partition: of the registry.
        epoch: of the ownership.
        limits: of the router.

    Attributes:
        counts: of the queries that track each.
    """

    def __init__(self, partition: int, epoch: int, limits: RouterLimits = LIMITS) -> None:
        self._limits = limits
        self._partition = partition
        self._epoch = epoch
        # Handle of each live query that tracks → its tenant and member.
        self._member_of: dict[int, tuple[str, str]] = {}
        self.counts = MemberCounts()
        # Members that intake partitions may know of this one; and those this owner has published.
        self._known: set[str] = set()
        self._published: set[str] = set()
        # Whether intake partitions may know members from older versions, of any partition.
        self._is_after_another = False
        # Whether all members are known: compaction may have removed the records that name them.
        self._is_whole = True

    def learn(self, change: Change) -> list[TrackedMember]:
        """Takes a change in force; returns the records to append before it is answered."""
        former = self._member_of.pop(change.handle, None)
        if former is not None:
            self.counts.remove(*former)
        member = member_of(change.query)
        if change.query is None or member is None:
            return []
        tenant = tenant_of(change.query.id)
        self._member_of[change.handle] = tenant, member
        self.counts.add(tenant, member)
        if member in self._published:
            return []
        self._published.add(member)
        self._known.add(member)
        return [TrackedMember(member, self._partition, self._epoch)]

    def knows(self, handles: NDArray[np.uint64]) -> bool:
        """Whether a change of one of these queries would be noted, though its columns are plain."""
        return bool(self._member_of) and not self._member_of.keys().isdisjoint(handles.tolist())

    @property
    def is_due(self) -> bool:
        """Whether the full list is due: many known members are tracked no more."""
        gone = len(self._known) - len(self.counts)
        is_crowded = gone > max(self._limits.obsolete_members_min, len(self.counts) // 2)
        # More members than the bound, from an old log, would not fit a record.
        fits = self._is_whole and len(self.counts) <= self._limits.members_max
        return fits and (is_crowded or self._is_after_another)

    def keep(self) -> TrackedMemberSet:
        """Returns the full list of tracked members, and forgets all others.

        To be called only when every query in force is known here.
        """
        self._known, self._published = set(self.counts), set(self.counts)
        self._is_after_another = False
        return TrackedMemberSet(self._partition, self._epoch, tuple(sorted(self.counts)))

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        if not self._is_whole:
            # The next owner searches the log again.
            return {}
        tracked = self._member_of.values()
        return {
            "track.handles": np.array(list(self._member_of), np.uint64),
            **packed("track.members", [member.encode() for _, member in tracked]),
            **packed("track.tenants", [tenant.encode() for tenant, _ in tracked]),
            **packed("track.known", [member.encode() for member in sorted(self._known)]),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        self._is_whole = "track.handles" in state
        self._is_after_another = "track.known" not in state
        if not self._is_whole:
            return
        members = [member.decode() for member in unpacked("track.members", state)]
        # Checkpoints of older versions lack the tenants: these members use no share.
        tenants = [""] * len(members)
        if "track.tenants" in state:
            tenants = [tenant.decode() for tenant in unpacked("track.tenants", state)]
        tracked = list(zip(tenants, members, strict=True))
        self._member_of = dict(zip(state["track.handles"].tolist(), tracked, strict=True))
        self.counts = MemberCounts(tracked)
        self._known = set(members)
        if not self._is_after_another:
            self._known |= {member.decode() for member in unpacked("track.known", state)}


def member_of(query: Query | None) -> str | None:
    """Returns the member that a query tracks; None where it tracks none."""
    return query.track if isinstance(query, RangeQuery) else None


def check_member(
    query: Query | None,
    tracked: MemberCounts,
    pending: MemberCounts,
    members_max: int = LIMITS.members_max,
) -> None:
    """Refuses a query that would track one member too many.

    Args:
        query: of a change.
        tracked: the members of the live queries.
        pending: those of pending changes; some may be tracked already.
        members_max: see `RouterLimits`.

    Raises:
        ResourceExhausted: Other queries track as many as allowed, or those of its tenant do.
    """
    member = member_of(query)
    if query is None or member is None or member in tracked or member in pending:
        return
    free = members_max - len(tracked) - len(pending)
    if free <= 0:
        raise ResourceExhausted(f"queries track {members_max} members here already", field="track")
    tenant = tenant_of(query.id)
    own = tracked.of_tenant(tenant) + pending.of_tenant(tenant)
    if tenant and own >= free:
        raise ResourceExhausted(
            f"queries of tenant {tenant} track {own} members here, as many as are free",
            field="track",
        )


def are_missing(state: State) -> bool:
    """Whether a registry partition's state, from an older version, lacks the tracked members."""
    return "handles" in state and "track.handles" not in state


def with_members(state: State, changes: Iterable[tuple[int, Change]]) -> State:
    """Adds the tracked members if the log holds all queries; the published ones stay unknown.

    Args:
        state: of a registry partition.
        changes: its records before the offset of the state, with their offsets.
    """
    places = definition_places(state)
    read = {c.handle: c.query for offset, c in changes if places.get(c.handle) == offset}
    if read.keys() != places.keys():
        return state
    found = {
        handle: (tenant_of(query.id), member)
        for handle, query in read.items()
        if query is not None and (member := member_of(query)) is not None
    }
    return {
        **state,
        "track.handles": np.array(list(found), np.uint64),
        **packed("track.members", [member.encode() for _, member in found.values()]),
        **packed("track.tenants", [tenant.encode() for tenant, _ in found.values()]),
    }
