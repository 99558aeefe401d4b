"""One Kafka partition of `partials`, its checkpoints, and mergers that die and take over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
)
from sirocco.protocol.contract.effects import (
    Append,
    Committed,
    ControlRead,
    Discard,
    Effect,
    EndsFound,
    Entry,
    Event,
    FindEnds,
    Follow,
    Load,
    Loaded,
    Polled,
    SaveCheckpoint,
    Tick,
    Transact,
    Truncate,
    Written,
)
from sirocco.protocol.contract.messages import (
    PARTIALS,
    REGISTRY,
    Delivered,
    Found,
    Message,
    Progress,
)
from sirocco.protocol.contract.positions import offset_of
from sirocco.protocol.contract.query_specs import KIND_ENDED, read_spec
from sirocco.protocol.merger.limits import LIMITS, MergerLimits
from sirocco.protocol.merger.machine import MergerMachine, MergerSettings
from sirocco.runtime.loop.progress import merger_start
from tests.support.list_records import ListChange, lists_of
from tests.support.values import map_activated

# The notifications of a round: lists, and (subscriber, query handle, object id, change) per match.
SentItems = list[ListChange | tuple[str, int, int, int]]


@dataclass(slots=True, kw_only=True)
class MergerCluster:
    """The state that outlives a merger, and the merger at work.

    Attributes:
        low: begin of `partials`.
        follows: from where each merger read.
        begun: messages of the transaction that is being written.
        parts: those that were not the last of their transaction.
        is_save_slow: checkpoints are declared with the next round, or never if the merger dies.
        is_archive_away: checkpoints are not declared at all.
        limits: of the mergers.
    """

    log: list[Found]
    slots: int
    is_save_slow: bool = False
    is_archive_away: bool = False
    control: list[Declaration] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    written: list[Message] = field(default_factory=list)
    low: int = 0
    follows: list[int] = field(default_factory=list)
    machine: MergerMachine = field(init=False)
    position: int = 0
    transact: Transact | None = None
    begun: list[Message] = field(default_factory=list)
    parts: list[Transact] = field(default_factory=list)
    begin_save: list[SaveCheckpoint] = field(default_factory=list)
    now_ms: int = 100_000
    mergers: int = 0
    registry_offset: int = 0
    limits: MergerLimits = LIMITS

    def __post_init__(self) -> None:
        self.control += [LeaderElected("c"), map_activated(0)]
        self.start()

    def start(self) -> None:
        """Replaces the merger, which has died, by a new one."""
        self.mergers += 1
        self.transact, self.begin_save = None, []
        name = f"m{self.mergers}"
        self.machine = MergerMachine(name, MergerSettings(self.slots, limits=self.limits))
        self.control.append(Granted(0, PARTIALS, 0, name))
        for offset, declaration in enumerate(self.control):
            self.step(ControlRead(offset, declaration))

    def step(self, event: Event) -> None:
        """Passes an event to the merger and carries out its effects."""
        for effect in self.machine.step(event, self.now_ms):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Load(_, _, epoch, name, offset):
                self.step(self.loaded(epoch, name, offset))
            case Follow(_, _, offset):
                assert offset >= self.low, "what it wants to read is gone"
                self.position = offset
                self.follows.append(offset)
            case Transact():
                assert self.transact is None
                if effect.is_first:
                    self.begun = []
                self.begun += effect.messages
                if effect.is_last:
                    self.transact = effect
                else:
                    self.parts.append(effect)
                    self.step(Written(0, effect.number, 100))
            case SaveCheckpoint():
                self.begin_save.append(effect)
            case Truncate(topic, _, before):
                if topic == PARTIALS:
                    self.low = max(self.low, before)
            case Discard(name):
                del self.blobs[name]
            case FindEnds():
                self.step(EndsFound(self.ends()))
            case Append(_, _, message):
                assert isinstance(message, CheckpointTaken)
                self.declare(message)

    def loaded(self, epoch: int, name: str, offset: int) -> Loaded:
        """Returns the result of a load in the present state."""
        last = next((m for m in reversed(self.written) if isinstance(m, Progress)), None)
        progress = None if last is None else (last, len(self.written))
        checkpoint = (read_state(self.blobs[name]), offset) if name else None
        offset, state = merger_start(progress, checkpoint, self.low)
        return Loaded(topic=PARTIALS, partition=0, epoch=epoch, offset=offset, state=state)

    def declare(self, declaration: Declaration) -> None:
        """Appends a record to `control`, which the merger reads."""
        self.control.append(declaration)
        self.step(ControlRead(len(self.control) - 1, declaration))

    def registry_saved(self, offset: int) -> None:
        """Notes that all changes of the registry below an offset are in the slots' logs."""
        self.registry_offset = offset
        self.declare(CheckpointTaken(REGISTRY, 0, 0, offset, f"registry {offset}"))

    def ends(self) -> NDArray[np.int64]:
        """Returns the ends of the slots' logs if they hold only the saved part of the registry."""
        ends = [0] * self.slots
        for found in self.log:
            for spec in map(read_spec, found.queries.specs or ()):
                if spec.kind == KIND_ENDED and spec.ended_by[1] < self.registry_offset:
                    slot, end = int(found.intervals.sources[0]), int(found.intervals.ends[0])
                    ends[slot] = max(ends[slot], offset_of(end))
        return np.array(ends, np.int64)

    def save(self) -> None:
        """Carries out checkpoints that wait."""
        if self.is_archive_away:
            return
        saving, self.begin_save = self.begin_save, []
        for effect in saving:
            name = f"{effect.offset}-{effect.epoch}"
            self.blobs[name] = write_state(effect.state)
            self.declare(CheckpointTaken(PARTIALS, 0, effect.epoch, effect.offset, name))

    def read(self, upto: int, rng: np.random.Generator) -> None:
        """Polls up to an offset, in some pieces, and writes a window."""
        while self.position < upto:
            end = min(upto, self.position + int(rng.integers(1, 6)))
            polled = [Entry(PARTIALS, 0, at, self.log[at]) for at in range(self.position, end)]
            self.position = end
            self.step(Polled(tuple(polled)))
            self.take_turns()
            assert self.transact is None, "a window was written before its time"
        self.now_ms += 1_000
        if self.is_save_slow and not self.machine.windows[0].is_held:
            self.step(Tick())
            self.take_turns()
            self.save()
        else:
            self.save()
            self.step(Tick())
            self.take_turns()

    def take_turns(self) -> int:
        """Lets the merger take what it has read; returns the number of further turns."""
        turns = 0
        while self.machine.deadline_ms() == 0:
            self.step(Tick())
            turns += 1
        return turns

    def commit(self, *, is_informed: bool = True) -> SentItems:
        """The open transaction succeeds; the merger is informed, unless it is gone."""
        transact, self.transact = self.transact, None
        if transact is None:
            return []
        self.written += self.begun
        end = len(self.written)
        if is_informed:
            self.step(Committed(0, transact.number, 100, end))
        return sent_by(self.begun)


def sent_by(messages: Iterable[Message]) -> SentItems:
    """Returns the notifications of a transaction, those of each subscriber in order."""
    reported: SentItems = []
    for message in messages:
        if isinstance(message, Delivered):
            reported += lists_of(message)
            reported += matches_of(message)
    return reported


def matches_of(delivered: Delivered) -> SentItems:
    """Returns (subscriber, query handle, object id, change) of each match."""
    names, matches = delivered.queries, delivered.matches
    reported: SentItems = []
    for row, subscriber in enumerate(names.subscribers):
        for at in range(*delivered.match_offsets[row : row + 2].tolist()):
            query = int(matches.queries[at])
            assert names.subscribers[int(names.subscriber_rows[query])] == subscriber
            change = 0 if matches.changes is None else int(matches.changes[at])
            number = int(delivered.objects.ids[int(matches.objects[at])])
            reported.append((subscriber, int(names.handles[query]), number, change))
    return reported
