"""Checkpoints of a registry partition while the map changes: where a successor may begin."""

from __future__ import annotations

from dataclasses import replace

from sirocco.protocol.contract.control_records import LeaderElected, MapPrepared, MapSwitched
from sirocco.protocol.contract.effects import Append, Effect, RegistryRecords
from sirocco.protocol.contract.messages import INTAKE, REGISTRY, Prepare, Retire, Switch
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.map_change.query_copies import may_be_saved
from tests.support.values import change_of, map_activated, request_of
from tests.unit.protocol.contract.test_map_change import SLOTS_COUNT, Partition, query, turned
from tests.unit.protocol.router.test_router_machine import Router, routed, saves


def test_a_checkpoint_after_a_change_waits_until_everything_is_copied() -> None:
    one = Partition(query("q", 1, 2))
    one.read(Prepare(2))
    # A successor would copy it by both maps of this change.
    assert may_be_saved(one.registry)
    one.read(Retire(2, 0))
    # A successor here would copy it by the next change's maps, to other slots than a predecessor.
    assert not may_be_saved(one.registry)
    one.copy()
    assert may_be_saved(one.registry)
    one.registry.validation.epoch_seen = 9
    assert not may_be_saved(one.registry)


def test_what_was_not_copied_for_one_change_is_not_saved_during_the_next() -> None:
    one = Partition(query("q", 1, 2))
    one.routings[3] = replace(one.routings[1], version=3)
    one.read(Prepare(2))
    one.read(Retire(2, 0))
    one.read(Prepare(3))
    assert not may_be_saved(one.registry)
    one.copy()
    assert may_be_saved(one.registry)
    one.read(Retire(3, 0))
    one.routings[4] = replace(one.routings[2], version=4)
    one.read(Prepare(4))
    assert may_be_saved(one.registry)


def saved_to(effects: list[Effect]) -> list[tuple[int, int]]:
    """Returns offset and map of each checkpoint of the registry."""
    return [(each.offset, each.map_version) for each in saves(effects) if each.topic == REGISTRY]


def test_the_next_change_of_the_map_waits_for_what_a_successor_has_to_copy() -> None:
    change = change_of(request_of("register", query("q", 1, 2)))
    one = Router(LeaderElected("c"), map_activated(0, slots=SLOTS_COUNT))
    one.own(REGISTRY, 0)
    one.control(MapPrepared(0, 2, turned(2)))
    one.control(MapSwitched(0, 2))
    # A predecessor has copied all for this change, and ended before it saved anything.
    one.poll((REGISTRY, 0, 0, change), (REGISTRY, 0, 1, Prepare(2)), (REGISTRY, 0, 2, Retire(2, 0)))
    effects = one.tick(LIMITS.checkpoint_interval_ms)
    assert saved_to(effects) == []
    (announced,) = [each for each in effects if isinstance(each, Append) and each.topic == REGISTRY]
    # It copies once the log has shown that it is the owner now.
    one.step(RegistryRecords(0, ((0, change),)))
    assert saved_to(one.tick(LIMITS.checkpoint_interval_ms)) == []
    one.poll((REGISTRY, 0, 3, announced.message))
    one.step(RegistryRecords(0, ((0, change),)))
    assert saved_to(one.tick(LIMITS.checkpoint_interval_ms)) == [(4, 2)]


def test_a_change_of_the_map_waits_for_no_interval_but_its_checkpoints() -> None:
    one = Router(LeaderElected("c"), map_activated(0, slots=SLOTS_COUNT))
    one.own(INTAKE, 0)
    one.own(REGISTRY, 0)
    one.objects(0, 0, 1)
    one.tick(LIMITS.mark_interval_ms)
    assert saves(one.tick(1)) == []

    one.control(MapPrepared(0, 2, turned(2)))
    one.control(MapSwitched(0, 2))
    one.poll((INTAKE, 0, 1, Switch(2)))
    effects = one.tick(1)
    (saved,) = saves(effects)
    assert (saved.topic, saved.offset, saved.map_version) == (INTAKE, 2, 2)
    # After marks, as always: a successor's starting state has been sent to all slots.
    assert routed(effects[: effects.index(saved)], marks=True).keys() == set(range(SLOTS_COUNT))

    one.poll((REGISTRY, 0, 0, Prepare(2)), (REGISTRY, 0, 1, Retire(2, 0)))
    assert saved_to(one.tick(1)) == [(2, 2)]
    # Once for each: a saved state is not saved again at every tick.
    effects = one.tick(1)
    assert (saves(effects), routed(effects, marks=True)) == ([], {})
