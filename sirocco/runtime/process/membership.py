"""Which processes are alive: each keeps a lease and a description in the map store."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from types import UnionType
from typing import Protocol

import orjson

from sirocco.protocol.contract.effects import Member
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.telemetry.logging import event
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.map_store import MapStore

logger = logging.getLogger(__name__)

# Characters of the operator's name for a process in its id.
NAME_CHARACTERS_MAX = 30

LEADER_LEASE = "lease/leader"

# The leader's report of its last round of balancing, a `DescribeBalanceResponse`.
BALANCE_REPORT = "balance/report"

# Prefixes of leases, before the id of a process: it is alive, and it wants to leave.
LEASES = "lease/member/"
LEAVING = "lease/leaving/"

_MEMBERS = "member/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long a process counts as alive.

    Attributes:
        lease_ms: a process that is killed is missed after this long, and what it owned is granted
            at the coordinator's next look. A busy machine may hold up renewals for a few seconds.
        renew_ms: between renewals; three of them may fail before the lease is lost.
        stuck_ms: a loop that has not run for so long does not count as alive, even if the thread
            that renews its lease runs. Longer than the largest index takes to load while the pool
            works, and than a broker's restart.
        leaving_ms: how long a request to leave is valid: longer than a process may take to end, and
            than granting its partitions to others takes.
    """

    lease_ms: int = 4_000
    renew_ms: int = 1_000
    stuck_ms: int = 45_000
    leaving_ms: int = 60_000


LEASE_TIMES = LeaseTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """What a process reports about itself.

    Attributes:
        address: host:port of its gRPC server.
        peer_address: of the server for other services; empty where that is the same.
        http_address: host:port of health and metrics.
        loads: figures of the last seconds.
        taken: intake partition → position up to which all slots of an evaluator have taken it.
    """

    id: str
    service: str
    address: str
    http_address: str
    started_ms: int
    loads: dict[str, float] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    peer_address: str = ""

    @property
    def for_peers(self) -> str:
        """The address for other services."""
        return self.peer_address or self.address

    def form(self) -> bytes:
        """Returns its stored form."""
        members = asdict(self)
        if not self.peer_address:
            # Members of an earlier release, which run beside this one during an update, treat
            # unknown fields as damage.
            del members["peer_address"]
        return orjson.dumps(members)


_FIELDS = tuple(one.name for one in fields(MemberInfo))


class Leases(Protocol):
    """The part of a map store that shows which processes are alive."""

    def holders(self, prefix: str) -> dict[str, str]:
        """See `MapStore`."""


def new_member_id(service: str, name: str = "") -> str:
    """Returns an id for this start of a process; never used again.

    Args:
        service: Of the process; the id begins with it and a hyphen, and has no other hyphen.
        name: The operator's name for it, such as `router-0`; may be empty.
    """
    # The end of a long name is kept: its beginning is common to all of a release.
    own = name.removeprefix(f"{service}-").replace("-", ".")[-NAME_CHARACTERS_MAX:].lstrip(".")
    return f"{service}-{own}{'.' if own else ''}{secrets.token_hex(5)}"


def living(store: Leases) -> tuple[Member, ...]:
    """Returns all processes that hold a lease."""
    return seen(store)[0]


def seen(store: Leases) -> tuple[tuple[Member, ...], frozenset[str]]:
    """Returns all processes with a lease, and the ids of those that have left without harm."""
    # First: a process that leaves meanwhile is then missing, not among those that stay.
    leaving = {name.removeprefix(LEAVING) for name in store.holders(LEAVING)}
    ids = sorted(name.removeprefix(LEASES) for name in store.holders(LEASES))
    members = tuple(Member(one, one.rsplit("-", 1)[0], one in leaving) for one in ids)
    return members, frozenset(leaving.difference(ids))


def can_take_over(store: Leases, member: str) -> bool:
    """Whether somebody leads, and another process of the same service stays."""
    service = member.rsplit("-", 1)[0]
    others = (m for m in living(store) if m.service == service and m.id != member)
    return bool(store.holders(LEADER_LEASE)) and any(not m.is_leaving for m in others)


