"""Settings that are refused before a broker is asked, and values that are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirocco.local.kafka import kafka_version
from sirocco.transport.errors import TransportError
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import (
    KafkaSettings,
    client_config,
    consumer_config,
    producer_config,
    topic_config,
)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("bootstrap", {"bootstrap": ""}),
        ("security_protocol", {"security_protocol": "TLS"}),
        ("sasl_mechanism", {"security_protocol": "SASL_SSL"}),
        ("tls_key", {"security_protocol": "SSL", "tls_certificate": "/c"}),
        ("replication", {"replication": 0}),
        ("compression", {"compression": "rar"}),
    ],
)
def test_wrong_settings_name_their_field(field: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        KafkaSettings(**({"bootstrap": "kafka:9092"} | arguments))  # type: ignore[arg-type]


def test_security_reaches_every_client_and_secrets_are_not_printed() -> None:
    settings = KafkaSettings(
        bootstrap="kafka:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="user",
        sasl_password="hidden-1",
        tls_ca="/ca.pem",
        tls_certificate="/c.pem",
        tls_key="/k.pem",
        tls_key_password="hidden-2",
    )
    assert "hidden" not in repr(settings)
    for config in (
        client_config(settings, "n"),
        producer_config(settings, "n", None),
        producer_config(settings, "n", "x"),
        consumer_config(settings, "n"),
    ):
        assert config["security.protocol"] == "SASL_SSL"
        assert config["sasl.mechanism"] == "SCRAM-SHA-512"
        assert config["sasl.username"] == "user"
        assert config["sasl.password"] == "hidden-1"
        assert config["ssl.ca.location"] == "/ca.pem"
        assert config["ssl.certificate.location"] == "/c.pem"
        assert config["ssl.key.location"] == "/k.pem"
        assert config["ssl.key.password"] == "hidden-2"
    assert "sasl.username" not in client_config(KafkaSettings(bootstrap="kafka:9092"), "n")


def test_records_are_compressed_as_configured() -> None:
    assert producer_config(KafkaSettings(bootstrap="k:1"), "n", None)["compression.type"] == "lz4"
    zstd = KafkaSettings(bootstrap="k:1", compression="zstd")
    assert producer_config(zstd, "n", None)["compression.type"] == "zstd"


def test_the_promises_rest_on_these_settings() -> None:
    settings = KafkaSettings(bootstrap="kafka:9092")
    producer = producer_config(settings, "n", None)
    assert (producer["enable.idempotence"], producer["acks"]) == (True, "all")
    assert "transactional.id" not in producer
    assert producer_config(settings, "n", "x")["transactional.id"] == "x"
    consumer = consumer_config(settings, "n")
    assert consumer["isolation.level"] == "read_committed"
    assert consumer["auto.offset.reset"] == "error"
    assert consumer["enable.auto.commit"] is False
    assert topic_config(compacted=False)["retention.ms"] == "-1"
    assert topic_config(compacted=True)["cleanup.policy"] == "compact"


def test_the_broker_is_pinned() -> None:
    assert [part.isdigit() for part in kafka_version().split(".")] == [True] * 3


def test_a_certificate_that_the_client_cannot_read_is_an_error_of_this_layer(
    tmp_path: Path,
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("no certificate")
    broken = KafkaSettings(bootstrap="127.0.0.1:1", security_protocol="SSL", tls_ca=str(authority))
    with pytest.raises(TransportError, match=r"^kafka: .*ssl\.ca\.location"):
        KafkaLog(broken)
    log = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"))
    log.settings = broken  # type: ignore[misc]
    for make in (log.consumer, log.producer):
        with pytest.raises(TransportError, match=r"^c: .*ssl\.ca\.location"):
            make("c")
    log.close()
