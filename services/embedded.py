"""A whole cluster in this process: the same services on the memory log, without servers.

For the quickstart, for replays of files, and for users' own tests.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sirocco.model.errors import Unavailable
from sirocco.runtime.first_map import first_map
from sirocco.runtime.grpc.security import OPEN, Security
from sirocco.runtime.grpc.server import LoopThread
from sirocco.runtime.limits import LIMITS, ProcessLimits
from sirocco.runtime.service import Parts, Service
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.coordinator.service import CoordinatorService
from sirocco.services.evaluator.service import EvaluatorService
from sirocco.services.merger.service import MergerService
from sirocco.services.router.service import RouterService
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.memory_log import MemoryLog
from sirocco.transport.memory_map_store import MemoryMapStore

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Tracing

# Grants wait until the members are stable; loading kernels from the cache takes a second or two.
READY_S = 60.0

WATCH_S = 0.05


class EmbeddedCluster:
    """All services as threads of this process.

    Args:
        settings: settings of the cluster.
        routers, evaluators, mergers: how many of each.
        sample: path of objects from which the map is built; empty for an even map.
        security: TLS and tokens; without them any caller may do anything.
        limits: how much the services do at once, and how often.
        tracing: traces calls of clients; the caller closes it.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        routers: int = 1,
        evaluators: int = 1,
        mergers: int = 1,
        sample: str | Path = "",
        security: Security = OPEN,
        limits: ProcessLimits = LIMITS,
        tracing: Tracing | None = None,
    ) -> None:
        self.log = MemoryLog()
        self._loop = LoopThread()
        self._parts = Parts(
            settings=settings,
            log=self.log,
            store=MemoryMapStore(),
            archive=MemoryArchive(),
            loop=self._loop,
            security=security,
            limits=limits,
            tracing=tracing,
        )
        self._map = first_map(settings, str(sample))
        self._counts = {"router": routers, "evaluator": evaluators, "merger": mergers}
        self.services: list[Service] = []

    def __enter__(self) -> Self:
        """Starts all services and waits until every Kafka partition has an owner."""
        self.log.create_topics(self._parts.settings.topics())
        self._loop.start()
        makers = {"router": RouterService, "evaluator": EvaluatorService, "merger": MergerService}
        for name, count in self._counts.items():
            self.services += [makers[name](self._named(f"{name}-{n}")) for n in range(count)]
        # All members start before it, and none can die alone: no waiting is needed.
        self.services.append(
            CoordinatorService(
                self._named("coordinator-0"), self._map, 1, watch_s=WATCH_S, settling_ms=0
            )
        )
        for service in self.services:
            service.start()
        self._await_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops all services. The coordinator stops first, so that it grants nothing more."""
        for service in reversed(self.services):
            service.stop()
        self._loop.stop()
        self.log.close()

    @property
    def router_address(self) -> str:
        """host:port of the first router."""
        return self.services[0].address

    def service_cpu_seconds(self) -> dict[str, float]:
        """CPU seconds of each service's loops so far."""
        seconds: dict[str, float] = defaultdict(float)
        for service in self.services:
            seconds[service.name] += service.worker.cpu_seconds
        return dict(seconds)

    def _named(self, name: str) -> Parts:
        return replace(self._parts, name=name)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        owned = sum(self._parts.settings.owned_partitions().values())
        while time.monotonic() < deadline:
            for service in self.services:
                if service.failure is not None:
                    raise Unavailable(f"the {service.name} failed") from service.failure
            holdings = [
                service.machine.holdings
                for service in self.services
                if isinstance(service, RouterService | EvaluatorService | MergerService)
            ]
            held = sum(len(each.held) for each in holdings)
            if held == owned and all(each.ready for each in holdings):
                return
            time.sleep(0.02)
        raise Unavailable(f"the cluster was not ready within {READY_S:.0f} s")
