"""All services as processes on this machine, against a real Kafka and Redis.

Process and log files are `<directory>/<service>-<n>.pid` and `.log`; what the cluster consists of
is in `<directory>/cluster.json`, so that another command can scale, mend or stop it.
"""

from __future__ import annotations

import fcntl
import json
import shlex
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sirocco.local.invocation import program
from sirocco.local.process import LocalError, LocalProcess, WrongUseError, is_free
from sirocco.local.usage import Usage, usage_of

# In the order of their start; they stop in the reverse order, so that what is on its way still
# finds its receiver.
SERVICES = ("coordinator", "merger", "evaluator", "router")

# A client of the cluster: it starts when the addresses of routers are known, and there may be none.
GATEWAY = "gateway"
ALL_SERVICES = (*SERVICES, GATEWAY)

# The compilation of all kernels by four processes at once on two cores, with nothing cached.
_START_S = 180.0
# A drain hands over slots and waits for their output; pods get as long.
_DRAIN_S = 30.0
_POLL_S = 0.05
# Restarts of one process follow each other at this distance, so that one that cannot start does
# not take a core.
_RESTART_S = 1.0

# A killed process counts as ended before all of its threads have: its port is free a little later.
_CLOSING_S = 1.0

HOST = "127.0.0.1"
"""Where all processes listen that have no place of their own."""

STATE = "cluster.json"
"""Name of the file that tells what a local cluster consists of."""

LAST = "cluster.last.json"
"""Name of the file that tells what it consisted of when it was stopped."""

# Held by the command that starts or stops processes of a directory.
_LOCK = "cluster.lock"


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
        """Starts the process again if it has ended; tells whether it did."""
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
        # In a place of its own, only the process itself can tell.
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


