"""`GET /v1/live` before a whole cluster in this process: what a console is sent."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings
from tests.support.waiting import eventually

SETTINGS = ClusterSettings(cluster="live", slots=4, leaves=8)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with EmbeddedCluster(SETTINGS) as cluster:
        one = Gateway(GatewaySettings(routers=cluster.router_address))
        one.start()
        yield one
        one.stop()


class Watching:
    """The last event of each type, and all sampled objects."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.objects: list[list[Any]] = []

    def read(self, address: str, stopping: threading.Event) -> None:
        with httpx.stream("GET", f"http://{address}/v1/live", timeout=120.0) as answer:
            answer.raise_for_status()
            assert answer.headers["content-type"].startswith("text/event-stream")
            name = ""
            for line in answer.iter_lines():
                if stopping.is_set():
                    return
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    self.last[name] = json.loads(line[6:])
                    if name == "objects":
                        self.objects += self.last[name]["objects"]


@contextmanager
def watching(address: str) -> Iterator[Watching]:
    one, stopping = Watching(), threading.Event()
    thread = threading.Thread(target=one.read, args=(address, stopping))
    thread.start()
    try:
        yield one
    finally:
        stopping.set()
        thread.join()


def test_the_map_the_members_and_objects_are_sent(gateway: Gateway) -> None:
    text = "<b>bold</b> " * 100
    with (
        watching(gateway.address) as one,
        httpx.Client(base_url=f"http://{gateway.address}", timeout=120.0) as http,
    ):
        eventually(lambda: {"map", "state", "objects"} <= one.last.keys())
        assert one.last["map"]["version"] == 1
        assert len(one.last["map"]["leaves"]) == one.last["map"]["leaf_count"] >= 8
        assert set(one.last["map"]["owners"]) == {"0", "1", "2", "3"}
        services = {member["service"] for member in one.last["state"]["members"]}
        assert services == {"router", "evaluator", "merger", "coordinator"}
        # Nothing arrives, so it looks back as far as it can.
        eventually(lambda: one.last["objects"]["window_ms"] == 2_000)
        numbers = itertools.count()

        def several_are_shown() -> bool:
            body = [{"id": next(numbers), "lon": 2.5, "lat": 48.5, "text": text}]
            assert http.post("/v1/objects", json=body).status_code == 200
            time.sleep(0.2)
            return len(one.objects) >= 5

        eventually(several_are_shown)
        shown = one.objects[:]
        assert len({object_id for object_id, *_ in shown}) == len(shown)
        _, lon, lat, _, cut = shown[0]
        assert (lon, lat, cut) == (2.5, 48.5, text[:140])
        eventually(lambda: one.last["state"]["problems"] == {})


def test_many_consoles_cost_the_cluster_as_much_as_one(gateway: Gateway) -> None:
    stopping = threading.Event()
    several = [Watching() for _ in range(20)]
    threads = [
        threading.Thread(target=one.read, args=(gateway.address, stopping)) for one in several
    ]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: all("objects" in one.last for one in several))
        # One look after another is made for all of them together.
        eventually(lambda: len({one.last["objects"]["at"] for one in several}) == 1)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def test_what_a_console_loads_is_served_and_comes_from_nowhere_else(gateway: Gateway) -> None:
    with httpx.Client(base_url=f"http://{gateway.address}", timeout=120.0) as http:
        page = http.get("/")
        assert page.status_code == 200
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["content-encoding"] == "gzip"
        named = [part.split('"')[0] for part in page.text.split('="')[1:] if part[:1] == "/"]
        files = [path for path in named if path.startswith("/console/")]
        assert len(files) >= 3
        for path in files:
            answer = http.get(path, headers={"accept-encoding": "identity"})
            assert answer.status_code == 200, path
            assert "content-encoding" not in answer.headers
        assert "immutable" in http.get(files[-1]).headers["cache-control"]
        assert http.get("/console/../app.py").status_code == 404
        assert http.get("/console/nothing.js").status_code == 404
