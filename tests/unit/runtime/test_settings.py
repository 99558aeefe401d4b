"""Settings from the environment: defaults, and errors that name the variable."""

from __future__ import annotations

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.settings import from_environment

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
]


def test_what_is_not_set_has_its_default() -> None:
    settings = from_environment(NEEDED)
    assert (settings.kafka, settings.redis) == ("localhost:9092", "redis://localhost")
    assert (settings.cluster.slots, settings.cluster.scheme) == (16, "qt-tree")
    assert (settings.grpc_port, settings.host) == (0, "127.0.0.1")
    assert not settings.cluster.event_time


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
