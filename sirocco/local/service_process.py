"""One process of a service on this machine, and what a local cluster consists of."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sirocco.local.process import LocalError, LocalProcess, is_free
from sirocco.local.usage import Usage, usage_of

# In the order of their start; they stop in the reverse order, so that what is on its way still
# finds its receiver.
SERVICES = ("coordinator", "merger", "evaluator", "router")

# A client of the cluster: it starts when the addresses of routers are known, and there may be none.
GATEWAY = "gateway"
ALL_SERVICES = (*SERVICES, GATEWAY)

# The compilation of all kernels by four processes at once on two cores, with nothing cached, takes
# minutes, and on a busy machine three times as many.
_START_S = 600.0
_POLL_S = 0.05
# Restarts of one process follow each other at this distance, so that one that cannot start does
# not take a core.
_RESTART_S = 1.0

# A killed process counts as ended before all of its threads have: its port is free a little later.
_CLOSING_S = 1.0

HOST = "127.0.0.1"
"""Where all processes listen that have no place of their own."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs, if not simply here.

    Attributes:
        enter: Command that goes before that of the process.
        host: Address that others reach it at.
    """

    enter: tuple[str, ...]
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterSettings:
    """What a cluster on this machine consists of.

    Attributes:
        cluster: Name, the prefix of topics and keys.
        kafka: HOST:PORT of the broker.
        redis: URL of Redis.
        archive: Directory or URI of the archive.
        counts: Number of processes of each service.
        options: Further environment of all services, such as `SIROCCO_SLOTS`.
        places: Name of a process → where it runs; not known to other commands.
        gateway_port: Of the first gateway at its first start; 0: a free one.
    """

    cluster: str
    kafka: str
    redis: str
    archive: str
    counts: Mapping[str, int]
    options: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    gateway_port: int = 0

    def environment(self) -> dict[str, str]:
        """Returns what every service finds in its environment."""
        return {
            "SIROCCO_CLUSTER": self.cluster,
            "SIROCCO_KAFKA": self.kafka,
            # Between processes of one machine bytes are cheaper than their compression.
            "SIROCCO_KAFKA_COMPRESSION": "none",
            "SIROCCO_REDIS": self.redis,
            "SIROCCO_ARCHIVE": self.archive,
            "SIROCCO_HOST": HOST,
            **self.options,
        }


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a process listens, HOST:PORT."""

    grpc: str
    http: str


class ServiceProcess:
    """One process of a service, which keeps its ports over restarts.

    Args:
        service: One of `ALL_SERVICES`.
        number: From 0 among those of the service.
        directory: Of its files.
        settings: Of the cluster.
        outlive: See `LocalProcess`.
        addresses: Where it listened before.
        routers: Returns the addresses of routers, for a gateway.
    """

    def __init__(
        self,
        service: str,
        number: int,
        directory: Path,
        settings: LocalClusterSettings,
        *,
        outlive: bool,
        addresses: Addresses | None = None,
        routers: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._routers = routers
        self.service = service
        self.name = f"{service}-{number}"
        self.addresses = addresses
        self._settings = settings
        self.process = LocalProcess(self.name, directory, f"services.{service}", outlive=outlive)
        self._log_start = 0
        self._started_s = 0.0

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process.pid is not None

    def launch(self) -> None:
        """Starts the process without waiting for it, unless it runs."""
        if self.running:
            return
        log = self.process.log_path
        self._log_start = log.stat().st_size if log.exists() else 0
        self._started_s = time.monotonic()
        place = self._settings.places.get(self.name)
        host = HOST if place is None else place.host
        variables = self._settings.environment() | self._ports(host)
        variables |= {"SIROCCO_HOST": host, "SIROCCO_NAME": self.name}
        command = [sys.executable, "-m", f"sirocco.services.{self.service}"]
        enter = () if place is None else place.enter
        self.process.start([*enter, *command], ready=lambda: True, environment=variables)

    def await_ready(self, timeout_s: float = _START_S) -> None:
        """Waits until the launched process says that it is ready.

        Raises:
            LocalError: It ended, or was not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if not self.running:
                raise LocalError(f"{self.name} ended at its start:\n{self.process.log_tail()}")
            if time.monotonic() > deadline:
                tail = self.process.log_tail()
                raise LocalError(f"{self.name} is not ready after {timeout_s:.0f} s:\n{tail}")
            time.sleep(_POLL_S)

    def ready(self) -> bool:
        """Asks the process whether it is ready."""
        listening = self._listening()
        if listening is None:
            return False
        self.addresses = listening
        try:
            with urllib.request.urlopen(f"http://{listening.http}/readyz", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def usage(self) -> Usage:
        """Returns what the process has used so far; nothing when it does not run."""
        pid = self.process.pid
        return Usage(0.0, 0) if pid is None else usage_of(pid)

    def mend(self) -> bool:
        """Starts the process again if it has ended; returns whether it did."""
        if self.running or time.monotonic() - self._started_s < _RESTART_S:
            return False
        self.launch()
        return True

    def _ports(self, host: str) -> dict[str, str]:
        """Free ports at the first start, the same ones later: clients know the address."""
        known = self.addresses
        if self.service == GATEWAY:
            wished = self._settings.gateway_port if self.name == f"{GATEWAY}-0" else 0
            return {
                "SIROCCO_ROUTER": ",".join(self._routers()),
                "SIROCCO_HTTP_PORT": "0",
                "SIROCCO_GATEWAY_PORT": str(wished)
                if known is None
                else self._port_of(host, known.http),
            }
        return {
            "SIROCCO_GRPC_PORT": "0" if known is None else self._port_of(host, known.grpc),
            "SIROCCO_HTTP_PORT": "0" if known is None else self._port_of(host, known.http),
        }

    def _port_of(self, host: str, address: str) -> str:
        """The port of an address; any, where somebody else has it by now."""
        port = address.rpartition(":")[2]
        # In a place of its own, only the process itself knows.
        is_here = self.name not in self._settings.places
        return "0" if is_here and not _becomes_free(host, int(port)) else port

    def _listening(self) -> Addresses | None:
        """The addresses that the process has logged since its start."""
        try:
            with self.process.log_path.open("rb") as log:
                log.seek(self._log_start)
                lines = log.read().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            if b'"listening"' in line and (found := _addresses_in(line)) is not None:
                return found
        return None


def _becomes_free(host: str, port: int) -> bool:
    """Whether a port is free, or is so in a moment: a killed process still closes its files."""
    end_s = time.monotonic() + _CLOSING_S
    while not (is_there := is_free(host, port)) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
    return is_there


def _addresses_in(line: bytes) -> Addresses | None:
    try:
        members = json.loads(line)
    except ValueError:
        return None
    if not isinstance(members, dict) or members.get("event") != "listening":
        return None
    return Addresses(grpc=str(members.get("grpc", "")), http=str(members.get("http", "")))
