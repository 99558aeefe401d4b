"""Evaluators and a merger that only serve searches: real servers over stores, no log, no loops.

The test decides what a slot holds, who owns it, and whether its evaluator answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson
from prometheus_client import CollectorRegistry
from sirocco_api.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server
from sirocco_client import Client, Retry

from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.internal_api.v1.slot_search_service_pb2_grpc import (
    add_SlotSearchServiceServicer_to_server,
)
from sirocco.model.objects import ObjectColumns
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.control_records import Granted, LeaderElected, MapActivated
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import Effect, Event, Tick
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.contract.positions import Reached, position_of
from sirocco.protocol.search.limits import LIMITS as SEARCH_LIMITS
from sirocco.protocol.search.limits import SearchLimits
from sirocco.runtime.first_map import first_map
from sirocco.runtime.grpc.server import GrpcServer, LoopThread
from sirocco.runtime.process.membership import MemberInfo
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.services.evaluator.answers.slot_interface import FoundRows, SlotSearch, Wanted
from sirocco.services.evaluator.progress_watch import StepWatch
from sirocco.services.evaluator.search import SlotSearchFront
from sirocco.services.evaluator.slot_store import StoredSearch
from sirocco.services.merger.members import Members
from sirocco.services.merger.search import SearchFront
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_map_store import MemoryMapStore
from tests.support.values import columns_of

SLOT_COUNT = 6
SETTINGS = ClusterSettings(slots=SLOT_COUNT, leaves=24, intake_partitions=2, scheme="uniform-grid")

# Small, so that a few thousand objects give slices of all kinds.
LIMITS = StoreLimits(active_rows=64, slices=4)

NO_RETRY = Retry(attempts=1)


@dataclass
class Slot:
    """A slot in the state that a test needs.

    Attributes:
        searches wait for it; None: no wait.
        searched: how often it was searched.
    """

    reached: Reached = field(default_factory=Reached)
    store: SlotStore = field(default_factory=lambda: SlotStore(LIMITS))
    earliest_ms: int | None = None
    gate: threading.Event | None = None
    searched: int = 0

    def search(self) -> SlotSearch:
        self.searched += 1
        if self.gate is not None:
            return _Gated(self.store.view(), self.earliest_ms, self.gate)
        return StoredSearch(self.store.view(), self.earliest_ms)


class _Gated(StoredSearch):
    """A search whose duration the test controls."""

    def __init__(self, view: Any, earliest_ms: int | None, gate: threading.Event) -> None:
        super().__init__(view, earliest_ms)
        self._gate = gate

    def within(self, wanted: Wanted, bytes_wanted: Callable[[], int]) -> Iterator[FoundRows]:
        while not self._gate.wait(0.01) and not wanted.is_over():
            pass
        yield from super().within(wanted, bytes_wanted)


class _Still:
    """A machine whose steps change nothing."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        return []

    def deadline_ms(self) -> int | None:
        return None


class Evaluator:
    """A server of slot searches."""

    def __init__(self, member: str, loop: LoopThread, limits: SearchLimits) -> None:
        self.member = member
        self.slots: dict[int, Slot] = {}
        self.watch = StepWatch(_Still())
        self.metrics = EvaluatorMetrics(CollectorRegistry())
        self.front = SlotSearchFront(
            self.watch,
            self.slots.get,
            SETTINGS.intake_partitions,
            self.metrics,
            limits=limits,
        )
        self._server = GrpcServer("127.0.0.1", 0, loop)
        self._server.start((partial(add_SlotSearchServiceServicer_to_server, self.front),))

    @property
    def address(self) -> str:
        return self._server.address

    def stepped(self) -> None:
        """Wakes the threads that wait for a step of the loop."""
        self.watch.step(Tick(), 0)

    def kill(self) -> None:
        self._server.call(self.front.hang_up())
        self._server.stop()
        self.front.close()


