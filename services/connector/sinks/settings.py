"""Reads the section of a sink: what every sink has, and what its kind has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.kafka_connection import read_kafka
from sirocco.services.connector.runner import Parts
from sirocco.services.connector.sections import Section
from sirocco.services.connector.sinks.blocks import BlockLimits
from sirocco.services.connector.sinks.dead_letters import DeadLetterFile, DeadLetters
from sirocco.services.connector.sinks.files import FileSettings, FileTarget
from sirocco.services.connector.sinks.kafka import (
    KafkaLetters,
    KafkaTarget,
    KafkaTargetSettings,
)
from sirocco.services.connector.sinks.kafka_state import STATE_TOPIC, Transactions
from sirocco.services.connector.sinks.mqtt import IN_FLIGHT, MqttSettings, MqttTarget
from sirocco.services.connector.sinks.retries import RetryPolicy
from sirocco.services.connector.sinks.rows import Form, Key, Shape
from sirocco.services.connector.sinks.sink import Common, Counts, Sink, Target
from sirocco.services.connector.sinks.state import Store
from sirocco.services.connector.sinks.state_file import StateFile
from sirocco.services.connector.sinks.throttle import ThrottleLimit
from sirocco.services.connector.sinks.webhook import WebhookSettings, WebhookTarget
from sirocco.transport.kafka_settings import KafkaSettings

# A file without an end, such as a device, would fill the memory.
_CERTIFICATES_BYTES_MAX = 4 << 20

# A transaction costs the broker about 10 ms, so it holds what has gathered meanwhile; more than
# that would keep readers of the topic waiting. The producer's queue has room for several.
BLOCKS_OF_KAFKA = BlockLimits(
    rows=20_000, bytes_total=16 << 20, held_rows=40_000, held_bytes=32 << 20
)
# Each block is made durable, which takes a disk some ms.
BLOCKS_OF_FILES = BlockLimits(rows=20_000, bytes_total=8 << 20, wait_ms=100)
BLOCKS_OF_MQTT = BlockLimits(rows=10 * IN_FLIGHT, bytes_total=4 << 20)

_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
# Those that this sink sends itself.
_OWN_HEADERS = frozenset(
    {"content-length", "content-type", "host", "transfer-encoding", "connection"}
)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaState:
    """A state that is kept in a Kafka topic.

    Attributes:
        kafka: The cluster.
        topic: Of states.
    """

    kafka: KafkaSettings
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLetters:
    """Dead letters in a file.

    Attributes:
        path: Of the file.
        bytes_max: Of it.
    """

    path: Path
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLetters:
    """Dead letters in a Kafka topic.

    Attributes:
        kafka: The cluster.
        topic: Of dead letters.
    """

    kafka: KafkaSettings
    topic: str


StateAt: TypeAlias = Path | KafkaState


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSink:
    """A webhook with what it needs on this side."""

    webhook: WebhookSettings
    state: StateAt
    letters: FileLetters | TopicLetters


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSink:
    """An MQTT broker with what it needs on this side."""

    mqtt: MqttSettings
    state: StateAt


KindSettings: TypeAlias = KafkaTargetSettings | WebhookSink | FileSettings | MqttSink


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The settings of one sink; see `runner.SinkConfig`.

    Attributes:
        common: What every sink has.
        kind: What its kind has.
    """

    common: Common
    kind: KindSettings

    @property
    def name(self) -> str:
        """See `SinkConfig`."""
        return self.common.name

    def open(self, parts: Parts) -> Sink:
        """See `SinkConfig`."""
        counts = Counts(parts, self.name)
        return Sink(self.common, self._target(counts), parts, counts)

    def _target(self, counts: Counts) -> Target:
        match self.kind:
            case KafkaTargetSettings():
                return KafkaTarget(self.kind, self.name, counts)
            case FileSettings():
                return FileTarget(self.kind, self.name, counts)
            case MqttSink():
                return MqttTarget(self.kind.mqtt, _store(self.kind.state, self.name), counts)
            case WebhookSink():
                return WebhookTarget(
                    self.kind.webhook,
                    self.common.subscriber,
                    self.common.shape.form,
                    _store(self.kind.state, self.name),
                    _letters(self.kind.letters, self.name),
                    counts,
                )


def _store(state: StateAt, name: str) -> Store:
    if isinstance(state, Path):
        return StateFile(state, name)
    return Transactions(state.kafka, name, state.topic)


def _letters(letters: FileLetters | TopicLetters, name: str) -> DeadLetters:
    if isinstance(letters, FileLetters):
        return DeadLetterFile(letters.path, letters.bytes_max)
    return KafkaLetters(letters.kafka, name, letters.topic)


