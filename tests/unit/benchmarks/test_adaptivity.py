"""The virtual cluster that shows the effect of balancing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.adaptivity.backlog import Backlog, quantile_s, share_above
from benchmarks.adaptivity.change_times import Settling
from benchmarks.adaptivity.cluster import TICK_S, Cluster
from benchmarks.adaptivity.costs import Costs
from benchmarks.adaptivity.play import Setting, Way, in_measured_time, play
from benchmarks.adaptivity.scenes import Crowd, Scene, redirected, scene, step
from benchmarks.adaptivity.sizes import built
from benchmarks.adaptivity.swarm import hot
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.workloads import swarm as asked
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.schemes.balance.balancers import balancer_of

SEED = 7
# About the figures measured on the report's machine, with objects that cost a hundred times more.
COSTS = Costs(
    object_s=2e-4,
    probe_s=2e-9,
    hit_s=7e-6,
    insert_s=7e-7,
    repeat_s=8e-8,
    remove_s=4e-7,
    save_s=3e-7,
    load_s=8e-7,
    slice_s=2e-7,
    query_bytes=300.0,
    object_bytes=190.0,
    error_share=0.0,
)
SETTLING = Settling(
    save_s=0.05,
    grant_s=0.01,
    begin_s=0.02,
    prepare_s=0.15,
    retire_s=0.5,
    look_s=1e-7,
    copy_s=1e-5,
    ask_s=0.01,
)
SETTING = Setting(COSTS, SETTLING, SEED, evaluators=4, thinks=False)
ROUNDS = RoundSettings(interval_ms=500, cooldown_ms=500, objects_min=500)
RATE = 6_000.0
BEGIN_S, END_S = 5.0, 20.0


def pool_of(count: int, seed: int) -> Stream:
    """Objects without texts anywhere."""
    places = np.random.default_rng(seed).uniform((-180, -90), (180, 90), (count, 2))
    ids, none = np.arange(1, count + 1, dtype=np.uint64), np.zeros(count + 1, np.int64)
    empty = np.empty(0, np.uint8)
    columns = ObjectColumns(
        ids=ids,
        names=empty,
        name_offsets=none,
        lon=places[:, 0].copy(),
        lat=places[:, 1].copy(),
        ts=ids.astype(np.int64),
        text=empty,
        text_offsets=none,
        attributes=empty,
        attribute_offsets=none,
    )
    return Stream.of(columns)


@pytest.fixture(scope="module")
def tiny() -> Scene:
    calm = pool_of(2_000, SEED)
    pool = hot(calm, SEED)
    crowds = [
        Crowd(asked(SEED + 1, calm, 300)),
        Crowd(asked(SEED + 2, pool, 300), BEGIN_S, END_S, 3.0),
    ]
    shares = redirected(step(BEGIN_S, END_S, 0.6))
    return scene("tiny", [calm, pool], crowds, shares, 21.0, (12.0, END_S), [(BEGIN_S, END_S)])


@pytest.fixture(scope="module")
def static(tiny: Scene) -> Way:
    return Way("static", built("a-grid", tiny.pools[0], tiny.queries))


@pytest.fixture(scope="module")
def balanced(static: Way) -> Way:
    return replace(static, name="balanced", balancer=balancer_of("a-grid"), rounds=ROUNDS)


def test_what_is_offered_is_done_or_waits(tiny: Scene, static: Way) -> None:
    cluster = Cluster(tiny, static.map, 4, RATE, COSTS, SETTLING, SEED)
    slots = np.roll(static.map.slot_of_leaf, 1)
    changed = replace(static.map, version=2, slot_of_leaf=slots)
    cluster.after(5.0, lambda: cluster.change_map(changed))
    cluster.after(12.0, lambda: cluster.save([0, 1], lambda: cluster.move({0: 3, 1: 3})))
    while not cluster.is_over:
        cluster.step()
        if cluster.tick % 100 == 0:
            offered, done = cluster.course.offered.sum(), cluster.course.done.sum()
            assert done + cluster.waiting == pytest.approx(offered)
    course = cluster.end()
    assert cluster.routed.map is changed
    assert cluster.owner[[0, 1]].tolist() == [3, 3]
    assert len(course.paused_s) == course.moved_slots == 2
    assert course.copied_queries
    assert course.delays.sum() == pytest.approx(course.offered.sum())


def test_balancing_evens_a_hot_spot_out(tiny: Scene, static: Way, balanced: Way) -> None:
    without, _ = play(tiny, static, SETTING, RATE)
    with_it, log = play(tiny, balanced, SETTING, RATE)
    assert log.decisions
    uneven, even = (
        float((busy.max(1) / busy.mean(1)).mean())
        for busy in (in_measured_time(without.busy, tiny), in_measured_time(with_it.busy, tiny))
    )
    assert even < 0.8 * uneven
    assert share_above(in_measured_time(with_it.delays, tiny).sum(0), 0.1) == 0.0


def test_one_seed_is_one_course(tiny: Scene, balanced: Way) -> None:
    first, log = play(tiny, balanced, SETTING, RATE)
    again, same = play(tiny, balanced, SETTING, RATE)
    assert np.array_equal(first.done, again.done)
    assert np.array_equal(first.delays, again.delays)
    assert log.rounds == same.rounds
    other, _ = play(tiny, balanced, replace(SETTING, seed=SEED + 1), RATE)
    assert not np.array_equal(first.offered, other.offered)


def test_first_come_is_first_served_and_delays_are_those_of_the_queue() -> None:
    backlog = Backlog(10, 2, 1.0)
    for _ in range(3):
        backlog.let_in(np.array([10.0, 10.0]), np.array([0.5, 0.5]))
    one, two = np.array([0, 0]), np.array([1.0])
    # Three ticks' worth of work, one of which fits the time.
    used_s, done = backlog.serve(one, 3.0 * two, two)
    assert used_s.tolist() == pytest.approx([1.0])
    assert done.tolist() == [10.0, 10.0]
    assert backlog.waiting == 40.0
    assert backlog.under_way() == 40.0
    # The second slot changes owners: its waiting objects move with it.
    begin_s, budget_s = np.array([4.0, 4.0]), np.array([0.0, 0.75])
    used_s, done = backlog.serve(np.array([0, 1]), begin_s, budget_s)
    assert used_s.tolist() == pytest.approx([0.0, 0.75])
    assert done.tolist() == [0.0, 15.0]
    assert backlog.waiting == pytest.approx(25.0)
    backlog.end()
    delays = backlog.delays.sum(0)
    assert delays.sum() == pytest.approx(60.0)
    # From the middle of the first second to the end of the fourth.
    assert quantile_s(delays, 0.3) == pytest.approx(3.5, rel=0.13)
    assert share_above(delays, 100.0) == pytest.approx(25 / 60)
    assert TICK_S < 0.1