class LocalCluster:
    """The services of a cluster as processes of this machine.

    Args:
        directory: Of their files; made if missing.
        settings: What to start; `start` keeps what runs already.
        outlive: Leave the processes running when this one ends.
    """

    def __init__(
        self, directory: Path, settings: LocalClusterSettings, *, outlive: bool = False
    ) -> None:
        self.directory = directory.resolve()
        self.settings = settings
        self._outlive = outlive
        self._processes: dict[str, ServiceProcess] = {}
        self._guard: threading.Thread | None = None
        self._mending = threading.Lock()
        self._stopping = threading.Event()
        self._stopped = threading.Event()

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Returns the cluster that another command started.

        Raises:
            LocalError: There is none.
        """
        try:
            text = (directory / STATE).read_bytes()
        except FileNotFoundError:
            raise LocalError(f"no cluster in {directory}: {_hint(directory)}") from None
        try:
            settings, addresses = _parsed(text)
        except _DAMAGED:
            raise LocalError(
                f"{directory / STATE} is damaged: stop what runs by `{_command(directory)} down`, "
                f"then {_hint(directory)}"
            ) from None
        cluster = cls(directory, settings, outlive=True)
        for name, known in addresses.items():
            service, _, number = name.rpartition("-")
            cluster._add(service, int(number), known)
        return cluster

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def processes(self) -> tuple[ServiceProcess, ...]:
        """All processes in the order of their start."""
        return tuple(self._processes.values())

    @property
    def router_addresses(self) -> tuple[str, ...]:
        """HOST:PORT of the gRPC of every router."""
        return self.addresses_of("router")

    def addresses_of(self, service: str) -> tuple[str, ...]:
        """HOST:PORT of the gRPC of every process of a service."""
        found = (one.addresses for one in self.processes if one.service == service)
        return tuple(each.grpc for each in found if each is not None)

    @property
    def gateway_addresses(self) -> tuple[str, ...]:
        """HOST:PORT of the HTTP API of every gateway."""
        found = (one.addresses for one in self.processes if one.service == GATEWAY)
        return tuple(each.http for each in found if each is not None)

    def start(self) -> None:
        """Starts what does not run, all at once, and waits until all are ready.

        Raises:
            LocalError: A process ended or was not ready in time; then all are stopped.
        """
        last = _addresses_of(_read(self.directory / LAST))
        for service in ALL_SERVICES:
            for number in range(self.settings.counts.get(service, 0)):
                self._add(service, number, last.get(f"{service}-{number}"))
        self._write_state()
        try:
            for services in (SERVICES, (GATEWAY,)):
                some = [one for one in self.processes if one.service in services]
                for one in some:
                    one.launch()
                for one in some:
                    one.await_ready()
        except BaseException:
            self.stop()
            raise
        self._write_state()

    def stop(self, *, remembers: bool = False) -> None:
        """Stops all in the reverse order of their start: SIGTERM, then SIGKILL if it does not end.

        Args:
            remembers: The next cluster in this directory gets the same settings and ports.
        """
        if remembers:
            self._write(LAST)
        with self._mending:
            self._stopping.set()
        for service in reversed(ALL_SERVICES):
            self._end([one for one in self.processes if one.service == service])
        self._processes.clear()
        # Only now: who reads it finds the routers until the last of them has ended.
        (self.directory / STATE).unlink(missing_ok=True)
        self._stopped.set()

    def scale(self, service: str, count: int) -> None:
        """Adds processes of a service, or drains those with the highest numbers.

        Raises:
            WrongUseError: No such service, or fewer than one.
            LocalError: A new one does not come up.
        """
        if service not in ALL_SERVICES:
            raise WrongUseError(f"no service {service!r}: there are {', '.join(ALL_SERVICES)}")
        if count < 1 and service != GATEWAY:
            raise WrongUseError(
                f"at least one {service} is needed; `{_command(self.directory)} down` stops all"
            )
        present = [one for one in self.processes if one.service == service]
        counts = {**self.settings.counts, service: count}
        self.settings = replace(self.settings, counts=counts)
        leaving = present[count:]
        for one in leaving:
            del self._processes[one.name]
        # A keeper starts what the state lists: it must not start again what is being removed,
        # nor start a second time what is being added.
        self._write_state()
        self._end(leaving)
        added = [self._add(service, number) for number in range(len(present), count)]
        try:
            for one in added:
                one.launch()
            for one in added:
                one.await_ready()
        except BaseException:
            self._end(added)
            raise
        self._write_state()

    def kill(self, name: str) -> None:
        """Ends one process as a crash would.

        Raises:
            WrongUseError: There is no process of that name.
            LocalError: It does not run.
        """
        there = f"there are {', '.join(self._processes)}"
        found = self._processes.get(name)
        if found is None:
            raise WrongUseError(f"no process {name!r}: {there}")
        if not found.running:
            raise LocalError(f"{name} does not run; {there}")
        found.process.kill()

    def mend(self) -> list[str]:
        """Starts again what has ended although nobody asked it to; returns the names."""
        return [one.name for one in self.processes if one.mend()]

    def guard(self) -> None:
        """Mends from now on until `stop`, in a thread."""
        self._guard = threading.Thread(target=self._mend_on, name="guard", daemon=True)
        self._guard.start()

    def _mend_on(self) -> None:
        while not self._stopping.wait(_POLL_S):
            with self._mending:
                if not self._stopping.is_set():
                    self.mend()
        # What this thread started would be killed at its end instead of stopped in order.
        self._stopped.wait()

    def _add(self, service: str, number: int, addresses: Addresses | None = None) -> ServiceProcess:
        one = ServiceProcess(
            service,
            number,
            self.directory,
            self.settings,
            outlive=self._outlive,
            addresses=addresses,
            routers=lambda: self.router_addresses,
        )
        return self._processes.setdefault(one.name, one)

    def _end(self, leaving: list[ServiceProcess]) -> None:
        """Stops processes side by side."""
        threads = [threading.Thread(target=one.process.stop, args=(_DRAIN_S,)) for one in leaving]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write_state(self) -> None:
        self._write(STATE)

    def _write(self, name: str) -> None:
        settings = self.settings
        state: dict[str, Any] = {
            "settings": {
                "cluster": settings.cluster,
                "kafka": settings.kafka,
                "redis": settings.redis,
                "archive": settings.archive,
                "counts": dict(settings.counts),
                "options": dict(settings.options),
            },
            "addresses": {
                one.name: one.addresses and {"grpc": one.addresses.grpc, "http": one.addresses.http}
                for one in self.processes
            },
        }
        written = self.directory / f"{name}.new"
        written.write_text(json.dumps(state, indent=1))
        written.rename(self.directory / name)


def _becomes_free(host: str, port: int) -> bool:
    """Whether a port is free, or is so in a moment: a killed process still closes its files."""
    end_s = time.monotonic() + _CLOSING_S
    while not (is_there := is_free(host, port)) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
    return is_there


def stop_leftovers(directory: Path) -> list[str]:
    """Stops services of a directory whose state is gone, by their process files; returns which."""
    stopped = []
    for service in reversed(ALL_SERVICES):
        for path in sorted(directory.glob(f"{service}-*.pid")):
            one = LocalProcess(path.stem, directory, f"services.{service}", outlive=True)
            if one.pid is not None:
                stopped.append(one.name)
            one.stop(_DRAIN_S)
    return stopped


@contextmanager
def alone(directory: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Keeps other commands from starting and stopping processes of a directory meanwhile.

    Two commands that start the same cluster at once would leave processes, and a keeper that
    starts them again, which no file names.

    Args:
        directory: of the cluster; made if missing.
        waits: called when another command is at work, which is waited for.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # The kernel releases the lock, however the process ends; its children do not inherit it.
    with (directory / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def last_settings(directory: Path) -> dict[str, Any]:
    """Returns the settings of the cluster of a directory when it was stopped; empty for none."""
    found: dict[str, Any] = _read(directory / LAST).get("settings", {})
    return found


def routers_of(directory: Path) -> tuple[str, ...]:
    """Returns where the routers of the cluster of a directory listen; empty: there is none."""
    found = _addresses_of(_read(directory / STATE)).items()
    return tuple(at.grpc for name, at in found if name.startswith("router-") and at is not None)


# What comes of reading something that is no state.
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError)


def _read(path: Path) -> dict[str, Any]:
    """A state that was written; empty where there is none that can be read."""
    try:
        text = path.read_bytes()
        _parsed(text)
    except (OSError, *_DAMAGED):
        return {}
    found: dict[str, Any] = json.loads(text)
    return found


def _parsed(
    text: bytes,
) -> tuple[LocalClusterSettings, dict[str, Addresses | None]]:
    """A state as it was written; what is raised for any other one is one of many errors."""
    state = json.loads(text)
    settings = LocalClusterSettings(**state["settings"])
    texts = (settings.cluster, settings.kafka, settings.redis, settings.archive)
    if not all(isinstance(each, str) for each in (*texts, *settings.options.values())):
        raise TypeError
    # States of before there were gateways name none.
    counts = [*(settings.counts[each] for each in SERVICES), settings.counts.get(GATEWAY, 0)]
    addresses = _addresses_of(state)
    known = [each for each in addresses.values() if each is not None]
    if not all(isinstance(count, int) for count in counts):
        raise TypeError
    if not all(isinstance(part, str) for each in known for part in (each.grpc, each.http)):
        raise TypeError
    if not all(name.rpartition("-")[2].isdecimal() for name in addresses):
        raise ValueError
    return settings, addresses


def _addresses_of(state: dict[str, Any]) -> dict[str, Addresses | None]:
    known = state.get("addresses", {}).items()
    return {name: Addresses(**each) if each else None for name, each in known}


def _hint(directory: Path) -> str:
    # In another directory than the usual one the command has to name it.
    return f"start one with `{_command(directory)} up`"


def _command(directory: Path) -> str:
    usual = directory.resolve() == Path(".run").resolve()
    where = "" if usual else f" --directory {shlex.quote(str(directory))}"
    return f"{program()} local{where}"


def _addresses_in(line: bytes) -> Addresses | None:
    try:
        members = json.loads(line)
    except ValueError:
        return None
    if not isinstance(members, dict) or members.get("event") != "listening":
        return None
    return Addresses(grpc=str(members.get("grpc", "")), http=str(members.get("http", "")))
