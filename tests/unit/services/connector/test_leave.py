"""A process whose threads hang in a look-up of a name ends in time."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.fake_cluster import FakeCluster
from tests.support.running_sinks import SECRET, deliver

# Names of receivers do not resolve, and the look-up does not return either.
_PROCESS = """
    import socket, sys, time

    resolve = socket.getaddrinfo

    def hang(host, *rest, **named):
        if "receiver" in str(host):
            print("hangs", flush=True)
            time.sleep(60)
        return resolve(host, *rest, **named)

    socket.getaddrinfo = hang
    from sirocco.services.connector import process
    process.STOP_S = 2.0
    sys.exit(process.run(sys.argv[1]))
"""

_CONFIG = """
    router: "{router}"
    sinks:
      alerts:
        kind: webhook
        subscriber: s1
        url: https://receiver.example/hook
        secret: {secret}
        state: {state}
        start: earliest
        batch: {{count: 10, wait: 0s}}
"""


def test_a_name_that_does_not_resolve_does_not_delay_the_end(tmp_path: Path) -> None:
    cluster = FakeCluster()
    config = tmp_path / "connect.yaml"
    text = _CONFIG.format(router=cluster.router, secret=SECRET, state=tmp_path / "state")
    config.write_text(textwrap.dedent(text))
    deliver(cluster, 7)
    command = [sys.executable, "-c", textwrap.dedent(_PROCESS), str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line == b"hangs\n", running.stderr and running.stderr.read()
            running.send_signal(signal.SIGTERM)
            # The look-up takes a minute.
            assert running.wait(45) == 0
        finally:
            running.kill()
            cluster.stop()
