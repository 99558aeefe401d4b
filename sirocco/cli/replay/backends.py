"""Environments of a replay: all services in this process on the memory log, or as processes."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import note
from sirocco.local.cluster import SERVICES, LocalCluster, LocalClusterSettings
from sirocco.local.usage import usage_here
from sirocco.runtime.process.process_tuning import tune
from sirocco.runtime.settings import DEFAULTS, ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.transport.errors import TransportError
from sirocco.transport.kafka_log import KafkaLog, reachable
from sirocco.transport.kafka_settings import KafkaSettings
from sirocco.transport.redis_map_store import RedisMapStore

# A broker across the sea answers within a second.
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a cluster, and how it splits the workload.

    Attributes:
        routers, evaluators, mergers: Processes (or their equivalents in one process).
        slots: Number of slots.
        leaves: Leaves of the first map.
        scheme: Name of the scheme.
        event_arrivals: Take an object's own time as its arrival.
        sample: Objects from which the first map is built, or None.
        balances: Move load between evaluators while it runs; else the map never changes.
        store: Store objects for searches.
    """

    routers: int = 1
    evaluators: int = 1
    mergers: int = 1
    slots: int = 8
    leaves: int = DEFAULTS.leaves
    scheme: str = DEFAULTS.scheme
    event_arrivals: bool = False
    sample: Path | None = None
    balances: bool = False
    store: bool = True

    def settings(self, cluster: str) -> ClusterSettings:
        """Returns the settings shared by all services."""
        return ClusterSettings(
            cluster=cluster,
            slots=self.slots,
            leaves=self.leaves,
            # Every router must own a Kafka partition.
            intake_partitions=1
            if self.event_arrivals
            else max(DEFAULTS.intake_partitions, self.routers),
            registry_partitions=max(DEFAULTS.registry_partitions, self.routers),
            partials_partitions=max(DEFAULTS.partials_partitions, self.mergers),
            scheme=self.scheme,
            event_time=self.event_arrivals,
            balances=self.balances,
            store=self.store,
            # Slots may be far apart in event time, and every step counts.
            step_bytes_max=1 << 50,
            retention_ms=None,
            archive_ms=None,
        )


class Backend(Protocol):
    """A running cluster."""

    @property
    def router_address(self) -> str:
        """HOST:PORT of a router."""

    def cpu_seconds(self) -> Mapping[str, float]:
        """CPU time of each service so far, by name."""

    def peak_memory_bytes(self) -> int:
        """Largest resident size of all processes together, bytes."""


class _Embedded:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    @property
    def router_address(self) -> str:
        return self._cluster.router_address

    def cpu_seconds(self) -> Mapping[str, float]:
        return self._cluster.service_cpu_seconds()

    def peak_memory_bytes(self) -> int:
        return usage_here().peak_memory_bytes


class _Processes:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def router_address(self) -> str:
        return self._cluster.router_addresses[0]

    def cpu_seconds(self) -> Mapping[str, float]:
        seconds = dict.fromkeys(SERVICES, 0.0)
        for one in self._cluster.processes:
            seconds[one.service] += one.usage().cpu_seconds
        return seconds

    def peak_memory_bytes(self) -> int:
        services = sum(one.usage().peak_memory_bytes for one in self._cluster.processes)
        return services + usage_here().peak_memory_bytes


@contextlib.contextmanager
def memory_backend(shape: Shape) -> Iterator[Backend]:
    """Runs all services in this process on the memory log."""
    tune()
    with EmbeddedCluster(
        shape.settings("replay"),
        routers=shape.routers,
        evaluators=shape.evaluators,
        mergers=shape.mergers,
        sample=str(shape.sample or ""),
    ) as cluster:
        yield _Embedded(cluster)


@contextlib.contextmanager
def process_backend(shape: Shape, kafka: str, redis: str) -> Iterator[Backend]:
    """Runs all services as processes under a fresh cluster name; restarts those that crash.

    After success, nothing of it remains on the servers.

    Args:
        shape: Size of the cluster.
        kafka: HOST:PORT of a running broker.
        redis: URL of a running Redis.

    Raises:
        CommandError: Kafka or Redis does not answer.
        LocalError: A service does not start.
    """
    _check_servers(kafka, redis)
    settings = shape.settings(f"replay-{secrets.token_hex(4)}")
    options = {
        "SIROCCO_SCHEME": settings.scheme,
        "SIROCCO_SLOTS": settings.slots,
        "SIROCCO_LEAVES": settings.leaves,
        "SIROCCO_INTAKE_PARTITIONS": settings.intake_partitions,
        "SIROCCO_REGISTRY_PARTITIONS": settings.registry_partitions,
        "SIROCCO_PARTIALS_PARTITIONS": settings.partials_partitions,
        "SIROCCO_ARRIVAL": "event" if settings.event_time else "wall",
        # Files may be of any time, and every gap in them counts.
        "SIROCCO_ARRIVAL_SKEW_MAX": "unlimited",
        "SIROCCO_STORE": "on" if settings.store else "off",
        "SIROCCO_BALANCE": "on" if settings.balances else "off",
        "SIROCCO_RETENTION": "unlimited",
        "SIROCCO_ARCHIVE_RETENTION": "unlimited",
        "SIROCCO_STEP_BYTES": settings.step_bytes_max,
        "SIROCCO_SAMPLE": shape.sample.resolve() if shape.sample else "",
    }
    counts = {
        "coordinator": 1,
        "merger": shape.mergers,
        "evaluator": shape.evaluators,
        "router": shape.routers,
    }
    with tempfile.TemporaryDirectory(prefix="sirocco-replay-") as directory:
        cluster = LocalCluster(
            Path(directory),
            LocalClusterSettings(
                cluster=settings.cluster,
                kafka=kafka,
                redis=redis,
                archive=str(Path(directory) / "archive"),
                counts=counts,
                options={name: str(value) for name, value in options.items()},
            ),
        )
        with cluster:
            cluster.guard()
            yield _Processes(cluster)
    # After a failure everything stays for diagnosis.
    _tidy(settings, kafka, redis)


def _tidy(settings: ClusterSettings, kafka: str, redis: str) -> None:
    """Removes a cluster's topics and its keys in the map store."""
    log = KafkaLog(KafkaSettings(bootstrap=kafka, topic_prefix=f"{settings.cluster}."))
    store = RedisMapStore(redis, prefix=settings.cluster)
    try:
        log.delete_topics([topic.name for topic in settings.topics()])
        for key in store.scan(""):
            store.delete(key)
    except TransportError as error:
        note(f"topics or keys of {settings.cluster} could not be removed: {error}")
    finally:
        log.close()
        store.close()


def _check_servers(kafka: str, redis: str) -> None:
    """Fails early with a plain message instead of a service's log."""
    if not reachable(KafkaSettings(bootstrap=kafka), timeout_s=_ANSWER_S):
        raise CommandError(f"no Kafka answers at {kafka}: see --kafka", ExitCode.UNAVAILABLE)
    try:
        store = RedisMapStore(redis)
        store.holders("replay")
        store.close()
    except (TransportError, ValueError) as error:
        raise CommandError(f"{error}: see --redis", ExitCode.UNAVAILABLE) from None
