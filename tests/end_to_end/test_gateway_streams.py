"""Streams of the HTTP gateway: WebSockets, silence, clients that do not read, gateways that end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sirocco_client import Client, RangeQuery
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from sirocco.cli.__main__ import main
from sirocco.runtime.grpc.security import SecuritySettings, secured
from sirocco.runtime.grpc.tls import TlsFiles
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import LIMITS, GatewaySettings
from tests.support.certificates import Authority
from tests.support.http_streams import EventSource
from tests.support.waiting import eventually

SETTINGS = ClusterSettings(
    cluster="streams", slots=8, leaves=16, intake_partitions=2, registry_partitions=2
)
SHORT = replace(LIMITS, keep_alive_s=0.2, unread_s=0.5, streams=40, stop_s=2.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS) as running:
        yield running


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[Client]:
    with Client(cluster.router_address) as opened:
        yield opened


@pytest.fixture
def gateway(cluster: EmbeddedCluster) -> Iterator[Gateway]:
    one = Gateway(GatewaySettings(routers=cluster.router_address, limits=SHORT))
    one.start()
    yield one
    one.stop()


def base_of(gateway: Gateway) -> str:
    return f"http://{gateway.address}"


def publish(client: Client, word: str, count: int, text: str = "") -> list[str]:
    with client.publisher() as publisher:
        publisher.publish_many(
            [{"id": i, "lon": 1, "lat": 1, "text": f"{word} {text}"} for i in range(count)]
        )
    return [str(i) for i in range(count)]


def test_a_socket_gets_the_same_and_resumes(gateway: Gateway, client: Client) -> None:
    client.register(RangeQuery(id="socket", subscriber="sue", text="socketword"))
    url = f"ws://{gateway.address}/v1/subscribers/sue/notifications"
    with connect(url) as opened:
        begin = json.loads(opened.recv(10))
        assert begin.keys() == {"id"}
        ids = publish(client, "socketword", 20)
        received = [json.loads(opened.recv(10)) for _ in range(20)]
    assert sorted((one["data"]["object"]["id"] for one in received), key=int) == ids
    order = [one["data"]["object"]["id"] for one in received]
    # From any place on: the beginning, the middle of a message, its end.
    for count, place in ((0, begin["id"]), (7, received[6]["id"])):
        with connect(f"{url}?cursor={place}") as again:
            assert json.loads(again.recv(10)) == {"id": place}
            rest = [json.loads(again.recv(10))["data"]["object"]["id"] for _ in order[count:]]
        assert rest == order[count:]


def test_a_place_lies_behind_the_first_message_if_messages_were_longer_then(
    gateway: Gateway, client: Client
) -> None:
    # init: records of 30 kB, of which two go into one message and three do not
    client.register(RangeQuery(id="long", subscriber="lola", text="longword"))
    url = f"ws://{gateway.address}/v1/subscribers/lola/notifications"
    with connect(url) as opened:
        begin = json.loads(opened.recv(10))["id"]
        for number in range(5):
            with client.publisher() as publisher:
                text = "longword " + "x" * 30_000
                publisher.publish_many([{"id": number, "lon": 1, "lat": 1, "text": text}])
            opened.recv(10)

    # test and check: in one message they would have had these places
    for count in range(1, 5):
        with connect(f"{url}?cursor={begin}~{count}") as again:
            assert json.loads(again.recv(10)) == {"id": f"{begin}~{count}"}
            rest = [json.loads(again.recv(10))["data"]["object"]["id"] for _ in range(5 - count)]
        assert rest == [str(number) for number in range(count, 5)]


def test_pages_of_others_open_no_socket(gateway: Gateway) -> None:
    url = f"ws://{gateway.address}/v1/subscribers/sue/notifications"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers={"Origin": "https://evil.example"})
    assert refused.value.response.status_code == 403
    with connect(url, additional_headers={"Origin": base_of(gateway)}) as opened:
        assert "id" in json.loads(opened.recv(10))
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}?cursor=nonsense")
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body)["field"] == "cursor"


def test_a_socket_that_sends_much_is_closed(gateway: Gateway) -> None:
    with connect(f"ws://{gateway.address}/v1/subscribers/sue/notifications") as opened:
        opened.recv(10)
        with pytest.raises(ConnectionClosed):  # noqa: PT012 - it may take a few
            for _ in range(100):
                opened.send("x" * 100_000)
                time.sleep(0.05)


def test_a_silent_stream_sends_comments_and_moves_its_place(
    gateway: Gateway, client: Client
) -> None:
    client.register(RangeQuery(id="others", subscriber="oskar", text="otherword"))
    source = EventSource(base_of(gateway), "quiet")
    thread = threading.Thread(target=source.read, args=(1,), daemon=True)
    thread.start()
    assert source.opened.wait(120.0)
    first = source.last_id
    eventually(lambda: len(source.comments) >= 3)
    # Notifications of others move the log on, and the place of the quiet one with it.
    publish(client, "otherword", 10)
    eventually(lambda: source.last_id != first)
    client.register(RangeQuery(id="now", subscriber="quiet", text="nowword"))
    publish(client, "nowword", 1)
    thread.join(120.0)
    assert [one["query"] for one in source.received] == ["now"]


def test_a_client_that_does_not_read_is_cut_off_and_resumes(
    gateway: Gateway, client: Client
) -> None:
    client.register(RangeQuery(id="much", subscriber="max", text="muchword"))
    host, port = gateway.address.split(":")
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    lazy.connect((host, int(port)))
    lazy.sendall(b"GET /v1/subscribers/max/notifications HTTP/1.1\r\nhost: x\r\n\r\n")
    head = lazy.recv(2_048)
    while b"id: " not in head:
        head += lazy.recv(2_048)
    place = head.split(b"id: ")[1].split(b"\n")[0].decode()
    ids = publish(client, "muchword", 600, text="x" * 30_000)
    name, labels = "sirocco_gateway_refusals_total", {"reason": "unread"}
    eventually(lambda: gateway.registry.get_sample_value(name, labels))
    eventually(lambda: gateway.registry.get_sample_value("sirocco_gateway_streams") == 0)
    assert gateway.registry.get_sample_value(name, labels) == 1
    lazy.close()
    source = EventSource(base_of(gateway), "max", last_id=place)
    source.read(600, timeout_s=300.0)
    assert [one["object"]["id"] for one in source.received] == ids


def test_streams_have_a_bound_and_others_find_a_place(gateway: Gateway) -> None:
    url = f"{base_of(gateway)}/v1/subscribers/many/notifications"
    statuses: list[int] = []
    opened = []
    with httpx.Client(timeout=120.0, limits=httpx.Limits(max_connections=100)) as http:
        for _ in range(60):
            answer = http.send(http.build_request("GET", url), stream=True)
            statuses.append(answer.status_code)
            opened.append(answer)
        assert statuses.count(200) <= 40
        assert statuses.count(429) >= 20
        assert all("retry-after" in one.headers for one in opened if one.status_code == 429)
        for one in opened:
            one.close()
    eventually(lambda: gateway._front.streams.held == 0)  # type: ignore[union-attr]


def test_another_gateway_goes_on_where_one_ended(cluster: EmbeddedCluster, client: Client) -> None:
    # It would wait longer for requests under way than a test may take: streams do not hold it up.
    limits = replace(SHORT, stop_s=3_600.0)
    gateway = Gateway(GatewaySettings(routers=cluster.router_address, limits=limits))
    gateway.start()
    client.register(RangeQuery(id="go on", subscriber="greta", text="goonword"))
    source = EventSource(base_of(gateway), "greta")
    thread = threading.Thread(target=source.read, args=(1_000,), daemon=True)
    thread.start()
    assert source.opened.wait(120.0)
    publish(client, "goonword", 50)
    eventually(lambda: len(source.received) == 50)
    gateway.stop()
    thread.join(120.0)
    assert not thread.is_alive()
    publish(client, "goonword", 30)
    other = Gateway(GatewaySettings(routers=cluster.router_address, limits=SHORT))
    other.start()
    source.base = base_of(other)
    source.read(80)
    other.stop()
    ids = [one["object"]["id"] for one in source.received]
    assert ids == [str(i) for i in (*range(50), *range(30))]


def test_an_expired_or_foreign_place_is_named(gateway: Gateway) -> None:
    url = f"{base_of(gateway)}/v1/subscribers/sue/notifications"
    for place in ("nonsense", "0.1~", "1.2.3", "0.99999999"):
        answer = httpx.get(url, params={"cursor": place}, timeout=120.0)
        assert answer.status_code == 400, place
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_browser_is_asked_to_come_back_while_there_is_no_cluster() -> None:
    gateway = Gateway(GatewaySettings(routers="127.0.0.1:1", limits=replace(SHORT, call_s=1.0)))
    gateway.start()
    url = f"{base_of(gateway)}/v1/subscribers/sue/notifications"
    answer = httpx.get(url, headers={"last-event-id": "0.17"}, timeout=120.0)
    assert (answer.status_code, answer.text) == (200, "retry: 1000\n\n")
    assert httpx.get(url, timeout=120.0).status_code in {503, 504}
    gateway.stop()


@pytest.fixture
def secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[Gateway, str]]:
    authority = Authority(tmp_path / "authority")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.issue(certificate, key, "sirocco")
    token = tmp_path / "web.token"
    arguments = ["token", str(token), "--tenant=web"]
    scopes = [f"--scope={scope}" for scope in ("publish", "query", "subscribe", "search")]
    assert main([*arguments, *scopes]) == 0
    tokens = tmp_path / "tokens"
    tokens.write_text(capsys.readouterr().out)
    files = TlsFiles(str(certificate), str(key), str(authority.certificate), "sirocco")
    security = secured(SecuritySettings(files, str(tokens), 0))
    settings = ClusterSettings(slots=4, intake_partitions=2, registry_partitions=2)
    with EmbeddedCluster(settings, security=security) as running:
        gateway = Gateway(
            GatewaySettings(routers=running.router_address, ca=str(authority.certificate))
        )
        gateway.start()
        yield gateway, token.read_text().strip()
        gateway.stop()


def test_tokens_are_handed_on(secret: tuple[Gateway, str]) -> None:
    gateway, token = secret
    url, bearer = base_of(gateway), {"authorization": f"Bearer {token}"}
    query = {"kind": "range", "text": "tokenword"}
    path = f"{url}/v1/queries/mine?subscriber=tom"
    assert httpx.put(path, json=query).status_code == 401
    assert httpx.put(path, json=query, headers={"authorization": "Bearer no"}).status_code == 401
    assert httpx.put(path, json=query, headers=bearer, timeout=120.0).status_code == 201
    lines = {"content-type": "application/x-ndjson"}
    # A body is not read for a token that the cluster refuses.
    big = b"{}\n" * 1_000_000
    stranger = {"authorization": "Bearer no", **lines}
    assert httpx.post(f"{url}/v1/objects", content=big, headers=stranger).status_code == 401
    stream = EventSource(url, "tom", headers=bearer)
    with stream.reading(1):
        body = b'{"id": 1, "lon": 1, "lat": 1, "text": "tokenword"}\n'
        answer = httpx.post(f"{url}/v1/objects", content=body, headers={**bearer, **lines})
        assert answer.json()["acknowledged"] == 1
    # Names are the tenant's own.
    assert stream.received[0]["query"] == "mine"
    sockets = f"ws://{gateway.address}/v1/subscribers/tom/notifications?from_earliest=true"
    with connect(sockets, subprotocols=["sirocco.v1", f"bearer.{token}"]) as opened:  # type: ignore[list-item]
        assert opened.subprotocol == "sirocco.v1"
        opened.recv(10)
        assert json.loads(opened.recv(10))["data"]["query"] == "mine"
    with pytest.raises(InvalidStatus) as refused:
        connect(sockets)
    assert refused.value.response.status_code == 401
    assert httpx.get(f"{url}/readyz").status_code == 200
