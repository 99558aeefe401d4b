"""Which setting is wrong, by the reports of a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from sirocco.local.process import free_port
from sirocco.transport.errors import AccessRefused, TransportUnavailable
from sirocco.transport.kafka_reports import KafkaReports
from sirocco.transport.kafka_settings import KafkaSettings, client_config

SETTINGS = KafkaSettings(bootstrap="kafka:9092", password_field="s.password", ca_field="s.ca")

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "timed out")
UNTRUSTED = "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker"


@dataclass
class Client:
    """Gives reports to the next poll, as a client does."""

    reports: KafkaReports
    waiting: list[KafkaError] = field(default_factory=list)

    def poll(self, _timeout_s: float) -> None:
        for each in self.waiting:
            self.reports.note(each)
        self.waiting = []


@pytest.mark.parametrize(
    ("code", "text", "named"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error", "s.password"),
        (KafkaError._SSL, UNTRUSTED, "s.ca"),
        # A broker that ends in the middle of a handshake may be there again.
        (KafkaError._SSL, "SSL handshake failed: Disconnected", None),
        (KafkaError._TRANSPORT, "Connection refused", None),
    ],
)
def test_only_what_a_setting_causes_names_one(code: int, text: str, named: str | None) -> None:
    reports = KafkaReports(SETTINGS)
    client = Client(reports, [KafkaError(code, text), DOWN])
    error = reports.explained(client, TIMED_OUT, "create t")
    assert (error.field, error.message) == (named, f"create t: {text}")
    assert isinstance(error, AccessRefused) == (named is not None)


def test_a_report_from_before_the_call_explains_nothing() -> None:
    reports = KafkaReports(SETTINGS)
    reports.note(KafkaError(KafkaError._AUTHENTICATION, "refused, an hour ago"))
    error = reports.explained(Client(reports), TIMED_OUT, "create t")
    assert (type(error), error.message) == (TransportUnavailable, "create t: timed out")


def test_errors_of_calls_that_got_an_answer_stay_as_they_are() -> None:
    reports = KafkaReports(SETTINGS)
    client = Client(reports, [KafkaError(KafkaError._AUTHENTICATION, "another broker")])
    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(KafkaException) as caught, reports.refusals(client, "topic t"):
        raise unknown
    assert caught.value is unknown


def test_a_broker_that_is_away_is_tried_again() -> None:
    settings = KafkaSettings(bootstrap=f"127.0.0.1:{free_port()}")
    reports = KafkaReports(settings)
    config: dict[str, Any] = client_config(settings, "test") | {"log_level": 0}
    admin = AdminClient(config | {"error_cb": reports.note})
    with pytest.raises(KafkaException), reports.refusals(admin, "topic t"):
        admin.list_topics(timeout=0.5)
