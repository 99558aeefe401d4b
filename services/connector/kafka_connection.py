"""How a connector reaches a Kafka cluster: brokers, TLS, SASL."""

from __future__ import annotations

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
        )
    except ValueError as error:
        raise InvalidArgument(str(error), field=section.path) from None
    security.end()
    return found
