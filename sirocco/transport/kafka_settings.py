"""The address of a Kafka cluster, and the client settings that Sirocco's promises rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sirocco.transport.log import RECORD_BYTES_MAX

# Compressions of the log's records. Columns of slots shrink to 0.54 with lz4, which takes 2.3 ns of
# CPU a byte from producer and consumer together: less than a network and replicas take. zstd: to
# 0.36, at twice the cost for the producer and three times for each consumer.
COMPRESSIONS: Final = ("none", "lz4", "zstd", "snappy", "gzip")
COMPRESSION = "lz4"

Config: TypeAlias = dict[str, str | int | float | bool]

# Room for the frame of a record batch around the greatest record; the broker counts it too.
BATCH_BYTES_MAX: Final = RECORD_BYTES_MAX + 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTimes:
    """How long the cluster may take.

    Attributes:
        call_s: one call, before it counts as unavailable.
        transaction_ms: how long the broker keeps an abandoned transaction open, which holds readers
            back. A successor fences at once, so this only counts without one. A shorter time would
            abort a healthy merger's window while its broker elects a leader (up to 10 s on a loaded
            machine).
        connect_s: how long a new producer waits for its connection; without one it works, only
            later.
    """

    call_s: float = 10.0
    transaction_ms: int = 30_000
    connect_s: float = 1.0


TIMES: Final = KafkaTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """A Kafka cluster and the right to use it.

    Attributes:
        bootstrap: HOST:PORT, several with commas.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; with a SASL protocol.
        sasl_username: with a SASL protocol.
        sasl_password: with a SASL protocol; never printed.
        tls_ca: path of the authorities' certificates; the system's if empty.
        tls_certificate: path of the client's certificate, for mutual TLS.
        tls_key: path of its private key.
        tls_key_password: of that key; never printed.
        replication: replicas of each topic that is created; -1 = the cluster's default.
        topic_prefix: before the name of every topic, for several clusters in one Kafka.
        compression: one of `COMPRESSIONS`, of what is written from now on.
        password_field: what users call the setting of the password, for errors.
        ca_field: the same of the authorities' certificates.
    """

    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password: str = field(default="", repr=False)
    replication: int = -1
    topic_prefix: str = ""
    compression: str = COMPRESSION
    password_field: str = field(default="sasl_password", compare=False)
    ca_field: str = field(default="tls_ca", compare=False)

    def __post_init__(self) -> None:
        """Refuses settings that can only fail later, with the name of the field."""
        if not self.bootstrap:
            raise ValueError("bootstrap: HOST:PORT is missing")
        if self.security_protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ValueError(f"security_protocol: {self.security_protocol!r} is unknown")
        if self.security_protocol.startswith("SASL") and not self.sasl_mechanism:
            raise ValueError("sasl_mechanism: needed with a SASL protocol")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_key: give both a certificate and its key")
        if self.replication == 0 or self.replication < -1:
            raise ValueError(f"replication: {self.replication} is not -1 or at least 1")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression: {self.compression!r} is none of {COMPRESSIONS}")


def client_config(settings: KafkaSettings, name: str) -> Config:
    """Returns the settings of every client of the cluster."""
    config: Config = {
        "bootstrap.servers": settings.bootstrap,
        "client.id": name,
        "security.protocol": settings.security_protocol,
        # The default of 10 s would keep a service from a restarted broker longer than the broker
        # took to come back (about 2 s).
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "log.connection.close": False,
    }
    optional = {
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.sasl_username,
        "sasl.password": settings.sasl_password,
        "ssl.ca.location": settings.tls_ca,
        "ssl.certificate.location": settings.tls_certificate,
        "ssl.key.location": settings.tls_key,
        "ssl.key.password": settings.tls_key_password,
    }
    config.update({key: value for key, value in optional.items() if value})
    return config


def producer_config(
    settings: KafkaSettings,
    name: str,
    transactional_id: str | None,
    times: KafkaTimes = TIMES,
) -> Config:
    """Returns the settings of a producer, see `log.Producer`."""
    config = client_config(settings, name) | {
        "enable.idempotence": True,
        "acks": "all",
        # An idempotent producer may still drop a batch that the broker refuses and continue with
        # the next; that would be a gap in a slot.
        "enable.gapless.guarantee": True,
        # Without a limit: a record that timed out in the queue while the next one got through would
        # be a gap, too. The queue bounds the waiting records, each caller's deadline its wait.
        "message.timeout.ms": 0,
        # Services gather a record for 10-50 ms before they append it, so there is hardly ever a
        # second one to wait for: acknowledged after 0.8 ms (p50) instead of 1.9 with 1 ms, at the
        # same CPU. Under load, records gather while requests are in flight anyway.
        "linger.ms": 0,
        "compression.type": settings.compression,
        "message.max.bytes": BATCH_BYTES_MAX,
        # Bounds what a service holds while the broker is away: 64 MiB.
        "queue.buffering.max.messages": 50_000,
        "queue.buffering.max.kbytes": 65_536,
    }
    if transactional_id is not None:
        config |= {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": times.transaction_ms,
            "message.timeout.ms": times.transaction_ms,
        }
    return config


def consumer_config(settings: KafkaSettings, name: str) -> Config:
    """Returns the settings of a consumer, see `log.Consumer`."""
    return client_config(settings, name) | {
        # The client requires a group. It is never joined: the broker is asked for its coordinator,
        # and may refuse to answer.
        "group.id": name,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        # Reports the position after the ends of transactions, which no record shows.
        "enable.partition.eof": True,
        # A broker answers one fetch at a time and delays it this long while there is nothing; a
        # Kafka partition that is added, or sought in, joins only the next one. The default of 500
        # ms would stop a slot that long at each move.
        "fetch.wait.max.ms": 100,
        # The default of 1 s would stop reading that long whenever the queue below was full.
        "fetch.queue.backoff.ms": 10,
        # Bounds what is read ahead: 32 MiB a consumer, a record of the greatest size at least.
        "queued.min.messages": 5_000,
        "queued.max.messages.kbytes": 32_768,
        "fetch.max.bytes": 16 * 1024 * 1024,
        "max.partition.fetch.bytes": BATCH_BYTES_MAX,
    }


def topic_config(compacted: bool) -> dict[str, str]:
    """Returns the settings of a topic, see `log.TopicSpec`."""
    config = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(BATCH_BYTES_MAX),
        "message.timestamp.type": "CreateTime",
        # Truncation frees whole segments; the default of 1 GiB would keep the disk space of many
        # checkpoints per Kafka partition.
        "segment.bytes": str(128 * 1024 * 1024),
        "cleanup.policy": "compact" if compacted else "delete",
    }
    if compacted:
        # An owner that is an hour behind still sees every change to a query, not only the last.
        config["min.compaction.lag.ms"] = "3600000"
        config["delete.retention.ms"] = "86400000"
    return config
