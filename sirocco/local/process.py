"""A server process on this machine: started, asked whether it is ready, stopped or killed.

The process identifier goes to a file, so that another command can stop what this one started.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_POLL_S = 0.02
_LOG_TAIL_BYTES = 3000

# How long a process may take to end that waits for something that is gone: what else it does at
# its end takes less.
_USELESS_S = 3.0

# Where less is left, a server cannot write.
_FREE_BYTES_MIN = 1 << 20


class LocalError(RuntimeError):
    """A part could not be installed, started or stopped; the message says what to do."""


class WrongUseError(LocalError):
    """Asked for what there is not, or not to be had; nothing was done."""


def is_free(host: str, port: int) -> bool:
    """Whether nobody listens on a port, so that a server can."""
    with socket.socket() as probe:
        # As servers do: connections that have just ended do not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def refuses(addresses: str) -> bool:
    """Whether nobody listens at any of some addresses, HOST:PORT with commas between them.

    False where that cannot be told from here.
    """
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        except ConnectionRefusedError:
            continue
        except (OSError, ValueError):
            return False
        return False
    return True


def free_port() -> int:
    """A TCP port on the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalProcess:
    """One server: `<directory>/<name>.pid` and `<directory>/<name>.log` are its files.

    Args:
        name: of the files.
        directory: where they are; made if missing.
        marker: a part of the command line by which a process is known as ours, so that a
            stale file never leads to the death of a stranger that got the same number.
        outlive: keep the process when this one ends; otherwise it dies with the thread that
            started it, also when that was killed.
    """

    def __init__(self, name: str, directory: Path, marker: str, *, outlive: bool) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self.pid_path = directory / f"{name}.pid"
        self._marker = marker.encode()
        self._outlive = outlive
        self._child: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int | None:
        """Of the running process, else None; also of one that another command started."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        try:
            pid = int(self.pid_path.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if self._marker in command else None

    def start(
        self,
        command: Sequence[str],
        ready: Callable[[], bool],
        timeout_s: float = 180.0,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """Starts the server, unless it runs, and waits until `ready` says so.

        Args:
            command: what is run. Anybody on the machine can read it: secrets do not belong there.
            ready: whether the server can be used.
            timeout_s: how long that may take.
            environment: added to this process's own, and takes precedence.
            directory: where it runs; this process's own if None.

        Raises:
            LocalError: it ended, or was not ready in time (then it is killed).
        """
        if self.pid is None:
            with self.log_path.open("ab") as log:
                self._child = subprocess.Popen(
                    [*self._leash(), *command],
                    env=os.environ | dict(environment or {}),
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # ^C in a terminal is for us to handle, in order. Not a session of its own:
                    # Linux may share processors between sessions first (autogroup), and a thread
                    # that steps back would do so for those of its own process alone.
                    process_group=0,
                )
            self.pid_path.write_text(f"{self._child.pid}\n")
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self.pid is None:
                raise LocalError(f"{self.name} ended at its start:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise LocalError(f"{self.name} not ready in {timeout_s} s:\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = 20.0, is_useless: Callable[[], bool] = lambda: False) -> None:
        """Asks the server to end (SIGTERM), waits, and kills it when the time is over.

        Args:
            timeout_s: how long it may take to end in order.
            is_useless: whether it cannot, since what it waits for is gone; then it gets little
                time.
        """
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while not self._wait(min(_USELESS_S, deadline - time.monotonic())):
            if is_useless() or time.monotonic() > deadline:
                self.kill()
                break
        self.pid_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """Ends the server at once (SIGKILL), as a crash would."""
        self._signal(signal.SIGKILL)
        self._wait(10.0)
        self.pid_path.unlink(missing_ok=True)

    def log_tail(self) -> str:
        """The end of the log, for messages; on a full disk it may lack the reason."""
        try:
            tail = self.log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        except OSError:
            tail = "(no log)"
        folder = self.log_path.parent
        if shutil.disk_usage(folder).free < _FREE_BYTES_MIN:
            tail = f"{tail.rstrip()}\nthe disk of {folder} is full".lstrip()
        return tail

    def _leash(self) -> list[str]:
        """Returns the words before the command with which the kernel ends it with its parent."""
        setpriv = shutil.which("setpriv")
        return [] if self._outlive or setpriv is None else [setpriv, "--pdeathsig", "KILL"]

    def _signal(self, number: int) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True
