"""The settings of a source that reads Kafka topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.kafka_connection import read_kafka
from sirocco.services.connector.sections import Section
from sirocco.services.connector.sources.member_map import MemberMap, read_member_map
from sirocco.transport.kafka_settings import KafkaSettings

FORMATS = ("json", "geojson", "avro", "protobuf")
_WITH_SCHEMAS = ("avro", "protobuf")

# Instead of the name of a topic: what cannot be read is counted alone.
DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """How a Schema Registry is reached.

    Attributes:
        url: One or several, with commas between them.
        user, password: For basic authentication; empty without.
        ca: Path of the authorities' certificates; the system's if empty.
        timeout_s: For one request.
        retry_s: Longest pause between two attempts.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    timeout_s: float = 10.0
    retry_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSourceSettings:
    """The settings of one source.

    Attributes:
        name: In the configuration.
        kafka: The cluster.
        topics: What is read.
        group: Of consumers: instances with the same one share the partitions.
        format: One of `FORMATS`.
        mapping: Which members of a record are what.
        registry: Of schemas; None for formats without.
        dead_letters: Topic for what cannot be read; None: it is counted alone.
        earliest: Whether a new group begins with the oldest record, else with the next one.
        record_bytes: A larger value is put aside.
        batch_records: Records that are read together.
        under_way_bytes: Reading waits while so much is not acknowledged.
        commit_s: Between two commits.
        session_s: How long an instance that is gone keeps its partitions.
        release_s: How long a partition that moves to another instance waits for acknowledgements.
    """

    name: str
    kafka: KafkaSettings
    topics: tuple[str, ...]
    group: str
    format: str
    mapping: MemberMap
    registry: RegistryConfig | None = None
    dead_letters: str | None = None
    earliest: bool = True
    record_bytes: int = 1 << 20
    batch_records: int = 5_000
    under_way_bytes: int = 64 << 20
    commit_s: float = 1.0
    session_s: float = 15.0
    release_s: float = 10.0


def read_kafka_source(name: str, given: Mapping[str, Any]) -> KafkaSourceSettings:
    """Reads a section.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    section = Section(given, f"sources.{name}")
    section.choice("kind", ("kafka",))
    form = section.choice("format", FORMATS, "json")
    mapping = read_member_map(section)
    if form == "geojson" and not mapping.is_plain:
        raise InvalidArgument("is of no use with geojson", field=section.field("map"))
    dead = section.text("dead_letters")
    found = KafkaSourceSettings(
        name=name,
        kafka=read_kafka(section),
        topics=_topics(section),
        group=section.text("group", f"sirocco-{name}"),
        format=form,
        mapping=mapping,
        registry=_registry(section, form),
        dead_letters=None if dead == DROP else dead,
        earliest=section.choice("start", ("earliest", "latest"), "earliest") == "earliest",
        # An object at all limits takes this much as JSON.
        record_bytes=section.integer("record_bytes", 1 << 20, 1, 16 << 20),
        batch_records=section.integer("batch_records", 5_000, 1, 16_384),
        under_way_bytes=section.integer("under_way_bytes", 64 << 20, 1 << 20, 1 << 36),
        commit_s=section.duration_s("commit_interval", 1.0, 0.1, 60.0),
        session_s=section.duration_s("session_timeout", 15.0, 1.0, 300.0),
        release_s=section.duration_s("release_timeout", 10.0, 0.1, 60.0),
    )
    section.end()
    if found.dead_letters in found.topics:
        raise InvalidArgument("is read by this source", field=section.field("dead_letters"))
    return found


def _topics(section: Section) -> tuple[str, ...]:
    topics = section.texts("topics")
    for row, topic in enumerate(topics):
        # A pattern, to the client.
        if topic.startswith("^"):
            raise InvalidArgument(
                f"{topic!r:.60} is no name of a topic", field=f"{section.field('topics')}[{row}]"
            )
    return topics


def _registry(section: Section, form: str) -> RegistryConfig | None:
    if form not in _WITH_SCHEMAS:
        if section.has("registry"):
            raise InvalidArgument(f"is of no use with {form}", field=section.field("registry"))
        return None
    section.value("registry")
    registry = section.section("registry")
    url = registry.text("url")
    for each in url.split(","):
        if not each.strip().startswith(("http://", "https://")):
            raise InvalidArgument(f"{each!r:.60} is no URL", field=registry.field("url"))
    found = RegistryConfig(
        url=url,
        user=registry.text("user", ""),
        password=registry.text("password", ""),
        ca=registry.text("ca", ""),
        timeout_s=registry.duration_s("timeout", 10.0, 0.1, 300.0),
        retry_s=registry.duration_s("retry", 10.0, 0.1, 300.0),
    )
    registry.end()
    return found
