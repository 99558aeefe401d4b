"""How a connector reaches a Kafka cluster: brokers, TLS, SASL."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sections import Section

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """A Kafka cluster, and the right to use it.

    Attributes:
        brokers: host:port of some of them.
        encrypted: whether TLS is used.
        ca: path of the authorities' certificates; the system's if empty.
        certificate: path of the client's certificate, for mutual TLS.
        key: path of its private key.
        key_password: of that key.
        mechanism: of SASL; empty without.
        user: for SASL.
        password: for SASL.
    """

    brokers: tuple[str, ...]
    encrypted: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    def config(self, client_id: str) -> dict[str, str | int | float | bool]:
        """Returns the settings of a client of confluent-kafka."""
        security = "SASL_" if self.mechanism else ""
        security += "SSL" if self.encrypted else "PLAINTEXT"
        optional = {
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
            "ssl.key.password": self.key_password,
        }
        return {
            "bootstrap.servers": ",".join(self.brokers),
            "client.id": client_id,
            "security.protocol": security,
            "reconnect.backoff.ms": 100,
            # With the library's random part: many instances do not come back at once.
            "reconnect.backoff.max.ms": 5_000,
            "socket.keepalive.enable": True,
            "log.connection.close": False,
            **{name: value for name, value in optional.items() if value},
        }


def read_kafka_connection(section: Section) -> KafkaConnection:
    """Reads `brokers`, `tls` and `sasl` of a section: of a source, or of a sink.

    `tls` may be `true`, for the system's authorities.

    Raises:
        InvalidArgument: They cannot be used; `field` is the path of the member.
    """
    brokers = section.texts("brokers")
    for row, broker in enumerate(brokers):
        if "," in broker or ":" not in broker:
            raise InvalidArgument(
                f"{broker!r:.60} is no HOST:PORT", field=f"{section.field('brokers')}[{row}]"
            )
    encrypted, tls = False, Section({}, section.field("tls"))
    if section.has("tls"):
        given = section.value("tls")
        encrypted = given is not False
        if not isinstance(given, bool):
            tls = section.section("tls")
    sasl = section.section("sasl")
    has_sasl = section.has("sasl")
    found = KafkaConnection(
        brokers=brokers,
        encrypted=encrypted,
        ca=_file(tls, "ca"),
        certificate=_file(tls, "certificate"),
        key=_file(tls, "key"),
        key_password=tls.text("key_password", ""),
        mechanism=sasl.choice("mechanism", _MECHANISMS) if has_sasl else "",
        user=sasl.text("user") if has_sasl else "",
        password=sasl.text("password") if has_sasl else "",
    )
    tls.end()
    sasl.end()
    if bool(found.certificate) != bool(found.key):
        raise InvalidArgument(
            "a certificate needs its key, and a key its certificate", field=tls.field("key")
        )
    return found


def _file(section: Section, name: str) -> str:
    path = section.text(name, "")
    try:
        if path:
            Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}", field=section.field(name)) from error
    return path
