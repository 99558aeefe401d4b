"""Hostile clients, on a whole cluster with tokens: others are served, and memory stays bounded."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import query_pb2
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_client import (
    Client,
    InvalidArgument,
    PublishFlow,
    RangeQuery,
    ResourceExhausted,
    Retry,
    SiroccoError,
)

from sirocco.cli.__main__ import main
from sirocco.runtime.grpc.security import SecuritySettings, secured
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.seeds import drawn_seed

SETTINGS = ClusterSettings(slots=4, intake_partitions=2, registry_partitions=2)
BULK = "/sirocco.v1.QueryService/RegisterQueries"
MIB = 1 << 20

# Every alternative combined with each other: refused after a million steps.
ENTANGLED = " AND ".join("(" + " OR ".join(f"w{i}x{j}" for j in range(10)) + ")" for i in range(9))
# About the hardest expression that is accepted.
HARD = " AND ".join("(" + " OR ".join(f"w{i}x{j}" for j in range(2)) + ")" for i in range(8))


@dataclass
class Attacked:
    """A running cluster and tokens of two tenants."""

    cluster: EmbeddedCluster
    tokens: dict[str, str]
    clients: list[Client] = field(default_factory=list)

    def client(self, tenant: str) -> Client:
        self.clients.append(
            Client(
                self.cluster.router_address,
                token=self.tokens[tenant],
                retry=Retry(attempts=1),
                timeout_s=120.0,
            )
        )
        return self.clients[-1]

    def raw(self, data: bytes, token: str = "", **options: Any) -> grpc.StatusCode:
        """Returns the status of a bulk registration of some bytes."""
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        unbounded = (("grpc.max_send_message_length", -1),)
        with grpc.insecure_channel(
            self.cluster.router_address, options=unbounded, **options
        ) as channel:
            call = channel.stream_stream(BULK)(iter((data,)), metadata=metadata, timeout=120.0)
            with pytest.raises(grpc.RpcError):
                list(call)
            code = call.code()
            assert isinstance(code, grpc.StatusCode)
            return code


@pytest.fixture
def attacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Attacked]:
    lines, secrets = [], {}
    for tenant in ("acme", "mallory"):
        file = tmp_path / tenant
        scopes = (f"--scope={scope}" for scope in ("publish", "query", "search"))
        assert main(["token", str(file), "--tenant", tenant, *scopes]) == 0
        lines.append(capsys.readouterr().out)
        secrets[tenant] = file.read_text().strip()
    lines.append('{"tenant": "mallory", "query_bytes": 60000}\n')
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(lines))
    security = secured(SecuritySettings(None, str(tokens)))
    with EmbeddedCluster(SETTINGS, security=security) as cluster:
        running = Attacked(cluster, secrets)
        yield running
        for client in running.clients:
            client.close()


def peak_bytes(action: Callable[[], object]) -> int:
    """Returns by how much the process's memory grew at most during an action."""

    def held(name: str) -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
        raise AssertionError(name)

    Path("/proc/self/clear_refs").write_text("5")
    before = held("VmRSS")
    action()
    return held("VmHWM") - before


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("who", ["", "mallory"])
def test_two_bytes_a_query_do_not_become_a_gigabyte(
    who: str, compression: grpc.Compression, attacked: Attacked
) -> None:
    """Tests four million empty queries in 8 MiB, or in eight kilobytes of gzip."""
    explosion = b"\x0a\x00" * (4 * MIB - 8)
    token = attacked.tokens.get(who, "")
    attacked.raw(explosion[:1_000], token and "unknown")
    seen: list[grpc.StatusCode] = []
    grown = peak_bytes(
        lambda: seen.extend(
            attacked.raw(explosion, token, compression=compression) for _ in range(3)
        )
    )
    expected = grpc.StatusCode.INVALID_ARGUMENT if who else grpc.StatusCode.UNAUTHENTICATED
    assert seen == [expected] * 3
    # The client's copies of the message are in this process, too.
    assert grown < 12 * len(explosion)