def directory(store: MapStore) -> dict[str, MemberInfo]:
    """Returns the descriptions of all processes, by id; what is no description is left out."""
    found = {
        name.removeprefix(_MEMBERS): _read_info(value)
        for name, value in store.scan(_MEMBERS).items()
    }
    return {name: info for name, info in found.items() if info is not None and info.id == name}


def _read_info(value: bytes) -> MemberInfo | None:
    """Reads a description; members that only another release knows are passed over."""
    try:
        members = orjson.loads(value)
        info = MemberInfo(**{name: members[name] for name in _FIELDS if name in members})
    except (orjson.JSONDecodeError, TypeError):
        return None
    texts = (info.id, info.service, info.address, info.http_address, info.peer_address)
    is_known = (
        all(isinstance(text, str) for text in texts)
        and isinstance(info.started_ms, int)
        and _are_figures(info.loads, int | float)
        and _are_figures(info.taken, int)
    )
    return info if is_known else None


def _are_figures(figures: object, kind: type | UnionType) -> bool:
    return isinstance(figures, dict) and all(isinstance(one, kind) for one in figures.values())


class LeaseKeeper:
    """Renews a process's lease and description while its loop runs."""

    def __init__(
        self,
        store: MapStore,
        describe: Callable[[], MemberInfo],
        beat_ms: Callable[[], int],
        keep: Callable[[], None] = lambda: None,
        times: LeaseTimes = LEASE_TIMES,
    ) -> None:
        """Renews what `describe` returns while `beat_ms` advances, and calls `keep` as often."""
        self._times = times
        self._keep = keep
        self._store = store
        self._describe = describe
        self._beat_ms = beat_ms
        self._id = describe().id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self._id}-lease", daemon=True)

    def start(self) -> None:
        """Takes the lease, then keeps it."""
        self._renew()
        self._thread.start()

    def leave(self) -> None:
        """Asks for all that is owned to be granted to others; until then the process continues.

        Raises:
            Unavailable: The store does not answer.
        """
        self._store.acquire(LEAVING + self._id, self._id, self._times.leaving_ms)

    def stop(self, *, is_harmed: bool = False) -> None:
        """Gives the lease back, so that others take over at once.

        Args:
            is_harmed: A record that the process read has ended it. Otherwise it reports that it
                left, or the records it was processing would be suspected, see `poison_trials`.
        """
        self._stopping.set()
        self._thread.join(5)
        try:
            if is_harmed:
                self._store.release(LEAVING + self._id, self._id)
            else:
                self._store.acquire(LEAVING + self._id, self._id, self._times.leaving_ms)
            self._store.release(LEASES + self._id, self._id)
            self._store.delete(_MEMBERS + self._id)
        except TransportUnavailable:
            logger.warning(
                "the lease cannot be released; it expires",
                extra=event("lease_not_released", member=self._id),
            )

    def _run(self) -> None:
        while not self._stopping.wait(self._times.renew_ms / 1_000):
            if monotonic_ms() - self._beat_ms() > self._times.stuck_ms:
                continue
            try:
                self._renew()
            except TransportUnavailable as error:
                # The store may come back empty; that alone makes nobody count as dead (rule R4).
                extra = event("lease_not_renewed", member=self._id, reason=str(error))
                logger.warning(
                    "the map store does not answer; the lease is not renewed", extra=extra
                )
            except Exception:
                # Without this thread the process would count as dead, and work on.
                extra = event("lease_not_renewed", member=self._id, reason="error")
                logger.exception("the lease is not renewed; trying again", extra=extra)

    def _renew(self) -> None:
        self._store.acquire(LEASES + self._id, self._id, self._times.lease_ms)
        self._store.put(
            _MEMBERS + self._id, self._describe().form(), ttl_ms=3 * self._times.lease_ms
        )
        self._keep()
