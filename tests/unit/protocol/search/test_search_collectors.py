"""Sums of the answers of slots, compared with sums and orders over all objects at once."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import pack_bytes
from sirocco.model.query import parse_query
from sirocco.model.text import term_hash
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.collectors import TermsCollector, at_least_kth, collector_of
from sirocco.protocol.search.messages import AnswerRows, Part, Ranking, TermSums
from sirocco.protocol.search.term_merge import most_frequent
from tests.support.seeds import drawn_seed
from tests.support.values import columns_of

RUNS = 400


def sums_of(counts: Counter[str], k: int, answers: int) -> TermSums:
    """Returns one evaluator's counts, in chunks of any size."""
    terms = list(counts)
    numbers = np.array([counts[term] for term in terms], np.uint64)
    first = at_least_kth(numbers, k, answers).tolist()
    rest = [] if answers == 1 else [row for row in range(len(terms)) if row not in set(first)]
    rows = first + rest
    return TermSums(
        np.array([term_hash(terms[row]) for row in rows], np.uint64),
        numbers[rows],
        *pack_bytes([terms[row].encode() for row in first]),
    )


def listed(answer: AnswerRows) -> list[tuple[bytes, int]]:
    return most_frequent(answer.terms, 1 << 30)


def test_the_most_frequent_terms_are_named_however_they_are_spread() -> None:
    for _ in range(RUNS):
        seed = drawn_seed()
        rng = random.Random(seed)
        k = rng.choice([1, 2, 5, 20])
        evaluators = rng.randrange(1, 6)
        # From very unequal to nearly equal counts, with many ties.
        skew = rng.choice([0.0, 0.3, 1.0, 2.0])
        parts: list[Counter[str]] = [Counter() for _ in range(evaluators)]
        for i in range(rng.randrange(1, 120)):
            total = 1 + int(60 / (1 + i) ** skew)
            for _ in range(total):
                parts[rng.randrange(evaluators)][f"t{i}é"] += 1
        collector = TermsCollector(k)
        for part in parts:
            collector.add([Part(terms=sums_of(part, k, evaluators))])
        summed: Counter[str] = sum(parts, Counter())
        wanted = sorted(summed.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
        found = [(text.decode(), count) for text, count in listed(collector.answer())]
        assert found == wanted, f"seed {seed}"


def test_few_texts_travel_when_counts_are_unequal() -> None:
    counts = np.array([100_000 // (1 + i) for i in range(5_000)], np.uint64)
    assert len(at_least_kth(counts, 10)) == 10
    assert len(at_least_kth(counts, 10, 4)) <= 41
    assert len(at_least_kth(counts, 10_000, 4)) == 5_000


def test_too_many_terms_are_refused() -> None:
    collector = TermsCollector(1, kept_bytes_max=100)
    counts = Counter({f"t{i}": 1 for i in range(10)})
    with pytest.raises(InvalidArgument) as caught:
        collector.add([Part(terms=sums_of(counts, 1, 2))])
    assert caught.value.field == "region"


def test_ranked_parts_are_scored_together() -> None:
    # init: two slots; in the second the keyword is common, which lowers its weight.
    query = parse_query(
        {
            "id": "q",
            "kind": "ranked",
            "mode": "snapshot",
            "point": {"lon": 0, "lat": 0},
            "radius_m": 1_000.0,
            "k": 2,
            "keywords": ["light"],
            "weights": {"text": 0.5, "space": 0.5, "time": 0.0},
        }
    )
    first = part_of([(1, 2, 4, 500.0), (2, 1, 4, 100.0)], total=10, tokens=40, holders=2)
    second = part_of([(3, 3, 4, 900.0)], total=10, tokens=40, holders=6)

    # test
    collector = collector_of(query, 0)
    assert collector is not None
    collector.add([first])
    collector.add([second])
    found = collector.answer()

    # check: BM25 with N = 20, n = 8, mean length 4.
    def bm25(often: int) -> float:
        return often * 2.2 / (often + 1.2)

    wanted = {
        1: 0.5 * bm25(2) / bm25(3) + 0.5 * 0.5,
        2: 0.5 * bm25(1) / bm25(3) + 0.5 * 0.9,
        3: 0.5 + 0.5 * 0.1,
    }
    best = sorted(wanted, key=lambda i: -wanted[i])[:2]
    assert found.objects.ids.tolist() == best
    assert found.values.tolist() == pytest.approx([wanted[i] for i in best], abs=1e-9)
    assert collector.bound_m() is None


def test_an_answer_without_parts_is_empty() -> None:
    for members in (
        {"kind": "knn", "point": {"lon": 0, "lat": 0}, "k": 2},
        {"kind": "terms", "k": 2},
        {
            "kind": "ranked",
            "point": {"lon": 0, "lat": 0},
            "radius_m": 5.0,
            "k": 2,
            "keywords": ["a"],
        },
    ):
        collector = collector_of(parse_query({"id": "q", "mode": "snapshot", **members}), 0)
        assert collector is not None
        collector.add([Part()])
        found = collector.answer()
        assert (len(found.objects), len(found.terms)) == (0, 0)


def part_of(rows: list[tuple[int, int, int, float]], total: int, tokens: int, holders: int) -> Part:
    """Returns candidates (id, occurrences, tokens, metres) of a slot with these totals."""
    ids, often, lengths, distances_m = zip(*rows, strict=True)
    objects = columns_of([{"id": i, "lon": 0, "lat": 0} for i in ids])
    count = len(rows)
    return Part(
        objects=objects,
        events=EventColumns(
            np.ones(count, np.uint64), objects.ids.copy(), np.zeros(count, np.int64)
        ),
        distances_m=np.array(distances_m),
        ranking=Ranking(
            total,
            tokens,
            np.array([holders], np.uint64),
            np.array(lengths, np.uint32),
            np.array(often, np.uint16).reshape(-1, 1),
        ),
    )
