"""The HTTP gateway of a cluster on this machine: it knows the routers, and keeps its address."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.local.cluster import Addresses, LocalCluster, LocalClusterSettings
from sirocco.local.process import free_port, is_free
from tests.support.waiting import eventually
from tests.unit.local.test_cluster import SERVICE

GATEWAY = SERVICE.replace("SIROCCO_HTTP_PORT", "SIROCCO_GATEWAY_PORT").replace(
    'grpc = os.environ["SIROCCO_GRPC_PORT"]',
    'grpc = ""; print("routers", os.environ["SIROCCO_ROUTER"], file=sys.stderr)',
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    for service in ("router", "evaluator", "merger", "coordinator", "gateway"):
        package = tmp_path / "sirocco" / "services" / service
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        program = GATEWAY if service == "gateway" else SERVICE
        (package / "__main__.py").write_text(program)
    (tmp_path / "sirocco" / "__init__.py").touch()
    (tmp_path / "sirocco" / "services" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    settings = LocalClusterSettings(
        cluster="c1",
        kafka="k:1",
        redis="redis://r",
        archive="a",
        counts={"coordinator": 1, "merger": 1, "evaluator": 1, "router": 2, "gateway": 1},
        options={"SIROCCO_SLOTS": "8"},
        gateway_port=free_port(),
    )
    with LocalCluster(tmp_path / "run", settings) as one:
        yield one


def test_it_starts_last_with_the_routers_at_the_wanted_port(cluster: LocalCluster) -> None:
    assert cluster.processes[-1].name == "gateway-0"
    assert cluster.gateway_addresses == (f"127.0.0.1:{cluster.settings.gateway_port}",)
    log = (cluster.directory / "gateway-0.log").read_text()
    assert f"routers {','.join(cluster.router_addresses)}" in log
    assert len(cluster.router_addresses) == 2


def test_another_command_brings_it_back_at_its_address(cluster: LocalCluster) -> None:
    address = cluster.gateway_addresses
    other = LocalCluster.open(cluster.directory)
    assert other.gateway_addresses == address
    other.kill("gateway-0")
    one = other.processes[-1]
    eventually(lambda: bool(other.mend()))
    one.await_ready()
    assert other.gateway_addresses == address
    # It is not this fixture's child.
    one.process.stop()


def test_a_port_that_is_freed_a_moment_later_is_kept(cluster: LocalCluster) -> None:
    cluster.scale("gateway", 0)
    assert cluster.gateway_addresses == ()
    port = int(free_port())
    holder = socket.create_server(("127.0.0.1", port))
    assert not is_free("127.0.0.1", port)
    threading.Timer(0.2, holder.close).start()
    one = cluster._add("gateway", 0, None)
    one.addresses = Addresses("", f"127.0.0.1:{port}")
    assert one._ports("127.0.0.1")["SIROCCO_GATEWAY_PORT"] == str(port)
    del cluster._processes["gateway-0"]


def test_a_state_of_before_there_were_gateways_is_read(cluster: LocalCluster) -> None:
    path = cluster.directory / "cluster.json"
    state = json.loads(path.read_text())
    del state["settings"]["counts"]["gateway"]
    del state["addresses"]["gateway-0"]
    other = cluster.directory / "other"
    other.mkdir()
    (other / "cluster.json").write_text(json.dumps(state))
    assert LocalCluster.open(other).gateway_addresses == ()
    os.unlink(other / "cluster.json")
