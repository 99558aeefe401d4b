"""Sections of sinks: what is read, and what is refused with the member's path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sinks.settings import (
    FileLetters,
    KafkaState,
    TopicLetters,
    WebhookSink,
    read_sink_settings,
)
from tests.support.running_sinks import SECRET

KAFKA = {"kind": "kafka", "subscriber": "s", "bootstrap": "h:1", "topic": "t"}
WEBHOOK = {
    "kind": "webhook",
    "subscriber": "s",
    "url": "https://example.com/hook",
    "secret": SECRET,
    "state": "/tmp/state",
}
FILE = {"kind": "file", "subscriber": "s", "folder": "/tmp/out"}
MQTT = {
    "kind": "mqtt",
    "subscriber": "s",
    "url": "mqtt://h",
    "topic": "a/{query}",
    "state": "/tmp/state",
}


@pytest.mark.parametrize("section", [KAFKA, WEBHOOK, FILE, MQTT])
def test_the_least_section_of_each_kind(section: dict[str, Any]) -> None:
    found = read_sink_settings("a", section)
    assert (found.name, found.common.subscriber) == ("a", "s")
    assert not found.common.from_earliest
    assert found.common.throttle is None


@pytest.mark.parametrize(
    ("section", "member", "value", "field"),
    [
        (KAFKA, "kind", "tape", "kind"),
        (KAFKA, "subscriber", None, "subscriber"),
        (KAFKA, "subscriber", "", "subscriber"),
        (KAFKA, "start", "yesterday", "start"),
        (KAFKA, "format", "xml", "format"),
        (KAFKA, "key", "attribute:", "key"),
        (KAFKA, "key", "colour", "key"),
        (KAFKA, "unknown", 1, "unknown"),
        (WEBHOOK, "ca", "/dev/zero", "ca"),
        (WEBHOOK, "ca", "a\0b", "ca"),
        (KAFKA, "bootstrap", None, "bootstrap"),
        (KAFKA, "topic", None, "topic"),
        (KAFKA, "topic", "sirocco-sinks", "topic"),
        (KAFKA, "security", {"protocol": "SASL_SSL"}, ""),
        (KAFKA, "security", {"protocol": "TELNET"}, "security.protocol"),
        (KAFKA, "security", {"user": "x"}, "security.user"),
        (KAFKA, "record_bytes", 1, "record_bytes"),
        (KAFKA, "throttle", {}, "throttle.count"),
        (KAFKA, "throttle", {"count": 1}, "throttle.period"),
        (KAFKA, "throttle", {"count": -1, "period": "1m"}, "throttle.count"),
        (KAFKA, "throttle", {"count": 1, "period": "1ms"}, "throttle.period"),
        (KAFKA, "throttle", {"count": 1, "period": "1m", "queries": 10**9}, "throttle.queries"),
        (WEBHOOK, "url", "http://example.com", "url"),
        (WEBHOOK, "url", "ftp://example.com", "url"),
        (WEBHOOK, "url", "https://", "url"),
        (WEBHOOK, "url", "https://u:p@example.com", "url"),
        (WEBHOOK, "url", "https://example.com:99999", "url"),
        (WEBHOOK, "secret", None, "secret"),
        (WEBHOOK, "secret", "whsec_", "secret[0]"),
        (WEBHOOK, "secret", [SECRET, "whsec_!"], "secret[1]"),
        (WEBHOOK, "state", None, "state"),
        (WEBHOOK, "state", {"topic": "x"}, "state.bootstrap"),
        (WEBHOOK, "headers", {"webhook-id": "x"}, "headers.webhook-id"),
        (WEBHOOK, "headers", {"Host": "x"}, "headers.Host"),
        (WEBHOOK, "headers", {"a": "b\r\nc: d"}, "headers.a"),
        (WEBHOOK, "headers", {"a b": "c"}, "headers.a b"),
        (WEBHOOK, "ca", "/nowhere", "ca"),
        (WEBHOOK, "batch", {"count": 0}, "batch.count"),
        (WEBHOOK, "batch", {"size": 1}, "batch.size"),
        (WEBHOOK, "retry", {"attempts": 0}, "retry.attempts"),
        (WEBHOOK, "timeout", "1h", "timeout"),
        (WEBHOOK, "dead_letters", {"file": "a", "topic": "b"}, "dead_letters"),
        (WEBHOOK, "dead_letters", {"topic": "b"}, "dead_letters.bootstrap"),
        (WEBHOOK, "allow_private", "yes", "allow_private"),
        (WEBHOOK, "format", "cloudevents-binary", "format"),
        (FILE, "folder", None, "folder"),
        (FILE, "files", "csv", "files"),
        (FILE | {"files": "parquet"}, "gzip", True, "gzip"),
        (FILE, "file_bytes", 1, "file_bytes"),
        (MQTT, "url", "http://h", "url"),
        (MQTT, "topic", "a/#", "topic"),
        (MQTT, "topic", "a/{colour}", "topic"),
        (MQTT, "topic", None, "topic"),
    ],
)
def test_what_is_refused(section: dict[str, Any], member: str, value: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_sink_settings("a", {**section, member: value})
    assert caught.value.field == (f"sinks.a.{field}" if field else "sinks.a")


def test_secrets_are_not_in_errors_or_texts() -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_sink_settings("a", {**WEBHOOK, "secret": "whsec_abcde"})
    assert "abcde" not in str(caught.value)
    found = read_sink_settings("a", {**WEBHOOK, "headers": {"authorization": "Bearer hidden"}})
    assert SECRET not in repr(found)
    assert "hidden" not in repr(found)


def test_where_dead_letters_go() -> None:
    def letters_of(**members: object) -> object:
        kind = read_sink_settings("a", {**WEBHOOK, **members}).kind
        assert isinstance(kind, WebhookSink)
        return kind.letters

    assert letters_of() == FileLetters(path=Path("/tmp/state/a.dead.ndjson"), bytes_max=1 << 30)
    of_kafka = {"bootstrap": "h:1"}
    found = letters_of(state=of_kafka, dead_letters={"topic": "dead"})
    assert isinstance(found, TopicLetters)
    assert (found.kafka.bootstrap, found.topic) == ("h:1", "dead")
    with pytest.raises(InvalidArgument) as caught:
        letters_of(state=of_kafka)
    assert caught.value.field == "sinks.a.dead_letters"


def test_a_state_in_a_topic() -> None:
    kind = read_sink_settings(
        "a", {**WEBHOOK, "state": {"bootstrap": ["h:1", "h:2"]}, "dead_letters": {"topic": "d"}}
    ).kind
    assert isinstance(kind, WebhookSink)
    assert isinstance(kind.state, KafkaState)
    assert (kind.state.kafka.bootstrap, kind.state.topic) == ("h:1,h:2", "sirocco-sinks")
