"""A gateway as a process before real services: killed under load, its streams resume elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from sirocco_client import Client

from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.support.http_streams import EventSource
from tests.support.waiting import eventually

KILLS = 4
BURSTS = 60
BURST_OBJECTS = 20


@pytest.fixture(scope="module")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    directory = Path(tmp_path_factory.mktemp("gateway"))
    settings = LocalClusterSettings(
        cluster="gateway",
        kafka=kafka_server.address,
        redis=redis_server.url,
        archive=str(directory / "archive"),
        counts={"router": 1, "evaluator": 1, "merger": 1, "coordinator": 1, "gateway": 1},
        options={"SIROCCO_SLOTS": "8"},
    )
    with LocalCluster(directory, settings) as running:
        yield running


class Browser:
    """A page that listens: it reconnects by itself, at the id of its last event."""

    def __init__(self, base: str, subscriber: str) -> None:
        self.source = EventSource(base, subscriber)
        self.breaks = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            with suppress(httpx.HTTPError):
                self.source.read(1 << 30, timeout_s=5.0)
            self.breaks += 1
            # Browsers wait for as long as `retry:` says.
            self._ending.wait(0.2)

    def stop(self) -> None:
        self._ending.set()


def test_killed_gateways_lose_and_double_nothing(cluster: LocalCluster) -> None:
    (address,) = cluster.gateway_addresses
    base = f"http://{address}"
    queries = {"all": "killword", "half": "killword AND even"}
    for name, text in queries.items():
        answer = httpx.put(
            f"{base}/v1/queries/{name}",
            params={"subscriber": "kim"},
            json={"kind": "range", "text": text},
            timeout=120.0,
        )
        assert answer.status_code == 201, answer.text
    browsers = [Browser(base, "kim") for _ in range(3)]
    for browser in browsers:
        assert browser.source.opened.wait(120.0)
    published = 0
    with Client(",".join(cluster.router_addresses)) as client, client.publisher() as publisher:
        for burst in range(BURSTS):
            for _ in range(BURST_OBJECTS):
                text = "killword even" if published % 2 == 0 else "killword odd"
                publisher.publish({"id": published, "lon": 1, "lat": 2, "text": text})
                published += 1
            if burst % (BURSTS // KILLS) == 5:
                cluster.kill("gateway-0")
                assert _restarted(cluster)
            time.sleep(0.05)
        publisher.flush()
    wanted = Counter({("all", str(i)): 1 for i in range(published)})
    wanted.update({("half", str(i)): 1 for i in range(0, published, 2)})
    for browser in browsers:
        eventually(lambda found=browser.source: len(found.received) >= wanted.total())  # type: ignore[misc]
        browser.stop()
        received = Counter((one["query"], one["object"]["id"]) for one in browser.source.received)
        assert received - wanted == Counter(), "doubled"
        assert wanted - received == Counter(), "lost"
        assert browser.breaks >= KILLS
    # It has kept its address.
    assert cluster.gateway_addresses == (address,)


def test_an_ordered_end_is_clean(cluster: LocalCluster) -> None:
    command = [sys.executable, "-m", "sirocco.services.gateway"]
    environment = os.environ | {"SIROCCO_ROUTER": cluster.router_addresses[0]}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as one:
        assert one.stderr is not None
        address = json.loads(one.stderr.readline())["http"]
        source = EventSource(f"http://{address}", "kim")
        thread = threading.Thread(target=source.read, args=(1,), daemon=True)
        thread.start()
        assert source.opened.wait(120.0)
        one.terminate()
        assert one.wait(120.0) == 0
        thread.join(120.0)
        assert b'"stopped"' in one.stderr.read()


def _restarted(cluster: LocalCluster) -> bool:
    gateway = next(one for one in cluster.processes if one.service == "gateway")
    eventually(gateway.mend)
    gateway.await_ready()
    return True