def test_others_continue_while_entangled_expressions_are_read(attacked: Attacked) -> None:
    """Tests one message of a hundred such, and eight clients that search by them."""
    acme, mallory = attacked.client("acme"), attacked.client("mallory")
    query = RangeQuery(id="q", subscriber="s", text="fire")
    acme.register(query)
    over = threading.Event()
    refused: list[SiroccoError | None] = []

    def search() -> None:
        client = attacked.client("mallory")
        asked = RangeQuery(id="s", subscriber="", text=ENTANGLED, mode="snapshot")
        while not over.is_set():
            with pytest.raises((InvalidArgument, ResourceExhausted)):
                client.search(asked)

    def register() -> None:
        rows = [
            RangeQuery(id=f"m{i}", subscriber="s", text=ENTANGLED.replace("w", f"v{i}"))
            for i in range(100)
        ]
        refused.extend(each.error for each in mallory.register_many(rows))

    searching = [threading.Thread(target=search) for _ in range(8)]
    registering = threading.Thread(target=register)
    done = 0
    with acme.publisher(PublishFlow(linger_ms=0)) as publisher:
        for each in (*searching, registering):
            each.start()
        while registering.is_alive():
            publisher.publish({"id": 1, "lon": 1.0, "lat": 1.0, "text": "fire"})
            publisher.flush()
            acme.register(query)
            done += 1
        over.set()
    for each in searching:
        each.join()
    # The hundred are interleaved with others' requests: no request waits for all of them.
    assert done >= 20
    assert {type(error) for error in refused} == {InvalidArgument}
    assert {error.field for error in refused if error} == {"text"}


def test_queries_count_by_what_they_take(attacked: Attacked) -> None:
    mallory = attacked.client("mallory")
    rows = [
        RangeQuery(id=f"m{i}", subscriber="s", text=HARD.replace("w", f"v{i}")) for i in range(40)
    ]
    errors = [each.error for each in mallory.register_many(rows)]
    assert errors[0] is None
    assert isinstance(errors[-1], ResourceExhausted)
    assert "query_bytes" in errors[-1].message
    # A small query finds room again where a large one was.
    mallory.unregister("m0")
    small = RangeQuery(id="small", subscriber="s", text="fire")
    attempts = 0
    while True:
        try:
            mallory.register(small)
            break
        except ResourceExhausted:
            attempts += 1
            assert attempts < 10_000
    common = " ".join(f"c{i}" for i in range(500))
    alternatives = " ".join(f"a{i}" for i in range(256))
    with pytest.raises(InvalidArgument) as caught:
        mallory.register(
            RangeQuery(id="vast", subscriber="s", text=f"{common} ANY({alternatives})")
        )
    assert caught.value.field == "text"


def test_one_bad_row_costs_no_other(attacked: Attacked) -> None:
    acme = attacked.client("acme")
    rings = query_pb2.Query(id="rings", subscriber="s", mode=query_pb2.QUERY_MODE_CONTINUOUS)
    for _ in range(70_000):
        rings.range.region.polygon.rings.add()
    good = query_pb2.Query(id="good", subscriber="s", mode=query_pb2.QUERY_MODE_CONTINUOUS)
    good.range.text = "fire"
    request = pb.RegisterQueriesRequest(queries=[rings, good])
    with grpc.insecure_channel(attacked.cluster.router_address) as channel:
        call = channel.stream_stream(
            BULK, pb.RegisterQueriesRequest.SerializeToString, pb.RegisterQueriesResponse.FromString
        )
        metadata = (("authorization", f"Bearer {attacked.tokens['acme']}"),)
        (answer,) = call(iter((request,)), metadata=metadata, timeout=120.0)
    assert [each.error.code for each in answer.results] == ["INVALID_ARGUMENT", ""]
    registered = acme.get("good").query
    assert isinstance(registered, RangeQuery)
    assert registered.text == "fire"


def test_noise_is_refused_in_words(attacked: Attacked) -> None:
    seed = drawn_seed()
    source = random.Random(seed)
    for _ in range(40):
        data = source.randbytes(source.choice((1, 7, 300, 5_000)))
        code = attacked.raw(b"\x0a\xff" + data, attacked.tokens["mallory"])
        assert code is grpc.StatusCode.INVALID_ARGUMENT, f"seed {seed}"
