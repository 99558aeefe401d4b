"""The router: its front (clients) and its back (intake and registry) in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import grpc
from sirocco_api.v1.balance_service_pb2_grpc import add_BalanceServiceServicer_to_server
from sirocco_api.v1.cluster_service_pb2_grpc import add_ClusterServiceServicer_to_server
from sirocco_api.v1.map_service_pb2_grpc import add_MapServiceServicer_to_server
from sirocco_api.v1.publish_service_pb2_grpc import add_PublishServiceServicer_to_server
from sirocco_api.v1.query_service_pb2_grpc import add_QueryServiceServicer_to_server

from sirocco.internal_api.v1.arrival_service_pb2_grpc import add_ArrivalServiceServicer_to_server
from sirocco.internal_api.v1.owner_service_pb2_grpc import add_OwnerServiceServicer_to_server
from sirocco.protocol.router.machine import RouterMachine, RouterSettings
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.loop.appender import Appender
from sirocco.runtime.process.membership import MemberInfo, directory, living
from sirocco.runtime.service import Parts, Service
from sirocco.services.router.admission import Admission
from sirocco.services.router.arrivals import ArrivalBack
from sirocco.services.router.balance import BalanceFront
from sirocco.services.router.cluster import ClusterFront
from sirocco.services.router.definition_recovery import DefinitionRecovery
from sirocco.services.router.map_change_reader import MapChangeReader
from sirocco.services.router.maps import MapFront
from sirocco.services.router.owners import OwnerBack, Owners
from sirocco.services.router.publish import PublishFront
from sirocco.services.router.publish_traces import PublishTraces
from sirocco.services.router.queries import QueryFront
from sirocco.services.router.quotas import TenantFigures, TenantQueries
from sirocco.services.router.registry_definitions import StoredQueries
from sirocco.telemetry.metrics.router import RouterMetrics


class RouterService(Service):
    """One router."""

    name = "router"
    has_peer_servicers = True
    traced_as = "route"

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        member = self.new_member(parts)
        self.machine = RouterMachine(
            member,
            RouterSettings(
                settings.slots,
                settings.event_time,
                settings.intake_partitions,
                settings.registry_partitions,
                settings.store,
                parts.limits.router,
            ),
        )
        super().__init__(parts, member, self.machine)
        self._metrics = RouterMetrics(self.registry)
        self._appender = Appender(parts.log, f"{member}-front", self.server.loop)
        stored = StoredQueries(parts.log, self.machine)
        self._definition_recovery = DefinitionRecovery(member, self.machine, stored, self.worker)
        self._map_change_reader = MapChangeReader(member, self.machine, stored, self.worker)
        dialer = parts.security.dialer
        tenants = TenantQueries(stored, self.machine)
        figures = TenantFigures(self._metrics)
        self._pool = WorkPool("queries")
        self._owners = Owners(
            member, self.machine, self.worker, stored, self._members, dialer, tenants
        )
        self._admission = Admission(self._living)
        self._publish = PublishFront(
            self._appender,
            self._admission,
            settings.intake_partitions,
            self._metrics,
            event_time=settings.event_time,
            skew_max_ms=settings.arrival_skew_max_ms,
            figures=figures,
            pool=self._pool,
            traces=None if self.spans is None else PublishTraces(self.spans),
        )
        self._queries = QueryFront(
            self._owners,
            settings.registry_partitions,
            self._metrics,
            settings.retention_ms,
            store=settings.store,
            figures=figures,
            pool=self._pool,
            tenant_steps=settings.tenant_steps,
            tenant_change_bytes=settings.tenant_change_bytes,
            routing=lambda: self.machine.intake.routing,
        )
        self._owner_back = OwnerBack(self.worker, stored, tenants, self._pool)
        self._arrivals = ArrivalBack(self.machine.intake)
        self._cluster = ClusterFront(
            settings, member, self.machine, self.worker, parts.log, self._members, dialer
        )
        self._balance = BalanceFront(settings, parts.store)
        self._maps = MapFront(settings, self.machine.holdings.view, self._members, dialer)

    def start(self) -> None:
        """Also starts looking for queries to republish or to copy."""
        super().start()
        self._definition_recovery.start()
        self._map_change_reader.start()

    def servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Servicers for clients."""
        return (
            partial(add_PublishServiceServicer_to_server, self._publish),
            partial(add_QueryServiceServicer_to_server, self._queries),
            partial(add_ClusterServiceServicer_to_server, self._cluster),
            partial(add_MapServiceServicer_to_server, self._maps),
            partial(add_BalanceServiceServicer_to_server, self._balance),
        )

    def peer_servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Servicers for other routers, mergers and coordinators."""
        own = (
            partial(add_OwnerServiceServicer_to_server, self._owner_back),
            partial(add_ArrivalServiceServicer_to_server, self._arrivals),
        )
        if not self.parts.security.parts_peers:
            return own
        return (*own, partial(add_ClusterServiceServicer_to_server, self._cluster))

    def refresh(self) -> None:
        """Updates gauges."""
        self._metrics.routed_objects.set(self.machine.intake.objects_total)
        self._metrics.held_back_objects.set(self.machine.intake.held_back_total)
        self._metrics.followed_members.set(self.machine.intake.followed_members)
        self._metrics.copied_bytes.set(self.machine.intake.copied_bytes_total)
        self._metrics.waiting_for_map.set(self.machine.waiting_for_map)
        registries = list(self.machine.registries.values())
        self._metrics.live_queries.set(sum(len(registry.live) for registry in registries))
        uncopied = sum(registry.live.unplaced for registry in registries)
        self._metrics.uncopied_queries.set(uncopied)
        self._metrics.copied_queries.set(self.machine.copied_total)
        self._metrics.bytes_under_way.set(self._admission.bytes_under_way)

    def loads(self) -> dict[str, float]:
        """Objects routed since start; without a store, also those held back."""
        intake = self.machine.intake
        loads = {"routed_objects": float(intake.objects_total)}
        if intake.summarised:
            loads["held_back_objects"] = float(intake.held_back_total)
        return loads

    def is_ready(self) -> bool:
        """Ready when all granted partitions are loaded and there is a map for routing."""
        holdings = self.machine.holdings
        return super().is_ready() and holdings.ready and holdings.view.map_version > 0

    @property
    def failure(self) -> BaseException | None:
        """Why the back or the front ended by itself, if one did."""
        return super().failure or self._appender.failure

    def close(self) -> None:
        """Ends the helpers beside the worker."""
        self._definition_recovery.stop()
        self._map_change_reader.stop()
        self._appender.close()
        self._pool.close()

    def _members(self) -> dict[str, MemberInfo]:
        return directory(self.parts.store)

    def _living(self) -> dict[str, MemberInfo]:
        """Members with a lease: descriptions are kept three times as long as leases."""
        there = {member.id for member in living(self.parts.store)}
        return {name: info for name, info in self._members().items() if name in there}
