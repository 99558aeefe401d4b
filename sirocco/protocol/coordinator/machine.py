"""The coordinator decides which member owns what, and which map is in force (rule R4).

One coordinator leads, by a lease; the others follow `control` and stand by. The leader compares
what is in force with the living members and declares the differences. It has no state of its own,
so a new leader continues where the last one stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from sirocco.model.errors import FailedPrecondition, SiroccoError, Unavailable
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
    subject_of,
)
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    ControlRead,
    Draining,
    Effect,
    Event,
    Member,
    MembersSeen,
    Outcome,
    ProposedMap,
    Publish,
    RebalanceRequest,
    SlotWeights,
    Tick,
    Warmed,
)
from sirocco.protocol.contract.map_change import (
    ChangePhase,
    ChangeProgress,
    check_proposal,
    progress,
    uncopied,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    INTAKE,
    NO_REVISION,
    PARTIALS,
    REGISTRY,
    SLOTS,
)
from sirocco.protocol.coordinator.assignment import balanced, settled
from sirocco.protocol.coordinator.balance_rounds import ClusterState

SERVICE_OF_TOPIC = {
    INTAKE: "router",
    REGISTRY: "router",
    SLOTS: "evaluator",
    PARTIALS: "merger",
}

# How long members are watched before the first grants: otherwise everything would be granted to the
# first of several services that start together, and moved a second later. Longer than the interval
# between renewals of a lease: what a store has lost unseen is there again before anything moves.
SETTLING_MS = 1_500

# After so many times `SETTLING_MS` a service is granted what it should have although its members
# keep changing. A rolling upgrade may change them once a second for minutes, and meanwhile no
# process would work on what a dead one owned. By then a common start of many is over.
SETTLINGS_MAX = 5


# How long slots wait until the next owner has loaded their past objects: those of an owner that
# leaves, and those that move together, whose owners stay. Loading takes a second or two for half a
# million objects; the present owner works on meanwhile.
WARMING_MS = 12_000
WARMING_TOGETHER_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """What is to be owned.

    Attributes:
        partitions: topic → number of Kafka partitions.
        first_map: bytes of the map to begin with, when the cluster has none.
        first_map_version: its version.
        settling_ms: how long the living members of a service have to be the same before anything is
            granted to it; after `SETTLINGS_MAX` times that it is granted anyway. What members owned
            that are missed, while no others came, is granted at once.
        by_load: slots are assigned by load, as `SlotWeights` and `RebalanceRequest` say; else each
            evaluator has equally many.
        warms: a slot with a living owner is granted to another when that one has loaded its past
            objects: `unwarmed` says which, `Warmed` answers.
        warming_ms: it is granted after this time in any case. Less than an evaluator that is asked
            to end waits for others to take over.
        warming_together_ms: the same for slots whose owners stay.
    """

    partitions: dict[str, int]
    first_map: bytes
    first_map_version: int
    settling_ms: int = SETTLING_MS
    by_load: bool = False
    warms: bool = False
    warming_ms: int = WARMING_MS
    warming_together_ms: int = WARMING_TOGETHER_MS


@dataclass(frozen=True, slots=True)
class Proposal:
    """A map that was declared and has not been read back from `control`."""

    token: int
    declaration: MapPrepared


@dataclass(frozen=True, slots=True)
class Watched:
    """The living members of a service.

    Attributes:
        members: their ids.
        since_ms: since when they are the same.
        waiting_since_ms: since when they have not settled; None: they have settled, or received
            their grants anyway.
    """

    members: tuple[str, ...]
    since_ms: int
    waiting_since_ms: int | None


class CoordinatorMachine:
    """The coordinator as a state machine: `step(event, now_ms) -> effects`."""

    def __init__(self, member: str, settings: CoordinatorSettings) -> None:
        self.member = member
        self.view = ControlView()
        self._settings = settings
        self._claimed = False
        self._watched: dict[str, Watched] = {}
        # Ids of members that are alive, or that ended for another reason than a record they read.
        self._unharmed: frozenset[str] = frozenset()
        self._living: frozenset[str] = frozenset()
        self._staying: dict[str, tuple[str, ...]] = {}
        self._weights: tuple[float, ...] = ()
        # Slot → its owner, and the next one, which is to load its past objects first.
        self.unwarmed: dict[int, tuple[str, str]] = {}
        # Slot → the next owner, which has loaded them; and since when it moves.
        self._warmed: dict[int, str] = {}
        self._warming_ms: dict[int, int] = {}
        self._declared: dict[tuple[str, int], str] = {}
        self._proposal: Proposal | None = None
        # Subject → its newest record, where that is void.
        self._void: dict[str, Declaration] = {}
        # Version that was declared in force and has not been read back.
        self._switching = 0

    @property
    def progress(self) -> ChangeProgress:
        """How far a change of the map has come."""
        partitions = self._settings.partitions
        return progress(self.view, partitions[INTAKE], partitions[REGISTRY])

    @property
    def leading(self) -> bool:
        """Whether this coordinator is the leader, according to `control`."""
        return self._claimed and self.view.leader == self.member

    @property
    def cluster_state(self) -> ClusterState:
        """What a balancer has to know."""
        return ClusterState(
            leading=self.leading,
            phase=ChangePhase.COPYING if self._proposal is not None else self.progress.phase,
            map=self.view.map_in_force,
            owners=tuple(
                self._owner(SLOTS, slot) for slot in range(self._settings.partitions[SLOTS])
            ),
            evaluators=self._staying.get(SERVICE_OF_TOPIC[SLOTS], ()),
            is_granting=any(topic == SLOTS for topic, _ in self._declared),
            routers=self._routers(),
        )

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""
        match event:
            case ControlRead():
                return self._control(event)
            case MembersSeen():
                return self._members(event, now_ms)
            case ProposedMap():
                return self._proposed(event)
            case SlotWeights(weights):
                self._weights = weights
                return []
            case RebalanceRequest():
                return self._rebalanced(event)
            case Warmed():
                return self._note_warmed(event)
            case Tick() | Draining():
                return []
            case _:
                raise TypeError(f"a coordinator takes no {type(event).__name__}")

    def deadline_ms(self) -> int | None:
        """Returns None: nothing waits, and the process reports members at intervals."""
        return None

    def _control(self, event: ControlRead) -> list[Effect]:
        declaration = event.declaration
        applied = self.view.apply(event.offset, declaration)
        if applied:
            self._void.pop(subject_of(declaration), None)
        else:
            self._void[subject_of(declaration)] = declaration
        effects: list[Effect] = []
        if isinstance(declaration, LeaderElected):
            # A newer leader: declarations of this one that it has not read back are void.
            self._declared.clear()
            self._switching = 0
            self._claimed = self._claimed and declaration.member == self.member
            effects += self._answer(Unavailable("the coordinator changed; look what became of it"))
        if isinstance(declaration, Granted) and applied:
            key = declaration.topic, declaration.partition
            if self._declared.get(key) == declaration.member:
                del self._declared[key]
        if self._proposal is not None and declaration == self._proposal.declaration:
            error = None if applied else FailedPrecondition("another map came first")
            effects += self._answer(error)
        if not self.leading:
            return effects
        if not applied:
            return effects + self._repeated_declarations(declaration)
        if isinstance(declaration, LeaderElected):
            # Records that were void while nobody led, or only a predecessor that stopped at once.
            for void in self._void.values():
                effects += self._repeated_declarations(void)
        return [*effects, *self._switch(), self._view()]

    def _repeated_declarations(self, void: Declaration) -> list[Effect]:
        """Republishes what is in force for the subject of a void record.

        The void record is now the newest of its subject, and compaction would keep it instead.
        """
        view = self.view
        match void:
            case Granted(_, topic, partition):
                owner = view.owners.get((topic, partition))
                return [] if owner is None else [self._grant(topic, partition, owner.member)]
            case MapActivated():
                true: Declaration = MapActivated(view.term, view.map_version, view.partition_map)
                is_known = view.map_version > 0
            case MapPrepared(_, version):
                # Versions use two keys in turn.
                own = next((known for known in view.maps if known % 2 == version % 2), None)
                data = b"" if own is None else view.maps[own].data
                true, is_known = MapPrepared(view.term, own or version, data), True
            case MapSwitched():
                true, is_known = MapSwitched(view.term, view.switched), True
            case MapCopied(partition):
                owner = view.owners.get((REGISTRY, partition))
                copied = view.copied.get(partition, 0)
                true = MapCopied(partition, copied, owner.epoch if owner else 0)
                is_known = owner is not None
            case CheckpointTaken(topic, partition):
                true, is_known = view.checkpoints[topic, partition], True
            case _:
                return []
        return [Append(CONTROL, 0, true)] if is_known and true != void else []

    def _switch(self) -> list[Effect]:
        """Puts the prepared map in force once all queries are copied to where it places them."""
        version = self.view.prepared
        if not version or version == self._switching:
            return []
        if uncopied(self.view, version, self._settings.partitions[REGISTRY]):
            return []
        self._switching = version
        return [Append(CONTROL, 0, MapSwitched(self.view.term, version))]

    def _proposed(self, event: ProposedMap) -> list[Effect]:
        try:
            if not self.leading:
                raise Unavailable("another coordinator leads; send the request to it")
            if self._proposal is not None:
                raise FailedPrecondition("another proposal has just been made")
            found = check_proposal(
                event.partition_map, self.view, self._settings.partitions[SLOTS], self.progress
            )
        except SiroccoError as error:
            return [Answer(event.token, (Outcome(NO_REVISION, error),))]
        declaration = MapPrepared(self.view.term, found.version, event.partition_map)
        self._proposal = Proposal(event.token, declaration)
        return [Append(CONTROL, 0, declaration)]

    def _rebalanced(self, event: RebalanceRequest) -> list[Effect]:
        evaluators = self._staying.get(SERVICE_OF_TOPIC[SLOTS], ())
        try:
            if not self.leading:
                raise Unavailable("another coordinator leads")
            if self.progress.phase is not ChangePhase.NONE or self._proposal is not None:
                raise FailedPrecondition("a change of the map is under way")
            for slot, (owner, following) in event.moves.items():
                if self._owner(SLOTS, slot) != owner or (SLOTS, slot) in self._declared:
                    raise FailedPrecondition(f"slot {slot} has changed hands meanwhile")
                if following not in evaluators:
                    raise FailedPrecondition(f"{following} has ended, or is leaving")
        except SiroccoError as error:
            return [Answer(event.token, (Outcome(NO_REVISION, error),))]
        grants: list[Effect] = [
            self._grant(SLOTS, slot, following)
            for slot, (_, following) in sorted(event.moves.items())
        ]
        return [*grants, Answer(event.token, (Outcome(self.view.map_version),))]

    def _answer(self, error: SiroccoError | None) -> list[Effect]:
        if self._proposal is None:
            return []
        token, version = self._proposal.token, self._proposal.declaration.version
        self._proposal = None
        return [Answer(token, (Outcome(version if error is None else NO_REVISION, error),))]

    def _members(self, event: MembersSeen, now_ms: int) -> list[Effect]:
        if not event.leading:
            self._claimed = False
            self.unwarmed = {}
            return []
        if not self._claimed:
            self._claimed = True
            self._declared.clear()
            # What an earlier leadership saw of them is out of date.
            self._watched.clear()
            self.unwarmed, self._warmed, self._warming_ms = {}, {}, {}
            return [Append(CONTROL, 0, LeaderElected(self.member))]
        if not self.leading:
            return []
        alive = by_service(event.members)
        self._living = frozenset(member.id for member in event.members)
        self._unharmed = event.departed | self._living
        # A leaving member counts as alive until it owns nothing: no settling is needed for that.
        self._staying = by_service(tuple(m for m in event.members if not m.is_leaving))
        settled = {
            service
            for service in sorted(set(SERVICE_OF_TOPIC.values()))
            if self._settles(service, alive.get(service, ()), now_ms)
        }
        if not settled:
            return []
        effects: list[Effect] = self._switch()
        if self.view.map_version == 0:
            first = MapActivated(
                self.view.term, self._settings.first_map_version, self._settings.first_map
            )
            effects.append(Append(CONTROL, 0, first))
        for topic, partitions in self._settings.partitions.items():
            if SERVICE_OF_TOPIC[topic] in settled:
                effects += self._assign(topic, partitions, now_ms)
        return effects

    def _settles(self, service: str, members: tuple[str, ...], now_ms: int) -> bool:
        """Whether a service, with the members alive now, is granted what it should have."""
        seen, settling_ms = self._watched.get(service), self._settings.settling_ms
        # No new members are starting, and nobody works on what the lost ones owned.
        only_lost = (
            seen is not None and seen.waiting_since_ms is None and {*members} < {*seen.members}
        )
        if seen is None or seen.members != members:
            waiting_ms = None if seen is None else seen.waiting_since_ms
            seen = Watched(members, now_ms, now_ms if waiting_ms is None else waiting_ms)
        is_settled = only_lost or now_ms - seen.since_ms >= settling_ms
        if seen.waiting_since_ms is not None:
            is_settled |= now_ms - seen.waiting_since_ms >= SETTLINGS_MAX * settling_ms
        self._watched[service] = replace(seen, waiting_since_ms=None) if is_settled else seen
        return is_settled

    def _assign(self, topic: str, partitions: int, now_ms: int) -> list[Effect]:
        members = self._staying.get(SERVICE_OF_TOPIC[topic], ())
        if not members:
            return []
        spread = balanced
        if self._settings.by_load and topic == SLOTS:
            spread = partial(settled, weights=self._weights)
        owners = {
            partition: self._declared.get((topic, partition)) or self._owner(topic, partition)
            for partition in range(partitions)
        }
        moves = {
            partition: member
            for partition, member in sorted(spread(owners, members).items())
            if owners[partition] != member
        }
        if topic == SLOTS and self._settings.warms:
            moves = self._warm_moves(moves, now_ms)
        return [self._grant(topic, partition, member) for partition, member in moves.items()]

    def _warm_moves(self, moves: dict[int, str], now_ms: int) -> dict[int, str]:
        """Returns the moves of slots that may be granted now; the others are to be warmed first.

        A slot without a living owner waits for nothing, one of a leaving owner for itself alone.
        The others move together: a new member gets its share by load at once, or never.
        """
        owners = {slot: self._owner(SLOTS, slot) for slot in moves}
        begun_ms = {slot: self._warming_ms.get(slot, now_ms) for slot in moves}
        self._warming_ms = {s: at for s, at in begun_ms.items() if owners[s] in self._living}
        staying = self._staying.get(SERVICE_OF_TOPIC[SLOTS], ())
        together = {slot for slot in moves if owners[slot] in staying}
        settings = self._settings
        cold = set()
        for slot, begin_ms in self._warming_ms.items():
            is_joint = slot in together
            most_ms = settings.warming_together_ms if is_joint else settings.warming_ms
            if self._warmed.get(slot) != moves[slot] and now_ms - begin_ms < most_ms:
                cold.add(slot)
        waiting = cold | (together if cold & together else set())
        self._warmed = {s: member for s, member in self._warmed.items() if s in waiting}
        self.unwarmed = {s: (owners[s], moves[s]) for s in sorted(cold)}
        return {slot: member for slot, member in moves.items() if slot not in waiting}

    def moves_together(self, slot: int) -> bool:
        """Whether a slot that is to move is granted together with others; any thread may ask."""
        owner, _ = self.unwarmed.get(slot, ("", ""))
        return owner in self._staying.get(SERVICE_OF_TOPIC[SLOTS], ())

    def _note_warmed(self, event: Warmed) -> list[Effect]:
        self._warmed[event.slot] = event.member
        # Another thread reads it: replaced as a whole.
        self.unwarmed = {
            slot: move
            for slot, move in self.unwarmed.items()
            if (slot, move[1]) != (event.slot, event.member)
        }
        return []

    def _owner(self, topic: str, partition: int) -> str:
        owner = self.view.owners.get((topic, partition))
        return owner.member if owner else ""

    def _routers(self) -> tuple[str, ...]:
        owners = {self._owner(INTAKE, each) for each in range(self._settings.partitions[INTAKE])}
        return tuple(sorted(owners))

    def _grant(self, topic: str, partition: int, member: str) -> Append:
        self._declared[topic, partition] = member
        owner = self._owner(topic, partition)
        has_ended = bool(owner) and owner not in self._unharmed
        return Append(CONTROL, 0, Granted(self.view.term, topic, partition, member, has_ended))

    def _view(self) -> Publish:
        owners = tuple(
            (topic, partition, owner.member, owner.epoch)
            for (topic, partition), owner in sorted(self.view.owners.items())
        )
        return Publish(owners, self.view.map_version)


def by_service(members: tuple[Member, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the ids of the living members of each service, in order."""
    alive: dict[str, list[str]] = {}
    for member in members:
        alive.setdefault(member.service, []).append(member.id)
    return {service: tuple(sorted(ids)) for service, ids in alive.items()}
