"""Assembles a service in a process: its worker, lease, gRPC and HTTP servers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from prometheus_client import CollectorRegistry

from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.effects import Publish
from sirocco.runtime.grpc.authentication import Authenticated
from sirocco.runtime.grpc.health_service import HealthFront
from sirocco.runtime.grpc.reflection_service import ReflectionFront, add_reflection
from sirocco.runtime.grpc.security import OPEN, Security
from sirocco.runtime.grpc.server import GrpcServer, LoopThread, service_names
from sirocco.runtime.grpc.tls import PeersAlone
from sirocco.runtime.limits import LIMITS, ProcessLimits
from sirocco.runtime.loop.traced_records import TracedRecords
from sirocco.runtime.loop.worker import Machine, Worker
from sirocco.runtime.process.clock import held_ms, monotonic_ms, now_ms
from sirocco.runtime.process.health import HealthServer
from sirocco.runtime.process.log_reachability import LogReachability
from sirocco.runtime.process.membership import LeaseKeeper, MemberInfo, new_member_id
from sirocco.runtime.process.stalled_appends import AppendWatch
from sirocco.runtime.settings import ClusterSettings
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics.process import ProcessMetrics
from sirocco.transport.archive import Archive
from sirocco.transport.errors import RecordTooLarge, TransportError
from sirocco.transport.log import Log
from sirocco.transport.map_store import MapStore

if TYPE_CHECKING:
    import grpc

    from sirocco.telemetry.spans import Spans, Tracing

logger = logging.getLogger(__name__)

# Within Kubernetes' default of 30 s, with room for the servers to close.
DRAIN_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a service needs to run.

    Attributes:
        log, store, archive: adapters; they outlive the service.
        host: address at which others reach the process.
        grpc_port, http_port: 0 for a free one.
        loop: where all services of the process run their servers; None for a loop each.
        security: who may call the process.
        name: the operator's name of the process, such as `router-0`; may be empty.
        limits: how much its parts do at once, and how often.
        tracing: traces calls of clients; None: off.
    """

    settings: ClusterSettings
    log: Log
    store: MapStore
    archive: Archive
    host: str = "127.0.0.1"
    grpc_port: int = 0
    http_port: int = 0
    loop: LoopThread | None = None
    security: Security = OPEN
    name: str = ""
    limits: ProcessLimits = LIMITS
    tracing: Tracing | None = None


