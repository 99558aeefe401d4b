"""The evaluator: owns slots, matches their objects, and answers mergers' questions about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import grpc

from sirocco.internal_api.v1.load_service_pb2_grpc import add_LoadServiceServicer_to_server
from sirocco.internal_api.v1.slot_search_service_pb2_grpc import (
    add_SlotSearchServiceServicer_to_server,
)
from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.evaluator.drain import handing_over
from sirocco.protocol.evaluator.machine import EvaluatorMachine, EvaluatorSettings
from sirocco.protocol.evaluator.search_visibility import searchable
from sirocco.runtime.process.membership import can_take_over
from sirocco.runtime.process.term_secret import SharedTerms
from sirocco.runtime.service import Parts, Service
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.evaluator.archive_search import ArchivedSlices
from sirocco.services.evaluator.leftovers import LeftoverBook
from sirocco.services.evaluator.loads import LoadBack
from sirocco.services.evaluator.progress_watch import StepWatch
from sirocco.services.evaluator.search import SearchedSlot, SlotSearchFront
from sirocco.services.evaluator.slot_store import StoredSlot
from sirocco.services.evaluator.track_room import TrackRoom
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics

logger = logging.getLogger(__name__)

# How long an ending process waits until others have taken over its slots. A hand-over takes two or
# three seconds with its checkpoints, and up to eight more while others load millions of past
# objects. The drain takes some seconds after it (nothing is left to save), within the 30 s that
# `sirocco local` waits; the chart's 60 s have room for a drain of 20 s.
HAND_OVER_S = 18.0

# Between checks for slots that are still owned.
LOOK_S = 0.05


class EvaluatorService(Service):
    """One evaluator."""

    name = "evaluator"
    serves_clients = False
    traced_as = "match"

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        member = self.new_member(parts)
        self._terms = SharedTerms(parts.store)
        hashing = self._terms.hashing
        self.machine = EvaluatorMachine(
            member,
            EvaluatorSettings(
                intake_partitions=settings.intake_partitions,
                partials_partitions=settings.partials_partitions,
                retention_ms=settings.kept_ms,
                store_bytes_max=settings.store_bytes_max,
                archive_ms=settings.archive_ms,
                counts_leaves=settings.balances,
                hashing=hashing,
                limits=parts.limits.evaluator,
            ),
        )
        self._archived = ArchivedSlices(parts.archive, hashing=hashing)
        watch = StepWatch(self.machine)
        super().__init__(parts, member, watch, hashing)
        self._metrics = EvaluatorMetrics(self.registry)
        self._track_room = TrackRoom(self._metrics)
        self._compiled: RoutingArrays | None = None
        self._searches = SlotSearchFront(
            watch,
            self._searched,
            settings.intake_partitions,
            self._metrics,
            hashing,
            partial(LeftoverBook, self._routing, self._epoch),
            parts.limits.search,
            self.spans,
        )

        self._loads = LoadBack(self.worker, self.machine)

    def servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Servicers for mergers and the coordinator."""
        return (
            partial(add_SlotSearchServiceServicer_to_server, self._searches),
            partial(add_LoadServiceServicer_to_server, self._loads),
        )

    def stop(self) -> bool:
        """Hands the slots over, if another process can take them, and ends."""
        if self.worker.is_alive:
            self._hand_over(time.monotonic() + HAND_OVER_S)
        return super().stop()

    def _hand_over(self, deadline_s: float) -> None:
        """Continues with all slots until others have taken over from new checkpoints."""
        store, held = self.parts.store, self.machine.holdings.held
        lease = self._lease
        looks = handing_over(
            self.machine,
            lambda at: self.worker.look(at).result(max(0.0, deadline_s - time.monotonic())),
            self.worker.post,
            partial(can_take_over, store, self.member),
            lambda: lease.leave() if lease is not None else None,
        )
        try:
            for _ in looks:
                if not self.worker.is_alive or time.monotonic() >= deadline_s:
                    break
                time.sleep(LOOK_S)
        except (Unavailable, TimeoutError) as error:
            # Others repeat the records since the last checkpoint; the repeats are dropped later.
            extra = event("not_handed_over", reason=str(error))
            logger.warning("slots not handed over; other evaluators take them over", extra=extra)
        extra = event("handed_over", member=self.member, left=len(held))
        logger.info("slots handed over", extra=extra)

    def refresh(self) -> None:
        """Updates gauges."""
        slots = list(self.machine.slots.values())
        self._metrics.slots.set(len(slots))
        self._metrics.live_queries.set(sum(len(slot.standing) for slot in slots))
        self._metrics.index_bytes.set(sum(slot.standing.bytes_total for slot in slots))
        self._metrics.stored_objects.set(sum(slot.past.store.objects_total for slot in slots))
        self._metrics.store_bytes.set(sum(slot.past.store.bytes_total for slot in slots))
        self._metrics.paused.set(self.machine.is_paused)
        self._metrics.stepping_slots.set(len(self.machine.stepping))
        self._metrics.careful_slots.set(len(self.machine.careful_reading))
        self._metrics.incomplete_slots.set(sum(slot.past.lacks_slices for slot in slots))
        # A slot that left must not be shown for ever.
        self._metrics.slot_queries.clear()
        self._metrics.slot_objects.clear()
        for number, slot in list(self.machine.slots.items()):
            self._metrics.slot_queries.labels(slot=number).set(len(slot.standing))
            self._metrics.slot_objects.labels(slot=number).set(slot.past.store.objects_total)
        self._track_room.look(slots, time.monotonic())
        self._metrics.matched_objects.set(self.machine.objects_total)
        self._metrics.matches.set(self.machine.matches_total)
        dropped = self._metrics.dropped_intervals
        dropped.labels(reason="repeat").set(self.machine.repeats_total)
        dropped.labels(reason="gap").set(self.machine.gaps_total)

    def loads(self) -> dict[str, float]:
        """Slots owned, objects and matches since start."""
        return {
            "slots": float(len(self.machine.slots)),
            "matched_objects": float(self.machine.objects_total),
            "matches": float(self.machine.matches_total),
        }

    def keep(self) -> None:
        """Stores the secret of the term numbers in the map store."""
        self._terms.keep()

    def taken(self) -> dict[str, int]:
        """The least position of each intake partition over the owned slots."""
        slots = list(self.machine.slots.values())
        return {
            str(partition): min(slot.reached.positions.get(partition, 0) for slot in slots)
            for partition in range(self.parts.settings.intake_partitions)
            if slots
        }

    def is_ready(self) -> bool:
        """Ready when all granted slots are loaded, past objects as well."""
        return super().is_ready() and self.machine.is_complete

    def hang_up(self) -> None:
        """Ends the mergers' streams: others have the slots by now, or soon."""
        self.server.call(self._searches.hang_up())

    def close(self) -> None:
        """Ends the searches' threads."""
        self._searches.close()

    def _searched(self, number: int) -> SearchedSlot | None:
        # In this order: a slot that comes back between the two is taken for the one before.
        epoch = self._epoch(number)
        slot = searchable(self.machine.slots, number)
        if epoch is None or slot is None:
            return None
        return StoredSlot(slot, self._archived, self._terms.hashing, epoch)

    def _epoch(self, number: int) -> int | None:
        held = self.machine.holdings.held.get((SLOTS, number))
        return None if held is None else held.epoch

    def _routing(self, version: int) -> RoutingArrays | None:
        """Returns the map in force, compiled, if it is of this version; in the searches' thread."""
        known = self.machine.holdings.view.map_in_force
        if known is None or known.version != version:
            return None
        if self._compiled is None or self._compiled.version != version:
            self._compiled = scheme_named(known.scheme).compile(known)
        return self._compiled
