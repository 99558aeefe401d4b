"""An evaluator's counts of its leaves, compared with counting one by one; and as messages."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.loads import (
    read_details,
    read_loads,
    read_sample,
    write_details,
    write_loads,
    write_sample,
)
from sirocco.model.query import query_handle
from sirocco.model.term_hashing import SECRET_BYTES, WIRE_TERMS, TermHashing
from sirocco.protocol.contract.control_records import Granted, LeaderElected, MapActivated
from sirocco.protocol.contract.effects import (
    ControlRead,
    Entry,
    Load,
    Loaded,
    Polled,
    SaveCheckpoint,
    SaveRequest,
)
from sirocco.protocol.contract.load_messages import SampleReport
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.coordinator.sample_merge import joined_sample
from sirocco.protocol.evaluator.limits import LIMITS, EvaluatorLimits
from sirocco.protocol.evaluator.load.leaf_counts import Counted
from sirocco.protocol.evaluator.load.leaf_reports import details_of, loads_of, sample_of
from sirocco.protocol.evaluator.machine import EvaluatorMachine, EvaluatorSettings
from sirocco.schemes.balance.base.view import LeafLoads
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries
from tests.support.values import installed_of, routed_of, uniform_map

SLOTS_COUNT = 2
MAP = uniform_map(SLOTS_COUNT, 8)
BOXES = np.array([leaf.box for leaf in MAP.leaves])
BEGIN_MS = 1_000_000
FEW_SAMPLED = EvaluatorLimits(sampled_queries_max=64)


def present(counted: Counted | None) -> Counted:
    """Returns the counts of a round that there was."""
    assert counted is not None
    return counted


class World:
    """An evaluator that owns all slots, and all that it received."""

    def __init__(
        self,
        seed: int,
        *,
        counts: bool = True,
        hashing: TermHashing = WIRE_TERMS,
        limits: EvaluatorLimits = LIMITS,
    ) -> None:
        settings = EvaluatorSettings(
            intake_partitions=1,
            partials_partitions=2,
            counts_leaves=counts,
            hashing=hashing,
            limits=limits,
        )
        self.rng = np.random.default_rng(seed)
        self.machine = EvaluatorMachine("m", settings)
        self.offsets = dict.fromkeys(range(SLOTS_COUNT), 0)
        self.taken = dict.fromkeys(range(SLOTS_COUNT), 0)
        self.control = 0
        self.boxes: list[tuple[float, float, float, float]] = []
        self.objects: list[tuple[float, float]] = []
        self.declare(LeaderElected("c"))
        self.declare(MapActivated(0, 1, to_bytes(MAP)))
        for slot in range(SLOTS_COUNT):
            (load,) = self.declare(Granted(0, SLOTS, slot, "m"))
            assert isinstance(load, Load)
            self.step(Loaded(topic=SLOTS, partition=slot, epoch=load.epoch, offset=0, state=None))

    def step(self, event):
        return self.machine.step(event, BEGIN_MS)

    def declare(self, declaration):
        self.control += 1
        return self.step(ControlRead(self.control - 1, declaration))

    def append(self, slot, message) -> None:
        offset = self.offsets[slot]
        self.offsets[slot] += 1
        self.step(Polled((Entry(SLOTS, slot, offset, message),)))

    def register(self, count: int) -> None:
        for _ in range(count):
            west, south = self.rng.uniform(-180, 170), self.rng.uniform(-90, 80)
            width, height = self.rng.exponential(20.0), self.rng.exponential(10.0)
            box = (west, south, min(179.0, west + width), min(89.0, south + height))
            number = len(self.boxes)
            self.boxes.append(box)
            names = ("west", "south", "east", "north")
            query = {
                "id": f"q{number}",
                "kind": "range",
                "mode": "continuous",
                "region": {"rect": dict(zip(names, box, strict=True))},
            }
            touched = {
                int(MAP.slot_of_leaf[leaf]) for leaf in range(8) if touches(box, BOXES[leaf])
            }
            for slot in sorted(touched):
                self.append(slot, installed_of(0, [(number, query, "ann", 0)]))

    def publish(self, count: int) -> None:
        lon, lat = self.rng.normal(10, 40, count), self.rng.normal(10, 25, count)
        lon, lat = np.clip(lon, -179.9, 179.9), np.clip(lat, -89.9, 89.9)
        leaf = [leaf_of(x, y) for x, y in zip(lon, lat, strict=True)]
        for slot in range(SLOTS_COUNT):
            rows = [row for row in range(count) if MAP.slot_of_leaf[leaf[row]] == slot]
            members = [
                {"id": len(self.objects) + row, "lon": lon[row], "lat": lat[row], "text": "fire"}
                for row in rows
            ]
            if members:
                message = routed_of(0, self.taken[slot], members, [BEGIN_MS] * len(members))
                self.taken[slot] += 1
                self.append(slot, message)
        self.objects += list(zip(lon.tolist(), lat.tolist(), strict=True))

    def expected(self) -> LeafLoads:
        objects, met, queries = np.zeros(8), np.zeros(8), np.zeros(8)
        for lon, lat in self.objects:
            leaf = leaf_of(lon, lat)
            objects[leaf] += 1
            met[leaf] += sum(w <= lon <= e and s <= lat <= n for w, s, e, n in self.boxes)
        for leaf in range(8):
            queries[leaf] = sum(touches(box, BOXES[leaf]) for box in self.boxes)
        return LeafLoads(objects, met, objects, queries, objects, queries)


def leaf_of(lon: float, lat: float) -> int:
    west, south, east, north = BOXES.T
    here = (west <= lon) & (lon < east) & (south <= lat) & (lat < north)
    return int(np.flatnonzero(here)[0])


def touches(box, leaf) -> bool:
    west, south, east, north = leaf
    beyond_x = box[0] < east or east == 180
    beyond_y = box[1] < north or north == 90
    return bool(beyond_x and beyond_y and box[2] >= west and box[3] >= south)


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_counting_one_by_one(seed) -> None:
    world = World(seed)
    world.register(40)
    world.publish(300)
    world.publish(200)

    report = loads_of(present(world.machine.leaf_counts(ends_round=True)))

    expected, reported = world.expected(), f"seed={seed}"
    assert report.version == 1
    assert report.slots == (0, 1)
    assert report.leaves.tolist() == [leaf.id for leaf in MAP.leaves]
    assert report.loads.objects.tolist() == expected.objects.tolist(), reported
    assert report.loads.met.tolist() == expected.met.tolist(), reported
    assert report.loads.queries.tolist() == expected.queries.tolist(), reported
    assert (report.loads.arrivals >= expected.objects).all(), reported
    assert report.loads.faded.tolist() == expected.objects.tolist(), reported


def test_a_round_restarts_and_older_ones_fade() -> None:
    world = World(1)
    world.publish(100)
    first = loads_of(present(world.machine.leaf_counts(ends_round=True))).loads

    second = loads_of(present(world.machine.leaf_counts(ends_round=True))).loads

    assert first.objects.sum() == 100
    assert second.objects.sum() == 0
    assert second.faded.tolist() == (first.faded / 2).tolist()
    # A look between rounds returns the last one.
    world.publish(10)
    assert loads_of(present(world.machine.leaf_counts(ends_round=False))).loads.objects.sum() == 0


def test_a_look_at_an_open_round_reports_its_objects_and_ends_nothing() -> None:
    world = World(6)
    world.register(40)
    world.publish(100)
    world.machine.leaf_counts(ends_round=True)
    world.publish(70)

    so_far = loads_of(present(world.machine.leaf_counts_so_far()))

    assert so_far.slots == (0, 1)
    assert so_far.loads.objects.sum() == 70
    whole = loads_of(present(world.machine.leaf_counts(ends_round=True))).loads
    assert so_far.loads.objects.tolist() == whole.objects.tolist()
    assert so_far.loads.met.tolist() == whole.met.tolist()
    assert loads_of(present(world.machine.leaf_counts_so_far())).loads.objects.sum() == 0
    assert World(6, counts=False).machine.leaf_counts_so_far() is None


def test_another_map_and_lost_slots_are_counted_from_nothing() -> None:
    world = World(2)
    world.publish(100)
    world.machine.leaf_counts(ends_round=True)
    world.declare(Granted(0, SLOTS, 0, "other"))
    world.publish(50)

    report = loads_of(present(world.machine.leaf_counts(ends_round=True)))

    assert report.slots == (1,)
    assert {int(MAP.slot_of_leaf[leaf]) for leaf in report.leaves} == {1}
    world.declare(MapActivated(0, 2, to_bytes(uniform_map(SLOTS_COUNT, 4, 2))))
    assert world.machine.leaf_counts(ends_round=False) is None
    report = loads_of(present(world.machine.leaf_counts(ends_round=True)))
    assert report.version == 2
    assert report.loads.faded.sum() == 0


def test_nothing_is_counted_without_a_request() -> None:
    world = World(3, counts=False)
    world.publish(10)

    assert world.machine.leaf_counts(ends_round=True) is None


def test_objects_that_are_remembered_are_bounded_and_evenly_spread() -> None:
    world = World(4, limits=EvaluatorLimits(recent_objects_max=64, waiting_objects_max=50))
    for _ in range(20):
        world.publish(50)

    counted = present(world.machine.leaf_counts(ends_round=True))

    assert len(counted.recent) <= 64
    assert counted.recent.every >= 16
    assert len(counted.recent) * counted.recent.every == pytest.approx(1_000, rel=0.3)
    assert loads_of(counted).loads.objects.tolist() == world.expected().objects.tolist()


def test_queries_that_are_sampled_stand_for_all(monkeypatch) -> None:
    world = World(5, limits=FEW_SAMPLED)
    world.register(600)

    report = loads_of(present(world.machine.leaf_counts(ends_round=True))).loads

    expected = world.expected().queries
    assert report.queries.sum() == pytest.approx(expected.sum(), rel=0.25)


@pytest.mark.parametrize("seed", range(3))
def test_details_add_up_to_their_leaf(seed) -> None:
    world = World(seed)
    world.register(60)
    world.publish(800)
    counted = present(world.machine.leaf_counts(ends_round=True))
    report = loads_of(counted).loads
    wanted = [MAP.leaves[leaf].id for leaf in (0, 3, 6)]

    details = read_details(write_details(details_of(counted, wanted)))

    assert list(details) == wanted
    for leaf in (0, 3, 6):
        detail = details[MAP.leaves[leaf].id]
        reported = f"seed={seed} leaf={leaf}"
        west, south, east, north = MAP.leaves[leaf].box
        assert (detail.grid.x_borders[[0, -1]] == [west, east]).all(), reported
        assert (detail.grid.y_borders[[0, -1]] == [south, north]).all(), reported
        assert detail.statistics.objects == pytest.approx(report.faded[leaf]), reported
        assert detail.statistics.queries == pytest.approx(report.queries[leaf]), reported
        assert detail.statistics.recent == pytest.approx(report.arrivals[leaf]), reported
        assert detail.met.columns.sum() == report.met[leaf] == detail.met.rows.sum(), reported


def test_a_leaf_can_be_cut_where_its_neighbours_end() -> None:
    world = World(7)
    world.publish(500)
    counted = present(world.machine.leaf_counts(ends_round=True))
    for leaf in MAP.leaves:
        (detail,) = details_of(counted, [leaf.id]).values()
        west, _, east, _ = leaf.box
        inside = {side for box in BOXES for side in box[0::2] if west < side < east}
        assert inside <= set(detail.grid.x_borders.tolist())


def test_a_sample_has_each_query_once_and_passes_the_wire() -> None:
    world = World(8)
    world.register(50)
    world.publish(400)
    counted = present(world.machine.leaf_counts(ends_round=True))

    sample = read_sample(write_sample(sample_of(counted, 100, 1_000)))

    assert 80 <= len(sample.sample) <= 100
    assert len(sample.sample.queries) == len(set(sample.draws.tolist())) == 50
    assert {tuple(box) for box in sample.sample.queries.boxes.tolist()} == set(world.boxes)
    joined = joined_sample([sample, sample])
    assert joined is not None
    assert len(joined.queries) == 50
    assert joined_sample([]) is None


def report_of(rng, west, objects, objects_sampled, queries, queries_sampled):
    """Returns an evaluator's report of evenly drawn objects and queries in a tenth of a degree."""
    handles = np.sort(rng.integers(0, 2**64, queries, np.uint64))[:queries_sampled]
    count = len(handles)
    boxes = np.tile([[west, 0.0, west + 0.1, 1.0]], (count, 1))
    none, no_terms = np.zeros(objects_sampled + 1, np.int64), np.empty(0, np.uint64)
    sample = Sample(
        np.full(objects_sampled, west),
        np.zeros(objects_sampled),
        none,
        no_terms,
        rng.integers(0, 2**64, objects_sampled, np.uint64),
        SampleQueries(
            np.full(count, QueryKind.RANGE_CONTINUOUS, np.uint8),
            boxes,
            np.zeros(count + 1, np.int64),
            no_terms,
            np.ones(count),
        ),
    )
    return SampleReport(sample, handles, float(objects), float(queries))


