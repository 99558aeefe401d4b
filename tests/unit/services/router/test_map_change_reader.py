"""Copying for another map continues, whatever happens to one registry partition meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import RegistryRecords
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router.machine import RouterMachine
from sirocco.runtime.loop.worker import Worker
from sirocco.services.router.map_change_reader import (
    AGAIN_S,
    LOOK_S,
    PIECE,
    UNDER_WAY_MAX,
    MapChangeReader,
    pieces,
)
from sirocco.services.router.registry_definitions import StoredQueries
from tests.support.registry_log import query
from tests.support.values import change_of, request_of
from tests.support.waiting import eventually

DEADLINE_S = 120.0


class Pauses:
    """Waits in no time, and keeps how long each wait was to be; the last one ends the thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.asked_s: list[float] = []

    def wait(self, pause_s: float) -> bool:
        self.asked_s.append(pause_s)
        return self.is_set()

    def is_set(self) -> bool:
        return len(self.asked_s) > self._count


class Machine:
    """Owns registry partitions that are all to be copied."""

    def __init__(self, *partitions: int) -> None:
        self.registries = {partition: registry() for partition in partitions}


class Stored:
    """Has nothing to copy; the test decides what happens while a partition is read."""

    def __init__(self, at: Callable[[int], None]) -> None:
        self._at = at
        self.read: list[int] = []

    def changes(
        self, partition: int, begin: int, end: int, wanted: NDArray[np.int64]
    ) -> Generator[tuple[int, Change], None, None]:
        self.read.append(partition)
        self._at(partition)
        yield from ()


def registry() -> Any:
    places = np.array([3], np.int64)
    return SimpleNamespace(
        live=SimpleNamespace(unplaced=1), offset=7, unplaced_places=lambda: places
    )


def copied_again(machine: Machine, stored: Stored, partition: int) -> bool:
    """Returns whether the thread reads a partition that this router gets later."""
    copying = MapChangeReader(
        "test", cast(RouterMachine, machine), cast(StoredQueries, stored), cast(Worker, None)
    )
    copying.start()
    eventually(lambda: stored.read)
    machine.registries[partition] = registry()
    eventually(lambda: partition in stored.read or not copying._thread.is_alive())
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


def test_what_cannot_be_copied_is_not_tried_again_at_once() -> None:
    stored = Stored(lambda _: None)
    copying = MapChangeReader(
        "test",
        cast(RouterMachine, Machine(0)),
        cast(StoredQueries, stored),
        cast(Worker, None),
    )
    pauses = Pauses(4)
    copying._stopping = cast(threading.Event, pauses)
    copying.start()
    eventually(lambda: not copying._thread.is_alive())
    assert len(stored.read) == 4
    assert pauses.asked_s == [LOOK_S, *[AGAIN_S] * 4]


REMOVAL = change_of(request_of("unregister", "q"))


class Loop:
    """Takes definitions, and reports that it is done when a test lets it."""

    def __init__(self) -> None:
        self.reread_counts: list[int] = []
        self.waiting: list[Settled] = []

    def post(self, reread: RegistryRecords) -> None:
        self.reread_counts.append(len(reread.changes))

    def settled(self) -> Future[None]:
        self.waiting.append(Settled())
        return self.waiting[-1]


class Settled(Future[None]):
    """Knows that somebody waits for it."""

    is_awaited = False

    def result(self, timeout: float | None = None) -> None:
        self.is_awaited = True
        super().result(timeout)


class Definitions:
    """Each registry partition holds this many definitions."""

    def __init__(self, machine: Machine, counts: dict[int, int]) -> None:
        self._machine, self._counts = machine, counts

    def changes(
        self, partition: int, begin: int, end: int, wanted: NDArray[np.int64]
    ) -> Generator[tuple[int, Change], None, None]:
        for number in range(self._counts[partition]):
            yield number, REMOVAL
        self._machine.registries[partition].live.unplaced = 0


def test_parts_with_few_are_copied_together_and_never_more_than_so_many_at_once() -> None:
    machine, loop = Machine(0, 1, 2), Loop()
    stored = Definitions(machine, {0: 100, 1: 100, 2: 2_100})
    copying = MapChangeReader(
        "test",
        cast(RouterMachine, machine),
        cast(StoredQueries, stored),
        cast(Worker, loop),
    )
    copying.start()
    expected = [100, 100, 500, 500, 500, 500, 100]
    # Definitions under way before the loop first reports that it is done, and so on.
    for first, last in ((0, 3), (3, 5), (5, 7)):
        eventually(lambda last=last: len(loop.reread_counts) >= last)
        # It posts no more while it waits.
        eventually(lambda last=last: loop.waiting[last - 1].is_awaited)
        assert loop.reread_counts == expected[:last]
        assert sum(loop.reread_counts[first:]) <= UNDER_WAY_MAX
        for each in loop.waiting:
            if not each.done():
                each.set_result(None)
    copying.stop()


def test_definitions_that_take_much_are_copied_few_at_a_time() -> None:
    words = " OR ".join(f"w{number}" for number in range(128))
    text = f"({words}) AND " + " ".join(f"v{number}" for number in range(31))
    large = change_of(request_of("register", query("large", text=text)))
    small = change_of(request_of("register", query("small", text="coffee")))
    of_large = [len(piece) for piece, _ in pieces(enumerate([large] * 100))]
    assert sum(of_large) == 100
    assert max(of_large) < 30
    assert [len(piece) for piece, _ in pieces(enumerate([small] * 700))] == [PIECE, 200]
