"""Starts processes of a local cluster again that have ended without being asked to.

`python -m sirocco.local.keeper DIRECTORY` runs beside the services, as a node agent would.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from sirocco.local.cluster import STATE, LocalCluster
from sirocco.local.process import LocalError, LocalProcess

_POLL_S = 0.2


def keeper_process(directory: Path) -> LocalProcess:
    """Returns the keeper of a directory, running or not."""
    return LocalProcess("keeper", directory.resolve(), "sirocco.local.keeper", outlive=True)


def start_keeper(directory: Path) -> None:
    """Starts the keeper of a directory, unless it runs."""
    command = [sys.executable, "-m", "sirocco.local.keeper", str(directory.resolve())]
    keeper_process(directory).start(command, ready=lambda: True)


def keep(directory: Path, stopping: threading.Event) -> None:
    """Restarts ended processes until asked to stop; reads the state again when it changes."""
    seen_ns = -1
    cluster: LocalCluster | None = None
    while not stopping.wait(_POLL_S):
        try:
            changed_ns = (directory / STATE).stat().st_mtime_ns
            if changed_ns != seen_ns:
                cluster, seen_ns = LocalCluster.open(directory), changed_ns
        except (FileNotFoundError, LocalError):
            cluster, seen_ns = None, -1
        for name in cluster.mend() if cluster is not None else ():
            print(f"restarted {name}", flush=True)


def main() -> None:
    """Runs until SIGTERM."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    keep(Path(sys.argv[1]), stopping)


if __name__ == "__main__":
    main()