def test_a_sample_has_of_each_evaluator_its_share() -> None:
    rng = np.random.default_rng(0)
    busy = report_of(rng, -50.0, 100_000, 2_000, 200_000, 2_000)
    others = [report_of(rng, 0.1 * number, 100, 50, 1_000, 64) for number in range(100)]

    sample = joined_sample([busy, *others])

    assert sample is not None
    in_busy = sample.lon < 0
    assert in_busy.sum() == 2_000
    assert in_busy.mean() == pytest.approx(100_000 / 110_000, rel=0.01)
    by_queries = sample.queries.boxes[:, 0] < 0
    assert by_queries.mean() == pytest.approx(200_000 / 300_000, rel=0.1)


def test_a_sample_leaves_out_evaluators_drawn_too_sparsely() -> None:
    """Its share of the sample rounds to none; the next one's terms follow without a gap."""
    parts = []
    for west, objects in ((-50.0, 1_000), (0.0, 2), (50.0, 1_000)):
        reported = report_of(np.random.default_rng(2), west, objects, min(objects, 100), 0, 0)
        count = len(reported.sample)
        terms = np.repeat(np.arange(count, dtype=np.uint64), 2)
        sample = replace(reported.sample, term_offsets=np.arange(count + 1) * 2, terms=terms)
        parts.append(replace(reported, sample=sample))

    joined = joined_sample(parts)

    assert joined is not None
    assert np.unique(joined.lon).tolist() == [-50.0, 50.0]
    assert joined.term_offsets.tolist() == (2 * np.arange(201)).tolist()
    assert joined.terms.tolist() == parts[0].sample.terms.tolist() * 2


