"""A broker behind TLS and passwords (SASL_SSL): sources, sinks and the log of the engine there."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sirocco.local.kafka import KafkaServer
from sirocco.runtime.process.retries import retried
from sirocco.runtime.settings import from_environment
from sirocco.services.connector.kafka_connection import read_kafka
from sirocco.services.connector.sections import Section
from sirocco.services.connector.sinks.kafka import KafkaLetters
from sirocco.services.connector.sinks.rows import Place, Row
from sirocco.services.embedded import EmbeddedCluster
from sirocco.transport.errors import AccessRefused
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaTimes
from sirocco.transport.log import TopicSpec
from tests.integration.transport.log_reading import take
from tests.support.certificates import Authority
from tests.support.connector_runs import item, new_topic, produce, records_of, running
from tests.support.plain_client import PlainClient, query_message
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka

PASSWORD = "open-sesame"
GUESS = "wrong-guess"

# What of the settings is spoilt, and the member that errors name.
SPOILT = [({"password": GUESS}, "password"), ({"ca": "other"}, "ca")]

# A call that gets no answer ends after so long: a broker on this machine answers in a tenth of it.
IMPATIENT_S = 3.0


class Secured:
    """The broker, and how it is reached."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory / "authority")
        certificate, key = directory / "broker.crt", directory / "broker.key"
        authority.issue(certificate, key, "localhost")
        self.ca = str(authority.certificate)
        self.other_ca = str(Authority(directory / "other").certificate)
        self.server = KafkaServer(
            directory / "kafka",
            sasl=("service", PASSWORD),
            certificate=key.read_bytes() + certificate.read_bytes(),
            host="localhost",
        )

    def section(self, mechanism: str = "SCRAM-SHA-512", **spoilt: str) -> dict[str, Any]:
        """Returns the members of a source or sink that say how it reaches the broker."""
        security = {
            "protocol": "SASL_SSL",
            "mechanism": mechanism,
            "username": "service",
            "password": PASSWORD,
            "ca": self.ca,
        }
        if "ca" in spoilt:
            spoilt = {"ca": self.other_ca}
        return {
            "kind": "kafka",
            "bootstrap": self.server.sasl_address,
            "security": security | spoilt,
            "replication": 1,
        }

    def log(self, **spoilt: str) -> KafkaLog:
        """Returns the log of an engine with such settings."""
        variables = {
            "KAFKA": self.server.sasl_address,
            "KAFKA_SECURITY": "sasl_ssl",
            "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "KAFKA_SASL_USERNAME": "service",
            "KAFKA_SASL_PASSWORD": spoilt.get("password", PASSWORD),
            "KAFKA_CA": self.other_ca if "ca" in spoilt else self.ca,
            "REDIS": "redis://localhost:9",
            "ARCHIVE": "/nowhere",
        }
        settings = from_environment({f"SIROCCO_{name}": text for name, text in variables.items()})
        settings.check_files()
        return KafkaLog(settings.kafka, KafkaTimes(call_s=IMPATIENT_S))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    made = Secured(Path(tmp_path_factory.mktemp("kafka-over-tls")))
    made.server.start()
    yield made
    made.server.stop()


def test_a_source_reads_and_a_sink_writes_there(
    secured: Secured, cluster: EmbeddedCluster, word: str
) -> None:
    # The topics are looked at from within, where nobody asks for a password.
    address = secured.server.address
    topic, out, dead = new_topic(address), new_topic(address), new_topic(address)
    source = secured.section() | {"topics": [topic], "dead_letters": dead}
    sink = secured.section("PLAIN") | {"subscriber": word, "topic": out, "start": "earliest"}
    with PlainClient(cluster) as client:
        client.register(query_message(word, word, text=word))
        produce(address, topic, [item(1, word), b"{", item(2, word)])
        config = {"sources": {"events": source}, "sinks": {word: sink}}
        with running(cluster.router_address, config) as one:
            # Beside them the state in its topic: it is written within the same transactions.
            found = [json.loads(each.value()) for each in records_of(address, out, 2)]
            (letter,) = records_of(address, dead, 1)
            eventually(one.is_ready)
        assert one.is_clean
    assert [each["object"]["id"] for each in found] == ["1", "2"]
    assert dict(letter.headers())["sirocco.reason"] == b"decode"


def test_a_connector_that_is_refused_ends_and_names_the_member(
    secured: Secured, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    sides: dict[str, dict[str, Any]] = {
        "sources": {"topics": ["any"], "dead_letters": "drop"},
        "sinks": {"topic": "any", "subscriber": "s"},
    }
    # All at once, since each waits for an answer first.
    with caplog.at_level(logging.INFO, "sirocco.services"), ExitStack() as stack:
        connectors = [
            stack.enter_context(
                running(cluster.router_address, {side: {"one": secured.section(**spoilt) | own}})
            )
            for side, own in sides.items()
            for spoilt, _ in SPOILT
        ]
        for one in connectors:
            one.join()
    assert not any(one.is_clean for one in connectors)
    # A first try may fail, with a warning, before the client's thread knows why.
    failed = [each for each in caplog.records if each.levelno >= logging.ERROR]
    messages = [each.getMessage() for each in failed if each.name.startswith("sirocco.services")]
    # Each says it once: nothing is tried again for ever.
    fields = sorted(message.partition(": ")[0] for message in messages)
    assert fields == sorted(
        f"{side}.one.security.{member}" for side in sides for _, member in SPOILT
    )
    assert GUESS not in caplog.text


@pytest.mark.parametrize(("spoilt", "member"), SPOILT)
def test_dead_letters_that_are_refused_name_the_member(
    secured: Secured, spoilt: dict[str, str], member: str
) -> None:
    section = secured.section(**spoilt)
    section = {name: section[name] for name in ("bootstrap", "security")}
    settings = read_kafka(Section(section, "sinks.desk.dead_letters"))
    letters = KafkaLetters(settings, "desk", "any", IMPATIENT_S)
    row = Row("id", "query", None, "1", b"{}", 0, Place("cursor"))
    with pytest.raises(AccessRefused) as caught:
        asyncio.run(letters.put([row], "refused", "batch", 0))
    assert caught.value.field == f"sinks.desk.dead_letters.security.{member}"


def test_the_log_of_an_engine_is_there(secured: Secured) -> None:
    log = secured.log()
    log.create_topics([TopicSpec("t", 1)])
    producer = log.producer("p")
    producer.append("t", 0, b"one")
    assert producer.flush(120.0) == 0
    consumer = log.consumer("c")
    consumer.assign({("t", 0): 0})
    assert [record.value for record in take(consumer, 1)] == [b"one"]
    log.close()


@pytest.mark.parametrize(
    ("spoilt", "variable"),
    [({"password": GUESS}, "SIROCCO_KAFKA_SASL_PASSWORD"), ({"ca": "other"}, "SIROCCO_KAFKA_CA")],
)
def test_a_service_that_is_refused_tries_once_and_names_the_variable(
    secured: Secured, spoilt: dict[str, str], variable: str
) -> None:
    log, tries = secured.log(**spoilt), 0

    def create() -> None:
        nonlocal tries
        tries += 1
        log.create_topics([TopicSpec("t", 1)])

    with pytest.raises(AccessRefused) as caught:
        retried(create)
    assert (tries, caught.value.field) == (1, variable)
    assert GUESS not in str(caught.value)
    log.close()
