"""A real Redis on this machine: the `redis-server` of the system, without persistence."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from sirocco.local.process import LocalError, LocalProcess, free_port

# - Nothing is written to disk: what Redis holds is a view that the cluster writes anew.
# - `noeviction`: a full store must say so; dropping leases would look like deaths.
# - The command line stays as it was started, see `LocalProcess`.
# - No `dir`: it runs in its directory, whose name may hold what the file cannot say.
# - Without protected mode, or only the loopback address could speak to it where it listens on
#   another one; it listens on that address alone.
_CONFIGURATION = """\
bind {host}
protected-mode no
port {port}
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
set-proc-title no
"""


def redis_program() -> str:
    """The path of `redis-server`; installed by apt-get where that is possible.

    Raises:
        LocalError: it is missing and cannot be installed.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return found
    hint = "redis-server is missing: install it (Debian, Ubuntu: apt-get install redis-server)"
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise LocalError(hint)
    # policy-rc.d would be needed to keep the package from starting a service of its own where
    # an init system runs; `RUNLEVEL=1` does the same for invoke-rc.d.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    output = ""
    for command in (["update"], ["install", "-y", "--no-install-recommends", "redis-server"]):
        done = subprocess.run(
            [apt, "-q", *command], capture_output=True, text=True, check=False, env=environment
        )
        output = done.stdout[-2000:] + done.stderr[-2000:]
    found = shutil.which("redis-server")
    if found is None:
        raise LocalError(f"{hint}\n{output}")
    return found


class RedisServer:
    """A Redis with its log (`redis.log`) and process file (`redis.pid`) in a directory.

    Args:
        directory: made if missing.
        outlive: see `LocalProcess`.
        host: address of this machine that it listens on, from its first start on.
    """

    def __init__(self, directory: Path, *, outlive: bool = False, host: str = "127.0.0.1") -> None:
        self._directory = directory.resolve()
        self._host = host
        self._config = self._directory / "redis.conf"
        self.process = LocalProcess("redis", self._directory, str(self._config), outlive=outlive)

    @property
    def url(self) -> str:
        """redis://HOST:PORT/0; fixed from the first start on, also over restarts."""
        return f"redis://{self._written('bind')}:{self._port()}/0"

    def start(self) -> None:
        """Starts the server and waits until it answers.

        Raises:
            LocalError: there is no `redis-server`, or it does not come up.
        """
        program = redis_program()
        if not self._config.exists():
            self._config.write_text(_CONFIGURATION.format(host=self._host, port=free_port()))
        self.process.start(
            [program, str(self._config)],
            ready=self._answers,
            directory=self._directory,
        )

    def stop(self) -> None:
        """Ends the server in order; everything in it is gone."""
        self.process.stop()

    def kill(self) -> None:
        """Ends the server as a crash would."""
        self.process.kill()

    def restart(self) -> None:
        """Stops and starts it, empty, on the same port."""
        self.stop()
        self.start()

    def _port(self) -> int:
        return int(self._written("port"))

    def _written(self, name: str) -> str:
        for line in self._config.read_text().splitlines():
            if line.startswith(f"{name} "):
                return line.split()[1]
        raise LocalError(f"{self._config} is damaged")

    def _answers(self) -> bool:
        try:
            address = (self._written("bind"), self._port())
            with socket.create_connection(address, timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
