"""What a gateway refuses before the cluster knows of it: hostile bodies, heads and connections."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest

from sirocco.loadgen.lines import ReadBatch, read_members
from sirocco.services.gateway import object_formats
from sirocco.services.gateway.bodies import _Packed
from sirocco.services.gateway.object_formats import read_body
from sirocco.services.gateway.problems import PayloadTooLarge
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import LIMITS, GatewayLimits, GatewaySettings
from tests.support.slow_peers import is_cut_off
from tests.support.waiting import eventually

NDJSON = {"content-type": "application/x-ndjson"}

# Nobody listens there: what is refused must be refused before a call.
NOWHERE = "127.0.0.1:1"

Start = Callable[..., Gateway]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Gateway] = []

    def one(**limits: Any) -> Gateway:
        changed = replace(LIMITS, publish_s=1.0, **limits)
        gateway = Gateway(GatewaySettings(routers=NOWHERE, limits=changed))
        started.append(gateway)
        gateway.start()
        return gateway

    yield one
    for gateway in started:
        gateway.stop()


def refusals(gateway: Gateway, reason: str) -> float:
    found = gateway.registry.get_sample_value("sirocco_gateway_refusals_total", {"reason": reason})
    assert found is not None
    return found


def posted(gateway: Gateway, body: bytes | Iterator[bytes], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(
        f"http://{gateway.address}/v1/objects", content=body, headers={**NDJSON, **named}
    )


def connected(gateway: Gateway) -> socket.socket:
    host, port = gateway.address.split(":")
    return socket.create_connection((host, int(port)), timeout=120.0)


def ended(connection: socket.socket) -> bytes:
    """Returns what is received until the other side ends the connection."""
    found = b""
    try:
        while data := connection.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_is_refused_as_a_whole(start: Start, is_chunked: bool) -> None:
    gateway = start(body_bytes=10_000)
    body = b" " * 20_000
    answer = posted(gateway, iter([body]) if is_chunked else body)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == "body"
    assert refusals(gateway, "size") == 1


def test_a_packed_body_counts_by_what_it_unpacks_to(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = start(body_bytes=100_000)
    bomb = gzip.compress(b"\n" * (64 << 20))
    assert len(bomb) < 100_000
    unpacked: list[int] = []
    parts = _Packed.parts

    def counted(packed: _Packed, piece: bytes, left: int) -> Iterator[bytes]:
        for part in parts(packed, piece, left):
            unpacked.append(len(part))
            yield part

    monkeypatch.setattr(_Packed, "parts", counted)
    assert posted(gateway, bomb, content_encoding="gzip").status_code == 413
    twice = gzip.compress(b"\n" * 90_000) * 2
    assert posted(gateway, twice, content_encoding="gzip").status_code == 413
    assert posted(gateway, zlib.compress(bytes(1 << 20)), content_encoding="deflate").is_error
    # No more of the 64 MiB than it takes to refuse them.
    assert 200_000 < sum(unpacked) < 1 << 20
    # Nothing is left of them.
    assert gateway._front is not None
    assert gateway._front.bodies.memory.held == 0


def test_a_packed_body_is_unpacked_in_small_parts() -> None:
    sizes = [len(part) for part in _Packed(31).parts(gzip.compress(bytes(16 << 20)), 1 << 30)]
    assert sum(sizes) == 16 << 20
    assert max(sizes) <= 1 << 20


def test_packed_bodies_are_read_and_damaged_ones_named(start: Start) -> None:
    gateway = start()
    bad = b'{"id": 1}\n'
    for encoding, body in (("gzip", gzip.compress(bad)), ("deflate", zlib.compress(bad))):
        answer = posted(gateway, body, content_encoding=encoding)
        assert (answer.status_code, answer.json()["acknowledged"]) == (200, 0)
        assert answer.json()["errors"] == [{"line": 1, "field": "lon", "detail": "is missing"}]
    cut = posted(gateway, gzip.compress(bad * 100)[:-9], content_encoding="gzip")
    assert (cut.status_code, cut.json()["field"]) == (400, "body")
    assert "end is missing" in cut.json()["detail"]
    assert posted(gateway, b"no gzip", content_encoding="gzip").status_code == 400
    assert posted(gateway, bad, content_encoding="br").status_code == 415


def test_too_many_objects_or_containers_are_refused(start: Start) -> None:
    gateway = start(objects=100, containers=1_000)
    assert posted(gateway, b"{}\n" * 101).status_code == 413
    assert posted(gateway, b"{}\n" * 100).json()["acknowledged"] == 0
    for body in (b"[" + b"[]," * 2_000 + b"[]]", json.dumps([{}] * 101).encode()):
        assert posted(gateway, body, content_type="application/json").status_code == 413
    deep = b"[" * 900 + b"]" * 900
    assert posted(gateway, deep, content_type="application/json").status_code in {200, 400}
    deeper = b'{"id":1,"lon":1,"lat":1,"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n"
    found = posted(gateway, deeper).json()
    assert [one["line"] for one in found["errors"]] == [1]


def test_bad_lines_beyond_the_bound_are_counted(start: Start) -> None:
    gateway = start(errors=10)
    found = posted(gateway, b"x\n" * 25).json()
    assert [one["line"] for one in found["errors"]] == list(range(1, 11))
    assert found["more_errors"] == 15


@pytest.mark.parametrize(
    ("media_type", "body", "field"),
    [
        ("application/json", b"[1, 2", "body"),
        ("application/json", b"3", "body"),
        ("text/csv", b"id,lon\n1,1\n", "header"),
        ("text/csv", b"id,lon,lat\xff\xfe\n1,1\n", "header"),
        ("text/csv", b"id,lon,lon,lat\n", "header"),
    ],
)
def test_a_body_that_is_not_of_its_type_is_named(
    start: Start, media_type: str, body: bytes, field: str
) -> None:
    answer = posted(start(), body, content_type=media_type)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_rows_of_tables_and_features_are_validated_one_by_one(start: Start) -> None:
    gateway = start()
    table = b'\xef\xbb\xbfid,lon,lat\n1,x,2\n1,2\n"1,2\n,1,2\n1,1,\xff\n'
    errors = posted(gateway, table, content_type="text/csv").json()["errors"]
    assert [(one["line"], one["field"]) for one in errors] == [
        (2, "lon"),
        (3, "object"),
        (4, "object"),
        (5, "id"),
        (6, "object"),
    ]
    features = [
        7,
        {"type": "Feature", "geometry": None, "properties": {}},
        {"type": "Feature", "geometry": {"type": "LineString"}, "properties": {}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}},
    ]
    body = json.dumps({"type": "FeatureCollection", "features": features}).encode()
    errors = posted(gateway, body, content_type="application/geo+json").json()["errors"]
    assert [(one["line"], one["field"]) for one in errors] == [
        (1, "object"),
        (2, "geometry"),
        (3, "geometry.type"),
        (4, "geometry.coordinates"),
        (5, "id"),
    ]
    for body in (b'{"type": "Topology"}', b"[]", b'{"type": "FeatureCollection", "features": [{'):
        found = posted(gateway, body, content_type="application/geo+json").json()
        assert (found["acknowledged"], len(found["errors"])) == (0, 1)


def test_columns_of_a_table_are_named_by_the_client(start: Start) -> None:
    gateway = start()
    table = b"no;where;south\n1;x;2\n"
    url = f"http://{gateway.address}/v1/objects"
    headers = {"content-type": "text/csv"}
    params = {"map": "id=no,lon=where,lat=south"}
    found = httpx.post(url, params=params, content=table, headers=headers).json()
    assert [(one["line"], one["field"]) for one in found["errors"]] == [(2, "lon")]
    for wrong in ("lon", "id=nobody,lon=where,lat=south"):
        answer = httpx.post(url, params={"map": wrong}, content=table, headers=headers)
        assert (answer.status_code, answer.json()["field"]) == (400, "map")


@pytest.mark.parametrize(
    ("media_type", "head", "row"),
    [
        ("application/x-ndjson", b"", b'{"id":1,"lon":0,"lat":0,"a":[%s1]}\n' % (b"[]," * 9_000)),
        (
            "application/geo+json",
            b"",
            b'{"type":"Feature","id":1,"geometry":{"type":"Point","coordinates":[0,0]},'
            b'"properties":{"a":[%s1]}}\n' % (b"[]," * 9_000),
        ),
        ("text/csv", b"id,lon,lat,text\n", b"1,0,0,%s\n" % (b"x" * 27_000)),
    ],
)
def test_bodies_are_read_a_piece_at_a_time(
    monkeypatch: pytest.MonkeyPatch, media_type: str, head: bytes, row: bytes
) -> None:
    """Empty arrays take thirty times their bytes: those of two thousand rows were read at once."""
    together: list[int] = []

    def read_rows(rows: list[Any], name: str) -> ReadBatch:
        together.append(len(rows))
        return read_members([], name)

    monkeypatch.setattr(object_formats, "read_members", read_rows)
    monkeypatch.setattr(object_formats, "read_chunk", read_rows)
    read_body(head + row * 150, media_type, LIMITS, {})
    assert sum(together) == 150
    # A megabyte, and what is read ahead.
    assert max(together) * len(row) < 5 << 18


def test_a_line_that_is_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"id":1,"lon":0,"lat":0,"a":[%s1]}' % (b"[]," * 500_000)
    monkeypatch.setattr(orjson, "loads", lambda _: pytest.fail("it was parsed"))
    read = read_body(line, "application/x-ndjson", LIMITS, {})
    assert [error.message for _, error in read.bad] == ["is longer than 983040 bytes"]


def test_errors_of_bad_lines_are_kept_up_to_the_bound() -> None:
    body = b'{"id": 1, "lon": 1, "lat": 1}\n' + b"1\n" * 5_000
    found = read_body(body, "application/x-ndjson", replace(LIMITS, errors=10), {})
    assert (len(found.lines), found.bad_count) == (1, 5_000)
    assert [line for line, _ in found.bad] == list(range(2, 12))


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "text/csv"])
def test_blank_lines_are_bounded(media_type: str) -> None:
    """16 kB of a packed body had 16 million of them, ten seconds of a thread."""
    head = b"id,lon,lat\n" if media_type == "text/csv" else b""
    with pytest.raises(PayloadTooLarge, match="more than 500 lines"):
        read_body(head + b"\n" * 501, media_type, replace(LIMITS, objects=100), {})
    assert read_body(head + b"\n" * 490, media_type, replace(LIMITS, objects=100), {}).lines == []


@pytest.mark.parametrize("value", [b"1e400", b"-1e400", b"[1e400]", b'{"b": 1e400}'])
@pytest.mark.parametrize("media_type", ["application/x-ndjson", "application/geo+json"])
def test_numbers_beyond_64_bits_are_refused_in_all_formats(media_type: str, value: bytes) -> None:
    """In GeoJSON, an attribute was null instead."""
    body = b'{"id": 1, "lon": 1, "lat": 1, "a": %s}' % value
    if media_type == "application/geo+json":
        body = (
            b'{"type": "Feature", "id": 1, "geometry": {"type": "Point", "coordinates": [1, 1]},'
            b'"properties": {"a": %s}}' % value
        )
    found = read_body(body, media_type, LIMITS, {})
    assert (found.lines, found.bad_count) == ([], 1)
    nothing = body.replace(value, b"null")
    assert read_body(nothing, media_type, LIMITS, {}).lines == [1]


def test_a_slow_body_ends_in_time_and_frees_its_memory(start: Start) -> None:
    gateway = start(pause_s=0.3, body_s=2.0)
    head = b"POST /v1/objects HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
    with connected(gateway) as connection:
        connection.sendall(head + b"content-length: 1000\r\n\r\n{")
        assert b" 504 " in ended(connection)[:20]
    with connected(gateway) as connection:
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        eventually(lambda: is_cut_off(connection, b"1\r\n \r\n"))
    assert gateway._front is not None
    eventually(lambda: gateway._front.bodies.memory.held == 0)  # type: ignore[union-attr]
    assert refusals(gateway, "late") >= 2


def test_a_client_that_leaves_in_the_middle_of_its_body_frees_the_memory(start: Start) -> None:
    gateway = start()
    front = gateway._front
    assert front is not None
    with connected(gateway) as connection:
        connection.sendall(
            b"POST /v1/objects HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
            b"content-length: 1000000\r\n\r\n{"
        )
        eventually(lambda: front.bodies.memory.held > 0)
    eventually(lambda: front.bodies.memory.held == 0)
    assert front.calls.held == 0


def test_bodies_take_no_more_memory_than_there_is(start: Start) -> None:
    gateway = start(memory_bytes=1_000_000, caller_memory_bytes=400_000, room_s=0.1)
    head = b"POST /v1/objects HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
    held = []
    for _ in range(40):
        connection = connected(gateway)
        connection.sendall(head + b"content-length: 200000\r\n\r\n{")
        held.append(connection)
    front = gateway._front
    assert front is not None
    eventually(lambda: refusals(gateway, "memory") > 20)
    assert front.bodies.memory.held <= 1_000_000
    for connection in held:
        connection.close()
    eventually(lambda: front.bodies.memory.held == 0)


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_head_has_a_bound(start: Start, is_whole: bool) -> None:
    gateway = start(header_bytes=4_096)
    with connected(gateway) as connection:
        end = b"\r\n\r\n" if is_whole else b""
        connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * 8_192 + end)
        assert b" 431 " in ended(connection)[:20]
    assert refusals(gateway, "headers") >= 1
    assert httpx.get(f"http://{gateway.address}/healthz").status_code == 200


def test_a_head_that_never_ends_is_cut_off(start: Start) -> None:
    gateway = start(headers_s=0.5)
    silent, slow = connected(gateway), connected(gateway)
    slow.sendall(b"GET / HTTP/1.1\r\n")
    with silent, slow:
        eventually(lambda: is_cut_off(slow, b"x: y\r\n"))
        assert ended(silent) == b""
        assert ended(slow) == b""
    assert refusals(gateway, "late") >= 1
    eventually(lambda: gateway._front.connections.places.held == 0)  # type: ignore[union-attr]


def test_connections_have_a_bound_and_come_back(start: Start) -> None:
    gateway = start(connections=20)
    several = [connected(gateway) for _ in range(40)]
    eventually(lambda: refusals(gateway, "connections") >= 20)
    for one in several:
        one.close()
    eventually(lambda: httpx.get(f"http://{gateway.address}/healthz").status_code == 200)


def test_requests_of_one_connection_follow_each_other(start: Start) -> None:
    gateway = start(headers_s=0.5, idle_s=5.0)
    with connected(gateway) as connection:
        for _ in range(3):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b" 200 " in connection.recv(4_096)
            # Longer than a head may take: an idle connection waits for its next request, while one
            # that comes after it and sends nothing is ended.
            with connected(gateway) as silent:
                assert ended(silent) == b""


def test_answers_do_not_wait_for_acknowledgements_of_packets(start: Start) -> None:
    gateway = start()
    with connected(gateway) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b" 200 " in connection.recv(4_096)
        assert gateway._server is not None
        [protocol] = gateway._server.server_state.connections
        accepted = protocol.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_unknown_credentials_are_refused_by_name(start: Start) -> None:
    gateway = start()
    for header in ("Basic abc", "Bearer", "Bearer a b", "Bearer " + "x" * 9_000):
        answer = posted(gateway, b"{}", authorization=header)
        assert answer.status_code == 401, header
        assert answer.headers["www-authenticate"] == "Bearer"


def test_without_a_cluster_calls_are_unavailable(start: Start) -> None:
    gateway = start()
    good = b'{"id": 1, "lon": 1, "lat": 2}\n'
    answer = posted(gateway, good)
    assert answer.status_code in {503, 504}
    assert httpx.get(f"http://{gateway.address}/readyz").status_code == 503
    assert httpx.get(f"http://{gateway.address}/healthz").status_code == 200


def test_pages_of_other_origins_may_not_call(start: Start) -> None:
    gateway = start()
    answer = httpx.options(
        f"http://{gateway.address}/v1/search",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert "access-control-allow-origin" not in answer.headers


def test_the_limits_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from sirocco.services.gateway.settings import from_environment  # noqa: PLC0415

    found = from_environment({"SIROCCO_ROUTER": "a:1,b:2", "SIROCCO_GATEWAY_BODY": "2048"})
    assert found.routers == "a:1,b:2"
    assert found.limits == replace(GatewayLimits(), body_bytes=2_048)
