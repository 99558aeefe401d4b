"""How the comparison of schemes judges Tornado's forwarding and its adapting."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.schemes import streams, tornado_adaptive
from benchmarks.schemes.claims_tornado_swarm import CLAIMS
from benchmarks.schemes.figures import LEAVES, SLOTS, Figures
from benchmarks.schemes.keyword_forwarding import UNITS, Forwarding, Run, forwarding
from benchmarks.schemes.loads import all_pairs, route_stream
from benchmarks.schemes.measure import ADAPTED, build
from benchmarks.schemes.pipeline import query_lines, term_names
from benchmarks.schemes.queries import Queries, after_objects
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.verdicts import DIRECTION, REFUTED, REPRODUCED, Claim
from sirocco.protocol.contract.effects import State
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map

SEED = 7


@pytest.fixture(scope="module")
def posts() -> Stream:
    return streams.states_posts(SEED, 4_000)


@pytest.fixture(scope="module")
def asked(posts: Stream) -> Queries:
    return after_objects(SEED, posts, 1_500, 0.02, 2)


@pytest.fixture(scope="module")
def built(posts: Stream, asked: Queries) -> tuple[PartitionMap, RoutingArrays]:
    _, made, arrays = build("a-grid", posts.sample(asked.sample()), SLOTS, SLOTS)
    return made, arrays


def claim_of(figure: str) -> Claim:
    (claim,) = [claim for claim in CLAIMS if claim.source.endswith(figure)]
    return claim


# --- Figure 10b


def slots_of_terms(state: State) -> dict[int, tuple[int, ...]]:
    sets = [tuple(each) for each in state["summary.slots"].tolist()]
    return dict(zip(state["summary.terms"].tolist(), sets, strict=True))


def test_all_ways_lead_to_the_same_keywords_and_slots(
    posts: Stream, asked: Queries, built: tuple[PartitionMap, RoutingArrays]
) -> None:
    _, arrays = built
    lines = query_lines(asked, term_names(posts))
    run = Run(arrays)
    for begin in range(0, len(lines), 500):
        run.batch(lines[begin : begin + 500])
    known = [slots_of_terms(state) for state in run.states]
    assert len(known[0]) > 100
    assert all(each == known[0] for each in known)
    routes = asked.route(arrays)
    assert run.standing == np.bincount(routes.slots, minlength=SLOTS).tolist()
    # The number of new keywords falls, that of sent queries does not.
    new, queries, keywords = (list(column) for column in zip(*run.sums, strict=True))
    assert new[0] > new[-1] > 0
    assert keywords[0] > keywords[-1]
    assert queries[-1] > 0.9 * queries[0]


def test_each_unit_more_costs_broadcast_a_query_and_forward_a_keyword(
    posts: Stream, asked: Queries, built: tuple[PartitionMap, RoutingArrays]
) -> None:
    found = forwarding(built[1], query_lines(asked, term_names(posts)))
    assert (found.standing, found.queries) == (1_000, len(asked) - 1_000)
    assert min(asdict(found).values()) >= 0
    assert found.keyword_bytes < found.query_bytes
    assert found.broadcast_us(3) - found.broadcast_us(2) == pytest.approx(found.receive_us)
    more = found.forward_us(3) - found.forward_us(2)
    assert more == pytest.approx(found.write_us + found.take_us)
    # Two cores for the units are too few, one for the evaluator is too few.
    assert found.queries_per_s(100.0, 2, 1_000) == pytest.approx(20_000)
    assert found.queries_per_s(1.0, 1_000, 1) == pytest.approx(1e6 / found.slots_us)


@pytest.mark.parametrize(
    ("receive_us", "slots_us", "state"),
    [(50.0, 5.0, REPRODUCED), (10.0, 5.0, DIRECTION), (0.1, 5.0, REFUTED), (50.0, 600, REFUTED)],
)
def test_forwarding_may_be_worth_nothing(receive_us: float, slots_us: float, state: str) -> None:
    figures = Figures()
    clocks = Forwarding(
        standing=1,
        queries=1,
        own_us=60,
        note_us=5,
        receive_us=receive_us,
        derive_us=1,
        write_us=0.1,
        take_us=0.1,
        again_us=0.2,
        slots_us=slots_us,
        new_share=0.3,
        query_bytes=100,
        keyword_bytes=5,
    )
    figures.add("forwarding", workload="tornado", scheme="a-grid", **asdict(clocks))
    assert claim_of("Fig. 10b").verdict(figures).state == state
    assert max(UNITS) == 12


# --- Figure 13


def test_a_smaller_world_has_the_same_matches(posts: Stream, asked: Queries) -> None:
    moved = tornado_adaptive.scaled_places(posts, 0.5)
    boxes = tornado_adaptive.scaled_boxes(asked, 0.5)
    assert moved.lon.max() <= 0
    assert moved.lat.max() <= 0
    pairs, expected = all_pairs(moved, boxes), all_pairs(posts, asked)
    # Except for places at the very edge of a region, where rounding decides.
    assert len(np.setxor1d(pairs, expected)) <= 0.001 * len(expected)
    assert len(tornado_adaptive.Past.of(posts, asked).met) == len(posts)
    assert tornado_adaptive.Past.of(posts, asked).met.sum() == len(expected)


def test_rounds_even_out_what_scaling_has_moved(
    posts: Stream, asked: Queries, built: tuple[PartitionMap, RoutingArrays]
) -> None:
    made, static = built
    past = tornado_adaptive.Past.of(posts, asked)
    adapted, found = tornado_adaptive.adapt(made, past, 0.5, SEED)
    moved = tornado_adaptive.scaled_places(posts, 0.5)
    shares = []
    for arrays in (static, compile_map(adapted)):
        counts = np.bincount(route_stream(arrays, moved).slot, minlength=SLOTS)
        shares.append(counts.max() / len(posts))
    assert found.operations > 0
    assert adapted.version == made.version + found.operations
    assert found.imbalance_last < 0.7 * found.imbalance_first
    assert shares[1] < 0.7 * shares[0]
    assert 0 < found.reported_bytes < found.central_bytes
    # Where nothing was moved there is little to do.
    _, calm = tornado_adaptive.adapt(made, past, 1.0, SEED)
    assert calm.operations < found.operations


def capacities(static: list[float], adapted: list[float]) -> Figures:
    figures = Figures()
    for scheme, values in (("a-grid", static), (ADAPTED, adapted)):
        for scale, value in zip(tornado_adaptive.SCALES, values, strict=True):
            for leaves in (SLOTS, LEAVES):
                figures.add("sweeps", workload="tornado", scheme=scheme, case="scale",
                            scale=scale, asked=leaves, load_capacity=value)  # fmt: skip
    return figures


def test_adapting_may_be_worth_nothing() -> None:
    sinking = [10.0, 6.0, 5.0, 4.0, 3.0]
    claim = claim_of("Fig. 13a")
    for static, adapted, state in (
        (sinking, [10.0, 9.0, 9.0, 8.0, 8.0], REPRODUCED),
        (sinking, [10.0, 7.0, 6.0, 5.0, 4.0], DIRECTION),
        (sinking, sinking, REFUTED),
        ([10.0] * 5, [10.5] * 5, DIRECTION),
    ):
        assert claim.verdict(capacities(static, adapted)).state == state


def test_static_splits_may_carry_more_in_less_space() -> None:
    claim = claim_of("Fig. 13a: static")
    for static, state in (
        ([10.0, 6.0, 5.0, 4.0, 3.0], REPRODUCED),
        ([10.0, 3.0, 4.0, 5.0, 6.0], DIRECTION),
        ([10.0] * 5, REFUTED),
    ):
        assert claim.verdict(capacities(static, static)).state == state


def test_sending_sums_may_cost_as_much_as_sending_cells() -> None:
    for reported, state in ((10.0, REPRODUCED), (60.0, DIRECTION), (100.0, REFUTED)):
        figures = Figures()
        for leaves in (SLOTS, LEAVES):
            figures.add("adapting", workload="tornado", scheme="a-grid", scale=0.5, asked=leaves,
                        reported_bytes=reported, central_bytes=100.0)  # fmt: skip
        assert claim_of("Fig. 13b").verdict(figures).state == state