def test_queries_of_evaluators_without_objects_are_in_the_sample() -> None:
    rng = np.random.default_rng(1)
    parts = [report_of(rng, -50.0, 100, 100, 10, 10), report_of(rng, 50.0, 0, 0, 30, 30)]

    sample = joined_sample(parts)

    assert sample is not None
    assert (sample.queries.boxes[:, 0] > 0).sum() == 30


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_has_of_each_slot_its_share(seed) -> None:
    """A slot with many queries contributes some of them, one with few all."""
    world = World(seed, limits=FEW_SAMPLED)
    for number in range(1_060):
        slot = int(number >= 1_000)
        west, south, east, north = BOXES[MAP.slot_of_leaf == slot][0]
        middle = ((west + east) / 2, (south + north) / 2)
        names = ("west", "south", "east", "north")
        rect = dict(zip(names, (*middle, middle[0] + 0.1, middle[1] + 0.1), strict=True))
        query: dict[str, Any] = {"id": f"q{number}", "kind": "range", "mode": "continuous"}
        query["region"] = {"rect": rect}
        world.append(slot, installed_of(0, [(number, query, "ann", 0)]))
    world.publish(50)

    sample = sample_of(present(world.machine.leaf_counts(ends_round=True)), 100, 1_000)

    share = len(sample.draws) / 1_060
    assert sample.queries == pytest.approx(1_060, rel=0.5)
    assert share == pytest.approx(1 / 16, rel=0.5), f"seed={seed}"
    west, _, east, _ = BOXES[MAP.slot_of_leaf == 1][0]
    of_few = sample.sample.queries.boxes[:, 0] == (west + east) / 2
    assert of_few.sum() <= 12, f"seed={seed}"


