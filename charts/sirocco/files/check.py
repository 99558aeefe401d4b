"""What `helm test` does: registers a query, publishes an object, and waits for the match.

Where there is an HTTP gateway, it does the same through it. SIROCCO_CHECK_HTTP names its address.
Where there is a connector, all of its instances must be ready, and each of its sinks at work in one
of them. SIROCCO_CHECK_CONNECTOR names the host of all instances, and the port of their metrics.

    python check.py ROUTER [SECONDS]

It goes the way that clients go: to the router's service, and from there to a merger. With TLS
SIROCCO_CHECK_CA names the authority's file and SIROCCO_CHECK_NAME the name in certificates; with
tokens SIROCCO_CHECK_BEARER names the file of one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from sirocco_client import Circle, Client, RangeQuery, Tls

# A metric of each sink: 1 in the instance that works for it.
_ACTIVE = "sirocco_connector_sink_active"


def main(router: str, seconds: int) -> int:
    """Returns the exit status."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        sys.exit(
            f"no match within {seconds} s: ask `sirocco cluster --router {router}` who is there"
        )

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    # A word, a name and a subscriber of its own: two tests at once do not meet, nor meet others'.
    name = f"helm-test-{uuid.uuid4().hex}"
    region = Circle(lon=2.35, lat=48.85, radius_m=1_000)
    authority, bearer = os.environ.get("SIROCCO_CHECK_CA"), os.environ.get("SIROCCO_CHECK_BEARER")
    tls = None
    if authority:
        name_there = os.environ.get("SIROCCO_CHECK_NAME")
        tls = Tls(Path(authority).read_bytes(), server_name=name_there)
    token = Path(bearer).read_text().strip() if bearer else None
    with Client(router, tls=tls, token=token) as client:
        query = RangeQuery(id=name, subscriber=name, region=region, text=name, ttl="10m")
        client.register(query)
        print(f"registered at {router}")
        try:
            with client.subscribe(name) as notifications, client.publisher() as publisher:
                begun_s = time.monotonic()
                publisher.publish({"id": name, "lon": 2.351, "lat": 48.851, "text": f"a {name}"})
                publisher.flush()
                print(
                    f"published, acknowledged after {(time.monotonic() - begun_s) * 1_000:.0f} ms"
                )
                match = next(iter(notifications))
                taken_ms = (time.monotonic() - begun_s) * 1_000
        finally:
            client.unregister(name)
    if (match.query, match.object.id) != (name, name):
        print(f"a wrong match: {match.query}, {match.object.id}", file=sys.stderr)
        return 1
    print(f"matched after {taken_ms:.0f} ms")
    if address := os.environ.get("SIROCCO_CHECK_HTTP"):
        check_gateway(f"http://{address}/v1", f"{name}-http", token)
    signal.alarm(0)
    if address := os.environ.get("SIROCCO_CHECK_CONNECTOR"):
        check_connector(address, seconds)
    return 0


def check_gateway(url: str, name: str, token: str | None) -> None:
    """Does the same over HTTP: the match arrives as an event."""
    bearer = {"Authorization": f"Bearer {token}"} if token else {}

    def call(method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": "application/json", **bearer}
        data = None if body is None else json.dumps(body).encode()
        asked = Request(f"{url}/{path}", data, headers, method=method)
        return urlopen(asked, timeout=60)

    region = {"circle": {"lon": 2.35, "lat": 48.85, "radius_m": 1_000}}
    query = {"kind": "range", "region": region, "text": name, "ttl": "10m"}
    call("PUT", f"queries/{name}?subscriber={name}", query).close()
    try:
        with call("GET", f"subscribers/{name}/notifications") as events:
            # Two lines and a blank one say where the stream begins.
            while not events.readline().startswith(b"id: "):
                pass
            begun_s = time.monotonic()
            call(
                "POST", "objects", [{"id": name, "lon": 2.351, "lat": 48.851, "text": name}]
            ).close()
            while not (line := events.readline()).startswith(b"data: "):
                pass
    finally:
        call("DELETE", f"queries/{name}?subscriber={name}").close()
    if json.loads(line.removeprefix(b"data: "))["object"]["id"] != name:
        sys.exit(f"a wrong match over HTTP: {line.decode()}")
    print(f"matched over HTTP after {(time.monotonic() - begun_s) * 1_000:.0f} ms")


@dataclass(frozen=True)
class Instance:
    """One process of the connector.

    Attributes:
        address: host:port of its metrics.
        is_ready: whether it says so.
        metrics: what it measures. Each of its sources and sinks is there from the start.
    """

    address: str
    is_ready: bool
    metrics: tuple[Metric, ...]

    def names(self, metric: str, least: float = 0.0, **labels: str) -> set[str]:
        """Returns the sources or sinks for which a metric is at least a number."""
        return {
            sample.labels["name"]
            for family in self.metrics
            for sample in family.samples
            if sample.name == metric and sample.value >= least
            if labels.items() <= sample.labels.items()
        }


def check_connector(address: str, seconds: int) -> None:
    """Waits until the connector works; exits with what is missing if it does not in time."""
    until_s = time.monotonic() + seconds
    while True:
        try:
            instances = instances_of(address)
            missing = missing_of(instances)
        except OSError as error:
            missing = f"not all instances answer: {error}"
        if not missing:
            break
        if time.monotonic() > until_s:
            sys.exit(f"connector at {address}, after {seconds} s: {missing}; its log says why")
        time.sleep(0.5)
    sources = instances[0].names("sirocco_connector_records_total", side="source")
    sinks = instances[0].names(_ACTIVE)
    print(f"connector: ready are {', '.join(one.address for one in instances)}")
    print(f"connector: sources that are read: {', '.join(sorted(sources)) or 'none'}")
    print(f"connector: sinks at work: {', '.join(sorted(sinks)) or 'none'}")


def instances_of(address: str) -> list[Instance]:
    """Asks every instance; raises OSError if the name is unknown or one does not answer."""
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    hosts = sorted({str(each[4][0]) for each in found})
    return [instance_at(f"[{each}]:{port}" if ":" in each else f"{each}:{port}") for each in hosts]


def instance_at(address: str) -> Instance:
    """Asks one instance."""
    try:
        urlopen(f"http://{address}/readyz", timeout=10).close()
        is_ready = True
    except HTTPError as refused:
        refused.close()
        is_ready = False
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        text = page.read().decode()
    return Instance(address, is_ready, tuple(text_string_to_metric_families(text)))


def missing_of(instances: list[Instance]) -> str:
    """Returns what does not work, in words; empty if all does.

    A sink works in one instance, while the others stand by and are ready.
    """
    missing = [f"{one.address} is not ready" for one in instances if not one.is_ready]
    sinks = set[str]().union(*(one.names(_ACTIVE) for one in instances))
    active = set[str]().union(*(one.names(_ACTIVE, 1) for one in instances))
    return ", ".join(
        [*missing, *(f"no instance works for the sink {name}" for name in sorted(sinks - active))]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 90))
