"""A connector is a client: it starts without the engine and its compiler."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
import sirocco.services.connector.process
print(*(name for name in sys.modules if name.startswith(("sirocco.", "numba", "llvmlite"))))
"""

ENGINE = ("codec", "index", "kernels", "protocol", "schemes", "runtime.grpc", "runtime.loop")


def test_a_connector_starts_without_the_engine() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, check=True)
    modules = set(done.stdout.decode().split())
    assert "sirocco.services.connector.sinks.webhook" in modules
    assert modules.isdisjoint({"numba", "llvmlite", *(f"sirocco.{name}" for name in ENGINE)})
