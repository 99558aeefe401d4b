"""What the state machines are told and what they ask for.

A machine is `step(event, now_ms) -> list[Effect]`: no I/O, no clock, no randomness. A shell (the
runtime on real parts, the simulator on virtual ones) carries the effects out strictly in the order
of the list. `SaveCheckpoint`, `Declare`, `Answer` and `Truncate` carry a promise about what was
appended before them, therefore they are *barriers*: they are carried out only when the log has
acknowledged every earlier `Append` of this machine. A failed append ends the process, so a barrier
that is never reached never speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.model.errors import SiroccoError
from sirocco.model.query import Query
from sirocco.protocol.contract.control_records import Declaration
from sirocco.protocol.contract.messages import NO_PAST, Change, Message

# The state of one owned Kafka partition, as named columns.
State = Mapping[str, NDArray[Any]]

# --- events


@dataclass(frozen=True, slots=True)
class ControlRead:
    """The next record of `control`; every process reads them all, in order."""

    offset: int
    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of an owned Kafka partition."""

    topic: str
    partition: int
    offset: int
    message: Message


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll brought: in order for each Kafka partition, interleaved between them."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer to `Load`: the newest state of the Kafka partition; None when there is none.

    `offset` is where reading goes on; `slices` are those that the state names (`slice_names`);
    `log_end` is how far the log of a slot reached then: before that it cannot be searched.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    state: State | None
    slices: tuple[SealedSlice, ...] = ()
    log_end: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """An answer to `Transact`: all of it is in the log; `number` is the transaction's."""

    partition: int
    number: int
    bytes_total: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The other answer to `Transact`: nothing of it is in the log, another process has fenced."""

    partition: int
    number: int


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that a client wants; `query` None removes.

    `past_ms`: also answer from the objects of so long before; it is no part of the query.
    `is_start_given`: as of `Change`.
    """

    action: str
    id: str
    query: Query | None
    subscriber: str
    start_ms: int
    past_ms: int = NO_PAST
    is_start_given: bool = False


@dataclass(frozen=True, slots=True)
class Wished:
    """Changes to queries of one registry partition; answered by one `Answer` with the token."""

    token: int
    partition: int
    wishes: tuple[Wish, ...]


@dataclass(frozen=True, slots=True)
class Recalled:
    """The record where the definition of one of `Registry.unsaid` stands, read from the log."""

    partition: int
    offset: int
    change: Change


@dataclass(frozen=True, slots=True)
class Reread:
    """Records of a registry partition, read again since queries are to be copied."""

    partition: int
    changes: tuple[tuple[int, Change], ...]


@dataclass(frozen=True, slots=True)
class Proposed:
    """The bytes of a map that is to follow; answered by one `Answer` with its version."""

    token: int
    partition_map: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """A process that holds a lease; one that is leaving wants to be rid of what it owns."""

    id: str
    service: str
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """Who is alive by the leases, and whether this coordinator holds the leader's lease.

    `parted`: ids of processes that have ended lately, and not by what they took.
    """

    members: tuple[Member, ...]
    leading: bool
    parted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Computed:
    """The answer to `Compute`."""

    key: tuple[str, int, int]
    result: Any


@dataclass(frozen=True, slots=True)
class EndsFound:
    """The answer to `FindEnds`: i8[n], the offset that the next record of each would have had."""

    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Hurry:
    """Somebody waits for what is under way: say at once how far the sources have come."""


@dataclass(frozen=True, slots=True)
class Saving:
    """These slots are about to be handed over: leave checkpoints of them behind."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotsWeighed:
    """How much of the load each slot has, as measured last; any unit."""

    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Slots that are to change hands: slot → (owner as of the plan, the next one).

    Answered by one `Answer` with the token; all of them move, or none.
    """

    token: int
    moves: Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Draining:
    """The process was asked to end: leave checkpoints behind."""


Event = (
    ControlRead
    | Polled
    | Loaded
    | Committed
    | Fenced
    | Wished
    | Recalled
    | Reread
    | Proposed
    | MembersSeen
    | Computed
    | EndsFound
    | Tick
    | Hurry
    | Saving
    | SlotsWeighed
    | Rebalanced
    | Draining
)

# --- effects


@dataclass(frozen=True, slots=True)
class Append:
    """Append a record; failure ends the process."""

    topic: str
    partition: int
    message: Message


@dataclass(frozen=True, slots=True)
class Declare:
    """Barrier. Append a declaration to `control`."""

    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch the newest state of a Kafka partition; answered by `Loaded`.

    `name` is the checkpoint's name in the archive (empty: none was ever taken), `offset` its
    offset. For `partials` there is no checkpoint: the state is the last `Progress` in the twin.
    """

    topic: str
    partition: int
    epoch: int
    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Read a Kafka partition from an offset on."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Stop reading a Kafka partition; nothing of it is handed in any more."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Barrier. Write slices and state to the archive, then declare the state in `control`.

    `slices` are those of a slot's objects that are not in the archive yet, by name; `map_version`
    is declared with it.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    state: State
    slices: tuple[tuple[str, SealedSlice], ...] = ()
    map_version: int = 0


@dataclass(frozen=True, slots=True)
class Compute:
    """Do what is pure but slow beside the loop; answered by `Computed` with the result."""

    key: tuple[str, int, int]
    job: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Look how far the logs of the first Kafka partitions of a topic go; answered by `EndsFound`.

    All that was in them when it was asked is before these ends.
    """

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Discard:
    """A checkpoint or slice that nobody will load any more may leave the archive."""

    name: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is under a prefix in the archive and sorts before a name may leave it.

    For what nobody knows the names of any more: checkpoints of processes that died.
    """

    prefix: str
    before_name: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """Barrier. Nothing below the offset will be read again by anyone."""

    topic: str
    partition: int
    before_offset: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record goes to `dead-letters`, with the reason; nobody takes it."""

    topic: str
    partition: int
    offset: int
    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one wish: a revision or an error."""

    revision: int
    error: SiroccoError | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Barrier. Tell the caller of `Wished` the outcomes."""

    token: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Transact:
    """Append all messages to one Kafka partition of `deliveries` in one transaction, or none.

    Answered by `Committed` or `Fenced`; a machine has at most one open for a Kafka partition.
    Fenced are those of before the last `Fence`, of this process too. `number` tells them apart.
    """

    partition: int
    number: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """From here on no predecessor's transaction on this Kafka partition can succeed."""

    partition: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the view of what is in force (owners, map) for all to read."""

    owners: tuple[tuple[str, int, str, int], ...]
    map_version: int


Effect = (
    Append
    | Declare
    | Load
    | Follow
    | Unfollow
    | SaveCheckpoint
    | Compute
    | FindEnds
    | Discard
    | Sweep
    | Truncate
    | SetAside
    | Answer
    | Transact
    | Fence
    | Publish
)
