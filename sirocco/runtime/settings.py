"""Settings of a process, read from the environment and checked at start."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.messages import (
    CONTROL,
    DEAD_LETTERS,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    REGISTRY,
    SLOTS,
)
from sirocco.protocol.coordinator.round_settings import ROUNDS
from sirocco.protocol.merger.limits import RETAINED_BYTES_MAX, STEP_BYTES_MAX
from sirocco.runtime.grpc.edge import EDGE, EdgeLimits
from sirocco.runtime.grpc.security import SecuritySettings
from sirocco.runtime.grpc.security_settings import read_security
from sirocco.runtime.process.environment import Reader
from sirocco.runtime.process.outside_settings import read_kafka, read_redis, read_traces
from sirocco.telemetry.audit import LEVELS
from sirocco.telemetry.call_sampler import TRACES, TraceSettings
from sirocco.transport.kafka_settings import KafkaSettings
from sirocco.transport.log import TopicSpec

# As Kubernetes names pods.
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}", re.ASCII)

SLOTS_MAX = 65_536
PARTITIONS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class MergerFrontLimits:
    """What one merger does at a time for all its clients.

    Attributes:
        streams_max: open subscriptions; each costs some 40 kB.
        searches_max: searches under way; each may hold some MiB of parts that its client has not
            taken.
        search_timeout_max_ms: the longest that a search may take, whatever its client asks for.
        unread_ms: how long a client may leave a message unread before its answer ends.
        cursor_ms: how often a stream without notifications is sent its cursor while the log grows,
            so that the cursor of a quiet subscriber does not expire. Each window moves it, up to 33
            times a second, which would cost a message for every subscriber.
    """

    streams_max: int = 4_096
    searches_max: int = 256
    search_timeout_max_ms: int = 300_000
    unread_ms: int = 30_000
    cursor_ms: int = 1_000


MERGER_FRONT = MergerFrontLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What all processes of a cluster have in common; fixed for its life.

    Attributes:
        cluster: name; prefix of topics and keys.
        slots: Kafka partitions of `slots`; about 4 for each planned evaluator, at least 8.
        leaves: leaves of the first partition map.
        intake_partitions: Kafka partitions of `intake`.
        registry_partitions: Kafka partitions of `registry`.
        partials_partitions: Kafka partitions of `partials` and `deliveries`.
        scheme: how the workload is split.
        event_time: use an object's own time as its arrival.
        arrival_skew_max_ms: with `event_time`, how far an object's own time may be ahead of the
            clock of the router that takes it; None without limit, as in a replay of files.
        store: keep objects for searches; without it routers hold back objects that no standing
            query needs, and only range queries are accepted.
        retained_bytes_max: how much each Kafka partition of `deliveries` keeps at least for slow
            subscribers; at most twice as much.
        step_bytes_max: bytes of steps of standing queries that wait for slots, in each Kafka
            partition of `partials`; beyond it they are sent without those slots, marked as partial.
        retention_ms: how long objects stay in memory for searches; None without limit.
        store_bytes_max: memory of an evaluator's objects; older ones are read from the archive.
        archive_ms: how long objects stay in the archive; None without limit.
        balances: move slots, and change the map, by what evaluators measure; else every evaluator
            has equally many slots, and the map stays.
        balance_interval_ms: how often loads are measured.
        balance_cooldown_ms: from the end of a change to the next one that is not urgent.
        balance_objects_min: objects of an interval below which nothing is decided.
        balance_threshold: load over the mean from which the most loaded evaluator is relieved.
        merger: limits of each merger.
        edge: how much each gRPC server takes at a time.
        reflection: show the contract of the services for clients at their ports.
        tenant_steps: load of the steps of a tenant's standing queries (`step_load`), where the file
            of tokens does not say otherwise.
        tenant_change_bytes: bytes a second that changes of a tenant's queries append to slots
            through each router (`change_bytes_per_s`), likewise. A router that does nothing else
            makes some 200 MiB of such records a second.
    """

    cluster: str = "sirocco"
    slots: int = 16
    leaves: int = 64
    intake_partitions: int = 4
    registry_partitions: int = 4
    partials_partitions: int = 2
    scheme: str = "qt-tree"
    event_time: bool = False
    arrival_skew_max_ms: int | None = None
    store: bool = True
    retained_bytes_max: int = RETAINED_BYTES_MAX
    step_bytes_max: int = STEP_BYTES_MAX
    retention_ms: int | None = 86_400_000
    store_bytes_max: int = 4 << 30
    archive_ms: int | None = 30 * 86_400_000
    balances: bool = True
    balance_interval_ms: int = ROUNDS.interval_ms
    balance_cooldown_ms: int = ROUNDS.cooldown_ms
    balance_objects_min: int = ROUNDS.objects_min
    balance_threshold: float = ROUNDS.imbalance_min
    merger: MergerFrontLimits = MERGER_FRONT
    edge: EdgeLimits = EDGE
    reflection: bool = False
    tenant_steps: float = 1_000.0
    tenant_change_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        """Raises InvalidArgument for settings that contradict each other."""
        if self.event_time and self.intake_partitions != 1:
            # Arrivals never go back within the one stream of events. Several partitions would each
            # have a time of their own, and a slot's time would stop with the slowest.
            raise InvalidArgument(
                "must be 1 where arrivals follow the objects' own times",
                field="SIROCCO_INTAKE_PARTITIONS",
            )

    @property
    def kept_ms(self) -> int | None:
        """How long an evaluator keeps objects in memory; None without limit."""
        return self.retention_ms if self.store else 0

    def topics(self) -> tuple[TopicSpec, ...]:
        """Returns the topics of the cluster."""
        return (
            TopicSpec(INTAKE, self.intake_partitions),
            TopicSpec(REGISTRY, self.registry_partitions, compacted=True),
            TopicSpec(SLOTS, self.slots),
            TopicSpec(PARTIALS, self.partials_partitions),
            TopicSpec(DELIVERIES, self.partials_partitions),
            TopicSpec(CONTROL, 1, compacted=True),
            TopicSpec(DEAD_LETTERS, 1),
        )

    def owned_partitions(self) -> dict[str, int]:
        """Topic → number of Kafka partitions that need an owner."""
        return {
            INTAKE: self.intake_partitions,
            REGISTRY: self.registry_partitions,
            SLOTS: self.slots,
            PARTIALS: self.partials_partitions,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of one process.

    Attributes:
        cluster: see `ClusterSettings`.
        kafka: address and credentials of Kafka.
        redis: URL; never printed, it may hold a password.
        redis_ca: path of the authorities' certificates for rediss://; the system's if empty.
        archive: URI or directory of checkpoints.
        host: address at which others reach this process.
        grpc_port, http_port: 0 for a free one.
        sample: path of objects from which the first map is built; coordinator only.
        log_level: least level of the log lines on stderr.
        audit: which lines of the audit log are written, one of `audit.LEVELS`.
        traces: which calls are traced, and where to.
        security: TLS and tokens.
        name: the operator's name of the process; a part of its id in the cluster.
    """

    cluster: ClusterSettings
    kafka: KafkaSettings
    redis: str = field(repr=False)
    redis_ca: str
    archive: str
    host: str
    grpc_port: int
    http_port: int
    sample: str
    log_level: str
    security: SecuritySettings = field(default_factory=SecuritySettings)
    name: str = ""
    audit: str = "off"
    traces: TraceSettings = TRACES

    def check_files(self) -> None:
        """Checks that the files of keys and certificates can be read.

        The clients would report it only when they connect, and without the variable's name.

        Raises:
            InvalidArgument: one cannot be read; `field` is the variable's name.
        """
        kafka = self.kafka
        files = {
            "SIROCCO_KAFKA_CA": kafka.tls_ca,
            "SIROCCO_KAFKA_CERTIFICATE": kafka.tls_certificate,
            "SIROCCO_KAFKA_KEY": kafka.tls_key,
            "SIROCCO_REDIS_CA": self.redis_ca,
            "SIROCCO_TOKENS": self.security.tokens,
        }
        if (jwt := self.security.jwt) is not None:
            files |= {
                "SIROCCO_JWT_KEYS": "" if jwt.is_address else jwt.keys,
                "SIROCCO_JWT_KEYS_CA": jwt.ca,
            }
        if (tls := self.security.tls) is not None:
            files |= {
                "SIROCCO_TLS_CERTIFICATE": tls.certificate,
                "SIROCCO_TLS_KEY": tls.key,
                "SIROCCO_TLS_CA": tls.ca,
            }
        for name, path in files.items():
            try:
                if path:
                    Path(path).read_bytes()
            except OSError as error:
                raise InvalidArgument(f"{path}: {error.strerror}", field=name) from error


# What the variables below are without a value, stated once: the chart and the command line are
# compared with these.
DEFAULTS = ClusterSettings()

# Of services that live by the clock; a replay of files has no clock to be ahead of.
ARRIVAL_SKEW_MAX_MS = 3_600_000


def from_environment(environment: Mapping[str, str] | None = None) -> ProcessSettings:
    """Reads all settings.

    Raises:
        InvalidArgument: one is missing or out of range; `field` is the variable's name.
    """
    read = Reader(os.environ if environment is None else environment)
    cluster = _cluster(read)
    redis, redis_ca = read_redis(read)
    return ProcessSettings(
        cluster=cluster,
        kafka=read_kafka(read, cluster.cluster),
        redis=redis,
        redis_ca=redis_ca,
        archive=read.text("SIROCCO_ARCHIVE", None),
        host=read.text("SIROCCO_HOST", "127.0.0.1"),
        grpc_port=read.integer("SIROCCO_GRPC_PORT", 0, 65_535, least=0),
        http_port=read.integer("SIROCCO_HTTP_PORT", 0, 65_535, least=0),
        sample=read.text("SIROCCO_SAMPLE", ""),
        log_level=read.choice("SIROCCO_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        security=read_security(read),
        name=_name(read),
        audit=read.choice("SIROCCO_AUDIT", "off", LEVELS),
        traces=read_traces(read),
    )


def _cluster(read: Reader) -> ClusterSettings:
    event_time = read.choice("SIROCCO_ARRIVAL", "wall", ("wall", "event")) == "event"
    return ClusterSettings(
        cluster=read.text("SIROCCO_CLUSTER", DEFAULTS.cluster),
        slots=read.integer("SIROCCO_SLOTS", DEFAULTS.slots, SLOTS_MAX),
        leaves=read.integer("SIROCCO_LEAVES", DEFAULTS.leaves, SLOTS_MAX),
        intake_partitions=read.integer(
            "SIROCCO_INTAKE_PARTITIONS",
            1 if event_time else DEFAULTS.intake_partitions,
            PARTITIONS_MAX,
        ),
        registry_partitions=read.integer(
            "SIROCCO_REGISTRY_PARTITIONS", DEFAULTS.registry_partitions, PARTITIONS_MAX
        ),
        partials_partitions=read.integer(
            "SIROCCO_PARTIALS_PARTITIONS", DEFAULTS.partials_partitions, PARTITIONS_MAX
        ),
        scheme=read.text("SIROCCO_SCHEME", DEFAULTS.scheme),
        retained_bytes_max=read.integer(
            "SIROCCO_RETAINED_BYTES", DEFAULTS.retained_bytes_max, 1 << 50
        ),
        step_bytes_max=read.integer("SIROCCO_STEP_BYTES", DEFAULTS.step_bytes_max, 1 << 50),
        retention_ms=read.retention_ms("SIROCCO_RETENTION", DEFAULTS.retention_ms),
        store_bytes_max=read.integer("SIROCCO_STORE_BYTES", DEFAULTS.store_bytes_max, 1 << 50),
        archive_ms=read.retention_ms("SIROCCO_ARCHIVE_RETENTION", DEFAULTS.archive_ms),
        event_time=event_time,
        arrival_skew_max_ms=read.retention_ms("SIROCCO_ARRIVAL_SKEW_MAX", ARRIVAL_SKEW_MAX_MS),
        store=read.switch("SIROCCO_STORE", DEFAULTS.store),
        balances=read.switch("SIROCCO_BALANCE", DEFAULTS.balances),
        balance_interval_ms=read.duration_ms(
            "SIROCCO_BALANCE_INTERVAL", DEFAULTS.balance_interval_ms, 100
        ),
        balance_cooldown_ms=read.duration_ms(
            "SIROCCO_BALANCE_COOLDOWN", DEFAULTS.balance_cooldown_ms, 0
        ),
        balance_objects_min=read.integer(
            "SIROCCO_BALANCE_OBJECTS", DEFAULTS.balance_objects_min, 1 << 50, least=0
        ),
        balance_threshold=read.number(
            "SIROCCO_BALANCE_THRESHOLD", DEFAULTS.balance_threshold, 1.0, 1_000.0
        ),
        merger=MergerFrontLimits(
            read.integer("SIROCCO_STREAMS", MERGER_FRONT.streams_max, 1 << 20),
            read.integer("SIROCCO_SEARCHES", MERGER_FRONT.searches_max, 1 << 16),
            read.duration_ms("SIROCCO_SEARCH_TIMEOUT_MAX", MERGER_FRONT.search_timeout_max_ms, 100),
            read.duration_ms("SIROCCO_UNREAD_TIMEOUT", MERGER_FRONT.unread_ms, 100),
        ),
        edge=EdgeLimits(
            calls=read.integer("SIROCCO_CALLS", EDGE.calls, 1 << 20),
            tenant_calls=read.integer("SIROCCO_TENANT_CALLS", EDGE.tenant_calls, 1 << 20),
            # A budget smaller than a message takes one message at a time.
            budget_bytes=read.integer("SIROCCO_MESSAGE_MEMORY", EDGE.budget_bytes, 1 << 40),
            tenant_budget_bytes=read.integer(
                "SIROCCO_TENANT_MESSAGE_MEMORY", EDGE.tenant_budget_bytes, 1 << 40
            ),
        ),
        reflection=read.switch("SIROCCO_REFLECTION", DEFAULTS.reflection),
        tenant_steps=read.number("SIROCCO_TENANT_STEPS", DEFAULTS.tenant_steps, 0, 1e9),
        tenant_change_bytes=read.integer(
            "SIROCCO_TENANT_CHANGE_BYTES", DEFAULTS.tenant_change_bytes, 1 << 40
        ),
    )


def _name(read: Reader) -> str:
    name = read.text("SIROCCO_NAME", "")
    if name and not _NAME.fullmatch(name):
        raise InvalidArgument("is not up to 253 of a-z, 0-9, - and .", field="SIROCCO_NAME")
    return name
