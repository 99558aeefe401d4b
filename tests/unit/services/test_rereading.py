"""Copying for another map goes on, whatever happens to one part of the registry meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

from services.router.rereading import Rereading
from services.router.stored import StoredQueries
from sirocco.protocol.messages import Change
from sirocco.protocol.router import RouterMachine
from sirocco.runtime.worker import Worker

DEADLINE_S = 40.0


class Machine:
    """Owns parts of the registry that are all to be copied."""

    def __init__(self, *partitions: int) -> None:
        self.registries = {partition: registry() for partition in partitions}


class Stored:
    """Nothing is there to be copied; what happens as a part is read is the test's."""

    def __init__(self, at: Callable[[int], None]) -> None:
        self._at = at
        self.read: list[int] = []

    def changes(
        self, partition: int, begin: int, end: int
    ) -> Generator[tuple[int, Change], None, None]:
        self.read.append(partition)
        self._at(partition)
        yield from ()


def registry() -> Any:
    return SimpleNamespace(live=SimpleNamespace(unplaced=1), offset=7)


def copied_again(machine: Machine, stored: Stored, partition: int) -> bool:
    """Whether the thread looks at a part that comes to this router later."""
    copying = Rereading(
        "test", cast(RouterMachine, machine), cast(StoredQueries, stored), cast(Worker, None)
    )
    copying.start()
    deadline_s = time.monotonic() + DEADLINE_S
    while not stored.read:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    machine.registries[partition] = registry()
    while partition not in stored.read and copying._thread.is_alive():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    copying.stop()
    return partition in stored.read


def test_a_part_that_goes_while_another_is_copied_ends_nothing() -> None:
    machine = Machine(0, 1)
    stored = Stored(lambda _: machine.registries.pop(1, None))
    assert copied_again(machine, stored, 2)


def test_an_unexpected_error_at_one_part_ends_nothing() -> None:
    def fail(partition: int) -> None:
        if partition == 0:
            raise KeyError(partition)

    assert copied_again(Machine(0), Stored(fail), 1)
