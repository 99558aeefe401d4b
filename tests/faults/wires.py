"""A network on this machine whose links can be cut: a namespace for each process, and a switch.

Packets on a cut link are dropped silently, as by a broken switch: connections just stop. Needs
root, `ip` and `nft`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from sirocco.local.cluster import Place

# A network that is probably unused on the machine. The machine itself has the first addresses:
# clients, the broker and Redis have no namespace.
_NETWORK = "10.77.13"
HERE = f"{_NETWORK}.1"
KAFKA = f"{_NETWORK}.2"
REDIS = f"{_NETWORK}.3"
_FIRST_PLACE = 10

_TABLE = "sirocco_cut"


class Wires:
    """A namespace of its own for each process, all on one switch.

    The switch has a namespace, too: other software here, such as Docker, may filter packets of the
    machine's bridges.

    Args:
        names: Of the processes.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._tag = f"sr{os.getpid() % 10_000}"
        self._switch = f"{self._tag}-switch"
        self._hosts = {name: f"{_NETWORK}.{_FIRST_PLACE + i}" for i, name in enumerate(names)}

    @staticmethod
    def missing() -> str:
        """Returns why such a network is impossible here; empty if it is possible."""
        if os.geteuid() != 0:
            return "needs root"
        absent = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
        if absent:
            return f"needs {' and '.join(absent)}"
        return ""

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    @property
    def places(self) -> dict[str, Place]:
        """Returns where each process runs."""
        return {
            name: Place(("ip", "netns", "exec", self._space(name)), host)
            for name, host in self._hosts.items()
        }

    def cut(self, name: str, *peers: str) -> None:
        """Cuts a process off from addresses, both ways; from everything if none is given."""
        self._in(name, "nft", "add", "table", "inet", _TABLE)
        for chain, side in (("output", "daddr"), ("input", "saddr")):
            hook = f"{{ type filter hook {chain} priority 0; }}"
            self._in(name, "nft", "add", "chain", "inet", _TABLE, chain, hook)
            for peer in peers or (f"{_NETWORK}.0/24",):
                rule = ("ip", side, peer, "drop")
                self._in(name, "nft", "add", "rule", "inet", _TABLE, chain, *rule)

    def heal(self, name: str) -> None:
        """Removes all cuts of a process."""
        self._in(name, "nft", "delete", "table", "inet", _TABLE)

    def host(self, name: str) -> str:
        """Returns the address of a process."""
        return self._hosts[name]

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _in(self, name: str, *command: str) -> None:
        _run("ip", "netns", "exec", self._space(name), *command)

    def _make(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "bridge0", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge0", "up")
        _run("ip", "link", "add", self._tag, "type", "veth", *self._plug("here"))
        self._plugged("here")
        for host in (HERE, KAFKA, REDIS):
            _run("ip", "address", "add", f"{host}/24", "dev", self._tag)
        _run("ip", "link", "set", self._tag, "up")
        for i, (name, host) in enumerate(self._hosts.items()):
            space = self._space(name)
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "add", "eth0", "type", "veth", *self._plug(f"to{i}"))
            self._plugged(f"to{i}")
            _run("ip", "-n", space, "address", "add", f"{host}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _run("ip", "-n", space, "link", "set", link, "up")

    def _plug(self, name: str) -> tuple[str, ...]:
        """Returns the switch's end of a link."""
        return ("peer", "name", name, "netns", self._switch)

    def _plugged(self, name: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", name, "master", "bridge0", "up")

    def _remove(self) -> None:
        for space in (*map(self._space, self._hosts), self._switch):
            _run("ip", "netns", "delete", space, check=False)
        _run("ip", "link", "delete", self._tag, check=False)


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def mount_small(directory: str, size_bytes: int) -> None:
    """Mounts a file system of a fixed size at a directory; needs root."""
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", directory)


def unmount(directories: Sequence[str]) -> None:
    """Unmounts such file systems."""
    for directory in directories:
        _run("umount", "--lazy", directory, check=False)
