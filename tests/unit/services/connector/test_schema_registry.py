"""Answers of a Schema Registry: bounded in bytes, in what they hold, and in time."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sirocco.services.connector.sources.kafka_config import RegistryConfig, read_kafka_source
from sirocco.services.connector.sources.records import DecodeError
from sirocco.services.connector.sources.registry_formats import open_reader
from sirocco.services.connector.sources.schema_registry import (
    SCHEMA_BYTES_MAX,
    RegistryAwayError,
    SchemaRegistry,
)
from tests.support import schema_registry as support
from tests.unit.services.connector.test_source_schemas import record


@pytest.fixture
def registry() -> Iterator[support.SchemaRegistry]:
    found = support.SchemaRegistry()
    yield found
    found.close()


def client(url: str, **settings: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryConfig(url=url, **settings), serialized=False)


def test_schemas_by_id_and_by_version(registry: support.SchemaRegistry) -> None:
    references = [{"name": "place", "subject": "a/b", "version": 1}]
    first = registry.add("string", subject="plain")
    second = registry.add(b"\x01", kind="PROTOBUF", references=references)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    # The next address answers where one does not.
    found = client(f"http://127.0.0.1:{nobody}, {registry.url}/")
    one, other = found.by_id(first), found.by_id(second)
    assert one is not None
    assert other is not None
    assert (one.kind, one.text, one.references) == ("AVRO", "string", ())
    assert other.kind == "PROTOBUF"
    assert [(each.name, each.subject, each.version) for each in other.references] == [
        ("place", "a/b", 1)
    ]
    assert found.by_version("plain", 1) == one
    assert found.by_version("a/b", 1) is None
    assert registry.requests[-1] == "/subjects/a%2Fb/versions/1"
    assert found.by_id(5) is None


class Endless:
    """Answers with what it is given, then with more of the same until the reader has enough.

    Attributes:
        url: Where it is.
        sent: Bytes of bodies, by connection.
    """

    def __init__(self, head: bytes, piece: bytes, pause_s: float = 0.0) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self._head, self._piece = head, piece
        self._stop = threading.Event()
        self._pause_s = pause_s
        self.sent = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                try:
                    connection.sendall(self._head)
                    while not self._stop.wait(self._pause_s):
                        connection.sendall(self._piece)
                        self.sent += len(self._piece)
                except OSError:
                    continue

    def close(self) -> None:
        self._stop.set()
        self._server.close()


def test_an_answer_without_an_end_ends() -> None:
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n{"schema": "'
    endless = Endless(head, b"x" * 65_536)
    try:
        with pytest.raises(DecodeError, match="answer has more than"):
            client(endless.url).by_id(1)
        assert endless.sent < 100 << 20
    finally:
        endless.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_comes_in_drops_counts_as_none(head: bytes) -> None:
    # Each drop comes well before the time of the whole answer has passed.
    endless = Endless(head, b"x", pause_s=0.05)
    try:
        with pytest.raises(RegistryAwayError):
            client(endless.url, timeout_s=0.5).by_id(1)
    finally:
        endless.close()


def test_a_packed_answer_is_not_unpacked(registry: support.SchemaRegistry) -> None:
    body = gzip.compress(json.dumps({"schema": " " * (64 << 20)}).encode())
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    packed = Endless(head + body, b"")
    try:
        with pytest.raises(RegistryAwayError, match="no JSON"):
            client(packed.url).by_id(1)
    finally:
        packed.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"schema": "x" * (SCHEMA_BYTES_MAX + 1)}, "characters"),
        ({"schema": "", "more": [[]] * 200_001}, "arrays and objects"),
    ],
)
def test_an_answer_that_holds_very_much_is_refused(
    registry: support.SchemaRegistry, answer: Any, why: str
) -> None:
    registry.spoil = 200, json.dumps(answer, separators=(",", ":")).encode()
    with pytest.raises(DecodeError, match=why):
        client(registry.url).by_id(1)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"schema": 1}', b"<html>", b"\xff", b'{"schema": ""' + b"[" * 9_999]
    + [b'{"schema": "", "references": %s}' % each for each in (b"5", b"[5]", b'[{"name": 1}]')]
    + [b'{"schema": "", "references": [{"name": "", "subject": "", "version": 1e400}]}'],
)  # fmt: skip
def test_an_answer_that_is_none_of_a_registry_is_waited_for(
    registry: support.SchemaRegistry, body: bytes
) -> None:
    registry.spoil = 200, body
    with pytest.raises(RegistryAwayError):
        client(registry.url).by_id(1)


class Message:
    """A record that names a schema."""

    def __init__(self, schema_id: int) -> None:
        self._value = support.framed(schema_id, b"\0")

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return 0


def reader(url: str) -> Any:
    given = {
        "kind": "kafka", "bootstrap": "localhost:9", "topics": ["t"], "format": "avro",
        "dead_letters": "drop", "registry": {"url": url},
    }  # fmt: skip
    return open_reader(read_kafka_source("s", given))


def reasons(one: Any, ids: list[int]) -> list[str]:
    one.prepare([Message(each) for each in ids])
    return [str(bad.error) for each in ids for bad in one.read([Message(each)]).bad]


def wide(number: int, size: int) -> Any:
    return record(id="long") | {"name": f"R{number}", "doc": "x" * size}


def test_large_schemas_count_with_what_they_refer_to(registry: support.SchemaRegistry) -> None:
    references = []
    for each in range(4):
        registry.add(wide(each, SCHEMA_BYTES_MAX - 1_000), subject=f"s{each}")
        references.append({"name": f"R{each}", "subject": f"s{each}", "version": 1})
    small = registry.add(record(id="long"), references=references[:1])
    large = registry.add(record(id="long"), references=references)
    unknown = registry.add(record(), references=[{"name": "N", "subject": "no", "version": 1}])
    found = reasons(reader(registry.url), [small, large, unknown])
    assert [
        ("with its references" in each, "unknown" in each) for each in found if "schema" in each
    ] == [
        (True, False),
        (False, True),
    ]


def test_schemas_that_are_kept_are_few_bytes(registry: support.SchemaRegistry) -> None:
    ids = [registry.add(wide(each, SCHEMA_BYTES_MAX - 1_000)) for each in range(11)]
    one = reader(registry.url)
    found = reasons(one, ids)
    refused = [each for each in found if "too many large schemas" in each]
    assert len(refused) == 1
    # One after the other all are read.
    again = reader(registry.url)
    for each in ids:
        assert not any("schema" in why for why in reasons(again, [each]))
