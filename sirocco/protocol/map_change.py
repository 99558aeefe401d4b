"""The change of the map v → v + 1 without a pause (docs/adr/0014): who does what, and when.

    MapPrepared ─▶ prepare in each registry partition ─▶ copies ─▶ MapCopied of each
    ─▶ MapSwitched ─▶ switch in each intake partition ─▶ checkpoints behind it
    ─▶ retire in each registry partition ─▶ checkpoints behind it ─▶ the next change may begin

Each step follows from what stands in `control` and in the partition concerned, so whoever owns a
partition, or leads, goes on wherever its predecessor stopped. A step said twice is one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.protocol.control import ControlView
from sirocco.protocol.copying import is_copied, trim
from sirocco.protocol.declarations import MapCopied
from sirocco.protocol.effects import Append, Declare, Effect
from sirocco.protocol.intake import IntakeRouter
from sirocco.protocol.messages import INTAKE, NEVER_MS, REGISTRY, Prepare, Retire, Switch
from sirocco.protocol.registry import Registry
from sirocco.schemes.map import COMPILED_BYTES_MAX, PartitionMap
from sirocco.schemes.map_bytes import from_bytes
from sirocco.schemes.routing import RoutingArrays
from sirocco.schemes.scheme import scheme_named

# A map travels as one record of `control`, and a record of the log holds 4 MiB at most. The qt-tree
# of a million leaves would not fit; of ten thousand it is below 1 MB.
MAP_BYTES_MAX = 3 << 20

# Routers count objects by the number of their leaf, and add to all counters at each flush: 8 MiB of
# them with this one. Maps of ours number their leaves from 0, and take the least that is free.
LEAF_ID_MAX = (1 << 20) - 1

# After a change queries that ask for arrivals before it stand in every slot, since such objects lie
# where the former map put them; so do those that began within this time behind it: longer than the
# clocks of routers differ.
CLOCKS_DIFFER_MS = 60_000


class Phase(Enum):
    """Where a change of the map stands."""

    NONE = "none"
    COPYING = "copying"
    SWITCHING = "switching"
    RETIRING = "retiring"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a change has come.

    Attributes:
        phase: what is being waited for.
        version: of the map that follows; of the one in force when there is no change.
        waiting: Kafka partitions of `registry`, while switching of `intake`, not there yet.
        partitions: how many of them there are.
    """

    phase: Phase
    version: int
    waiting: tuple[int, ...] = ()
    partitions: int = 0


def progress(view: ControlView, intake_partitions: int, registry_partitions: int) -> Progress:
    """How far the change of the map has come, by what stands in `control`."""
    if version := view.prepared:
        waiting = uncopied(view, version, registry_partitions)
        return Progress(Phase.COPYING, version, waiting, registry_partitions)
    version = view.map_version
    # The first map was never changed to.
    if view.has_changed:
        if waiting := tuple(view.behind(INTAKE, intake_partitions, version)):
            return Progress(Phase.SWITCHING, version, waiting, intake_partitions)
        if waiting := tuple(view.behind(REGISTRY, registry_partitions, version)):
            return Progress(Phase.RETIRING, version, waiting, registry_partitions)
    return Progress(Phase.NONE, version)


def uncopied(view: ControlView, version: int, partitions: int) -> tuple[int, ...]:
    """Registry partitions whose live queries do not all stand where a map wants them."""
    return tuple(p for p in range(partitions) if view.copied.get(p, 0) < version)


def check_proposal(data: bytes, view: ControlView, slots: int, now: Progress) -> PartitionMap:
    """Returns the map that is proposed.

    Args:
        data: its bytes.
        view: what is in force.
        slots: how many the cluster has.
        now: how far an earlier change has come.

    Raises:
        InvalidArgument: It is damaged or too large, has gaps or overlaps, is of an unknown scheme
            or for another number of slots, or its leaves have numbers beyond the bound.
        FailedPrecondition: It does not follow the map in force, or a change is under way.
    """
    if len(data) > MAP_BYTES_MAX:
        raise InvalidArgument(
            f"has {len(data)} bytes, at most {MAP_BYTES_MAX}", field="partition_map"
        )
    found = from_bytes(data)
    scheme_named(found.scheme)
    if found.slots != slots:
        raise InvalidArgument(
            f"is for {found.slots} slots, the cluster has {slots}", field="partition_map.slots"
        )
    greatest = max(leaf.id for leaf in found.leaves)
    if greatest > LEAF_ID_MAX:
        raise InvalidArgument(
            f"number {greatest} of a leaf is over {LEAF_ID_MAX}", field="partition_map.leaves"
        )
    if now.phase is not Phase.NONE:
        raise FailedPrecondition(
            f"the change to version {now.version} is under way ({now.phase.value}); "
            "propose again when it has ended"
        )
    if not view.map_version:
        # A change begins where queries stand by a map: the first one is none to change from.
        raise FailedPrecondition("the first map is not in force yet; propose again when it is")
    if found.version != view.map_version + 1:
        raise FailedPrecondition(
            f"version {view.map_version} is in force, so the next is {view.map_version + 1}, "
            f"not {found.version}: the proposal was made for another map",
            field="partition_map.version",
        )
    return found