@pytest.mark.parametrize("seed", range(3))
def test_chosen_handles_do_not_raise_the_share_of_a_sample(seed) -> None:
    """Half of the queries have handles below a sixteenth of all; the sample has half of them."""
    others = [f"r{number}" for number in range(600)]
    chosen = [name for name in (f"c{n}" for n in range(20_000)) if query_handle(name) < 1 << 60]
    names = [name for pair in zip(chosen[:600], others, strict=True) for name in pair]
    key = random.Random(seed).randbytes(SECRET_BYTES).hex()
    parts = [World(seed, hashing=TermHashing(key), limits=FEW_SAMPLED) for _ in range(2)]
    for number, name in enumerate(names):
        west = -100.0 if number % 2 else 100.0
        rect = {"west": west, "south": 10.0, "east": west + 0.1, "north": 10.1}
        query = {"id": name, "kind": "range", "mode": "continuous", "region": {"rect": rect}}
        for world in parts:
            world.append(0, installed_of(0, [(number, query, "ann", 0)]))

    counts = [present(world.machine.leaf_counts(ends_round=True)) for world in parts]
    sample = [sample_of(each, 100, 1_000) for each in counts]

    count = len(sample[0].draws)
    assert 15 <= count <= 70, f"seed={seed}"
    of_chosen = int((sample[0].sample.queries.boxes[:, 0] > 0).sum())
    # Five times the deviation of this many coins.
    assert abs(of_chosen - count / 2) < 2.5 * count**0.5, f"seed={seed}"
    # All evaluators that hold a query draw it alike.
    assert sample[0].draws.tolist() == sample[1].draws.tolist()


