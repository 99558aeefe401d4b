"""Settings from the environment: defaults, and errors that name the variable."""

from __future__ import annotations

import re

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.access.jwt_claims import ClaimRules
from sirocco.runtime.grpc.edge import EdgeLimits
from sirocco.runtime.grpc.security import JwtSettings
from sirocco.runtime.grpc.tls import TlsFiles
from sirocco.runtime.settings import from_environment
from sirocco.transport.kafka_settings import client_config

NEEDED = {
    "SIROCCO_KAFKA": "localhost:9092",
    "SIROCCO_REDIS": "redis://localhost",
    "SIROCCO_ARCHIVE": "/var/lib/sirocco",
}

BAD = [
    ("SIROCCO_SLOTS", "0"),
    ("SIROCCO_SLOTS", "65537"),
    ("SIROCCO_SLOTS", "many"),
    ("SIROCCO_SLOTS", "1.5"),
    ("SIROCCO_LEAVES", "-1"),
    ("SIROCCO_INTAKE_PARTITIONS", "1025"),
    ("SIROCCO_REGISTRY_PARTITIONS", "x"),
    ("SIROCCO_PARTIALS_PARTITIONS", "0"),
    ("SIROCCO_ARRIVAL", "yesterday"),
    ("SIROCCO_GRPC_PORT", "65536"),
    ("SIROCCO_HTTP_PORT", "-1"),
    ("SIROCCO_LOG_LEVEL", "loud"),
    ("SIROCCO_STORE", "true"),
    ("SIROCCO_CALLS", "0"),
    ("SIROCCO_TENANT_CALLS", "all"),
    ("SIROCCO_MESSAGE_MEMORY", "-1"),
    ("SIROCCO_TENANT_MESSAGE_MEMORY", "1.5"),
]


def test_what_is_not_set_has_its_default() -> None:
    settings = from_environment(NEEDED)
    assert (settings.kafka.bootstrap, settings.redis) == ("localhost:9092", "redis://localhost")
    assert settings.kafka.topic_prefix == "sirocco."
    assert (settings.cluster.slots, settings.cluster.scheme) == (16, "qt-tree")
    assert (settings.grpc_port, settings.host) == (0, "127.0.0.1")
    assert not settings.cluster.event_time
    assert settings.cluster.edge == EdgeLimits()


def test_what_the_edge_takes_is_set_by_four_names() -> None:
    names = ("CALLS", "TENANT_CALLS", "MESSAGE_MEMORY", "TENANT_MESSAGE_MEMORY")
    given = {f"SIROCCO_{name}": str(number) for number, name in enumerate(names, 5)}
    assert from_environment(NEEDED | given).cluster.edge == EdgeLimits(
        calls=5, tenant_calls=6, budget_bytes=7, tenant_budget_bytes=8
    )


JWT = {
    "SIROCCO_JWT_ISSUER": "https://issuer.test",
    "SIROCCO_JWT_AUDIENCE": "sirocco",
    "SIROCCO_JWT_KEYS": "https://issuer.test/keys",
    "SIROCCO_TLS_CERTIFICATE": "tls.crt",
    "SIROCCO_TLS_KEY": "tls.key",
    "SIROCCO_TLS_CA": "ca.crt",
}


