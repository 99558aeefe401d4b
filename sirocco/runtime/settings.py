"""Settings of a process, from the environment, checked at start."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sirocco.model.durations import parse_duration_ms
from sirocco.model.errors import InvalidArgument
from sirocco.protocol.messages import (
    CONTROL,
    DEAD_LETTERS,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    REGISTRY,
    SLOTS,
)
from sirocco.transport.log import TopicSpec

T = TypeVar("T")

SLOTS_MAX = 65_536
PARTITIONS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What all processes of a cluster have in common; fixed for its life.

    Attributes:
        cluster: name; prefix of topics and keys.
        slots: Kafka partitions of `slots`; about 4 for each evaluator foreseen, at least 16.
        leaves: leaves of the first partition map.
        intake_partitions: Kafka partitions of `intake`.
        registry_partitions: Kafka partitions of `registry`.
        partials_partitions: Kafka partitions of `partials` and `deliveries`.
        scheme: how the workload is cut.
        event_time: take an object's own time as its arrival.
        retained_bytes_max: how much each Kafka partition of `deliveries` keeps at least for
            subscribers that are behind; at most twice as much.
        retention_ms: how long objects stay in memory for searches; None without limit.
        store_bytes_max: memory of an evaluator's objects; older ones are read from the archive.
        archive_ms: how long objects stay in the archive; None without limit.
    """

    cluster: str = "sirocco"
    slots: int = 16
    leaves: int = 64
    intake_partitions: int = 4
    registry_partitions: int = 4
    partials_partitions: int = 2
    scheme: str = "qt-tree"
    event_time: bool = False
    retained_bytes_max: int = 1 << 30
    retention_ms: int | None = 86_400_000
    store_bytes_max: int = 4 << 30
    archive_ms: int | None = 30 * 86_400_000

    def __post_init__(self) -> None:
        """Raises InvalidArgument for what does not go together."""
        if self.event_time and self.intake_partitions != 1:
            # Arrivals never go back along the one stream of events; several partitions would each
            # have a time of its own, and a slot's time would stand still with the slowest.
            raise InvalidArgument(
                "must be 1 where arrivals follow the objects' own times",
                field="SIROCCO_INTAKE_PARTITIONS",
            )

    def topics(self) -> tuple[TopicSpec, ...]:
        """The topics of the cluster."""
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


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What one process is told.

    Attributes:
        cluster: see `ClusterSettings`.
        kafka: bootstrap servers.
        redis: URL; never printed, it may hold a password.
        archive: URI or directory of checkpoints.
        host: address that others reach this process at.
        grpc_port, http_port: 0 for a free one.
        sample: path of objects from which the first map is built; coordinator only.
        log_level: least level of the log lines on stderr.
    """

    cluster: ClusterSettings
    kafka: str
    redis: str
    archive: str
    host: str
    grpc_port: int
    http_port: int
    sample: str
    log_level: str


def from_environment(environment: Mapping[str, str] | None = None) -> ProcessSettings:
    """Reads all settings.

    Raises:
        InvalidArgument: one is missing or out of range; `field` is the variable's name.
    """
    read = _Reader(os.environ if environment is None else environment)
    event_time = read.choice("SIROCCO_ARRIVAL", "wall", ("wall", "event")) == "event"
    cluster = ClusterSettings(
        cluster=read.text("SIROCCO_CLUSTER", "sirocco"),
        slots=read.integer("SIROCCO_SLOTS", 16, SLOTS_MAX),
        leaves=read.integer("SIROCCO_LEAVES", 64, SLOTS_MAX),
        intake_partitions=read.integer(
            "SIROCCO_INTAKE_PARTITIONS", 1 if event_time else 4, PARTITIONS_MAX
        ),
        registry_partitions=read.integer("SIROCCO_REGISTRY_PARTITIONS", 4, PARTITIONS_MAX),
        partials_partitions=read.integer("SIROCCO_PARTIALS_PARTITIONS", 2, PARTITIONS_MAX),
        scheme=read.text("SIROCCO_SCHEME", "qt-tree"),
        retained_bytes_max=read.integer("SIROCCO_RETAINED_BYTES", 1 << 30, 1 << 50),
        retention_ms=read.retention_ms("SIROCCO_RETENTION", "24h"),
        store_bytes_max=read.integer("SIROCCO_STORE_BYTES", 4 << 30, 1 << 50),
        archive_ms=read.retention_ms("SIROCCO_ARCHIVE_RETENTION", "30d"),
        event_time=event_time,
    )
    return ProcessSettings(
        cluster=cluster,
        kafka=read.text("SIROCCO_KAFKA", None),
        redis=read.text("SIROCCO_REDIS", None),
        archive=read.text("SIROCCO_ARCHIVE", None),
        host=read.text("SIROCCO_HOST", "127.0.0.1"),
        grpc_port=read.integer("SIROCCO_GRPC_PORT", 0, 65_535, least=0),
        http_port=read.integer("SIROCCO_HTTP_PORT", 0, 65_535, least=0),
        sample=read.text("SIROCCO_SAMPLE", ""),
        log_level=read.choice("SIROCCO_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
    )


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str | None) -> str:
        return self._read(name, default, str)

    def integer(self, name: str, default: int, greatest: int, *, least: int = 1) -> int:
        value = self._read(name, default, int)
        if not least <= value <= greatest:
            raise InvalidArgument(f"{value} is not within {least} … {greatest}", field=name)
        return value

    def retention_ms(self, name: str, default: str) -> int | None:
        """A duration; None for `unlimited`."""
        raw = self.text(name, default)
        return None if raw == "unlimited" else parse_duration_ms(raw, name)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._read(name, default, str)
        if value not in choices:
            raise InvalidArgument(f"{value!r} is none of {', '.join(choices)}", field=name)
        return value

    def _read(self, name: str, default: T | None, convert: Callable[[str], T]) -> T:
        raw = self._environment.get(name, "")
        if not raw:
            if default is None:
                raise InvalidArgument("is not set in the environment", field=name)
            return default
        try:
            return convert(raw)
        except ValueError:
            raise InvalidArgument(f"{raw!r} is no {convert.__name__}", field=name) from None
