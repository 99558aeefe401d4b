"""What `helm test` does: registers a query, publishes an object, and waits for the match.

Where there is an HTTP gateway, it does the same through it. SIROCCO_CHECK_HTTP names its address.

    python check.py ROUTER [SECONDS]

It goes the way that clients go: to the router's service, and from there to a merger. With TLS
SIROCCO_CHECK_CA names the authority's file and SIROCCO_CHECK_NAME the name in certificates; with
tokens SIROCCO_CHECK_BEARER names the file of one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

from sirocco_client import Circle, Client, RangeQuery, Tls


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 90))