def test_an_issuer_of_jwts_has_defaults_for_all_but_three_settings() -> None:
    assert from_environment(NEEDED).security.jwt is None
    rules = ClaimRules(issuer="https://issuer.test", audience="sirocco")
    expected = JwtSettings(rules=rules, keys="https://issuer.test/keys")
    assert from_environment(NEEDED | JWT).security.jwt == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIROCCO_JWT_AUDIENCE", ""),
        ("SIROCCO_JWT_KEYS", ""),
        ("SIROCCO_JWT_KEYS", "http://issuer.test/keys"),
        ("SIROCCO_JWT_KEYS", "https:///keys"),
        ("SIROCCO_JWT_KEYS", "https://user:secret@issuer.test/keys"),
        ("SIROCCO_JWT_KEYS", "https://issuer.test:99999/keys"),
        ("SIROCCO_JWT_ALGORITHMS", "none"),
        ("SIROCCO_JWT_ALGORITHMS", "RS256,HS256"),
        ("SIROCCO_JWT_ALGORITHMS", ","),
        ("SIROCCO_JWT_CLOCK_SKEW", "11m"),
        ("SIROCCO_JWT_KEYS_INTERVAL", "1s"),
        ("SIROCCO_JWT_ISSUER", ""),
    ],
)
def test_settings_of_jwts_that_make_no_sense_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_environment(NEEDED | JWT | {name: value})
    # Without an issuer the first of the others is of no use.
    expected = "SIROCCO_JWT_AUDIENCE" if name == "SIROCCO_JWT_ISSUER" else name
    assert caught.value.field == expected
    assert "secret" not in str(caught.value)


def test_jwts_need_encryption_as_tokens_do() -> None:
    plain = {name: value for name, value in JWT.items() if "TLS" not in name}
    with pytest.raises(InvalidArgument, match="plain text") as caught:
        from_environment(NEEDED | plain)
    assert caught.value.field == "SIROCCO_JWT_ISSUER"
    mesh = {"SIROCCO_TOKENS_IN_PLAINTEXT": "allow", "SIROCCO_JWT_KEYS": "http://issuer/keys"}
    found = from_environment(NEEDED | plain | mesh).security.jwt
    assert found is not None
    assert found.is_address


def test_what_is_set_is_taken() -> None:
    settings = from_environment(
        NEEDED | {"SIROCCO_SLOTS": "3", "SIROCCO_ARRIVAL": "event", "SIROCCO_HTTP_PORT": "8080"}
    )
    assert (settings.cluster.slots, settings.http_port) == (3, 8080)
    assert settings.cluster.event_time


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_needed_is_named_when_it_is_missing(name: str, value: str | None) -> None:
    environment = {key: text for key, text in NEEDED.items() if key != name}
    if value is not None:
        environment[name] = value
    with pytest.raises(InvalidArgument) as caught:
        from_environment(environment)
    assert caught.value.field == name


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_environment(NEEDED | {name: value})
    assert caught.value.field == name
    assert value in str(caught.value)


def test_every_owned_topic_exists_with_its_partitions() -> None:
    cluster = from_environment(NEEDED | {"SIROCCO_SLOTS": "7"}).cluster
    topics = {spec.name: spec for spec in cluster.topics()}
    for topic, partitions in cluster.owned_partitions().items():
        assert topics[topic].partitions == partitions
    assert topics["deliveries"].partitions == topics["partials"].partitions
    assert {spec.name for spec in cluster.topics() if spec.compacted} == {"registry", "control"}


# --- credentials of Kafka and Redis

SASL = {
    "SIROCCO_KAFKA_SECURITY": "sasl_plaintext",
    "SIROCCO_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "SIROCCO_KAFKA_SASL_USERNAME": "service",
    "SIROCCO_KAFKA_SASL_PASSWORD": "hidden-1",
}
TLS = {
    "SIROCCO_KAFKA_SECURITY": "ssl",
    "SIROCCO_KAFKA_CA": "/ca.pem",
    "SIROCCO_KAFKA_CERTIFICATE": "/me.pem",
    "SIROCCO_KAFKA_KEY": "/me.key",
}
# Settings of the client library, by the variables set.
SECURED = [
    ({}, {"security.protocol": "PLAINTEXT"}),
    (
        SASL,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "service",
            "sasl.password": "hidden-1",
        },
    ),
    (
        SASL | {"SIROCCO_KAFKA_SECURITY": "sasl_ssl", "SIROCCO_KAFKA_SASL_MECHANISM": "PLAIN"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "service",
            "sasl.password": "hidden-1",
        },
    ),
    (
        SASL | TLS | {"SIROCCO_KAFKA_SECURITY": "sasl_ssl"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "service",
            "sasl.password": "hidden-1",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
        },
    ),
    ({"SIROCCO_KAFKA_SECURITY": "ssl"}, {"security.protocol": "SSL"}),
    (
        TLS,
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
        },
    ),
]


