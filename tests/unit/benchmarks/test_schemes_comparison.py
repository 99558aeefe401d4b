"""The comparison of schemes: its counts are right, and its verdicts can be either."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.schemes import loads, streams
from benchmarks.schemes.claims_tornado_swarm import CLAIMS
from benchmarks.schemes.definition_1 import fit, settle
from benchmarks.schemes.figures import Figures, MissingFigureError, load_row
from benchmarks.schemes.measure import TILE_A_SLOT, build
from benchmarks.schemes.pipeline import differing, query_lines, reported_pairs, term_names
from benchmarks.schemes.queries import Queries, after_objects, infrequent, subscriptions
from benchmarks.schemes.report import render
from benchmarks.schemes.searches import Stored
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.verdicts import (
    DIRECTION,
    REFUTED,
    REPRODUCED,
    SAME,
    UNKNOWN,
    best_of_all,
    graded,
)
from sirocco.schemes.builders.scheme import SCHEMES

SEED = 7


@pytest.fixture(scope="module")
def posts() -> Stream:
    return streams.states_posts(SEED, 1_200)


@pytest.fixture(scope="module")
def asked(posts: Stream) -> Queries:
    return subscriptions(SEED, posts, 600, "q3")


def brute_pairs(stream: Stream, queries: Queries) -> list[int]:
    found = []
    for row in range(len(stream)):
        held = set(stream.terms[slice(*stream.term_offsets[row : row + 2])].tolist())
        x, y = stream.lon[row], stream.lat[row]
        west, south, east, north = queries.boxes.T
        inside = (west <= x) & (x <= east) & (south <= y) & (y <= north)
        for query in np.flatnonzero(inside).tolist():
            spans = range(*queries.conj_offsets[query : query + 2])
            wanted = [queries.terms[slice(*queries.term_offsets[c : c + 2])] for c in spans]
            if any(held.issuperset(terms.tolist()) for terms in wanted):
                found.append(row * len(queries) + query)
    return found


def test_pairs_are_those_of_brute_force(posts: Stream, asked: Queries) -> None:
    expected = brute_pairs(posts, asked)
    assert expected
    assert loads.all_pairs(posts, asked).tolist() == expected


@pytest.mark.parametrize("scheme", SCHEMES)
def test_slots_do_all_the_work_and_no_other(scheme: str, posts: Stream, asked: Queries) -> None:
    expected = loads.all_pairs(posts, asked)
    _, _, arrays = build(scheme, posts.sample(asked.sample()), 16, 4)
    found = loads.slot_loads([(scheme, arrays)], posts, asked, expected)[scheme]
    assert found.homes.sum() == len(posts)
    assert (found.wanted <= found.objects).all()
    assert found.matches.sum() >= len(expected)
    # Every match is in a list that is checked, once for each of its conjunctions.
    assert (found.checks >= found.matches).all()


def test_pairs_that_slots_do_not_find_end_the_run(posts: Stream, asked: Queries) -> None:
    _, _, arrays = build("kd-tree", posts.sample(asked.sample()), 16, 4)
    expected = loads.all_pairs(posts, asked)
    for other in (expected[1:], np.append(expected, expected[-1] + 1)):
        with pytest.raises(loads.WrongMatchesError):
            loads.slot_loads([("kd-tree", arrays)], posts, asked, other)


def test_queries_of_q2_have_an_infrequent_word(posts: Stream) -> None:
    rare = set(infrequent(posts).tolist())
    made = subscriptions(SEED, posts, 300, "q2")
    for query in range(len(made)):
        first, last = made.term_offsets[made.conj_offsets[[query, query + 1]]]
        words = made.terms[first:last].tolist()
        assert rare.intersection(words)
        assert len(words) == len(set(words)) <= 3
    assert not all(word in rare for word in subscriptions(SEED, posts, 300, "q1").terms.tolist())


def test_visits_are_counted_leaf_by_leaf(posts: Stream) -> None:
    queries = after_objects(SEED, posts, 40, 0.2, 2)
    _, _, arrays = build("qt-tree", posts.sample(queries.sample()), 16, 4)
    leaf = loads.route_stream(arrays, posts).leaf
    routes = arrays.route_boxes(queries.boxes, np.arange(len(queries) + 1))
    visited = 0
    for query in range(len(queries)):
        wanted = set(queries.terms[slice(*queries.term_offsets[query : query + 2])].tolist())
        for one in routes.leaves[slice(*routes.leaf_offsets[query : query + 2])].tolist():
            rows = np.flatnonzero(leaf == one)
            held = {t for r in rows for t in posts.terms[slice(*posts.term_offsets[r : r + 2])]}
            visited += len(rows) if held.issuperset(wanted) else 0
    assert visited > 0
    assert Stored(arrays, posts).visits(queries, 0.0).objects == visited / len(queries)


def test_lines_of_queries_agree_with_the_columns(posts: Stream, asked: Queries) -> None:
    names = term_names(posts)
    assert set(posts.terms.tolist()) <= names.keys()
    lines = query_lines(asked, names)
    conjunctions = np.diff(asked.conj_offsets)
    assert [line.count(b" OR ") + 1 for line in lines] == conjunctions.tolist()


def test_results_of_a_replay_are_compared_pair_by_pair(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_text(
        '{"query": "q1", "object": 3}\n{"query": "q0", "object": 1}\n{"query": "q0", "object": 1}\n'
    )
    found = reported_pairs(results, queries=2)
    assert found.tolist() == [0, 0, 5]
    assert differing(found, np.array([0, 5])) == 1  # reported twice
    assert differing(found[1:], np.array([0, 5])) == 0
    assert differing(found[1:], np.array([0, 3])) == 2  # one missing, one invented
    assert differing(found[:0], np.array([0, 3])) == 2


def test_verdicts_go_either_way() -> None:
    assert [graded(value, 2) for value in (2.5, 1.9, 1.3, 1.0, 0.5)] == [
        REPRODUCED,
        REPRODUCED,
        DIRECTION,
        REFUTED,
        REFUTED,
    ]
    claim = CLAIMS[0]
    for better, state in ((30.0, REPRODUCED), (13.0, DIRECTION), (9.0, REFUTED)):
        figures = Figures()
        for scheme, capacity in (("a-grid", better), (TILE_A_SLOT, 10.0)):
            figures.add("loads", workload="tornado", scheme=scheme, case="", slots=8,
                        load_capacity=capacity, load_max_over_mean=1.0)  # fmt: skip
        assert claim.verdict(figures).state == state


def test_the_best_scheme_is_better_than_some_and_worse_than_none() -> None:
    assert best_of_all([1.5, 0.95]) == REPRODUCED
    assert best_of_all([1.05, 0.95]) == SAME
    assert best_of_all([1.5, 0.8]) == DIRECTION
    assert best_of_all([1.05, 0.8]) == REFUTED


def test_constants_are_those_that_the_times_were_made_of() -> None:
    rng = np.random.default_rng(SEED)
    counts = rng.integers(1, 1_000, (40, 2)).astype(np.float64)
    noise = rng.uniform(0.8, 1.2, 40)
    found = fit(counts, counts @ [2e-6, 5e-7] * noise)
    assert found == pytest.approx((2e-6, 5e-7), rel=0.2)
    # Time that does not grow with matches is the objects', and not negative.
    assert fit(counts, counts @ [2e-6, -5e-7])[1] == 0


def test_the_busiest_slot_bounds_the_capacity(posts: Stream, asked: Queries) -> None:
    figures = Figures()
    expected = loads.all_pairs(posts, asked)
    schemes = ("kd-tree", "text-frequency")
    made = [(name, build(name, posts.sample(asked.sample()), 16, 4)[2]) for name in schemes]
    for name, found in loads.slot_loads(made, posts, asked, expected).items():
        row = load_row(found, len(posts), len(asked))
        figures.add("loads", workload="q3", scheme=name, case="", slots=4, **row)
    settle(figures)
    constants = figures.one("constants", workload="q3")
    for row in figures.all("loads"):
        slots = row["by_slot"]
        load = 1e-6 * (
            constants["object_us"] * np.array(slots["objects"])
            + constants["match_us"] * np.array(slots["matches"])
            + constants["query_us"] * np.array(slots["queries"]) * 0.1 * len(posts) / len(asked)
        )
        assert row["load_capacity"] == pytest.approx(len(posts) / load.max(), rel=1e-3)
        assert row["load_imbalance"] == pytest.approx(load.max() / load.min(), rel=1e-3)


def test_missing_measurements_are_marked(tmp_path: Path) -> None:
    figures = Figures()
    with pytest.raises(MissingFigureError):
        figures.load("q1", "kd-tree")
    states = {claim.verdict(figures).state for claim in CLAIMS}
    assert states == {UNKNOWN}
    assert "not measured" in render(figures, [])


def test_figures_come_back_from_their_file(tmp_path: Path, posts: Stream, asked: Queries) -> None:
    _, _, arrays = build("uniform-grid", posts.sample(asked.sample()), 2, 4)
    expected = loads.all_pairs(posts, asked)
    found = loads.slot_loads([("", arrays)], posts, asked, expected)[""]
    row = load_row(found, len(posts), len(asked))
    # Two tiles in four slots: two of them idle.
    assert row["imbalance"] is None
    figures = Figures({"seed": SEED}, skipped=["nothing"])
    figures.add("loads", workload="q3", scheme="uniform-grid", case="", slots=4, **row)
    figures.write(tmp_path / "figures.json")
    assert Figures.read(tmp_path / "figures.json") == figures


def test_what_is_measured_again_takes_the_place_of_what_was_measured() -> None:
    figures = Figures()
    for scheme in ("kdt-tree", "kd-tree"):
        for slots in (8, 24):
            figures.add("loads", workload="q1", scheme=scheme, case="", slots=slots, leaves=1)
    figures.is_again = True
    figures.add("loads", workload="q1", scheme="kdt-tree", case="", slots=24, leaves=2)
    figures.add("loads", workload="q2", scheme="kdt-tree", case="", slots=24, leaves=2)
    found = [(row["workload"], row["scheme"], row["slots"], row["leaves"])
             for row in figures.all("loads")]  # fmt: skip
    assert found == [
        ("q1", "kdt-tree", 8, 1),
        ("q1", "kdt-tree", 24, 2),
        ("q1", "kd-tree", 8, 1),
        ("q1", "kd-tree", 24, 1),
        ("q2", "kdt-tree", 24, 2),
    ]
