"""Settings of what a process uses outside of the cluster: Kafka, Redis, a collector of traces."""

from __future__ import annotations

from urllib.parse import urlsplit

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.process.environment import Reader
from sirocco.telemetry.call_sampler import TRACES, TraceSettings
from sirocco.transport.kafka_settings import COMPRESSION, COMPRESSIONS, KafkaSettings

SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def read_kafka(read: Reader, cluster: str) -> KafkaSettings:
    """Reads the address and credentials of Kafka; `cluster` begins the names of topics.

    Raises:
        InvalidArgument: A setting makes no sense, or is given and not used.
    """
    security = read.choice("SIROCCO_KAFKA_SECURITY", "plaintext", SECURITY)
    sasl = read.when(security.startswith("sasl"), f"SIROCCO_KAFKA_SECURITY={security}")
    tls = read.when(security.endswith("ssl"), f"SIROCCO_KAFKA_SECURITY={security}")
    mechanism = sasl.text("SIROCCO_KAFKA_SASL_MECHANISM", None)
    if mechanism:
        read.choice("SIROCCO_KAFKA_SASL_MECHANISM", None, SASL_MECHANISMS)
    certificate = tls.text("SIROCCO_KAFKA_CERTIFICATE", "")
    key = tls.text("SIROCCO_KAFKA_KEY", "")
    if bool(certificate) != bool(key):
        missing = "SIROCCO_KAFKA_KEY" if certificate else "SIROCCO_KAFKA_CERTIFICATE"
        raise InvalidArgument("give both a certificate and its key", field=missing)
    return KafkaSettings(
        bootstrap=read.text("SIROCCO_KAFKA", None),
        security_protocol=security.upper(),
        sasl_mechanism=mechanism,
        sasl_username=sasl.text("SIROCCO_KAFKA_SASL_USERNAME", None),
        sasl_password=sasl.text("SIROCCO_KAFKA_SASL_PASSWORD", None),
        tls_ca=tls.text("SIROCCO_KAFKA_CA", ""),
        tls_certificate=certificate,
        tls_key=key,
        topic_prefix=f"{cluster}.",
        compression=read.choice("SIROCCO_KAFKA_COMPRESSION", COMPRESSION, COMPRESSIONS),
        password_field="SIROCCO_KAFKA_SASL_PASSWORD",
        ca_field="SIROCCO_KAFKA_CA",
    )


def read_redis(read: Reader) -> tuple[str, str]:
    """Returns the address and the path of the authorities' certificates.

    Raises:
        InvalidArgument: The address is none.
    """
    url = read.text("SIROCCO_REDIS", None)
    # An error does not repeat the value: it may hold a password.
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"redis", "rediss"} and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise InvalidArgument(
            "is not redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS",
            field="SIROCCO_REDIS",
        )
    tls = read.when(parts.scheme == "rediss", "redis://")
    return url, tls.text("SIROCCO_REDIS_CA", "")


def read_traces(read: Reader) -> TraceSettings:
    """Reads which calls are traced, and where to.

    Raises:
        InvalidArgument: The collector's address is none.
    """
    endpoint = read.text("SIROCCO_TRACES", TRACES.endpoint)
    used = read.when(bool(endpoint), "no SIROCCO_TRACES")
    found = TraceSettings(
        endpoint,
        used.number("SIROCCO_TRACE_RATIO", TRACES.ratio, 0.0, 1.0),
        used.integer("SIROCCO_TRACE_CALLS", TRACES.calls_per_s, 1_000),
    )
    try:
        parts = urlsplit(endpoint)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port
    except ValueError:
        is_whole = False
    if endpoint and not is_whole:
        raise InvalidArgument("is not http://HOST:PORT or https://…", field="SIROCCO_TRACES")
    return found
