"""How a connector reaches a Kafka cluster: brokers, TLS, SASL."""

from __future__ import annotations

from pathlib import Path

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sections import Section
from sirocco.transport.kafka_settings import KafkaSettings


def read_kafka(section: Section) -> KafkaSettings:
    """Reads `bootstrap`, `security` and `replication` of a section: of a source, or of a sink.

    Raises:
        InvalidArgument: They cannot be used; `field` is the path of the member.
    """
    security = section.section("security")
    try:
        found = KafkaSettings(
            bootstrap=",".join(section.texts("bootstrap")),
            security_protocol=security.choice(
                "protocol", ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "PLAINTEXT"
            ),
            sasl_mechanism=security.text("mechanism", ""),
            sasl_username=security.text("username", ""),
            sasl_password=security.text("password", ""),
            tls_ca=security.text("ca", ""),
            tls_certificate=security.text("certificate", ""),
            tls_key=security.text("key", ""),
            tls_key_password=security.text("key_password", ""),
            replication=section.integer("replication", -1, -1, 100),
            password_field=security.field("password"),
            ca_field=security.field("ca"),
        )
    except ValueError as error:
        raise InvalidArgument(str(error), field=section.path) from None
    security.end()
    for name, path in (
        ("ca", found.tls_ca),
        ("certificate", found.tls_certificate),
        ("key", found.tls_key),
    ):
        _check_file(path, security.field(name))
    return found


def _check_file(path: str, field: str) -> None:
    """Refuses a file that cannot be read: the client would say so later, without the member."""
    if not path:
        return
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise InvalidArgument(f"{path:.200}: {error.strerror}", field=field) from None
