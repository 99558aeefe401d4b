"""Members and ownership: what a coordinator learns, decides and declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sirocco.protocol.contract.control_records import Declaration


@dataclass(frozen=True, slots=True)
class ControlRead:
    """The next record of `control`; every process reads all of them, in order."""

    offset: int
    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Member:
    """A process that holds a lease; one that is leaving hands over what it owns."""

    id: str
    service: str
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """The processes that hold leases, and whether this coordinator holds the leader's lease.

    `departed`: ids of processes that ended recently for a reason other than the records they took.
    """

    members: tuple[Member, ...]
    leading: bool
    departed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProposedMap:
    """The bytes of a proposed next map; one `Answer` with its version answers it."""

    token: int
    partition_map: bytes


@dataclass(frozen=True, slots=True)
class Warmed:
    """A member has loaded past objects of a slot that it is to own, or has not in time."""

    slot: int
    member: str


@dataclass(frozen=True, slots=True)
class SlotWeights:
    """The share of the load of each slot, as last measured; any unit."""

    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RebalanceRequest:
    """A request to move slots: slot → (owner as of the plan, the next one).

    One `Answer` with the token answers it; all of them move, or none.
    """

    token: int
    moves: Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Declare:
    """Barrier. Append a declaration to `control`."""

    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the view of what is in force (owners, map) for all processes to read."""

    owners: tuple[tuple[str, int, str, int], ...]
    map_version: int
