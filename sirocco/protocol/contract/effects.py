"""The events that state machines take and the effects that they ask for.

A machine is `step(event, now_ms) -> list[Effect]`: no I/O, no clock, no randomness. A shell (the
runtime on real parts, the simulator on virtual ones) carries the effects out strictly in the order
of the list. `SaveCheckpoint`, `Declare`, `Answer` and `Truncate` promise something about what was
appended before them. They are *barriers*: they are carried out only when the log has acknowledged
every earlier `Append` of this machine. A failed append ends the process, so later barriers are
never carried out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.model.errors import SiroccoError
from sirocco.model.query import Query
from sirocco.protocol.contract.control_records import Declaration
from sirocco.protocol.contract.messages import NO_PAST, Change, Message
from sirocco.protocol.contract.plain_queries import (
    ChangeColumns,
    ChangeRecords,
    PlainQueries,
    RemovedQueries,
)

# The state of one owned Kafka partition, as named columns.
State = Mapping[str, NDArray[Any]]

# --- events


@dataclass(frozen=True, slots=True)
class ControlRead:
    """The next record of `control`; every process reads all of them, in order."""

    offset: int
    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of an owned Kafka partition; of `ChangeRecords` several, `offset` is the first."""

    topic: str
    partition: int
    offset: int
    message: Message | ChangeRecords


@dataclass(frozen=True, slots=True)
class Polled:
    """The records of one poll: in order for each Kafka partition, interleaved between them."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The answer to `Load`: the newest state of the Kafka partition; None if it has none.

    `offset` is where reading continues; `slices` are those that the state names (`slice_names`),
    None if they were not read: `LoadSlices` asks for them; `log_end` is how far the log of a slot
    reached then: before that it cannot be searched; `definitions` are queries that an earlier
    analysis may have read otherwise, by handle and revision, where it may have made the state.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    state: State | None
    slices: tuple[SealedSlice, ...] | None = ()
    log_end: int = 0
    definitions: Mapping[tuple[int, int], Query] | None = None


@dataclass(frozen=True, slots=True)
class SlicesLoaded:
    """The answer to `LoadSlices`: all of them, in the order of their names."""

    slot: int
    epoch: int
    slices: tuple[SealedSlice, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """An answer to `Transact`: all of it is in the log; `number` is the transaction's."""

    partition: int
    number: int
    bytes_total: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The other answer to `Transact`: nothing of it is in the log; another process has fenced."""

    partition: int
    number: int


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


@dataclass(frozen=True, slots=True)
class ProposedMap:
    """The bytes of a proposed next map; one `Answer` with its version answers it."""

    token: int
    partition_map: bytes


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
class Warmed:
    """A member has loaded past objects of a slot that it is to own, or has not in time."""

    slot: int
    member: str


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
class FlushRequest:
    """A flush request: report the positions of the sources at once; a caller waits for them."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """These slots are about to be handed over: save checkpoints of them."""

    slots: tuple[int, ...]


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
class Draining:
    """The process was asked to end: save checkpoints."""


Event = (
    ControlRead
    | Polled
    | Loaded
    | SlicesLoaded
    | Committed
    | Fenced
    | ChangeRequests
    | ColumnRequests
    | RecoveredDefinition
    | RegistryRecords
    | ProposedMap
    | MembersSeen
    | Warmed
    | Computed
    | EndsFound
    | Tick
    | FlushRequest
    | SaveRequest
    | SlotWeights
    | RebalanceRequest
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
class AppendChanges:
    """Append changes to a Kafka partition of `registry`, a record each."""

    partition: int
    changes: ChangeColumns


@dataclass(frozen=True, slots=True)
class Declare:
    """Barrier. Append a declaration to `control`."""

    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch the newest state of a Kafka partition; answered by `Loaded`.

    `name` is the checkpoint's name in the archive (empty: none was ever taken), `offset` its
    offset. For `partials` there is no checkpoint: the state is the last `Progress` in the twin.
    `is_whole` asks for the slices of a slot as well, which take longer than the rest.
    """

    topic: str
    partition: int
    epoch: int
    name: str
    offset: int
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class LoadSlices:
    """Fetch slices of a slot from the archive, while it is read; answered by `SlicesLoaded`."""

    slot: int
    epoch: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Follow:
    """Read a Kafka partition from an offset."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Stop reading a Kafka partition; no more of its records are handed in."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Run a pure but slow job outside the loop; answered by `Computed` with the result."""

    key: tuple[str, int, int]
    job: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Find the ends of the first Kafka partitions of a topic; answered by `EndsFound`.

    Everything that was in them at the request is before these ends.
    """

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a checkpoint or slice from the archive that no process will load any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """Delete everything under a prefix in the archive that sorts before a name.

    This removes files whose names no process knows any more: checkpoints of processes that died.
    """

    prefix: str
    before_name: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """Barrier. No process will read anything below the offset again."""

    topic: str
    partition: int
    before_offset: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Write a record to `dead-letters`, with the reason; no machine takes it."""

    topic: str
    partition: int
    offset: int
    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one change request: a revision or an error."""

    revision: int
    error: SiroccoError | None = None


@dataclass(frozen=True, slots=True)
class Outcomes(Sequence[Outcome]):
    """The results of many change requests, as columns.

    Attributes:
        revisions: i8[n], of those without an error.
        errors: row → error.
    """

    revisions: NDArray[np.int64]
    errors: dict[int, SiroccoError] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.revisions)

    @overload
    def __getitem__(self, row: int) -> Outcome: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[Outcome]: ...

    def __getitem__(self, row: int | slice) -> Outcome | Sequence[Outcome]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        return self._of(row)

    def __iter__(self) -> Iterator[Outcome]:
        return map(self._of, range(len(self)))

    def _of(self, row: int) -> Outcome:
        return Outcome(int(self.revisions[row]), self.errors.get(row))

    def put(self, rows: NDArray[np.integer], outcomes: Sequence[Outcome]) -> None:
        """Sets the results of some rows."""
        if isinstance(outcomes, Outcomes):
            self.revisions[rows] = outcomes.revisions
            self.errors.update((int(rows[row]), error) for row, error in outcomes.errors.items())
            return
        for row, each in zip(rows.tolist(), outcomes, strict=True):
            self.revisions[row] = each.revision
            if each.error is not None:
                self.errors[row] = each.error


def errors_of(outcomes: Sequence[Outcome]) -> list[SiroccoError]:
    """Returns the errors among some outcomes."""
    if isinstance(outcomes, Outcomes):
        return list(outcomes.errors.values())
    return [each.error for each in outcomes if each.error is not None]


@dataclass(frozen=True, slots=True)
class Answer:
    """Barrier. Send the outcomes to the caller of the event with this token."""

    token: int
    outcomes: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Transact:
    """Append all messages to one Kafka partition of `deliveries` in one transaction, or none.

    Answered by `Committed` or `Fenced`; a machine has at most one open for a Kafka partition.
    `Fence` cancels all transactions before it, also those of this process; `number` identifies one.
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
    """Write the view of what is in force (owners, map) for all processes to read."""

    owners: tuple[tuple[str, int, str, int], ...]
    map_version: int


Effect = (
    Append
    | AppendChanges
    | Declare
    | Load
    | LoadSlices
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
