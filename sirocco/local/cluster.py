"""All services as processes on this machine, against a real Kafka and Redis.

Process and log files are `<directory>/<service>-<n>.pid` and `.log`; what the cluster consists of
is in `<directory>/cluster.json`, so that another command can scale, mend or stop it.
"""

from __future__ import annotations

import fcntl
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

from sirocco.local.cluster_state import (
    DAMAGED,
    LAST,
    STATE,
    addresses_of,
    last_settings,
    parsed_state,
    read_state,
    routers_of,
    write_state,
)
from sirocco.local.invocation import program
from sirocco.local.process import LocalError, LocalProcess, WrongUseError, refuses
from sirocco.local.service_process import (
    ALL_SERVICES,
    GATEWAY,
    HOST,
    SERVICES,
    Addresses,
    LocalClusterSettings,
    Place,
    ServiceProcess,
)

__all__ = [
    "ALL_SERVICES",
    "GATEWAY",
    "HOST",
    "LAST",
    "SERVICES",
    "STATE",
    "Addresses",
    "LocalCluster",
    "LocalClusterSettings",
    "Place",
    "ServiceProcess",
    "alone",
    "last_settings",
    "routers_of",
    "stop_leftovers",
]

# A drain hands over slots and waits for their output; pods get as long.
_DRAIN_S = 30.0
_POLL_S = 0.05
# Held by the command that starts or stops processes of a directory.
_LOCK = "cluster.lock"


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
            settings, addresses = parsed_state(text)
        except DAMAGED:
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

    def start(self, on_ready: Callable[[str], None] | None = None) -> None:
        """Starts what does not run, all at once, and waits until all are ready.

        Args:
            on_ready: Called with the name of each process that was started here and is ready.

        Raises:
            LocalError: A process ended or was not ready in time; then all are stopped.
        """
        last = addresses_of(read_state(self.directory / LAST))
        for service in ALL_SERVICES:
            for number in range(self.settings.counts.get(service, 0)):
                self._add(service, number, last.get(f"{service}-{number}"))
        self._write_state()
        try:
            for services in (SERVICES, (GATEWAY,)):
                some = [one for one in self.processes if one.service in services]
                new = {one.name for one in some if not one.running}
                for one in some:
                    one.launch()
                for one in some:
                    one.await_ready()
                    if on_ready is not None and one.name in new:
                        on_ready(one.name)
        except BaseException:
            self.stop()
            raise
        self._write_state()

    def stop(self, *, remembers: bool = False, drain_s: float = _DRAIN_S) -> None:
        """Stops all in the reverse order of their start: SIGTERM, then SIGKILL if it does not end.

        Args:
            remembers: The next cluster in this directory gets the same settings and ports.
            drain_s: How long each may take to end in order.
        """
        if remembers:
            self._write(LAST)
        with self._mending:
            self._stopping.set()
        groups = [
            [one.process for one in self.processes if one.service == service]
            for service in reversed(ALL_SERVICES)
        ]
        _stop_in_order(groups, self.settings.kafka, drain_s)
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
        _stop_in_order([[one.process for one in leaving]], self.settings.kafka)

    def _write_state(self) -> None:
        self._write(STATE)

    def _write(self, name: str) -> None:
        addresses = {one.name: one.addresses for one in self.processes}
        write_state(self.directory / name, self.settings, addresses)


def stop_leftovers(
    directory: Path, kafka: str | None = None, *, drain_s: float = _DRAIN_S
) -> list[str]:
    """Stops services of a directory whose state is gone, by their process files; returns which.

    Args:
        directory: of the cluster.
        kafka: HOST:PORT of its broker, if that is known.
        drain_s: How long each may take to end in order.
    """
    groups = [
        [
            LocalProcess(path.stem, directory, f"services.{service}", outlive=True)
            for path in sorted(directory.glob(f"{service}-*.pid"))
        ]
        for service in reversed(ALL_SERVICES)
    ]
    stopped = [one.name for group in groups for one in group if one.pid is not None]
    _stop_in_order(groups, kafka, drain_s)
    return stopped


def _stop_in_order(
    groups: list[list[LocalProcess]], kafka: str | None, drain_s: float = _DRAIN_S
) -> None:
    """Stops processes, those of a group side by side.

    Without their broker they would wait for it to the end. What was acknowledged is in its log, and
    nothing is on its way any more: then all get a few seconds together.
    """

    def is_useless() -> bool:
        return kafka is not None and refuses(kafka)

    for group in [list(chain(*groups))] if is_useless() else groups:
        threads = [threading.Thread(target=one.stop, args=(drain_s, is_useless)) for one in group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


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


def _hint(directory: Path) -> str:
    # In another directory than the usual one the command has to name it.
    return f"start one with `{_command(directory)} up`"


def _command(directory: Path) -> str:
    usual = directory.resolve() == Path(".run").resolve()
    where = "" if usual else f" --directory {shlex.quote(str(directory))}"
    return f"{program()} local{where}"
