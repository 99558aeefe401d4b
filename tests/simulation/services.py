"""The four services as nodes, with the parts beside their machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sirocco.index.store.store import StoreLimits
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.contract.effects import (
    ChangeRequest,
    Event,
    MembersSeen,
    Outcome,
    Warmed,
)
from sirocco.protocol.contract.messages import INTAKE, PARTIALS, REGISTRY, SLOTS, IntakeObjects
from sirocco.protocol.coordinator.machine import CoordinatorMachine, CoordinatorSettings
from sirocco.protocol.evaluator.drain import handing_over
from sirocco.protocol.evaluator.machine import EvaluatorMachine, EvaluatorSettings
from sirocco.protocol.merger.machine import MergerMachine, MergerSettings
from sirocco.protocol.router.machine import RouterMachine, RouterSettings
from sirocco.runtime.limits import LIMITS, ProcessLimits
from sirocco.runtime.process.membership import LEASE_TIMES, LEAVING, can_take_over, seen
from sirocco.services.coordinator.service import LEADER_LEASE, WATCH_S
from sirocco.services.evaluator.service import HAND_OVER_S, LOOK_S
from sirocco.services.router.publish import intake_partition
from sirocco.transport.errors import TransportUnavailable
from tests.simulation.log import Producer
from tests.simulation.node import Node, Parts
from tests.simulation.poison import PoisonedError
from tests.simulation.terms import TERMS

# So small that slices are sealed and merged all the time.
STORE_LIMITS = StoreLimits(active_rows=7, slices=2, slice_rows=64)

# The offset of a record that the log does not have yet.
NOWHERE = -1

SERVICES = ("coordinator", "router", "evaluator", "merger")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of the cluster."""

    slots: int
    intake: int
    registry: int
    partials: int
    first_map: bytes
    store: bool = True
    balances: bool = False
    limits: ProcessLimits = LIMITS

    def owned(self) -> dict[str, int]:
        """Topic → number of Kafka partitions that have owners."""
        return {
            INTAKE: self.intake,
            REGISTRY: self.registry,
            SLOTS: self.slots,
            PARTIALS: self.partials,
        }


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A publisher's request: consecutive numbers of its session."""

    session: int
    first_number: int
    span: int
    acknowledged_to: int
    objects: ObjectColumns
    deltas: tuple[int, ...] | None


class Front:
    """The front of a router: appends objects, and acknowledges each stream in order."""

    def __init__(self, node: Node, shape: Shape) -> None:
        self._node = node
        self._shape = shape
        self._producer = Producer(node.parts.log)
        node.attach(self._producer)

    def stream(
        self, acknowledged: Callable[[int, int], None], broken: Callable[[], None]
    ) -> Stream:
        """Opens a stream of publishes.

        Args:
            acknowledged: called with the last number in the log, and the offset of its record.
            broken: called when no more acknowledgements will follow.
        """
        return Stream(self._node, self._shape, self._producer, acknowledged, broken)


class Stream:
    """One stream of publishes at a front."""

    def __init__(
        self,
        node: Node,
        shape: Shape,
        producer: Producer,
        acknowledged: Callable[[int, int], None],
        broken: Callable[[], None],
    ) -> None:
        self._node = node
        self._shape = shape
        self._producer = producer
        self._acknowledged = acknowledged
        self._broken = broken
        # The last number of each request, and the offset of its record once it is in the log.
        self._pending: list[tuple[int, list[int]]] = []
        self._is_broken = False

    def take(self, request: PublishRequest) -> None:
        """Takes an arrived request; runs in a turn of the node."""
        if self._is_broken:
            return
        deltas = None
        if request.deltas is not None:
            deltas = np.array(request.deltas, np.uint32)
        taken = IntakeObjects(
            session=request.session,
            first_number=request.first_number,
            span=request.span,
            acknowledged_to=request.acknowledged_to,
            received_ms=self._node.now_ms,
            objects=request.objects,
            number_deltas=deltas,
        )
        landed_at: list[int] = []
        last = request.first_number + request.span - 1
        self._pending.append((last, landed_at))

        def landed(offset: int) -> None:
            self._node.post(lambda: self._settle(landed_at, offset))

        if self._node.parts.planted.acknowledges_early:
            self._settle(landed_at, NOWHERE)
        partition = intake_partition(request.session, self._shape.intake)
        refused = lambda: self._node.post(self._fail)  # noqa: E731
        self._producer.append(INTAKE, partition, taken, landed, refused)

    def _settle(self, landed_at: list[int], offset: int) -> None:
        landed_at.append(offset)
        while self._pending and self._pending[0][1] and not self._is_broken:
            last, offsets = self._pending.pop(0)
            self._acknowledged(last, offsets[0])

    def _fail(self) -> None:
        self._is_broken = True
        self._broken()
        # A record after a gap must not be appended: the front's producer takes no more.
        self._node.kill("an append of its front was refused")