def test_a_query_across_the_antimeridian_is_one_box() -> None:
    world = World(11)
    region = {"rect": {"west": 170.0, "south": 0.0, "east": -170.0, "north": 10.0}}
    query = {"id": "q", "kind": "range", "mode": "continuous", "region": region}
    world.append(0, installed_of(0, [(0, query, "ann", 0)]))

    sample = sample_of(present(world.machine.leaf_counts(ends_round=True)), 10, 10).sample

    assert sample.queries.boxes.tolist() == [[170.0, 0.0, -170.0, 10.0]]


def test_loads_pass_the_wire() -> None:
    world = World(9)
    world.register(10)
    world.publish(30)
    report = loads_of(present(world.machine.leaf_counts(ends_round=True)))

    read = read_loads(write_loads(report))

    assert (read.version, read.slots) == (report.version, report.slots)
    assert read.leaves.tolist() == report.leaves.tolist()
    for name in LeafLoads.__slots__:
        assert getattr(read.loads, name).tolist() == getattr(report.loads, name).tolist()


def test_slots_that_are_to_move_are_saved_and_others_are_not() -> None:
    world = World(10)
    world.publish(50)

    effects = world.step(SaveRequest((1, 99)))

    saved = [effect.partition for effect in effects if isinstance(effect, SaveCheckpoint)]
    assert saved == [1]
    # Nothing has arrived since.
    assert world.step(SaveRequest((1,))) == []
