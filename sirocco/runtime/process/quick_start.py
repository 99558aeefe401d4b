"""What is set before a process imports its modules: the garbage collector, and gRPC's own log."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

# gRPC's library reads it when it is loaded.
_GRPC_LOG = "GRPC_VERBOSITY"


def quiet_grpc() -> None:
    """Keeps gRPC's library from writing to stderr, unless the operator's environment names a level.

    It writes a line, not as JSON, for each connection that is no TLS, which anybody can open by the
    thousand a second. Failures of own calls name their reason in their errors.
    """
    os.environ.setdefault(_GRPC_LOG, "NONE")


@contextmanager
def uncollected() -> Iterator[None]:
    """Keeps the collector off while a process imports its modules.

    They live as long as the process, and they are most of what the collector would walk through:
    some 180,000 objects of an evaluator, several hundred times, which took a tenth of its start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