class RouterNode(Node):
    """A router: machine and front."""

    machine: RouterMachine

    def __init__(self, parts: Parts, member: str, shape: Shape, skew_ms: float) -> None:
        settings = RouterSettings(
            shape.slots,
            intake_partitions=shape.intake,
            registry_partitions=shape.registry,
            store=shape.store,
            limits=shape.limits.router,
        )
        machine = RouterMachine(member, settings)
        super().__init__(parts, "router", member, machine, skew_ms)
        self.front = Front(self, shape)

    def apply(
        self,
        routers: Callable[[], dict[str, RouterNode]],
        partition: int,
        requests: tuple[ChangeRequest, ...],
        deadline_ms: float,
        answered: Callable[[Sequence[Outcome] | None], None],
    ) -> None:
        """Passes change requests to the owner known to this router; None: try again."""
        owner = self.machine.holdings.view.owners.get((REGISTRY, partition))
        if owner is None:
            answered(None)
        elif owner.member == self.member:
            if self.machine.holdings.owns(REGISTRY, partition):
                self.change_queries(partition, requests, answered)
            else:
                answered(None)
        else:
            other = routers().get(owner.member)
            if other is None or not other.is_alive:
                answered(None)
                return
            delay_ms = self.scheduler.between(*self.parts.log.delays.call)

            def ask() -> None:
                # The deadline of a call is sent with it.
                if self.scheduler.now_ms <= deadline_ms:
                    other.change_queries(partition, requests, answered)

            self.scheduler.after(delay_ms, lambda: other.post(ask))


class EvaluatorNode(Node):
    """An evaluator: machine, and calls that wait for its slots' progress.

    Attributes:
        watchers: called after each step.
        left_behind: slots that it still had when it ended; None before it had to end.
        could_hand_over: whether another evaluator could take them all the time.
    """

    machine: EvaluatorMachine

    def __init__(
        self, parts: Parts, member: str, settings: EvaluatorSettings, skew_ms: float
    ) -> None:
        self.watchers: list[Callable[[], None]] = []
        self.left_behind: int | None = None
        self.could_hand_over = True
        self._hands_over = False
        super().__init__(parts, "evaluator", member, EvaluatorMachine(member, settings), skew_ms)

    def kill(self, why: str) -> None:
        self._note_ended_during()
        super().kill(why)

    def pause(self) -> None:
        self._note_ended_during()
        super().pause()

    def _note_ended_during(self) -> None:
        """Records it as ended while processing its present attempt, if it has one."""
        for attempted in self.machine.careful_reading.attempted if self.is_alive else ():
            span = attempted.partition, attempted.begin, attempted.end
            self.parts.ended_during[span] += 1

    def _step(self, event: Event) -> None:
        try:
            super()._step(event)
        except PoisonedError:
            self.kill("poisoned")
            return
        for watcher in list(self.watchers):
            watcher()

    @property
    def is_handing_over(self) -> bool:
        """Whether it ends, and its slots go to others meanwhile."""
        return self.is_alive and self._hands_over

    def drain(self) -> None:
        """Hands the slots over, if another evaluator can take them, and ends in good order."""
        if self._hands_over:
            return
        self._hands_over = True
        self._note_ended_during()
        store = self.parts.store

        def can_be_taken() -> bool:
            store.check(self.member)
            is_possible = can_take_over(store, self.member)
            self.could_hand_over &= is_possible
            return is_possible

        def leave() -> None:
            store.acquire(LEAVING + self.member, self.member, LEASE_TIMES.leaving_ms)

        looks = handing_over(self.machine, lambda at: at(), self.sends, can_be_taken, leave)
        self._look_after(looks, self.scheduler.now_ms + 1_000 * HAND_OVER_S)

    def _look_after(self, looks: Iterator[None], deadline_ms: float) -> None:
        """Runs one turn of the thread that hands over."""
        if not self.is_alive:
            return
        again_ms = 1_000 * LOOK_S
        if self.is_paused:
            self.scheduler.after(again_ms, lambda: self._look_after(looks, deadline_ms))
            return
        try:
            next(looks)
            is_over = self.scheduler.now_ms >= deadline_ms
        except (StopIteration, TransportUnavailable):
            is_over = True
        if is_over:
            self.left_behind = len(self.machine.holdings.held)
            super().drain()
        else:
            self.scheduler.after(again_ms, lambda: self._look_after(looks, deadline_ms))