class Service:
    """One running service; the four differ in their machine, servicers and metrics.

    Subclasses fill `servicers`, `refresh`, `loads`, `close`.
    """

    name = ""
    # Whether clients call it; else only other services do.
    serves_clients = True
    # Whether it has `peer_servicers` besides those for clients.
    has_peer_servicers = False
    # What it does with objects, as the name of a span; empty: nothing.
    traced_as = ""

    def __init__(
        self, parts: Parts, member: str, machine: Machine, hashing: TermHashing = WIRE_TERMS
    ) -> None:
        self.parts = parts
        self.member = member
        self.registry = CollectorRegistry()
        self.spans: Spans | None = None
        self.traced: TracedRecords | None = None
        if parts.tracing is not None and self.traced_as:
            self.spans = parts.tracing.spans(parts.settings.cluster, self.name, member)
            self.traced = TracedRecords(self.spans, self.traced_as)
        self.worker = Worker(
            member,
            machine,
            parts.log,
            parts.archive,
            publish=self.publish,
            transaction_prefix=parts.settings.cluster,
            hashing=hashing,
            limits=parts.limits.loop,
            traced=self.traced,
        )
        self._process_metrics = ProcessMetrics(self.registry, self.name, member)
        self.server, self._peer_server = self._servers(parts)
        self._rejected_seen = 0
        self._lost_spans_seen: Counter[str] = Counter()
        self._started_ms = now_ms()
        self._health: HealthServer | None = None
        self._health_front: HealthFront | None = None
        self._lease: LeaseKeeper | None = None
        self._reachability = LogReachability(parts.log, parts.store, member, self._end_cut_off)
        self._append_watch = AppendWatch(parts.log, member, self._end_cut_off)
        self._cut_off: Exception | None = None

    @classmethod
    def new_member(cls, parts: Parts) -> str:
        """Returns an id for a new start of this service."""
        return new_member_id(cls.name, parts.name)

    # --- what services fill in

    def servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """The generated add_…_to_server calls, bound to servicers; called before it listens."""
        return ()

    def peer_servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Returns the same for calls of other services, if clients call this one as well."""
        return ()

    def refresh(self) -> None:
        """Updates gauges before a scrape."""

    def loads(self) -> dict[str, float]:
        """Returns figures for the coordinator and for `DescribeCluster`."""
        return {}

    def taken(self) -> dict[str, int]:
        """Returns how far the intake has been taken; only evaluators report it."""
        return {}

    def keep(self) -> None:
        """Renews in the map store what the process shares with others, besides its own lease."""

    def publish(self, view: Publish) -> None:
        """Writes the view of what is in force; only coordinators are asked to."""

    def is_ready(self) -> bool:
        """Whether clients and others may rely on this process."""
        return self.worker.caught_up.is_set() and self.worker.is_alive

    def hang_up(self) -> None:
        """Ends streams that would otherwise last through the servers' grace; they still listen."""

    def close(self) -> None:
        """Frees what the service holds besides the worker, once no call is open."""

    # --- life

    @property
    def address(self) -> str:
        """host:port of the gRPC server."""
        return self.server.address

    @property
    def http_address(self) -> str:
        """host:port of health and metrics."""
        return self._health.address if self._health else ""

    @property
    def failure(self) -> BaseException | None:
        """Why the service ended by itself, if it did."""
        return self._cut_off or self.worker.failure

    def start(self) -> None:
        """Listens, takes the lease, and starts to work."""
        own = () if self._peer_server else self.peer_servicers()
        self.server.start((*self.servicers(), *own, *self._about_services()))
        if self._peer_server is not None:
            self._peer_server.start(self.peer_servicers())
        self._health = HealthServer(
            self.parts.host,
            self.parts.http_port,
            self.registry,
            is_healthy=self._turns,
            is_ready=self.is_ready,
            refresh=self._refresh,
        )
        self.worker.start()
        self._lease = LeaseKeeper(
            self.parts.store,
            self._describe,
            lambda: self.worker.beat_ms,
            self.keep,
            self.parts.limits.leases,
        )
        self._lease.start()
        self._reachability.start()
        self._append_watch.start()
        logger.info(
            "",
            extra=event("listening", member=self.member, grpc=self.address, http=self.http_address),
        )

    def stop(self) -> bool:
        """Drains and ends; returns whether it did so in time."""
        self._append_watch.stop()
        self._reachability.stop()
        in_time = self.worker.stop(DRAIN_S)
        if self._lease is not None:
            self._lease.stop(is_harmed=self._is_harmed())
        self.hang_up()
        if self._health_front is not None:
            self.server.loop.call_soon_threadsafe(self._health_front.close)
        if self._peer_server is not None:
            self._peer_server.stop()
        self.server.stop()
        self.close()
        if self._health is not None:
            self._health.stop()
        logger.info("stopped", extra=event("stopped", member=self.member, in_time=in_time))
        return in_time and self.failure is None

    def _turns(self) -> bool:
        """Whether both loops work.

        A stuck worker has lost its lease, and all it owned. A stuck gRPC loop answers nobody.
        """
        beats_ms = (self.worker.beat_ms, self.server.running.beat_ms)
        return (
            self.worker.is_alive
            and monotonic_ms() - min(beats_ms) <= self.parts.limits.leases.stuck_ms
        )

    def _about_services(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Returns the services that describe those of this port to any client."""
        if not self.serves_clients:
            return ()
        names = service_names(self.servicers())
        self._health_front = HealthFront(names, lambda: self.is_ready() and self._turns())
        add_health = partial(add_HealthServicer_to_server, self._health_front)
        if not self.parts.settings.reflection:
            return (add_health,)
        names = (*names, *service_names([add_health]))
        return (add_health, partial(add_reflection, ReflectionFront(names, self._count_edge)))

    def _is_harmed(self) -> bool:
        """Whether a record that it read ended it, not a request or an unreachable log."""
        if isinstance(self.failure, RecordTooLarge):
            return True
        return self.failure is not None and not isinstance(self.failure, TransportError)

    def _describe(self) -> MemberInfo:
        return MemberInfo(
            id=self.member,
            service=self.name,
            address=self.address,
            http_address=self.http_address,
            started_ms=self._started_ms,
            loads=self.loads() | self._reachability.figures(),
            taken=self.taken(),
            peer_address=self._peer_server.address if self._peer_server else "",
        )

    def _servers(self, parts: Parts) -> tuple[GrpcServer, GrpcServer | None]:
        """Returns the server, and a second one for other services where that has to be separate."""
        security = parts.security
        tls = security.tls
        made = partial(
            GrpcServer, limits=parts.settings.edge, count_refused=self._count_edge, tls=tls
        )
        own = [] if tls is None else [PeersAlone(tls.name)]
        if not self.serves_clients:
            of_peers = made(
                parts.host, parts.grpc_port, parts.loop, interceptors=own, peers_only=True
            )
            return of_peers, None
        checks = []
        if security.needs_tokens:
            checks = [Authenticated(security.tokens, self._count_refused, security.jwts)]
        server = made(parts.host, parts.grpc_port, parts.loop, interceptors=checks)
        if not (self.has_peer_servicers and security.parts_peers):
            return server, None
        loop = server.running
        of_peers = made(parts.host, security.peer_port, loop, interceptors=own, peers_only=True)
        return server, of_peers

    def _count_edge(self, reason: str) -> None:
        self._process_metrics.edge_refusals.labels(reason=reason).inc()

    def _count_refused(self, reason: str) -> None:
        self._process_metrics.refused_calls.labels(reason=reason).inc()

    def _end_cut_off(self, error: Exception) -> None:
        """Ends the worker and the lease, so that others take over at once."""
        self.worker.fail(error)
        if self._lease is not None:
            self._lease.stop()
        self._cut_off = error

    def _refresh(self) -> None:
        rejected = self.worker.rejected_total
        self._process_metrics.rejected_records.inc(rejected - self._rejected_seen)
        self._rejected_seen = rejected
        self._count_lost_spans()
        self._process_metrics.unacknowledged_appends.set(self.worker.unacknowledged)
        # Ownership changes: a topic that is no longer read must not be shown for ever.
        self._process_metrics.unusable_states.set(self.worker.unusable)
        self._process_metrics.clock_held.set(held_ms() / 1_000)
        self._process_metrics.lag.clear()
        for topic, records in self.worker.lag.items():
            self._process_metrics.lag.labels(topic=topic).set(records)
        self.refresh()

    def _count_lost_spans(self) -> None:
        if self.parts.tracing is None or self.traced is None:
            return
        queue = self.parts.tracing.queue
        lost = Counter(queue=queue.dropped, collector=queue.failed, calls=self.traced.left_out)
        for reason, count in (lost - self._lost_spans_seen).items():
            self._process_metrics.lost_spans.labels(reason=reason).inc(count)
        self._lost_spans_seen = lost