class Searchable:
    """Evaluators, a merger, and a client of the merger."""

    def __init__(
        self,
        evaluators: int = 2,
        settings: ClusterSettings = SETTINGS,
        limits: SearchLimits = SEARCH_LIMITS,
    ) -> None:
        self._limits = limits
        self._stack = ExitStack()
        self.loop = LoopThread()
        self.store = MemoryMapStore()
        self.view = ControlView()
        self._offset = 0
        self.slots = {number: Slot() for number in range(settings.slots)}
        self.evaluators: dict[str, Evaluator] = {}
        self._evaluator_count = evaluators
        partition_map = first_map(settings, "")
        self.routing = scheme_named(settings.scheme).compile(from_bytes(partition_map))
        self._declare(LeaderElected("coordinator-1"))
        self._declare(MapActivated(0, 1, partition_map))
        self.metrics = MergerMetrics(CollectorRegistry())
        self.front = SearchFront(
            settings, self.view, Members(self.store), self.metrics, limits=limits
        )
        self._server = GrpcServer("127.0.0.1", 0, self.loop)
        self._numbers = 0

    def __enter__(self) -> Self:
        self.loop.start()
        self._stack.callback(self.loop.stop)
        for _ in range(self._evaluator_count):
            self.add_evaluator()
        members = list(self.evaluators)
        for number in self.slots:
            self.give(number, members[number % len(members)])
        self._server.start((partial(add_SearchServiceServicer_to_server, self.front),))
        self._stack.callback(self._close)
        self.client = self._stack.enter_context(self.new_client())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """The merger's address."""
        return self._server.address

    def new_client(self, **options: Any) -> Client:
        chosen: dict[str, Any] = {"mergers": [self.address], "retry": NO_RETRY} | options
        return Client("127.0.0.1:1", **chosen)

    def add_evaluator(self) -> Evaluator:
        evaluator = Evaluator(f"evaluator-{len(self.evaluators)}", self.loop, self._limits)
        self.evaluators[evaluator.member] = evaluator
        self.announce(evaluator.member, "evaluator", evaluator.address)
        return evaluator

    def announce(self, member: str, service: str, address: str) -> None:
        info = MemberInfo(
            id=member, service=service, address=address, http_address="", started_ms=0
        )
        self.store.put(f"member/{member}", orjson.dumps(asdict(info)))

    def give(self, number: int, member: str, *, is_announced: bool = True) -> None:
        """Makes an evaluator own a slot; `is_announced`: control names it as the owner."""
        for evaluator in self.evaluators.values():
            evaluator.slots.pop(number, None)
        if member in self.evaluators:
            self.evaluators[member].slots[number] = self.slots[number]
        if is_announced:
            self._declare(Granted(0, SLOTS, number, member))

    def owner(self, number: int) -> Evaluator:
        return next(one for one in self.evaluators.values() if number in one.slots)

    def publish(self, members: Sequence[dict[str, Any]], arrivals_ms: Sequence[int]) -> None:
        """Stores objects in the slots of the map; their numbers continue the earlier ones."""
        objects = columns_of(members)
        numbers = np.arange(len(objects), dtype=np.uint64) + np.uint64(self._numbers + 1)
        self._numbers += len(objects)
        terms = analyse_batch(objects.text, objects.text_offsets)
        routes = self.routing.route_objects(
            objects.lon, objects.lat, terms.offsets, terms.terms, numbers
        )
        for slot in np.unique(routes.slot).tolist():
            self._store(slot, np.flatnonzero(routes.slot == slot), objects, numbers, arrivals_ms)

    def _store(
        self,
        slot: int,
        rows: Any,
        objects: ObjectColumns,
        numbers: Any,
        arrivals_ms: Sequence[int],
    ) -> None:
        store = self.slots[slot].store
        chosen = objects.take(rows)
        # In batches, as from a log: merges happen in between.
        for begin in range(0, len(rows), 50):
            batch = chosen.slice(begin, begin + 50)
            some = rows[begin : begin + 50]
            store.append(
                batch,
                np.full(len(some), 7, np.uint64),
                numbers[some],
                np.array(arrivals_ms, np.int64)[some],
                analyse_batch(batch.text, batch.text_offsets),
            )
            while (job := store.next_job()) is not None:
                job.run()
                store.install(job)

    def reach(self, partition: int, offset: int) -> None:
        """Makes all slots take the intake's record at an offset."""
        for slot in self.slots.values():
            slot.reached.positions[partition] = position_of(offset + 1)
        for evaluator in self.evaluators.values():
            evaluator.stepped()

    def _declare(self, declaration: Any) -> None:
        self.view.apply(self._offset, declaration)
        self._offset += 1

    def _close(self) -> None:
        self._server.call(self.front.drain())
        self._server.stop()
        for evaluator in self.evaluators.values():
            evaluator.kill()