@pytest.mark.parametrize(("environment", "expected"), SECURED)
def test_the_client_library_receives_the_credentials_of_kafka(
    environment: dict[str, str], expected: dict[str, str]
) -> None:
    config = client_config(from_environment(NEEDED | environment).kafka, "name")
    reported = {
        name: value for name, value in config.items() if re.match("sasl|ssl|security", name)
    }
    assert reported == expected


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        *(({**SASL, name: ""}, name) for name in SASL if name != "SIROCCO_KAFKA_SECURITY"),
        (SASL | {"SIROCCO_KAFKA_SASL_MECHANISM": "GSSAPI"}, "SIROCCO_KAFKA_SASL_MECHANISM"),
        (SASL | {"SIROCCO_KAFKA_SECURITY": "tls"}, "SIROCCO_KAFKA_SECURITY"),
        (SASL | {"SIROCCO_KAFKA_SECURITY": "SASL_SSL"}, "SIROCCO_KAFKA_SECURITY"),
        # A password without a mechanism would go unnoticed.
        (SASL | {"SIROCCO_KAFKA_SECURITY": ""}, "SIROCCO_KAFKA_SASL_MECHANISM"),
        (
            {"SIROCCO_KAFKA_SASL_PASSWORD": "x", "SIROCCO_KAFKA_SECURITY": "ssl"},
            "SIROCCO_KAFKA_SASL_PASSWORD",
        ),
        ({"SIROCCO_KAFKA_CA": "/ca.pem"}, "SIROCCO_KAFKA_CA"),
        (SASL | {"SIROCCO_KAFKA_CA": "/ca.pem"}, "SIROCCO_KAFKA_CA"),
        (TLS | {"SIROCCO_KAFKA_KEY": ""}, "SIROCCO_KAFKA_KEY"),
        (TLS | {"SIROCCO_KAFKA_CERTIFICATE": ""}, "SIROCCO_KAFKA_CERTIFICATE"),
        ({"SIROCCO_REDIS_CA": "/ca.pem"}, "SIROCCO_REDIS_CA"),
        ({"SIROCCO_REDIS": "localhost:6379"}, "SIROCCO_REDIS"),
        ({"SIROCCO_REDIS": "redis://:6379/0"}, "SIROCCO_REDIS"),
        ({"SIROCCO_REDIS": "redis://host:many/0"}, "SIROCCO_REDIS"),
    ],
)
def test_what_does_not_open_anything_is_refused_by_name(
    environment: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_environment(NEEDED | environment)
    assert caught.value.field == field


def test_redis_may_have_an_authority_of_its_own() -> None:
    environment = {"SIROCCO_REDIS": "rediss://redis:6380/0", "SIROCCO_REDIS_CA": "/ca.pem"}
    assert from_environment(NEEDED | environment).redis_ca == "/ca.pem"


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        (TLS, "SIROCCO_KAFKA_CA"),
        ({"SIROCCO_REDIS": "rediss://r", "SIROCCO_REDIS_CA": "/no/such.pem"}, "SIROCCO_REDIS_CA"),
    ],
)
def test_a_file_that_is_missing_is_named_at_start(environment: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidArgument, match="No such file") as caught:
        from_environment(NEEDED | environment).check_files()
    assert caught.value.field == field
    from_environment(NEEDED).check_files()


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(InvalidArgument) as caught:
        from_environment(environment)
    return f"{caught.value!r} {caught.value}"


