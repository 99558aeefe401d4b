"""The steps of a map change that a router takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from sirocco.protocol.contract.control_records import MapCopied
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import Append, Declare, Effect
from sirocco.protocol.contract.messages import INTAKE, NEVER_MS, REGISTRY, Prepare, Retire, Switch
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.map_change.query_copies import is_copied, trim
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.routing import RoutingArrays


@dataclass(slots=True, kw_only=True)
class RouterSteps:
    """The steps of a map change in the back of a router, checked from time to time.

    Attributes:
        view: what is in force.
        intake: the owned intake partitions.
        registries: the owned registry partitions.
        intake_partitions: number of all intake partitions.
        event_time: arrivals follow the objects' own times, which have no relation to clocks.
        clocks_differ_ms: see `RouterLimits`.
        routings: of the maps in `view`, by version.
    """

    view: ControlView
    intake: IntakeRouter
    registries: dict[int, Registry]
    intake_partitions: int
    event_time: bool
    clocks_differ_ms: int = LIMITS.clocks_differ_ms
    routings: dict[int, RoutingArrays] = field(default_factory=dict)
    # (topic, Kafka partition, version, epoch) of appended records, so that they are not appended
    # again every few milliseconds; a successor may repeat them.
    _appended: set[tuple[str, int, int, int]] = field(default_factory=set)

    def learn(self) -> None:
        """Compiles the maps that are new in the view, and drops those that left it long ago.

        The last one that left is kept: a former owner's checkpoint may have let the next change
        begin, while the present owner still reads records before it.
        """
        maps = self.view.maps
        oldest = min(maps, default=0) - 1
        for version in [version for version in self.routings if version < oldest]:
            del self.routings[version]
        # Steps towards these versions are over; otherwise repeating one costs one step.
        self._appended = {key for key in self._appended if key[2] >= oldest}
        for version, known in maps.items():
            if version not in self.routings:
                scheme = scheme_named(known.partition_map.scheme)
                self.routings[version] = scheme.compile(known.partition_map)
        self.intake.use(self.routings, self.view.map_version)
        for registry in self.registries.values():
            registry.pending_requests.routing = self.intake.routing

    def next(self, now_ms: int) -> list[Effect]:
        """Returns the steps that are due."""
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
            # First it must know all that its predecessors have done or ever will do.
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
            # Under the newest epoch: after a repeated grant, records that name an older one are
            # void.
            key = ("copied", partition, following, owner.epoch)
            if key not in self._appended and is_copied(registry):
                self._appended.add(key)
                effects.append(Declare(MapCopied(partition, following, owner.epoch)))
        is_in_force = view.map_version >= following
        if is_in_force and not view.lagging(INTAKE, self.intake_partitions, following):
            key = ("retire", partition, following, registry.epoch)
            if key not in self._appended:
                self._appended.add(key)
                at_ms = NEVER_MS if self.event_time else now_ms + self.clocks_differ_ms
                effects.append(Append(REGISTRY, partition, Retire(following, at_ms)))
        return effects

    def _is_new(self, topic: str, partition: int, version: int) -> bool:
        owner = self.view.owners.get((topic, partition))
        key = (topic, partition, version, owner.epoch if owner else 0)
        if key in self._appended:
            return False
        self._appended.add(key)
        return True
