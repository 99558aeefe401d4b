"""`something | sirocco publish`: output is published while the other program still runs."""

from __future__ import annotations

import json
import subprocess
import sys

from sirocco_client import Client, Notification, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster


def test_a_line_is_notified_while_the_pipe_stays_open() -> None:
    with (
        EmbeddedCluster(ClusterSettings(cluster="pipes", slots=2, leaves=2)) as cluster,
        Client(cluster.router_address) as client,
    ):
        query = {"id": "q", "kind": "range", "mode": "continuous"}
        client.register(query_from_json(query, "ann"))
        subscription = client.subscribe("ann")
        subscription.open()
        received = iter(subscription)
        # fmt: off
        command = [sys.executable, "-m", "sirocco.cli", "publish", "-", "--json",
                   "--router", cluster.router_address]
        # fmt: on
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as publishing:
            assert publishing.stdin is not None
            assert publishing.stdout is not None
            for number in range(1, 6):
                one = {"id": number, "lon": 1.0, "lat": 2.0}
                publishing.stdin.write(json.dumps(one).encode() + b"\n")
                publishing.stdin.flush()
                one_received = next(received)
                assert isinstance(one_received, Notification)
                assert one_received.object.id == number
            publishing.stdin.close()
            assert json.loads(publishing.stdout.read())["objects"] == 5
        assert publishing.returncode == 0
        subscription.close()


def test_a_reader_that_waits_is_interrupted_at_once() -> None:
    with (
        EmbeddedCluster(ClusterSettings(cluster="stopped", slots=2, leaves=2)) as cluster,
        Client(cluster.router_address) as client,
    ):
        query = {"id": "q", "kind": "range", "mode": "continuous"}
        client.register(query_from_json(query, "ann"))
        command = [sys.executable, "-m", "sirocco.cli", "publish", "-", "--router"]
        with subprocess.Popen(
            [*command, cluster.router_address], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        ) as publishing:
            assert publishing.stdin is not None
            assert publishing.stderr is not None
            publishing.stdin.write(b'{"id": 1, "lon": 1, "lat": 2}\n')
            publishing.stdin.flush()
            # Once it is published, the reader waits for the next line.
            with client.subscribe("ann") as subscription:
                assert isinstance(next(iter(subscription)), Notification)
            publishing.send_signal(2)
            publishing.wait(120.0)
            assert b"Fatal Python error" not in publishing.stderr.read()
