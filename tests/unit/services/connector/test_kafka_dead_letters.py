"""Records of strangers in dead letters: their keys and headers are bounded, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sources import kafka_dead_letters
from sirocco.services.connector.sources.kafka_dead_letters import DeadLetters
from sirocco.services.connector.sources.kept_record import HEADER_BYTES_MAX, kept, size_of
from sirocco.services.connector.sources.records import DECODE, Bad
from sirocco.transport.kafka_settings import KafkaSettings


@dataclass
class Message:
    """As the client library hands one out."""

    data: bytes | None = b"{"
    name: bytes | None = None
    given: Any = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.data

    def headers(self) -> Any:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


class Producer:
    """Delivers what it was given when it is polled; refuses what is larger than a broker takes."""

    largest = 1 << 20

    def __init__(self, *_: Any, **__: Any) -> None:
        self.waiting: list[tuple[int, Callable[[KafkaError | None, Any], None]]] = []
        self.waiting_bytes = self.most_bytes = 0
        self.written: list[dict[str, Any]] = []

    def produce(self, topic: str, value: bytes | None, **more: Any) -> None:
        on_delivery = more.pop("on_delivery")
        # A header takes two bytes besides its own at least.
        size = sum(2 + len(name) + len(each) for name, each in more["headers"])
        size += len(value or b"") + len(more["key"] or b"")
        self.written.append({"value": value, **more})
        self.waiting.append((size, on_delivery))
        self.waiting_bytes += size
        self.most_bytes = max(self.most_bytes, self.waiting_bytes)

    def poll(self, _: float) -> None:
        for size, on_delivery in self.waiting[:]:
            self.waiting.pop(0)
            self.waiting_bytes -= size
            is_large = size > self.largest
            on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if is_large else None, None)


@dataclass
class Written:
    letters: DeadLetters
    producer: Producer
    offsets: list[int]

    def write(self, message: Message) -> None:
        bad = Bad(kept(message), DECODE, InvalidArgument("is no JSON", field="value"))
        self.letters.write(bad)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    producer = Producer()
    monkeypatch.setattr(kafka_dead_letters, "Producer", lambda *_, **__: producer)
    offsets: list[int] = []
    letters = DeadLetters(
        KafkaSettings(bootstrap="b:1"), "dead", "s", lambda _, __, offset: offsets.append(offset)
    )
    return Written(letters, producer, offsets)


def test_header_names_that_are_no_text_do_not_end_the_source(written: Written) -> None:
    written.write(Message(given=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")))
    written.letters.poll()
    assert written.offsets == [7]
    assert dict(written.producer.written[0]["headers"])["sirocco.reason"] == b"decode"


def test_headers_without_bytes_leave_a_letter_that_the_topic_takes(written: Written) -> None:
    written.write(Message(given=[("", b"")] * 600_000))
    written.letters.poll()
    written.letters.poll()
    assert written.offsets == [7]
    assert written.letters.failure is None


def test_headers_are_kept_up_to_a_bound(written: Written) -> None:
    given = [("trace", b"1"), ("none", None), ("large", b"x" * HEADER_BYTES_MAX), ("more", b"2")]
    written.write(Message(given=given))
    own = [each for each in written.producer.written[0]["headers"] if each[0] in dict(given)]
    assert own == [("trace", b"1")]


def test_what_is_under_way_is_bounded_with_keys_and_headers(written: Written) -> None:
    for _ in range(2_000):
        written.write(Message(b"", b"k" * (64 << 10), [("h", b"x" * (60 << 10))]))
    written.letters.poll()
    assert written.producer.most_bytes < 70 << 20
    assert len(written.offsets) == 2_000


def test_a_record_counts_with_its_key_and_headers() -> None:
    plain = size_of(kept(Message(b"12345678")))
    assert size_of(kept(Message(b"12345678", b"k" * 900_000))) == plain + 900_000
    assert size_of(kept(Message(b"12345678", None, [("h", b"x" * 60_000)]))) >= plain + 60_000
