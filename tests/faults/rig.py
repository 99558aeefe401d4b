"""The system under test: a broker, Redis, and a cluster with two processes of each service.

A guard restarts processes that end, as a node agent would. As root, each process has a network
namespace of its own and the archive is a small file system; otherwise faults that need these are
left out.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sirocco.local.cluster import SERVICES, LocalCluster, LocalClusterSettings, ServiceProcess
from sirocco.local.kafka import KafkaServer
from sirocco.local.process import LocalProcess
from sirocco.local.redis import RedisServer
from sirocco.runtime.process.log_reachability import CONNECTED_S, CONNECTED_S_MIN
from sirocco.runtime.process.membership import directory
from sirocco.transport.redis_map_store import RedisMapStore
from tests.faults import deadly
from tests.faults.wires import KAFKA, REDIS, Wires, mount_small, unmount

CLUSTER = "faults"

# Processes with this on their path end at a deadly object; see `deadly_object`.
DEADLY = Path(deadly.__file__).parent

# Size of the archive's file system: half a minute of overload on a fast machine is half a gigabyte.
ARCHIVE_BYTES = 2 << 30
PROCESSES_MAX = 4
READY_S = 600.0

# So small that a few seconds of large objects fill it: older ones are in the archive.
STORE_BYTES = 64 << 20


class Rig:
    """The servers and the cluster."""

    def __init__(self, directory: Path, wires: Wires | None, *, archive_is_small: bool) -> None:
        self.directory = directory
        self.wires = wires
        self.archive = directory / "archive"
        self.archive_is_small = archive_is_small
        cut = wires is not None
        self.kafka = KafkaServer(directory / "kafka", host=KAFKA if cut else "127.0.0.1")
        self.redis = RedisServer(directory / "redis", host=REDIS if cut else "127.0.0.1")
        try:
            self.kafka.start()
            self.redis.start()
        except BaseException:
            self.stop_servers()
            raise
        settings = LocalClusterSettings(
            cluster=CLUSTER,
            kafka=self.kafka.address,
            redis=self.redis.url,
            archive=str(self.archive),
            counts=dict.fromkeys(SERVICES, 2),
            options={
                "SIROCCO_SLOTS": "16",
                "SIROCCO_STORE_BYTES": str(STORE_BYTES),
                "PYTHONPATH": str(DEADLY),
            },
            places={} if wires is None else wires.places,
        )
        self.cluster = LocalCluster(directory / "cluster", settings)

    def stop_servers(self) -> None:
        """Ends the broker and Redis, if they run."""
        self.redis.stop()
        self.kafka.stop()

    def one(self, name: str) -> ServiceProcess:
        """Returns a process by its name."""
        return next(one for one in self.cluster.processes if one.name == name)

    def await_ready(self) -> None:
        """Waits until all processes run and are ready."""
        deadline_s = time.monotonic() + READY_S
        waiting = list(self.cluster.processes)
        while waiting := [one for one in waiting if not one.ready()]:
            if time.monotonic() > deadline_s:
                tails = "\n".join(one.process.log_tail() for one in waiting)
                raise TimeoutError(f"not ready: {[one.name for one in waiting]}\n{tails}")
            time.sleep(0.1)

    def await_word(self) -> None:
        """Waits until a process cut off from the log could notice it by the others' reports.

        A process's report counts once it has read the log for some time.
        """
        store = RedisMapStore(self.redis.url, prefix=CLUSTER)
        deadline_s = time.monotonic() + CONNECTED_S_MIN + READY_S
        try:
            while True:
                connected_s = [
                    each.loads.get(CONNECTED_S, 0.0) for each in directory(store).values()
                ]
                if sum(each >= CONNECTED_S_MIN for each in connected_s) == len(
                    self.cluster.processes
                ):
                    return
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"the log was reached for {connected_s} s without a break")
                time.sleep(0.5)
        finally:
            store.close()

    def pids(self) -> dict[str, int]:
        """The running processes."""
        return {
            one.name: pid for one in self.cluster.processes if (pid := one.process.pid) is not None
        }

    def resident_bytes(self) -> dict[str, int]:
        """Returns the present memory of each process."""
        return {name: _resident_bytes(pid) for name, pid in self.pids().items()}

    def times_logged(self, event: str) -> int:
        """Returns how often the processes, also ended ones, have logged an event."""
        logs = (one.process.log_path for one in self.cluster.processes)
        return sum(path.read_bytes().count(f'"{event}"'.encode()) for path in logs)

    @contextmanager
    def stopped(self, process: LocalProcess) -> Iterator[None]:
        """Stops a process (SIGSTOP) while the context is open."""
        pid = process.pid
        assert pid is not None, f"{process.name} does not run"
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def full_archive(self) -> Iterator[None]:
        """Leaves no room in the archive's file system while the context is open."""
        filler = self.archive / ".filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 65536):
                    pass
            except OSError:
                pass
        try:
            yield
        finally:
            filler.unlink()

    def flush_redis(self) -> None:
        """Empties Redis while it still answers."""
        address = self.redis.url.removeprefix("redis://").partition("/")[0]
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), timeout=5.0) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(16).startswith(b"+OK")


@contextmanager
def set_up(directory: Path | None = None) -> Iterator[Rig]:
    """Starts everything; stops it at the end."""
    names = [f"{service}-{number}" for service in SERVICES for number in range(PROCESSES_MAX)]
    with ExitStack() as stack:
        if directory is None:
            made = tempfile.TemporaryDirectory(prefix="sirocco-faults-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(made))
        reason = Wires.missing()
        wires = None if reason else stack.enter_context(Wires(names))
        archive = directory / "archive"
        archive.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            mount_small(str(archive), ARCHIVE_BYTES)
            stack.callback(unmount, [str(archive)])
        rig = Rig(directory, wires, archive_is_small=os.geteuid() == 0)
        stack.callback(rig.stop_servers)
        with rig.cluster:
            rig.cluster.guard()
            yield rig


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