def read_sink_settings(name: str, section: Mapping[str, Any]) -> SinkSettings:
    """Reads the section of a sink.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    top = Section(section, f"sinks.{name}")
    kind = top.choice("kind", tuple(_READERS))
    settings, blocks = _READERS[kind](top, name)
    subscriber = top.text("subscriber")
    found = SinkSettings(
        common=Common(
            name=name,
            subscriber=subscriber,
            from_earliest=top.choice("start", ("now", "earliest"), "now") == "earliest",
            shape=Shape(
                _form(top, kind),
                f"/subscribers/{quote(subscriber, safe='')}",
                _key(top),
            ),
            throttle=_throttle(top),
            blocks=blocks,
        ),
        kind=settings,
    )
    top.end()
    return found


def _form(top: Section, kind: str) -> Form:
    forms: dict[str, Form] = {"json": "json", "cloudevents": "cloudevents"}
    if kind == "kafka":
        # Others have no headers for each notification.
        forms["cloudevents-binary"] = "cloudevents-binary"
    return forms[top.choice("format", tuple(forms), "json")]


def _key(top: Section) -> Key:
    text = top.text("key", "query")
    if text.startswith("attribute:") and len(text) > len("attribute:"):
        return Key("attribute", text.removeprefix("attribute:"))
    kinds: dict[str, Key] = {"query": Key("query"), "object": Key("object"), "none": Key("none")}
    if text in kinds:
        return kinds[text]
    raise InvalidArgument(
        f"{text!r:.60} is none of query, object, none and attribute:NAME", field=top.field("key")
    )


def _throttle(top: Section) -> ThrottleLimit | None:
    if not top.has("throttle"):
        return None
    section = top.section("throttle")
    found = ThrottleLimit(
        count=section.integer("count", None, 0, 1_000_000),
        period_ms=int(section.duration_s("period", None, 1, 7 * 86_400) * 1_000),
        queries=section.integer("queries", 1_000, 1, 10_000),
    )
    section.end()
    return found


def _kafka(top: Section, name: str) -> tuple[KafkaTargetSettings, BlockLimits]:
    found = KafkaTargetSettings(
        kafka=read_kafka(top),
        topic=top.text("topic"),
        state_topic=top.text("state_topic", STATE_TOPIC),
        record_bytes=top.integer("record_bytes", 1_000_000, 1_000, 16 << 20),
    )
    if found.topic == found.state_topic:
        raise InvalidArgument("is that of the state", field=top.field("topic"))
    return found, BLOCKS_OF_KAFKA


def _file(top: Section, name: str) -> tuple[FileSettings, BlockLimits]:
    form = top.choice("files", ("ndjson", "parquet"), "ndjson")
    is_packed = top.switch("gzip", False)
    if is_packed and form == "parquet":
        raise InvalidArgument("Parquet is packed anyway", field=top.field("gzip"))
    found = FileSettings(
        folder=Path(top.text("folder")),
        form="parquet" if form == "parquet" else "ndjson",
        is_packed=is_packed,
        file_bytes=top.integer("file_bytes", 128 << 20, 1 << 10, 16 << 30),
        file_s=top.duration_s("file_age", 3_600, 1, 7 * 86_400),
    )
    return found, BLOCKS_OF_FILES


def _state(top: Section) -> StateAt:
    """Reads where the state is kept: `state: FOLDER`, or `state: {bootstrap: …}`."""
    if not isinstance(top.value("state"), Mapping):
        return Path(top.text("state"))
    section = top.section("state")
    found = KafkaState(kafka=read_kafka(section), topic=section.text("topic", STATE_TOPIC))
    section.end()
    return found


def _mqtt(top: Section, name: str) -> tuple[MqttSink, BlockLimits]:
    url = top.text("url")
    parts = _split(url, top.field("url"), {"mqtt": 1883, "mqtts": 8883})
    topic = top.text("topic")
    field = top.field("topic")
    for found in _PLACEHOLDER.findall(topic):
        if found not in ("query", "object", "key"):
            raise InvalidArgument(f"{{{found}}} is no query, object or key", field=field)
    if set(topic) & set("+#\0"):
        raise InvalidArgument("+ and # are for filters alone", field=field)
    is_tls, host, port = parts[0] == "mqtts", parts[1], parts[2]
    mqtt = MqttSettings(
        host=host,
        port=port,
        topic=topic,
        username=top.text("username", ""),
        password=top.text("password", ""),
        client_id=top.text("client_id", f"sirocco-{name}"),
        tls=is_tls,
        ca=top.text("ca", ""),
        timeout_s=top.duration_s("timeout", 15, 1, 300),
    )
    return MqttSink(mqtt=mqtt, state=_state(top)), BLOCKS_OF_MQTT


def _webhook(top: Section, name: str) -> tuple[WebhookSink, BlockLimits]:
    batch = top.section("batch")
    blocks = BlockLimits(
        rows=batch.integer("count", 100, 1, 10_000),
        bytes_total=batch.integer("bytes", 1 << 20, 1 << 10, 64 << 20),
        wait_ms=int(batch.duration_s("wait", 1, 0, 60) * 1_000),
    )
    batch.end()
    retry = top.section("retry")
    policy = RetryPolicy(
        attempts=retry.integer("attempts", 5, 1, 1_000),
        outage_s=retry.duration_s("outage", 86_400, 1, 7 * 86_400),
        first_s=retry.duration_s("first", 0.5, 0.01, 60),
        longest_s=retry.duration_s("longest", 300, 0.01, 3_600),
    )
    retry.end()
    is_plain = top.switch("allow_http", False)
    url = top.text("url")
    _split(url, top.field("url"), {"https": 443} | ({"http": 80} if is_plain else {}))
    ca = top.text("ca", "")
    state = _state(top)
    webhook = WebhookSettings(
        url=url,
        secrets=_secrets(top),
        headers=_headers(top),
        timeout_s=top.duration_s("timeout", 15, 0.1, 300),
        allow_private=top.switch("allow_private", False),
        ca=_certificates(ca, top.field("ca")) if ca else None,
        retry=policy,
    )
    return WebhookSink(webhook=webhook, state=state, letters=_dead(top, name, state)), blocks


def _dead(top: Section, name: str, state: StateAt) -> FileLetters | TopicLetters:
    section = top.section("dead_letters")
    bytes_max = section.integer("bytes", 1 << 30, 1 << 10, 1 << 40)
    path, topic = section.text("file", ""), section.text("topic", "")
    field = top.field("dead_letters")
    if path and topic:
        raise InvalidArgument("give a file or a topic, not both", field=field)
    found: FileLetters | TopicLetters
    if topic:
        if section.has("bootstrap"):
            found = TopicLetters(kafka=read_kafka(section), topic=topic)
        elif isinstance(state, KafkaState):
            found = TopicLetters(kafka=state.kafka, topic=topic)
        else:
            raise InvalidArgument("is missing", field=f"{field}.bootstrap")
    elif path or isinstance(state, Path):
        default = "" if not isinstance(state, Path) else state / f"{name}.dead.ndjson"
        found = FileLetters(path=Path(path or default), bytes_max=bytes_max)
    else:
        raise InvalidArgument("give a file or a topic", field=field)
    section.end()
    return found


def _split(url: str, field: str, ports: Mapping[str, int]) -> tuple[str, str, int]:
    """Returns scheme, host and port of a URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument(f"is no URL: {error}", field=field) from None
    if parts.scheme not in ports:
        hint = "; http needs allow_http: true" if parts.scheme == "http" else ""
        raise InvalidArgument(f"must begin with {' or '.join(ports)}://{hint}", field=field)
    if not host:
        raise InvalidArgument("has no host", field=field)
    if parts.username is not None:
        raise InvalidArgument("must not hold a name and a password", field=field)
    return parts.scheme, host, port or ports[parts.scheme]


