"""The back of a router: it owns Kafka partitions of `intake` and `registry` and routes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.control_records import CheckpointTaken
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    ChangeRequests,
    ColumnRequests,
    ControlRead,
    Draining,
    Effect,
    Event,
    FlushRequest,
    Follow,
    Loaded,
    Outcome,
    Polled,
    RecoveredDefinition,
    RegistryRecords,
    SaveCheckpoint,
    State,
    Tick,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_REVISION,
    REGISTRY,
    Change,
    IntakeObjects,
    Keywords,
    Prepare,
    Retire,
    Switch,
    TrackedMember,
    TrackedMemberSet,
)
from sirocco.protocol.contract.partition_ownership import Holdings
from sirocco.protocol.contract.plain_queries import ChangeRecords
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.map_change.query_copies import copy, may_be_saved
from sirocco.protocol.router.map_change.steps import RouterSteps
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.protocol.router.queries.former_analysis import STALE
from sirocco.protocol.router.queries.keyword_summary import KeywordSummary, was_published, withdrawn
from sirocco.protocol.router.queries.registry_partition import Read, Registry


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """Settings that all routers of a cluster share.

    Attributes:
        store: whether objects are stored for searches. If not, objects that no query needs are not
            sent.
        limits: how much a router keeps and sends at once, and how often.
    """

    slots: int
    event_time: bool = False
    intake_partitions: int = 1
    registry_partitions: int = 1
    store: bool = True
    limits: RouterLimits = LIMITS


class RouterMachine:
    """Takes events and returns effects: `step(event, now_ms) -> effects`."""

    def __init__(self, member: str, settings: RouterSettings) -> None:
        self.holdings = Holdings(member, frozenset({INTAKE, REGISTRY}))
        self.intake = IntakeRouter(
            slots=settings.slots,
            event_time=settings.event_time,
            registries=settings.registry_partitions,
            limits=settings.limits,
        )
        self._limits = settings.limits
        if not settings.store:
            self.intake.summarised = settings.registry_partitions
        self.registries: dict[int, Registry] = {}
        self._event_time = settings.event_time
        self._intake_partitions = settings.intake_partitions
        self._steps = RouterSteps(
            view=self.holdings.view,
            intake=self.intake,
            registries=self.registries,
            intake_partitions=settings.intake_partitions,
            event_time=settings.event_time,
            clocks_differ_ms=settings.limits.clocks_differ_ms,
        )
        # Queries sent to slots because the map changed.
        self.copied_total = 0
        # (topic, Kafka partition) → offset, time, map version of its last checkpoint.
        self._checkpointed: dict[tuple[str, int], tuple[int, int, int]] = {}
        # Intake partitions whose reading is paused.
        self._paused: set[int] = set()
        self._marked_ms = 0
        self._summarised_ms = 0
        self._expired_ms = 0
        self._ticked_ms = 0
        # Since when the process has run without being suspended.
        self._awake_ms = 0

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""
        for owned in self.registries.values():
            owned.pending_requests.now_ms = self.lifetimes_ms(now_ms)
        match event:
            case Polled():
                return self._polled(event, now_ms)
            case Tick():
                return self._tick(now_ms)
            case ChangeRequests() | ColumnRequests():
                return self._change_requests(event)
            case RecoveredDefinition():
                registry = self.registries.get(event.partition)
                return registry.republish(event.offset, event.change) if registry else []
            case RegistryRecords():
                return self._copy(event)
            case ControlRead():
                return self._control(event)
            case Loaded():
                return self._loaded(event, now_ms)
            case FlushRequest():
                return self._mark(self.holdings.owned(INTAKE), now_ms)
            case Draining():
                return self._drain(now_ms)
            case _:
                raise TypeError(f"a router takes no {type(event).__name__}")

    def lifetimes_ms(self, now_ms: int) -> int:
        """Returns the time up to which lifetimes have ended here, for a time of the clock.

        Where objects bring their own times the clock ends nothing: the slots decide when a query
        ends.
        """
        return NO_TIME_MS if self._event_time else now_ms

    @property
    def waiting_for_map(self) -> int:
        """Counts owned Kafka partitions that wait because `control` has not brought their map.

        This is short when a process starts. It is permanent if the map of a checkpoint is lost: an
        archive or a log was restored to another time, or this version refuses the map.
        """
        known = self.intake.routings
        sources = sum(each.map_version not in known for each in list(self.intake.sources.values()))
        registries = list(self.registries.values())
        return sources + sum(each.is_held_up and not each.is_crowded for each in registries)

    def deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due at the latest; None if nothing waits."""
        if any(each.is_crowded for each in self.registries.values()):
            return 0
        return self.intake.deadline_ms()

    def _polled(self, event: Polled, now_ms: int) -> list[Effect]:
        records: dict[int, list[Read]] = {}
        effects: list[Effect] = []
        for entry in event.entries:
            if not self.holdings.owns(entry.topic, entry.partition):
                continue
            message = entry.message
            if isinstance(
                message, IntakeObjects | TrackedMember | TrackedMemberSet | Keywords | Switch
            ):
                self.intake.add(entry.partition, entry.offset, message, now_ms)
                if self.intake.is_full and not self.intake.is_crowded:
                    effects += self.intake.flush(now_ms)
            elif isinstance(message, Change | ChangeRecords | Prepare | Retire):
                records.setdefault(entry.partition, []).append((entry.offset, message))
        for partition, read in records.items():
            effects += self.registries[partition].read(read, self.intake.routings)
        if not self.intake.is_crowded:
            effects += self.intake.flush(now_ms)
        return effects + self._pause()

    def _pause(self) -> list[Effect]:
        """Pauses the intake while more waits than one turn takes; resumes it afterwards."""
        if self.intake.is_crowded:
            new = self.intake.sources.keys() - self._paused
            self._paused |= new
            return [Unfollow(INTAKE, partition) for partition in sorted(new)]
        resumed, self._paused = sorted(self._paused), set()
        return [Follow(INTAKE, p, self.intake.next_offset(p)) for p in resumed]

    def _continue_changes(self) -> list[Effect]:
        """Takes changes of queries that the turn before has left; reads no more meanwhile."""
        effects: list[Effect] = []
        for partition, registry in self.registries.items():
            if registry.is_crowded and registry.is_paused:
                effects += registry.read((), self.intake.routings)
            if registry.is_crowded != registry.is_paused:
                registry.is_paused = registry.is_crowded
                effects.append(
                    Unfollow(REGISTRY, partition)
                    if registry.is_paused
                    else Follow(REGISTRY, partition, registry.next_offset)
                )
        return effects

    def _tick(self, now_ms: int) -> list[Effect]:
        effects = self.intake.flush(now_ms) + self._pause() + self._continue_changes()
        for registry in self.registries.values():
            # It saves and republishes nothing before the log has shown one of its records.
            is_due = registry.has_gaps or registry.hidden
            effects += registry.announce(now_ms) if is_due else []
        effects += self._steps.next(now_ms)
        if now_ms - self._summarised_ms >= self._limits.summary_interval_ms:
            self._summarised_ms = now_ms
            for registry in self.registries.values():
                effects += registry.publish_summary(now_ms)
                effects += registry.forget_members(now_ms)
        if now_ms - self._marked_ms >= self._limits.mark_interval_ms or self._has_changed_map():
            self._marked_ms = now_ms
            effects += self.intake.beats(now_ms)
            effects += self._mark(self.holdings.owned(INTAKE), now_ms)
            effects += self._checkpoint(now_ms)
        limits = self._limits
        if now_ms - self._ticked_ms > limits.expiry_interval_ms:
            self._awake_ms = now_ms
        self._ticked_ms = now_ms
        if not self._event_time and now_ms - self._expired_ms >= limits.expiry_interval_ms:
            self._expired_ms = now_ms
            self.intake.forget_sessions()
            effects += self._expire(now_ms, list(self.registries.values()))
        else:
            more = [each for each in self.registries.values() if each.has_more_expired]
            effects += self._expire(now_ms, more)
        return effects

    def _expire(self, now_ms: int, registries: list[Registry]) -> list[Effect]:
        grace_ms = self._limits.expiry_grace_ms
        if now_ms - self._awake_ms < grace_ms:
            return []
        return [each for one in registries for each in one.expire(now_ms - grace_ms)]

    def _mark(self, partitions: list[int], now_ms: int) -> list[Effect]:
        effects = self.intake.flush(now_ms, at_once=True)
        return effects + (self.intake.marks(partitions) if partitions else [])

    def _change_requests(self, event: ChangeRequests | ColumnRequests) -> list[Effect]:
        registry = self.registries.get(event.partition)
        if registry is None:
            error = Unavailable("this router does not own that part of the registry; try again")
            return [Answer(event.token, (Outcome(NO_REVISION, error),) * len(event.requests))]
        if isinstance(event, ColumnRequests):
            return registry.take_column_requests(event.token, event.requests)
        return registry.take_requests(event.token, event.requests)

    def _copy(self, event: RegistryRecords) -> list[Effect]:
        registry = self.registries.get(event.partition)
        if registry is None:
            return []
        waiting = registry.live.unplaced
        effects = copy(registry, event.changes, self.intake.routings)
        self.copied_total += waiting - registry.live.unplaced
        return effects

    def _control(self, event: ControlRead) -> list[Effect]:
        declaration = event.declaration
        view = self.holdings.view
        known = set(view.maps), view.map_version
        effects, lost = self.holdings.control(event.offset, declaration)
        if known != (set(view.maps), view.map_version):
            self._steps.learn()
            for registry in self.registries.values():
                effects += registry.read((), self.intake.routings)
        for topic, partition in lost:
            if topic == INTAKE and partition in self.intake.sources:
                self.intake.disown(partition)
                self._paused.discard(partition)
            elif topic == REGISTRY and partition in self.registries:
                effects += self.registries.pop(partition).abandon()
        if isinstance(declaration, CheckpointTaken):
            effects += self._checkpoint_seen(declaration)
        return effects

    def _checkpoint_seen(self, taken: CheckpointTaken) -> list[Effect]:
        if not self.holdings.owns(taken.topic, taken.partition):
            return []
        if taken.topic == REGISTRY:
            registry = self.registries[taken.partition]
            registry.floor = max(registry.floor, taken.offset)
            return []
        # `registry` is compacted, not truncated: it is the source of truth.
        if taken.topic != INTAKE:
            return []
        # A former owner's checkpoint may be ahead of what this process has read.
        before = min(taken.offset, self.intake.sources[taken.partition].offset)
        return [Truncate(INTAKE, taken.partition, before)]

    def _loaded(self, event: Loaded, now_ms: int) -> list[Effect]:
        if not self.holdings.loaded(event):
            return []
        effects: list[Effect] = []
        if event.topic == INTAKE:
            self.intake.own(event.partition, event.offset, event.state, now_ms)
            self._paused.discard(event.partition)
        else:
            registry = Registry(
                partition=event.partition,
                offset=event.offset,
                floor=event.offset,
                epoch=event.epoch,
                intake_partitions=self._intake_partitions,
                limits=self._limits,
            )
            registry.pending_requests.routing = self.intake.routing
            if self.intake.summarised:
                registry.keyword_summary = KeywordSummary(
                    *(event.partition, event.epoch, self.intake.slots),
                    *(self._intake_partitions, registry.live, self._limits),
                )
            if event.state is not None:
                registry.restore(event.state)
                is_unused = not self.intake.summarised and was_published(event.state)
                if is_unused or STALE in event.state:
                    # Former owners held back what no query needed. This one sends no summaries, or
                    # its queries need more by today's analysis.
                    record = withdrawn(event.partition, event.epoch)
                    effects += [Append(INTAKE, p, record) for p in range(self._intake_partitions)]
            # Without a checkpoint, start with the oldest map that anyone may need.
            oldest = min(self.intake.routings, default=0)
            registry.stage.base = registry.stage.base or oldest
            self.registries[event.partition] = registry
        self._checkpointed[event.topic, event.partition] = (
            event.offset,
            now_ms,
            self._map_version(event.topic, event.partition),
        )
        return [*effects, Follow(event.topic, event.partition, event.offset)]

    def _map_version(self, topic: str, partition: int) -> int:
        """Returns the version of the map in force at the position of a Kafka partition."""
        if topic == INTAKE:
            return self.intake.sources[partition].map_version
        return self.registries[partition].stage.base

    def _has_changed_map(self) -> bool:
        """Whether a change of the map waits for a checkpoint that can be taken now.

        The change proceeds when all processes know that it has come so far. It waits only for that,
        twice: with the interval of marks this would be most of its duration.
        """
        return any(
            self._is_by_another_map(INTAKE, partition, source.offset)
            for partition, source in self.intake.sources.items()
        ) or any(
            self._is_by_another_map(REGISTRY, partition, registry.offset) and may_be_saved(registry)
            for partition, registry in self.registries.items()
        )

    def _is_by_another_map(self, topic: str, partition: int, offset: int) -> bool:
        """Whether an offset has another map in force than the last checkpoint before it."""
        saved, _, version = self._checkpointed[topic, partition]
        return offset > saved and version != self._map_version(topic, partition)

    def _checkpoint(self, now_ms: int, *, at_once: bool = False) -> list[Effect]:
        def due(topic: str, partition: int, offset: int) -> bool:
            saved, saved_ms, _ = self._checkpointed[topic, partition]
            is_late = at_once or now_ms - saved_ms >= self._limits.checkpoint_interval_ms
            is_next = self._is_by_another_map(topic, partition, offset)
            return is_next or (is_late and offset > saved)

        effects: list[Effect] = []
        for partition in self.holdings.owned(INTAKE):
            source = self.intake.sources[partition]
            if due(INTAKE, partition, source.offset):
                effects.append(self._save(INTAKE, partition, source.offset, source.state, now_ms))
        for partition, registry in self.registries.items():
            if may_be_saved(registry) and due(REGISTRY, partition, registry.offset):
                effects.append(
                    self._save(REGISTRY, partition, registry.offset, registry.state, now_ms)
                )
        return effects

    def _save(
        self, topic: str, partition: int, offset: int, state: Callable[[], State], now_ms: int
    ) -> SaveCheckpoint:
        version = self._map_version(topic, partition)
        self._checkpointed[topic, partition] = offset, now_ms, version
        epoch = self.holdings.held[topic, partition].epoch
        return SaveCheckpoint(
            topic=topic,
            partition=partition,
            epoch=epoch,
            offset=offset,
            state=state(),
            map_version=version,
        )

    def _drain(self, now_ms: int) -> list[Effect]:
        effects = self._mark(self.holdings.owned(INTAKE), now_ms)
        return effects + self._checkpoint(now_ms, at_once=True)