def check_compiled(data: bytes) -> None:
    """Compiles a map that is proposed, as every process will once it is declared.

    Raises:
        InvalidArgument: It is damaged or too large, or does not compile.
    """
    if len(data) > MAP_BYTES_MAX:
        raise InvalidArgument(
            f"has {len(data)} bytes, at most {MAP_BYTES_MAX}", field="partition_map"
        )
    found = from_bytes(data)
    try:
        size = scheme_named(found.scheme).compile(found).nbytes()
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"cannot be compiled ({error})", field="partition_map") from error
    if size > COMPILED_BYTES_MAX:
        raise InvalidArgument(
            f"takes {size} bytes in every process, at most {COMPILED_BYTES_MAX}",
            field="partition_map",
        )


@dataclass(slots=True)
class RouterSteps:
    """What the back of a router has to do for a change of the map: looked at now and then.

    Attributes:
        view: what is in force.
        intake: the owned intake partitions.
        registries: the owned registry partitions.
        intake_partitions: how many there are of all.
        event_time: arrivals follow the objects' own times, of which clocks know nothing.
        routings: of the maps in `view`, by version.
    """

    view: ControlView
    intake: IntakeRouter
    registries: dict[int, Registry]
    intake_partitions: int
    event_time: bool
    routings: dict[int, RoutingArrays] = field(default_factory=dict)
    # (topic, Kafka partition, version, epoch) of records that were appended, so that they are not
    # again every few milliseconds; a successor may repeat them.
    _said: set[tuple[str, int, int, int]] = field(default_factory=set)

    def learn(self) -> None:
        """Compiles the maps that are new in the view, and forgets those that have long left it.

        The last one that left it is kept: the next change may have begun by the checkpoint of a
        former owner, while the present one still reads what is before it.
        """
        maps = self.view.maps
        oldest = min(maps, default=0) - 1
        for version in [version for version in self.routings if version < oldest]:
            del self.routings[version]
        # Steps towards those are over; where they are not, saying one again is one step.
        self._said = {key for key in self._said if key[2] >= oldest}
        for version, known in maps.items():
            if version not in self.routings:
                scheme = scheme_named(known.partition_map.scheme)
                self.routings[version] = scheme.compile(known.partition_map)
        self.intake.use(self.routings, self.view.map_version)
        for registry in self.registries.values():
            registry.deciding.routing = self.intake.routing

    def next(self, now_ms: int) -> list[Effect]:
        """What is due."""
        if not self.view.has_changed:
            return []
        effects: list[Effect] = []
        for partition, source in self.intake.sources.items():
            following = source.map_version + 1
            if following <= self.view.map_version and self._is_new(INTAKE, partition, following):
                effects.append(Append(INTAKE, partition, Switch(following)))
        for partition, registry in self.registries.items():
            effects += self._of_registry(partition, registry, now_ms)
        return effects

    def _of_registry(self, partition: int, registry: Registry, now_ms: int) -> list[Effect]:
        stage, view = registry.stage, self.view
        following = stage.base + 1
        is_next = following in view.maps
        is_moving = registry.live.unplaced > 0 or registry.live.has_surplus
        if not registry.is_announced:
            # First it has to know all that its predecessors have done, or ever will.
            is_due = is_next or is_moving or stage.following
            return registry.announce(now_ms) if is_due else []
        effects: list[Effect] = []
        if not stage.following:
            if is_next and self._is_new(REGISTRY, partition, following):
                return [Append(REGISTRY, partition, Prepare(following))]
            return trim(registry)
        following = stage.following
        owner = view.owners.get((REGISTRY, partition))
        if owner and view.copied.get(partition, 0) < following:
            # Under the newest epoch: a grant that is repeated makes what names an older one void.
            key = ("copied", partition, following, owner.epoch)
            if key not in self._said and is_copied(registry):
                self._said.add(key)
                effects.append(Declare(MapCopied(partition, following, owner.epoch)))
        is_in_force = view.map_version >= following
        if is_in_force and not view.behind(INTAKE, self.intake_partitions, following):
            key = ("retire", partition, following, registry.epoch)
            if key not in self._said:
                self._said.add(key)
                at_ms = NEVER_MS if self.event_time else now_ms + CLOCKS_DIFFER_MS
                effects.append(Append(REGISTRY, partition, Retire(following, at_ms)))
        return effects

    def _is_new(self, topic: str, partition: int, version: int) -> bool:
        owner = self.view.owners.get((topic, partition))
        key = (topic, partition, version, owner.epoch if owner else 0)
        if key in self._said:
            return False
        self._said.add(key)
        return True