class CoordinatorNode(Node):
    """A coordinator: machine and the watch over leases."""

    machine: CoordinatorMachine

    def __init__(self, parts: Parts, member: str, shape: Shape, skew_ms: float) -> None:
        settings = CoordinatorSettings(
            partitions=shape.owned(),
            first_map=shape.first_map,
            first_map_version=1,
            by_load=shape.balances,
            warms=True,
        )
        machine = CoordinatorMachine(member, settings)
        super().__init__(parts, "coordinator", member, machine, skew_ms)
        self._lost_store_ms: float | None = None
        self._warming: set[int] = set()
        self._watch()

    def _watch(self) -> None:
        if not self.is_alive:
            return
        if not self.is_paused and self.has_caught_up:
            try:
                self._look()
            except TransportUnavailable:
                self._lost_store_ms = self.scheduler.now_ms
        self.scheduler.after(1_000 * WATCH_S + self.scheduler.between(0, 20), self._watch)

    def _look(self) -> None:
        store = self.parts.store
        leading = store.acquire(LEADER_LEASE, self.member, LEASE_TIMES.lease_ms)
        members, departed = seen(store)
        if self._lost_store_ms is not None:
            if self.scheduler.now_ms - self._lost_store_ms < LEASE_TIMES.lease_ms:
                return
            self._lost_store_ms = None
        self.sends(MembersSeen(members, leading, departed))
        for slot, (_, following) in self.machine.unwarmed.items():
            if slot not in self._warming:
                self._warming.add(slot)
                warmed = partial(self._warmed, Warmed(slot, following))
                self.scheduler.after(self.scheduler.between(1, 3_000), warmed)

    def _warmed(self, warmed: Warmed) -> None:
        self._warming.discard(warmed.slot)
        if self.is_alive:
            self.sends(warmed)


def new_node(parts: Parts, service: str, member: str, shape: Shape, skew_ms: float) -> Node:
    """Starts a process of a service."""
    match service:
        case "router":
            return RouterNode(parts, member, shape, skew_ms)
        case "coordinator":
            return CoordinatorNode(parts, member, shape, skew_ms)
        case "evaluator":
            settings = EvaluatorSettings(
                intake_partitions=shape.intake,
                partials_partitions=shape.partials,
                store_limits=STORE_LIMITS,
                counts_leaves=shape.balances,
                hashing=TERMS,
                limits=shape.limits.evaluator,
            )
            return EvaluatorNode(parts, member, settings, skew_ms)
        case _:
            merger = MergerMachine(member, MergerSettings(shape.slots, limits=shape.limits.merger))
            return Node(parts, service, member, merger, skew_ms)
