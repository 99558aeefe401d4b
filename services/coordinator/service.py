"""The coordinator: watches leases and assigns ownership; one leads, the others are standbys."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TypeAlias

import grpc
import orjson
from sirocco_api.v1.map_service_pb2_grpc import add_MapServiceServicer_to_server

from sirocco.protocol.contract.effects import MembersSeen, Publish, Warmed
from sirocco.protocol.coordinator.machine import (
    SETTLING_MS,
    CoordinatorMachine,
    CoordinatorSettings,
)
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.runtime.process import membership
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.membership import LEASE_TIMES, directory, seen
from sirocco.runtime.service import Parts, Service
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.services.coordinator.balance_rounds import Balancing
from sirocco.services.coordinator.maps import MapBack
from sirocco.services.coordinator.peers import Evaluators, Routers
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics.coordinator import CoordinatorMetrics
from sirocco.transport.errors import TransportUnavailable

logger = logging.getLogger(__name__)

LEADER_LEASE = membership.LEADER_LEASE

# The owner of a slot, and the next one.
Move: TypeAlias = tuple[str, str]

# Between looks at the leases; a dead member is detected after its lease and one look. What it owned
# makes no progress meanwhile. A look is five short calls of the map store.
WATCH_S = 0.25

# How long the store keeps the trace of a look.
SEEN_MS = 60_000

# Without one of these services no data flows. They are counted from the start: an alert on a count
# of zero would miss a service that this coordinator has never seen.
NEEDED = ("router", "evaluator", "merger")


class CoordinatorService(Service):
    """One coordinator."""

    name = "coordinator"
    serves_clients = False

    def __init__(
        self,
        parts: Parts,
        first_map: bytes,
        first_map_version: int,
        *,
        watch_s: float = WATCH_S,
        settling_ms: int = SETTLING_MS,
    ) -> None:
        member = self.new_member(parts)
        self.machine = CoordinatorMachine(
            member,
            CoordinatorSettings(
                partitions=parts.settings.owned_partitions(),
                first_map=first_map,
                first_map_version=first_map_version,
                settling_ms=settling_ms,
                by_load=parts.settings.balances,
                warms=True,
            ),
        )
        super().__init__(parts, member, self.machine)
        self._metrics = CoordinatorMetrics(self.registry)
        self._maps = MapBack(self.worker)
        dialer = parts.security.dialer
        # Of the warming thread; the rounds have their own.
        self._evaluators = Evaluators(partial(self._addresses, "evaluator"), dialer)
        self._warming: threading.Thread | None = None
        self.balancing = self._balancing(parts) if parts.settings.balances else None
        self._watch_s = watch_s
        self._stopping = threading.Event()
        self._lost_store_ms: int | None = None
        # Looks that left their number in the store.
        self._looks = 0
        self._members_alive = dict.fromkeys(NEEDED, 0)
        # Version of the map whose leaves were counted last.
        self._counted_version = 0
        self._watch = threading.Thread(target=self._run, name=f"{member}-watch", daemon=True)

    def start(self) -> None:
        """Also starts the watch."""
        super().start()
        self._watch.start()
        if self.balancing is not None:
            self.balancing.start()

    def servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Servicers for routers."""
        return (partial(add_MapServiceServicer_to_server, self._maps),)

    def stop(self) -> bool:
        """Gives up the lead, then ends."""
        self._stopping.set()
        if self.balancing is not None:
            self.balancing.stop()
        self._watch.join(5)
        if self._warming is not None:
            self._warming.join(5)
        self._evaluators.close()
        try:
            self.parts.store.release(LEADER_LEASE, self.member)
        except TransportUnavailable:
            extra = event("lead_not_released", member=self.member)
            logger.warning("the leader's lease cannot be released; it expires", extra=extra)
        return super().stop()

    def refresh(self) -> None:
        """Updates gauges."""
        self._metrics.leading.set(self.machine.leading)
        if not self.machine.leading:
            # Of rounds before the lead was lost: otherwise they would stay as long as the process.
            self._metrics.imbalance.set(0.0)
            self._metrics.leaf_load.clear()
        view = self.machine.view
        if view.map_version != self._counted_version:
            self._counted_version = view.map_version
            self._metrics.map_leaves.set(len(from_bytes(view.partition_map).slot_of_leaf))
        self._metrics.map_version.set(view.map_version)
        for service, count in self._members_alive.items():
            self._metrics.members.labels(service=service).set(count)

    def publish(self, view: Publish) -> None:
        """Writes the owners to the map store, where every process can read them."""
        form = orjson.dumps({"owners": view.owners, "map_version": view.map_version})
        try:
            self.parts.store.put("view", form)
        except TransportUnavailable as error:
            # It is only a view: the next change writes it again.
            extra = event("view_not_written", member=self.member, reason=str(error))
            logger.warning(
                "owners cannot be published; the next change publishes them", extra=extra
            )

    def _balancing(self, parts: Parts) -> Balancing:
        settings = parts.settings
        return Balancing(
            self.member,
            RoundSettings(
                settings.balance_interval_ms,
                settings.balance_cooldown_ms,
                objects_min=settings.balance_objects_min,
                imbalance_min=settings.balance_threshold,
            ),
            self.machine,
            self.worker,
            Evaluators(partial(self._addresses, "evaluator"), parts.security.dialer),
            Routers(partial(self._addresses, "router"), parts.security.dialer),
            parts.store,
            self._metrics,
        )

    def _addresses(self, service: str) -> dict[str, str]:
        members = directory(self.parts.store).values()
        return {each.id: each.for_peers for each in members if each.service == service}

    def _run(self) -> None:
        while not self._stopping.wait(self._watch_s):
            if not self.worker.caught_up.is_set():
                continue
            try:
                self._look()
            except TransportUnavailable as error:
                self._lost_store_ms = monotonic_ms()
                extra = event("store_unavailable", member=self.member, reason=str(error))
                logger.warning("the map store does not answer; retrying", extra=extra)
            except Exception:
                # Without this thread the cluster has no leader, and nobody notices.
                extra = event("look_failed", member=self.member)
                logger.exception("a look at the map store failed; retrying", extra=extra)

    def _look(self) -> None:
        store = self.parts.store
        leading = store.acquire(LEADER_LEASE, self.member, LEASE_TIMES.lease_ms)
        members, departed = seen(store)
        if self._is_emptied():
            self._lost_store_ms = monotonic_ms()
        if self._lost_store_ms is not None:
            # The store is back, possibly empty: for one full lease no member counts as dead (rule
            # R4).
            if monotonic_ms() - self._lost_store_ms < LEASE_TIMES.lease_ms:
                return
            self._lost_store_ms = None
        counts: dict[str, int] = dict.fromkeys(self._members_alive, 0)
        for member in members:
            counts[member.service] = counts.get(member.service, 0) + 1
        self._members_alive = counts
        self.worker.post(MembersSeen(members, leading, departed))
        self._warm()

    def _warm(self) -> None:
        """Lets evaluators load past objects of slots that they are to own, in another thread."""
        is_warming = self._warming is not None and self._warming.is_alive()
        self._metrics.unwarmed.set(len(self.machine.unwarmed))
        if self.machine.unwarmed and not is_warming:
            self._warming = threading.Thread(
                target=self._warm_slots, name=f"{self.member}-warm", daemon=True
            )
            self._warming.start()

    def _warm_slots(self) -> None:
        # One after the other: a slot of an evaluator that leaves is granted as soon as it can be.
        # Those that are granted together are saved together, when the last of them is warm: what
        # was published since has to be read again, and waits for that.
        together: dict[int, Move] = {}
        for slot, move in self.machine.unwarmed.items():
            if self._stopping.is_set():
                return
            if self.machine.unwarmed.get(slot) != move:
                # Granted meanwhile, or planned in another way.
                continue
            # Also if nobody answers: the move only takes longer.
            with suppress(TransportUnavailable), self._timed("warm"):
                self._evaluators.warm({move[1]: [slot]})
            if self.machine.moves_together(slot):
                together[slot] = move
            else:
                self._save_warmed({slot: move})
        self._save_warmed(together)

    def _save_warmed(self, moves: Mapping[int, Move]) -> None:
        """Lets owners write checkpoints of slots that are warm elsewhere; then they may move."""
        planned = {s: move for s, move in moves.items() if self.machine.unwarmed.get(s) == move}
        if not planned:
            return
        slots: dict[str, list[int]] = {}
        for slot, (owner, _) in planned.items():
            slots.setdefault(owner, []).append(slot)
        with suppress(TransportUnavailable), self._timed("save"):
            self._evaluators.save(slots)
        for slot, (_, following) in planned.items():
            self.worker.post(Warmed(slot, following))

    def _timed(self, phase: str) -> AbstractContextManager[object]:
        return self._metrics.warming_seconds.labels(phase=phase).time()

    def _is_emptied(self) -> bool:
        """Whether the store has lost the trace of the last look, and perhaps leases too.

        A store may return empty, or as it was some time ago, before its absence is noticed.
        """
        key = f"seen/{self.member}"
        is_forgotten = self._looks > 0 and self.parts.store.get(key) != b"%d" % self._looks
        self._looks += 1
        self.parts.store.put(key, b"%d" % self._looks, ttl_ms=SEEN_MS)
        return is_forgotten
