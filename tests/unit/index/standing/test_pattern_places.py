"""Texts are searched for the phrases and beginnings of their place, and no match is missed."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.compile import with_numbers
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.grid import Grid
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.text.text_terms import with_patterns
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import begins, phrase
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import hash_rows

KEYED = TermHashing("0b" * 16)
WORDS = [
    "a",
    "ab",
    "abc",
    "abcd",
    "abcdefghij",
    "b",
    "é",
    "éa",
    "éab",
    "ежи",
    "ежики",
    "कखग",
    "𝐚bc",
]
STARTS = ["ab", "abc", "abcd", "abcdefghi", "éa", "е\u0308", "еж", "ежик", "कख", "bc"]


def queries_of(
    dice: random.Random, boxes: list[list[tuple[float, float, float, float]]], hashing: TermHashing
) -> QueryRows:
    """Returns a query for each list of boxes, of one to three patterns and words."""
    terms = []
    for _ in boxes:
        pool = [
            dice.choice(WORDS),
            begins(dice.choice(STARTS)),
            phrase(dice.choices(WORDS, k=dice.choice([2, 2, 3, 5]))),
        ]
        terms.append(dice.sample(pool, dice.randint(1, 3)))
    known: dict[str, int] = {}
    numbered = [known.setdefault(term, len(known)) for one in terms for term in one]
    words, word_offsets = pack_bytes([term.encode() for term in known])
    ends = np.zeros(len(boxes) + 1, np.int64)
    np.cumsum([len(one) for one in terms], out=ends[1:])
    rows = np.array(numbered, np.int32)
    first = np.array([one[0] for one in boxes])
    plain = QueryRows.of_boxes(first, ends, hash_rows(words, word_offsets)[rows])
    box_offsets = np.zeros(len(boxes) + 1, np.int64)
    np.cumsum([len(one) for one in boxes], out=box_offsets[1:])
    found = replace(
        plain,
        words=words,
        word_offsets=word_offsets,
        pos_word_rows=rows,
        boxes=np.array([box for one in boxes for box in one]),
        box_offsets=box_offsets,
    )
    return with_numbers(found, hashing)


def box(dice: random.Random) -> tuple[float, float, float, float]:
    side = 10 ** dice.uniform(-4, 2.2)
    lon, lat = dice.choice([(0.0, 0.0), (179.9, 89.9), (13.4, 52.5), (-180.0, -90.0)])
    west, south = max(-180.0, lon - side), max(-90.0, lat - side / 2)
    return west, south, min(180.0, lon + side * dice.random()), min(90.0, lat + side / 3)


def texts_of(dice: random.Random, count: int) -> list[str]:
    return [" ".join(dice.choices(WORDS, k=dice.choice([0, 1, 3, 12]))) for _ in range(count)]


def matches(
    index: RangeIndex, hashing: TermHashing, texts: list[str], places: np.ndarray, *, near: bool
) -> tuple[set[tuple[int, int]], int]:
    """Returns the pairs found, and how many patterns were looked up for that."""
    data, offsets = pack_bytes([text.encode() for text in texts])
    lon, lat = np.ascontiguousarray(places[:, 0]), np.ascontiguousarray(places[:, 1])
    _, tokens, in_order = hashing.analyse_in_order(data, offsets)
    patterns = index.vocabulary.patterns
    assert patterns is not None
    found = hashing.patterns(
        data, offsets, patterns, in_order=in_order,
        near=index.near_patterns(lon, lat) if near else None,
    )  # fmt: skip
    terms, count = with_patterns(tokens, *found), len(texts)
    pairs = index.match(
        lon, lat, terms.offsets, terms.terms, np.zeros(count, np.int64), np.full(count, 1_000)
    )
    rows = zip(pairs.object_rows.tolist(), pairs.query_rows.tolist(), strict=True)
    return set(rows), len(found[0])


@pytest.mark.parametrize("seed", range(15))
def test_no_match_of_a_place_is_missed(seed: int) -> None:
    dice = random.Random(seed)
    hashing = dice.choice([WIRE_TERMS, KEYED])
    grid = dice.choice([Grid(), Grid(-10.0, -10.0, 20.0, 60.0, 9)])
    index, rows = RangeIndex(grid, hashing=hashing), []
    for round_ in range(4):
        boxes = [[box(dice) for _ in range(dice.choice([1, 1, 2, 9]))] for _ in range(60)]
        rows += index.insert(queries_of(dice, boxes, hashing), round_).tolist()
        ended = dice.sample(rows, len(rows) // 3)
        rows = [row for row in rows if row not in ended]
        index.remove(np.array(ended, np.int32), round_)
        index.reclaim(round_ + 1)
        edges = [[x, y] for one in boxes for w, s, e, n in one for x, y in ((w, s), (e, n))]
        places = np.array([*edges[:200], [180.0, 1.0], [-180.0, 1.0], [0.0, 90.0]])
        texts = texts_of(dice, len(places))
        wanted, _ = matches(index, hashing, texts, places, near=False)
        found, _ = matches(index, hashing, texts, places, near=True)
        assert found == wanted


def test_patterns_of_other_places_are_not_looked_up() -> None:
    index = RangeIndex(hashing=KEYED)
    boxes = [[(x / 10, y / 10, x / 10 + 0.01, y / 10 + 0.01)] for x in range(40) for y in range(40)]
    index.insert(queries_of(random.Random(1), boxes, KEYED), 0)
    dice = random.Random(2)
    texts = texts_of(dice, 500)
    apart = np.array([[dice.randrange(40) / 10 + 0.05, dice.randrange(40) / 10] for _ in texts])
    _, everywhere = matches(index, KEYED, texts, apart, near=False)
    _, near = matches(index, KEYED, texts, apart, near=True)
    assert everywhere > 1_000
    assert near < everywhere / 20


def test_places_of_ended_queries_are_forgotten() -> None:
    index = RangeIndex(hashing=KEYED)
    sizes = []
    for position in range(12):
        boxes = [
            [(x / 100, float(position), x / 100 + 0.001, position + 0.001)] for x in range(1_000)
        ]
        rows = index.insert(queries_of(random.Random(position), boxes, KEYED), position)
        assert index._places is not None
        sizes.append(len(index._places))
        index.remove(rows, position)
        index.reclaim(position + 1)
    assert max(sizes) < 3 * sizes[0]
    assert all(size > 0 for size in itertools.islice(sizes, 1, None))
