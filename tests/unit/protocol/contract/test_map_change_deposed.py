"""Copies by a former owner of a registry partition during a change of the map, landing at any time.

Two owners and the slots, without other parts: the former one may have read more than its successor
when that one begins to copy and to trim, and its records land before, between or after the other's.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.contract.effects import (
    Append,
    ControlRead,
    Effect,
    Entry,
    Event,
    Load,
    Loaded,
    Polled,
    RegistryRecords,
    SaveCheckpoint,
    State,
    Tick,
)
from sirocco.protocol.contract.messages import (
    NO_REVISION,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    Prepare,
    Retire,
)
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.machine import RouterMachine, RouterSettings
from tests.support.values import change_of, map_activated, request_of
from tests.unit.protocol.contract.test_map_change import SLOTS_COUNT, holds, query, turned

QUERY = change_of(request_of("register", query("q", 1, 2)))
MAPS = (MapPrepared(0, 2, turned(2, 1)), MapSwitched(0, 2), MapPrepared(0, 3, turned(3, 2)))


class World:
    """The log of a registry partition, and the slots."""

    def __init__(self, *records: Change | Prepare | Retire) -> None:
        self.records = list(records)
        self.slots = [Slot(number, 1) for number in range(SLOTS_COUNT)]
        for slot in self.slots:
            slot.open(0, 0, 1, 0)

    def land(self, installs: list[tuple[int, Installed]]) -> None:
        for number, message in installs:
            slot = self.slots[number]
            slot.take([(slot.offset, message)])

    def holding(self) -> list[int]:
        """Returns the slots that hold the query."""
        return [slot.number for slot in self.slots if holds(slot, "q") != NO_REVISION]


class Owner:
    """A router that owns the partition; its records for slots land when the test says so."""

    def __init__(
        self,
        world: World,
        control: list[Declaration],
        offset: int = 0,
        state: State | None = None,
    ) -> None:
        self.world = world
        self.machine = RouterMachine("m", RouterSettings(SLOTS_COUNT))
        self.installs: list[tuple[int, Installed]] = []
        self.saved: list[SaveCheckpoint] = []
        self.now_ms = 0
        effects: list[Effect] = []
        for at, declaration in enumerate(control):
            effects += self.machine.step(ControlRead(at, declaration), 0)
        (load,) = [effect for effect in effects if isinstance(effect, Load)]
        self.step(Loaded(topic=REGISTRY, partition=0, epoch=load.epoch, offset=offset, state=state))

    def step(self, event: Event) -> None:
        for effect in self.machine.step(event, self.now_ms):
            if isinstance(effect, SaveCheckpoint):
                self.saved.append(effect)
            elif isinstance(effect, Append) and effect.topic == REGISTRY:
                self.world.records.append(effect.message)  # type: ignore[arg-type]
            elif isinstance(effect, Append) and effect.topic == SLOTS:
                self.installs.append((effect.partition, effect.message))  # type: ignore[arg-type]

    def read(self, upto: int | None = None) -> None:
        """Reads the next records, in one batch."""
        begin = self.machine.registries[0].offset
        records = list(enumerate(self.world.records))[begin:upto]
        self.step(Polled(tuple(Entry(REGISTRY, 0, at, each) for at, each in records)))

    def copy(self, *changes: Change) -> None:
        """Reads definitions again, by default that of the query."""
        reread = [(self.world.records.index(each), each) for each in changes or (QUERY,)]
        self.step(RegistryRecords(0, tuple(reread)))

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.step(Tick())

    def settle(self) -> None:
        """Does all that is due."""
        for _ in range(3):
            self.tick()
            self.read()
            self.copy()

    def take_published(self) -> list[tuple[int, Installed]]:
        published, self.installs = self.installs, []
        return published


def owners(maps: int) -> tuple[list[Declaration], list[Declaration]]:
    """Returns the records of `control` that a former owner has read, and its successor."""
    begin: list[Declaration] = [LeaderElected("c"), map_activated(0, slots=SLOTS_COUNT)]
    former = [*begin, Granted(0, REGISTRY, 0, "m"), *MAPS[:maps]]
    others = [*begin, Granted(0, REGISTRY, 0, "other"), *MAPS[:maps]]
    return former, [*others, Granted(0, REGISTRY, 0, "m")]


def end(world: World, new: Owner, late: list[tuple[int, Installed]], lands: str) -> None:
    """The successor continues, and the query is removed; meanwhile the late copies land."""
    if lands == "before":
        world.land(late)
    world.land(new.take_published())
    new.settle()
    world.land(new.take_published())
    if lands == "between":
        world.land(late)
    removal = change_of(request_of("unregister", "q"), world.records.index(QUERY))
    removal = replace(removal, epoch=new.machine.registries[0].epoch)
    world.records.append(removal)
    new.read()
    world.land(new.take_published())
    if lands == "after":
        world.land(late)


@pytest.mark.parametrize("lands", ["before", "between", "after"])
def test_a_former_owner_that_has_read_further_copies_nothing_for_good(lands: str) -> None:
    # Both began before the change. Their predecessor had copied all, and saved nothing.
    world = World(QUERY, Prepare(2), Retire(2, 0), Retire(2, 0))
    before, after = owners(2)
    old = Owner(world, before)
    old.read()
    old.tick()
    old.read()
    world.land(old.take_published())
    # It pauses while it copies.
    old.copy()
    late = old.take_published()
    # It knows that the query will leave one of its slots, and sends that one nothing.
    assert len(late) == 1
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
    world.land(first.take_published())
    # It saves before it has trimmed, as when more leaves slots than is sent at once.
    offset, state = first.machine.registries[0].offset, first.machine.registries[0].state()
    assert first.machine.registries[0].live.has_surplus
    world.records.append(Prepare(3))
    before, after = owners(3)
    old = Owner(world, before, offset, state)
    old.read()
    old.copy()
    late = old.take_published()
    new = Owner(world, after, offset, state)
    new.tick()
    new.tick()
    end(world, new, late, lands)
    assert world.holding() == []


def test_a_query_that_another_owner_removed_from_a_slot_is_not_copied_back() -> None:
    world = World(QUERY, Prepare(2))
    before, after = owners(3)
    first = Owner(world, owners(2)[0])
    for _ in range(2):
        first.read()
        first.tick()
    first.copy()
    offset, state = first.machine.registries[0].offset, first.machine.registries[0].state()
    world.records.append(Retire(2, 0))
    first.read()
    # The next one begins at the earlier checkpoint; the present one ends the change.
    second = Owner(world, before, offset, state)
    first.tick()
    world.land(first.take_published())
    (home,) = world.holding()
    offset, state = first.machine.registries[0].offset, first.machine.registries[0].state()
    # So the next change begins, before the second owner removes the query from that slot, too.
    for _ in range(2):
        second.tick()
        second.read()
    assert second.machine.registries[0].stage.following == 3
    second.copy()
    world.land(second.take_published())
    # Its successor begins with the first one's checkpoint, and does not know that slot.
    third = Owner(world, after, offset, state)
    third.settle()
    world.land(third.take_published())
    assert len(world.holding()) == 2
    assert home in world.holding()
    removal = change_of(request_of("unregister", "q"), world.records.index(QUERY))
    world.records.append(replace(removal, epoch=third.machine.registries[0].epoch))
    third.read()
    world.land(third.take_published())
    assert world.holding() == []


def test_what_a_former_owner_saves_is_not_ahead_of_what_slots_took_of_it() -> None:
    world = World(QUERY, Prepare(2))
    before, after = owners(1)
    old = Owner(world, before)
    old.read()
    old.tick()
    old.read()
    # Its copies are delayed; the records that it has appended meanwhile go to all slots.
    old.copy()
    late = old.take_published()
    for name in ("one", "two"):
        change = change_of(request_of("register", query(name, -179, 179)))
        world.records.append(replace(change, epoch=old.machine.registries[0].epoch))
    during = len(world.records) - 1
    new = Owner(world, after)
    new.read(during)
    new.tick(LIMITS.checkpoint_interval_ms)
    for each in new.saved:
        taken = CheckpointTaken(REGISTRY, 0, each.epoch, each.offset, "")
        new.step(ControlRead(100, taken))
    new.read(during + 1)
    world.land(new.take_published())
    world.land(late)
    # The former one has not read yet that it is replaced; the other one dies.
    old.read(during + 1)
    world.land(old.take_published())
    old.tick(LIMITS.checkpoint_interval_ms)
    (saved,) = old.saved
    third = Owner(world, after, saved.offset, saved.state)
    third.settle()
    world.land(third.take_published())
    assert len(world.holding()) == 2


def test_what_leaves_a_slot_leaves_it_though_others_were_copied_there_since() -> None:
    # Another query, which the next map puts into the slot that this one leaves.
    other = change_of(request_of("register", query("other", -179, 179)))
    world = World(QUERY, other, Prepare(2))
    before, after = owners(2)
    old = Owner(world, before)
    for _ in range(2):
        old.read()
        old.tick()
    old.copy(QUERY, other)
    world.land(old.take_published())
    world.records.append(Retire(2, 0))
    old.read()
    old.tick(LIMITS.checkpoint_interval_ms)
    # It pauses with this on its way, and with a checkpoint that waits for it.
    late = old.take_published()
    saved = old.saved[-1]
    new = Owner(world, after)
    new.read()
    new.tick()
    new.read()
    new.copy(QUERY, other)
    world.land(new.take_published())
    world.land(late)
    # So its checkpoint is true; the other one has not saved anything.
    third = Owner(world, after, saved.offset, saved.state)
    third.settle()
    world.land(third.take_published())
    assert len(world.holding()) == 1
    removal = change_of(request_of("unregister", "q"), world.records.index(QUERY))
    world.records.append(replace(removal, epoch=third.machine.registries[0].epoch))
    third.read()
    world.land(third.take_published())
    assert world.holding() == []
