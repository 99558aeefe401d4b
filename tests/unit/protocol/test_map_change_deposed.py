"""Copies of a former owner of a registry partition amid a change of the map, landing at any time.

Two owners and the slots, by hand: the former one may have read further than its successor when that
begins to copy and to trim, and what it sends lands before, between or behind what the other sends.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirocco.protocol.declarations import (
    Declaration,
    Granted,
    LeaderElected,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.effects import (
    Append,
    ControlRead,
    Effect,
    Entry,
    Event,
    Load,
    Loaded,
    Polled,
    Reread,
    State,
    Tick,
)
from sirocco.protocol.messages import (
    NO_REVISION,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    Prepare,
    Retire,
)
from sirocco.protocol.router import RouterMachine, RouterSettings
from sirocco.protocol.slot import Slot
from tests.unit.protocol.test_map_change import SLOTS_COUNT, holds, query, turned
from tests.unit.protocol.values import change_of, map_activated, wish_of

QUERY = change_of(wish_of("register", query("q", 1, 2)))
MAPS = (MapPrepared(0, 2, turned(2, 1)), MapSwitched(0, 2), MapPrepared(0, 3, turned(3, 2)))


class World:
    """The log of a registry partition, and the slots."""

    def __init__(self, *records: Change | Prepare | Retire) -> None:
        self.records = list(records)
        self.slots = [Slot(number, 1) for number in range(SLOTS_COUNT)]
        for slot in self.slots:
            slot.open(0, 0, 1, 0)

    def land(self, told: list[tuple[int, Installed]]) -> None:
        for number, message in told:
            slot = self.slots[number]
            slot.take([(slot.offset, message)])

    def holding(self) -> list[int]:
        """The slots that hold the query."""
        return [slot.number for slot in self.slots if holds(slot, "q") != NO_REVISION]


class Owner:
    """A router that owns the partition; what it tells slots lands when the test says so."""

    def __init__(
        self,
        world: World,
        control: list[Declaration],
        offset: int = 0,
        state: State | None = None,
    ) -> None:
        self.world = world
        self.machine = RouterMachine("m", RouterSettings(SLOTS_COUNT))
        self.told: list[tuple[int, Installed]] = []
        effects: list[Effect] = []
        for at, declaration in enumerate(control):
            effects += self.machine.step(ControlRead(at, declaration), 0)
        (load,) = [effect for effect in effects if isinstance(effect, Load)]
        self.step(Loaded(REGISTRY, 0, load.epoch, offset, state))

    def step(self, event: Event) -> None:
        for effect in self.machine.step(event, 0):
            if isinstance(effect, Append) and effect.topic == REGISTRY:
                self.world.records.append(effect.message)  # type: ignore[arg-type]
            elif isinstance(effect, Append) and effect.topic == SLOTS:
                self.told.append((effect.partition, effect.message))  # type: ignore[arg-type]

    def read(self, upto: int | None = None) -> None:
        """Reads the next records, in one batch."""
        begin = self.machine.registries[0].offset
        records = list(enumerate(self.world.records))[begin:upto]
        self.step(Polled(tuple(Entry(REGISTRY, 0, at, each) for at, each in records)))

    def copy(self) -> None:
        self.step(Reread(0, ((self.world.records.index(QUERY), QUERY),)))

    def tick(self) -> None:
        self.step(Tick())

    def settle(self) -> None:
        """Does all that is due."""
        for _ in range(3):
            self.tick()
            self.read()
            self.copy()

    def take_told(self) -> list[tuple[int, Installed]]:
        told, self.told = self.told, []
        return told


def owners(maps: int) -> tuple[list[Declaration], list[Declaration]]:
    """What a former owner has read of `control`, and its successor."""
    begin: list[Declaration] = [LeaderElected("c"), map_activated(0, slots=SLOTS_COUNT)]
    former = [*begin, Granted(0, REGISTRY, 0, "m"), *MAPS[:maps]]
    others = [*begin, Granted(0, REGISTRY, 0, "other"), *MAPS[:maps]]
    return former, [*others, Granted(0, REGISTRY, 0, "m")]


def end(world: World, new: Owner, late: list[tuple[int, Installed]], lands: str) -> None:
    """The successor goes on, and the query is removed; meanwhile the late copies land."""
    if lands == "before":
        world.land(late)
    world.land(new.take_told())
    new.settle()
    world.land(new.take_told())
    if lands == "between":
        world.land(late)
    removal = change_of(wish_of("unregister", "q"), world.records.index(QUERY))
    removal = replace(removal, epoch=new.machine.registries[0].epoch)
    world.records.append(removal)
    new.read()
    world.land(new.take_told())
    if lands == "after":
        world.land(late)


@pytest.mark.parametrize("lands", ["before", "between", "after"])
def test_a_former_owner_that_has_read_further_copies_nothing_for_good(lands: str) -> None:
    # Both began from before the change. The one before them had copied all, and saved nothing.
    world = World(QUERY, Prepare(2), Retire(2, 0), Retire(2, 0))
    before, after = owners(2)
    old = Owner(world, before)
    old.read()
    old.tick()
    old.read()
    world.land(old.take_told())
    # It stands still while it copies.
    old.copy()
    late = old.take_told()
    assert len(late) == 2
    new = Owner(world, after)
    new.read(3)
    new.copy()
    new.tick()
    end(world, new, late, lands)
    assert world.holding() == []


@pytest.mark.parametrize("lands", ["before", "between", "after"])
def test_what_is_still_to_leave_slots_when_the_next_change_begins_leaves_them(lands: str) -> None:
    world = World(QUERY, Prepare(2))
    first = Owner(world, owners(2)[0])
    first.read()
    first.tick()
    first.read()
    first.copy()
    world.records.append(Retire(2, 0))
    first.read()
    world.land(first.take_told())
    # It saves before it has trimmed, as where more is to leave slots than goes at once.
    offset, state = first.machine.registries[0].offset, first.machine.registries[0].state()
    assert first.machine.registries[0].live.has_surplus
    world.records.append(Prepare(3))
    before, after = owners(3)
    old = Owner(world, before, offset, state)
    old.read()
    old.copy()
    late = old.take_told()
    new = Owner(world, after, offset, state)
    new.tick()
    new.tick()
    end(world, new, late, lands)
    assert world.holding() == []