def test_secrets_are_never_printed() -> None:
    environment = NEEDED | SASL | {"SIROCCO_REDIS": "rediss://:hidden-2@redis:6380/0"}
    assert "hidden" not in repr(from_environment(environment))
    for wrong in (
        {"SIROCCO_SLOTS": "many"},
        {"SIROCCO_KAFKA_SECURITY": "plaintext"},
        {"SIROCCO_KAFKA_SASL_MECHANISM": "NONE"},
        {"SIROCCO_REDIS": "http://:hidden-2@redis:6380/0"},
        {"SIROCCO_REDIS": "redis://:hidden-2:more@redis:port/0"},
    ):
        assert "hidden" not in refusal(environment | wrong)


def test_without_a_store_evaluators_keep_nothing() -> None:
    assert from_environment(NEEDED).cluster.kept_ms == 86_400_000
    cluster = from_environment(NEEDED | {"SIROCCO_STORE": "off"}).cluster
    assert (cluster.store, cluster.kept_ms) == (False, 0)


def test_balancing_is_on_unless_it_is_switched_off() -> None:
    cluster = from_environment(NEEDED).cluster
    assert cluster.balances
    assert (cluster.balance_interval_ms, cluster.balance_cooldown_ms) == (10_000, 30_000)
    reported = {
        "SIROCCO_BALANCE": "off",
        "SIROCCO_BALANCE_INTERVAL": "500ms",
        "SIROCCO_BALANCE_COOLDOWN": "0s",
        "SIROCCO_BALANCE_OBJECTS": "0",
        "SIROCCO_BALANCE_THRESHOLD": "1.5",
    }
    cluster = from_environment(NEEDED | reported).cluster
    assert not cluster.balances
    assert (cluster.balance_interval_ms, cluster.balance_cooldown_ms) == (500, 0)
    assert (cluster.balance_objects_min, cluster.balance_threshold) == (0, 1.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIROCCO_BALANCE", "maybe"),
        ("SIROCCO_BALANCE_INTERVAL", "1ms"),
        ("SIROCCO_BALANCE_COOLDOWN", "soon"),
        ("SIROCCO_BALANCE_OBJECTS", "-1"),
        ("SIROCCO_BALANCE_THRESHOLD", "0.9"),
    ],
)
def test_odd_settings_of_balancing_are_refused_by_name(name: str, value: str) -> None:
    assert name in refusal({**NEEDED, name: value})


TLS_SETTINGS = {
    "SIROCCO_TLS_CERTIFICATE": "/tls/tls.crt",
    "SIROCCO_TLS_KEY": "/tls/tls.key",
    "SIROCCO_TLS_CA": "/tls/ca.crt",
}


def test_tls_and_tokens_are_off_unless_they_are_set() -> None:
    security = from_environment(NEEDED).security
    assert (security.tls, security.tokens) == (None, "")
    security = from_environment(NEEDED | TLS_SETTINGS | {"SIROCCO_TOKENS": "/tokens"}).security
    assert security.tls == TlsFiles("/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt", "sirocco")
    assert security.tokens == "/tokens"


@pytest.mark.parametrize("name", ["SIROCCO_TLS_KEY", "SIROCCO_TLS_CA"])
def test_a_certificate_comes_with_its_key_and_its_authority(name: str) -> None:
    environment = NEEDED | TLS_SETTINGS
    del environment[name]
    with pytest.raises(InvalidArgument) as refused:
        from_environment(environment)
    assert refused.value.field == name
    with pytest.raises(InvalidArgument) as refused:
        from_environment(NEEDED | {name: "/file"})
    assert refused.value.field == name


def test_tokens_do_not_travel_in_plain_text_by_oversight() -> None:
    tokens = NEEDED | {"SIROCCO_TOKENS": "/tokens"}
    with pytest.raises(InvalidArgument, match="plain text") as refused:
        from_environment(tokens)
    assert refused.value.field == "SIROCCO_TOKENS"
    meshed = from_environment(tokens | {"SIROCCO_TOKENS_IN_PLAINTEXT": "allow"})
    assert meshed.security.tokens == "/tokens"
