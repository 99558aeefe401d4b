"""Leftovers: nothing that a former map put elsewhere is missed, and little is asked in vain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Granted,
    LeaderElected,
    MapActivated,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import INTAKE, REGISTRY, SLOTS
from sirocco.protocol.search.leftovers import (
    AGE_MS_MAX,
    Former,
    KnownLeftovers,
    LeftoverTable,
    leaves_elsewhere,
)
from sirocco.protocol.search.messages import EVER_MS, Leftovers
from sirocco.protocol.search.plan import slots_within
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from tests.support.random_maps import random_map

NO_LEAVES = np.empty(0, np.int32)


def report_of(
    slot: int,
    version: int = 2,
    epoch: int = 7,
    leaves: NDArray[np.int32] = NO_LEAVES,
    archived_upto_ms: int | None = None,
) -> Leftovers:
    return Leftovers(
        slot=slot,
        epoch=epoch,
        version=version,
        leaves=leaves,
        archived_upto_ms=archived_upto_ms,
    )


def places(rng: np.random.Generator, arrays: RoutingArrays, count: int) -> NDArray[np.float64]:
    """Points anywhere, and on borders of leaves and of the world."""
    lon = rng.uniform(-180, 180, count)
    lat = rng.uniform(-90, 90, count)
    edges = rng.random((2, count)) < 0.3
    lon[edges[0]] = rng.choice([-180.0, 180.0, *arrays.x_borders], int(edges[0].sum()))
    lat[edges[1]] = rng.choice([-90.0, 90.0, *arrays.y_borders], int(edges[1].sum()))
    return np.stack([lon, lat], axis=1)


@pytest.mark.parametrize("seed", range(12))
def test_a_search_reaches_every_slot_that_holds_results(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = compile_map(random_map(rng, leaves=60, text=seed % 2 == 0))
    points, slots = places(rng, arrays, 40), rng.integers(0, arrays.slots, 40)
    known = {}
    for slot in range(arrays.slots):
        own = points[slots == slot]
        leaves = leaves_elsewhere(
            [(own[:7, 0], own[:7, 1]), (own[7:, 0], own[7:, 1])], arrays, slot
        )
        assert not np.isin(leaves, arrays.leaf_ids[arrays.slot_of_leaf == slot]).any()
        known[slot] = report_of(slot, leaves=leaves)
    former = Former(leftovers=LeftoverTable.of(2, known))
    spared = 0
    for _ in range(200):
        center, side = points[rng.integers(40)], rng.choice([0.0, 1.0, 20.0])
        west, south = center - rng.uniform(0, 1, 2) * side
        box = np.array([[west, max(south, -90.0), west + side, min(south + side, 90.0)]])
        box[:, [0, 2]] = np.clip(box[:, [0, 2]], -180.0, 180.0)
        asked = slots_within(arrays, box, former)
        is_inside = (points >= box[0, :2]).all(1) & (points <= box[0, 2:]).all(1)
        assert set(slots[is_inside].tolist()) <= set(asked)
        spared += arrays.slots - len(asked)
    # Leaves of text nodes lie on each other, a few of them under all points.
    assert spared > 0 or seed % 2 == 0


def test_what_is_where_the_map_puts_it_is_no_leftover() -> None:
    rng = np.random.default_rng(5)
    arrays = compile_map(random_map(rng, text=False))
    points = places(rng, arrays, 2_000)
    no_terms = np.zeros(2_001, np.int64), np.empty(0, np.uint64), np.zeros(2_000, np.uint64)
    slots = arrays.route_objects(points[:, 0].copy(), points[:, 1].copy(), *no_terms).slot
    for slot in range(arrays.slots):
        lon, lat = points[slots == slot].T.copy()
        assert not len(leaves_elsewhere([(lon, lat)], arrays, slot))


def test_slots_without_reports_are_searched() -> None:
    table = LeftoverTable.of(2, {0: report_of(0), 2: report_of(2, leaves=np.array([5], np.int32))})
    assert table.slots_beside(np.array([4], np.int32), EVER_MS, 4) == {1, 3}
    assert table.slots_beside(np.array([4, 5], np.int32), EVER_MS, 4) == {1, 2, 3}


def test_slots_with_archived_objects_of_the_window_are_searched() -> None:
    table = LeftoverTable.of(2, {0: report_of(0), 1: report_of(1, archived_upto_ms=500)})
    leaves = np.array([4], np.int32)
    assert table.slots_beside(leaves, EVER_MS, 2) == {1}
    assert table.slots_beside(leaves, 500, 2) == {1}
    assert table.slots_beside(leaves, 501, 2) == set()


def test_reports_of_another_owner_or_map_do_not_count() -> None:
    table = LeftoverTable.of(2, {}).learn(
        [report_of(0), report_of(1, version=3), report_of(2, version=1)]
    )
    assert set(table.of_slot) == {0}
    assert set(table.owned(lambda slot: 7 if slot == 0 else None).of_slot) == {0}
    assert not table.owned(lambda slot: 8 if slot == 0 else None).of_slot
    assert not table.owned(lambda _slot: None).of_slot


class Cluster:
    """`control` of a cluster with one intake and one registry partition and two slots."""

    def __init__(self) -> None:
        self.view = ControlView()
        self.known = KnownLeftovers(self.view, 1, 1)
        self.arrays = compile_map(random_map(np.random.default_rng(1)))
        self.say(LeaderElected("c"))
        for slot in range(2):
            self.grant(slot)
        self.say(MapActivated(0, 1, self.map_bytes(1)))

    def say(self, declaration: object) -> None:
        self.view.apply(self.view.next_offset, declaration)  # type: ignore[arg-type]

    def grant(self, slot: int) -> None:
        self.say(Granted(0, SLOTS, slot, f"e-{self.view.next_offset}"))

    def epoch(self, slot: int) -> int:
        return self.view.owners[SLOTS, slot].epoch

    def map_bytes(self, version: int) -> bytes:
        found = random_map(np.random.default_rng(1))
        return to_bytes(replace(found, version=version, scheme="a-grid"))

    def save(self, topic: str, version: int) -> None:
        offset = self.view.next_offset
        self.say(
            CheckpointTaken(
                topic=topic, partition=0, offset=offset, epoch=0, name="x", map_version=version
            )
        )

    def routing(self) -> RoutingArrays:
        return replace(self.arrays, version=self.view.map_version)

    def change(self, version: int) -> None:
        self.say(MapPrepared(0, version, self.map_bytes(version)))
        self.say(MapSwitched(0, version))
        self.save(INTAKE, version)
        self.save(REGISTRY, version)


def test_the_first_map_has_no_leftovers() -> None:
    one = Cluster()
    assert one.known.former(one.routing(), EVER_MS) is None
    assert one.known.wanted([0], 0) == 0


def test_every_slot_is_searched_until_a_change_is_over() -> None:
    one = Cluster()
    steps = [
        lambda: one.say(MapPrepared(0, 2, one.map_bytes(2))),
        lambda: one.say(MapSwitched(0, 2)),
        lambda: one.save(INTAKE, 2),
    ]
    for step in steps:
        step()
        assert is_everywhere(one.known.former(one.routing(), EVER_MS))
        assert one.known.wanted([0], 0) == 0
    one.save(REGISTRY, 2)
    former = one.known.former(one.routing(), 55)
    assert former is not None
    assert not former.is_everywhere
    assert (former.leftovers.version, former.from_ms) == (2, 55)
    assert one.known.wanted([0], 0) == 2
    # A search that was planned by the map before.
    assert is_everywhere(one.known.former(replace(one.arrays, version=1), EVER_MS))


def is_everywhere(former: Former | None) -> bool:
    return former is not None and former.is_everywhere


def test_reports_of_slots_are_kept_until_the_map_or_their_owner_changes() -> None:
    one = Cluster()
    one.change(2)
    leaves = np.array([3], np.int32)
    assert one.known.wanted([0, 1], 0) == 2
    news = [report_of(0, epoch=one.epoch(0), leaves=leaves), report_of(1, epoch=one.epoch(1))]
    one.known.learn([*news, report_of(0, epoch=99)], 1_000)

    def known() -> set[int]:
        former = one.known.former(one.routing(), EVER_MS)
        return set() if former is None else set(former.leftovers.of_slot)

    assert known() == {0, 1}
    # They become fewer: what is none stays none.
    assert one.known.wanted([0, 1], 1_000 + AGE_MS_MAX) == 0
    assert one.known.wanted([1], 1_001 + AGE_MS_MAX) == 0
    assert one.known.wanted([0], 1_001 + AGE_MS_MAX) == 2
    one.grant(0)
    assert known() == {1}
    one.change(3)
    assert known() == set()
    assert one.known.wanted([1], 1_002) == 3
