"""Kafka and Redis that require a password, reached as services reach them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sirocco.local.kafka import KafkaServer
from sirocco.local.process import LocalProcess, free_port
from sirocco.runtime.process.outside_settings import SASL_MECHANISMS
from sirocco.runtime.settings import ProcessSettings, from_environment
from sirocco.transport.errors import TransportError, TransportUnavailable
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import TIMES, KafkaTimes
from sirocco.transport.log import TopicSpec
from sirocco.transport.redis_map_store import RedisMapStore
from tests.integration.transport.log_reading import take
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka

PASSWORD = "open-sesame 1"
TOPIC = TopicSpec("t", 1)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def settings(**variables: str) -> ProcessSettings:
    needed = {"KAFKA": "localhost:9", "REDIS": "redis://localhost:9", "ARCHIVE": "/nowhere"}
    named = {f"SIROCCO_{name}": value for name, value in (needed | variables).items()}
    return from_environment(named)


# --- Kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(Path(tmp_path_factory.mktemp("secured-kafka")), sasl=("service", PASSWORD))
    server.start()
    yield server
    server.stop()


IMPATIENT = KafkaTimes(call_s=3.0)


def log_of(
    kafka: KafkaServer, mechanism: str, password: str = PASSWORD, times: KafkaTimes = TIMES
) -> KafkaLog:
    given = settings(
        CLUSTER=f"c-{mechanism.lower()}",
        KAFKA=kafka.sasl_address,
        KAFKA_SECURITY="sasl_plaintext",
        KAFKA_SASL_MECHANISM=mechanism,
        KAFKA_SASL_USERNAME="service",
        KAFKA_SASL_PASSWORD=password,
    )
    return KafkaLog(given.kafka, times)


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
def test_every_client_of_the_log_gets_in_with_the_password(
    kafka: KafkaServer, mechanism: str
) -> None:
    log = log_of(kafka, mechanism)
    log.create_topics([TOPIC])
    producer = log.producer("p")
    producer.append(TOPIC.name, 0, b"plain")
    assert producer.flush(120.0) == 0
    transactional = log.producer("x", transactional_id=f"x-{mechanism}")
    transactional.init_transactions()
    transactional.begin()
    transactional.append(TOPIC.name, 0, b"whole")
    transactional.commit()
    consumer = log.consumer("c")
    consumer.assign({(TOPIC.name, 0): 0})
    assert [record.value for record in take(consumer, 2)] == [b"plain", b"whole"]
    log.close()


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
def test_a_wrong_password_is_reported_in_words_and_not_printed(
    kafka: KafkaServer, mechanism: str
) -> None:
    log = log_of(kafka, mechanism, "wrong-guess", IMPATIENT)
    with pytest.raises(TransportUnavailable, match=r"(?i)authentication failed") as caught:
        log.create_topics([TOPIC])
    assert "wrong-guess" not in str(caught.value)
    log.close()


def test_no_client_connects_without_a_password(kafka: KafkaServer) -> None:
    log = KafkaLog(settings(KAFKA=kafka.sasl_address).kafka, IMPATIENT)
    with pytest.raises(TransportUnavailable):
        log.create_topics([TOPIC])
    log.close()


def test_a_reader_of_a_topic_needs_no_right_to_a_group(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, sasl=("service", PASSWORD))
    server.start()
    server.stop()
    with (tmp_path / "kafka.properties").open("a") as properties:
        properties.write(f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:ANONYMOUS\n")
    server.start()
    own = KafkaLog(server.settings)
    log = log_of(server, "PLAIN")
    topic = log.outer(TOPIC.name)
    own.create_topics([TopicSpec(topic, 1)])
    producer = own.producer("p")
    allow(server, topic, AclOperation.DESCRIBE)
    producer.append(topic, 0, b"one")
    assert producer.flush(120.0) == 0
    consumer = log.consumer("c")
    consumer.assign({(TOPIC.name, 0): 0})
    with pytest.raises(TransportError, match="TOPIC_AUTHORIZATION_FAILED"):
        take(consumer, 1)
    allow(server, topic, AclOperation.READ)
    consumer.assign({(TOPIC.name, 0): 0})
    assert [record.value for record in take(consumer, 1)] == [b"one"]
    log.close()
    own.close()
    server.stop()


def allow(server: KafkaServer, topic: str, operation: AclOperation) -> None:
    """Grants a right; returns when the broker applies it, a moment after it was stored."""
    admin = AdminClient({"bootstrap.servers": server.address})
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:service",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([binding]).values():
        future.result()
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:service",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    eventually(lambda: bool(admin.describe_acls(wanted).result()))


# --- Redis


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Returns address and certificate of a Redis with TLS only and a password."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    directory = Path(tmp_path_factory.mktemp("secured-redis"))
    certificate, key, port = directory / "redis.pem", directory / "redis.key", free_port()
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    config = directory / "redis.conf"
    config.write_text(
        f"bind 127.0.0.1\nport 0\ntls-port {port}\ntls-cert-file {certificate}\n"
        f"tls-key-file {key}\ntls-auth-clients no\nrequirepass open-sesame\n"
        f'save ""\nset-proc-title no\ndir {directory}\n'
    )
    address = f"rediss://:open-sesame@localhost:{port}/0"

    def answers() -> bool:
        try:
            RedisMapStore(address, tls_ca=str(certificate)).get("anything")
        except TransportUnavailable:
            return False
        return True

    process = LocalProcess("redis", directory, str(config), outlive=False)
    process.start(["redis-server", str(config)], answers, timeout_s=300.0)
    yield address, certificate
    process.stop()


def test_redis_is_reached_over_tls_by_an_authority_of_its_own(redis: tuple[str, Path]) -> None:
    address, certificate = redis
    given = settings(REDIS=address, REDIS_CA=str(certificate))
    given.check_files()
    store = RedisMapStore(given.redis, prefix=given.cluster.cluster, tls_ca=given.redis_ca)
    assert store.acquire("lease", "me", 10_000)
    assert store.holders("") == {"lease": "me"}
    store.close()


@pytest.mark.parametrize("spoilt", ["authority", "password", "scheme"])
def test_redis_refuses_clients_without_its_password(redis: tuple[str, Path], spoilt: str) -> None:
    address, certificate = redis
    ca = "" if spoilt == "authority" else str(certificate)
    if spoilt == "password":
        address = address.replace("open-sesame", "wrong-guess")
    if spoilt == "scheme":
        address, ca = address.replace("rediss://", "redis://"), ""
    store = RedisMapStore(address, tls_ca=ca)
    with pytest.raises(TransportUnavailable) as caught:
        store.get("anything")
    assert "sesame" not in str(caught.value)
    assert "guess" not in str(caught.value)
    store.close()