def _secrets(top: Section) -> tuple[str, ...]:
    found = top.texts("secret")
    for row, secret in enumerate(found):
        try:
            Webhook(secret)
        except (ValueError, EmptyWebhookSecretError):
            # The reason might show the secret.
            raise InvalidArgument(
                "is no secret of Standard Webhooks: whsec_ and base64",
                field=f"{top.field('secret')}[{row}]",
            ) from None
    return found


def _headers(top: Section) -> tuple[tuple[str, str], ...]:
    section = top.section("headers")
    found = []
    for name in top.sections("headers"):
        field = section.field(name)
        is_own = name.lower() in _OWN_HEADERS or name.lower().startswith("webhook-")
        if not _HEADER.fullmatch(name) or is_own:
            raise InvalidArgument("is no header that can be set", field=field)
        value = section.text(name)
        if not value.isascii() or not value.isprintable():
            raise InvalidArgument("must be printable ASCII", field=field)
        found.append((name, value))
    return tuple(found)


def _certificates(path: str, field: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_CERTIFICATES_BYTES_MAX + 1)
        if len(data) > _CERTIFICATES_BYTES_MAX:
            raise InvalidArgument(
                f"{path}: has more than {_CERTIFICATES_BYTES_MAX} bytes", field=field
            )
        return data.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: cannot be read: {error}", field=field) from None


_READERS: Mapping[str, Callable[[Section, str], tuple[KindSettings, BlockLimits]]] = {
    "kafka": _kafka,
    "webhook": _webhook,
    "file": _file,
    "mqtt": _mqtt,
}
