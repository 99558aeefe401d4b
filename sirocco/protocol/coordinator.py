"""The coordinator: who owns what, and which map holds (rule R4).

One coordinator leads, by a lease; the others follow `control` and stand by. The leader compares
what is in force with who is alive and declares the differences; it keeps no state of its own, so a
new leader goes on wherever the last one stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.protocol.control import ControlView
from sirocco.protocol.effects import (
    Append,
    ControlRead,
    Draining,
    Effect,
    Event,
    Member,
    MembersSeen,
    Publish,
    Tick,
)
from sirocco.protocol.messages import (
    CONTROL,
    INTAKE,
    PARTIALS,
    REGISTRY,
    SLOTS,
    Granted,
    LeaderElected,
    MapActivated,
)

SERVICE_OF_TOPIC = {
    INTAKE: "router",
    REGISTRY: "router",
    SLOTS: "evaluator",
    PARTIALS: "merger",
}

# How long members are watched before the first grants: services that start together would
# otherwise see everything granted to the first of them and moved a second later. Longer than
# between renewals of a lease: an emptied map store is filled again before anybody counts as dead.
SETTLING_MS = 1_500


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What is to be owned.

    Attributes:
        partitions: topic → number of Kafka partitions.
        first_map: bytes of the map to begin with, when the cluster has none.
        first_map_version: its version.
        settling_ms: how long the living members have to be the same before anything is granted.
    """

    partitions: dict[str, int]
    first_map: bytes
    first_map_version: int
    settling_ms: int = SETTLING_MS


class CoordinatorMachine:
    """`step(event, now_ms) -> effects`."""

    def __init__(self, member: str, settings: CoordinatorSettings) -> None:
        self.member = member
        self.view = ControlView()
        self._settings = settings
        self._claimed = False
        self._alive: dict[str, tuple[str, ...]] = {}
        self._alive_since_ms = 0
        self._declared: dict[tuple[str, int], str] = {}

    @property
    def leading(self) -> bool:
        """Whether this coordinator is the leader, by `control`."""
        return self._claimed and self.view.leader == self.member

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""
        match event:
            case ControlRead():
                return self._control(event)
            case MembersSeen():
                return self._members(event, now_ms)
            case Tick() | Draining():
                return []
            case _:
                raise TypeError(f"a coordinator takes no {type(event).__name__}")

    def deadline_ms(self) -> int | None:
        """Nothing waits: members are seen at an interval of the shell's."""
        return None

    def _control(self, event: ControlRead) -> list[Effect]:
        declaration = event.declaration
        applied = self.view.apply(event.offset, declaration)
        if isinstance(declaration, LeaderElected):
            # A newer leader: what this one declared and has not read back yet is void.
            self._declared.clear()
            self._claimed = self._claimed and declaration.member == self.member
        if isinstance(declaration, Granted):
            key = declaration.topic, declaration.partition
            if applied and self._declared.get(key) == declaration.member:
                del self._declared[key]
            if not applied and self.leading:
                # The void record is now the newest of its subject, and compaction would keep it
                # instead of the one in force: say that one again.
                owner = self.view.owners.get(key)
                if owner is not None:
                    return [self._grant(*key, owner.member)]
        if isinstance(declaration, MapActivated) and not applied and self.leading:
            # The same for the map.
            view = self.view
            in_force = MapActivated(view.term, view.map_version, view.partition_map)
            if view.map_version and declaration != in_force:
                return [Append(CONTROL, 0, in_force)]
        return [self._view()] if applied and self.leading else []

    def _members(self, event: MembersSeen, now_ms: int) -> list[Effect]:
        if not event.leading:
            self._claimed = False
            return []
        if not self._claimed:
            self._claimed = True
            self._declared.clear()
            return [Append(CONTROL, 0, LeaderElected(self.member))]
        if not self.leading:
            return []
        alive = by_service(event.members)
        if alive != self._alive:
            self._alive, self._alive_since_ms = alive, now_ms
        if now_ms - self._alive_since_ms < self._settings.settling_ms:
            return []
        effects: list[Effect] = []
        if self.view.map_version == 0:
            first = MapActivated(
                self.view.term, self._settings.first_map_version, self._settings.first_map
            )
            effects.append(Append(CONTROL, 0, first))
        for topic, partitions in self._settings.partitions.items():
            effects += self._assign(topic, partitions)
        return effects

    def _assign(self, topic: str, partitions: int) -> list[Effect]:
        members = self._alive.get(SERVICE_OF_TOPIC[topic], ())
        if not members:
            return []
        owners = {
            partition: self._declared.get((topic, partition)) or self._owner(topic, partition)
            for partition in range(partitions)
        }
        wanted = balanced(owners, members)
        return [
            self._grant(topic, partition, member)
            for partition, member in sorted(wanted.items())
            if owners[partition] != member
        ]

    def _owner(self, topic: str, partition: int) -> str:
        owner = self.view.owners.get((topic, partition))
        return owner.member if owner else ""

    def _grant(self, topic: str, partition: int, member: str) -> Append:
        self._declared[topic, partition] = member
        return Append(CONTROL, 0, Granted(self.view.term, topic, partition, member))

    def _view(self) -> Publish:
        owners = tuple(
            (topic, partition, owner.member, owner.epoch)
            for (topic, partition), owner in sorted(self.view.owners.items())
        )
        return Publish(owners, self.view.map_version)


def by_service(members: tuple[Member, ...]) -> dict[str, tuple[str, ...]]:
    """The ids of the living members of each service, in order."""
    alive: dict[str, list[str]] = {}
    for member in members:
        alive.setdefault(member.service, []).append(member.id)
    return {service: tuple(sorted(ids)) for service, ids in alive.items()}


def balanced(owners: dict[int, str], members: tuple[str, ...]) -> dict[int, str]:
    """Spreads Kafka partitions over members: counts differ by one at most, few owners change.

    Args:
        owners: Kafka partition → present owner, alive or not.
        members: who is alive; at least one.
    """
    held: dict[str, list[int]] = {member: [] for member in members}
    homeless: list[int] = []
    for partition, owner in sorted(owners.items()):
        held.get(owner, homeless).append(partition)
    least, extra = divmod(len(owners), len(members))
    # The members that hold most keep the larger shares: nothing moves without need.
    by_load = sorted(members, key=lambda member: (-len(held[member]), member))
    share = {member: least + (place < extra) for place, member in enumerate(by_load)}
    for member in by_load:
        while len(held[member]) > share[member]:
            homeless.append(held[member].pop())
    for member in reversed(by_load):
        while len(held[member]) < share[member]:
            held[member].append(homeless.pop())
    return {partition: member for member, each in held.items() for partition in each}
