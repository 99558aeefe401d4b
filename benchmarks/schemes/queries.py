"""Queries by the papers' recipes: PS2Stream VI-A, SSTD 7.1, Tornado 6, SWARM 6."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.streams import STATES, Stream
from sirocco.index.base.query_rows import QueryRows
from sirocco.schemes.map.map import WORLD
from sirocco.schemes.map.routing import QueryRoutes, RoutingArrays
from sirocco.schemes.workload.assumed_queries import KINDS as SSTD_KINDS
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.sample import QueryKind, SampleQueries

# PS2Stream VI-A: infrequent keywords are those that are not in the top 1 % of the terms.
FREQUENT_SHARE = 0.01
# VI-C: the regions of Q3, each with the queries of Q1 or of Q2.
REGIONS_PER_SIDE = 10
# The choice between the two: the same in the queries for the map and in the others.
REGIONS_SEED = 20170419

# Tornado 6.2 varies the frequency of keywords; the words of one level have this share of all.
FREQUENCY_BAND = 0.05

_KM_PER_DEGREE = 111.195


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Range queries, each with a box and a disjunction of conjunctions of positive terms.

    Attributes:
        kinds: u1[q], `QueryKind`.
        boxes: f8[q, 4], rows (west, south, east, north), degrees.
        conj_offsets: i8[q + 1]; a query without text has one empty conjunction.
        term_offsets: i8[c + 1], into `terms`.
        terms: u8.
    """

    kinds: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    conj_offsets: NDArray[np.int64]
    term_offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, rows: NDArray[np.int64]) -> Queries:
        """Returns some queries in the given order."""
        conjunctions = np.arange(self.conj_offsets[-1])
        conj_offsets, taken = take_rows(self.conj_offsets, conjunctions, rows)
        term_offsets, terms = take_rows(self.term_offsets, self.terms, taken)
        return Queries(self.kinds[rows], self.boxes[rows], conj_offsets, term_offsets, terms)

    def of_kind(self, kind: QueryKind) -> Queries:
        """Returns the queries of one kind."""
        return self.take(np.flatnonzero(self.kinds == kind))

    def rows(self) -> QueryRows:
        """Returns the queries in the form of the range index."""
        count = len(self)
        plain = QueryRows.of_boxes(self.boxes, np.zeros(count + 1, np.int64), self.terms[:0])
        columns = {name: getattr(plain, name) for name in QueryRows.__slots__}
        columns["neg_offsets"] = np.zeros(len(self.term_offsets), np.int64)
        columns["conj_offsets"] = self.conj_offsets
        columns["pos_offsets"], columns["pos_terms"] = self.term_offsets, self.terms
        return QueryRows(**columns)

    def sample(self) -> SampleQueries:
        """Returns the queries as a builder gets them: by their first conjunction."""
        count = len(self)
        offsets, terms = take_rows(self.term_offsets, self.terms, self.conj_offsets[:-1])
        return SampleQueries(self.kinds, self.boxes, offsets, terms, np.ones(count))

    def route(self, arrays: RoutingArrays) -> QueryRoutes:
        """Routes them as registrations; those with text by their keys if the map is by text."""
        one_box = np.arange(len(self) + 1)
        if not arrays.is_by_keyword:
            return arrays.route_boxes(self.boxes, one_box)
        return arrays.route_boxes(self.boxes, one_box, *self.keys(arrays))

    def keys(self, arrays: RoutingArrays) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Returns the keys of each query (offsets i8[q + 1], keys); none for those without text."""
        has_text = np.diff(self.term_offsets) > 0
        offsets = np.concatenate([[0], np.cumsum(has_text)])[self.conj_offsets]
        conjunctions = self.term_offsets[np.concatenate([[True], has_text])]
        return offsets, arrays.choose_keys(conjunctions, self.terms)


def boxes_around(
    lon: NDArray[np.float64],
    lat: NDArray[np.float64],
    width: NDArray[np.float64] | float,
    height: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Returns boxes of these sides in degrees, limited to the world."""
    boxes = np.stack([lon - width / 2, lat - height / 2, lon + width / 2, lat + height / 2], 1)
    return np.clip(boxes, (*WORLD[:2], *WORLD[:2]), (*WORLD[2:], *WORLD[2:]))


def subscriptions(seed: int, stream: Stream, count: int, group: str) -> Queries:
    """Creates PS2Stream's queries over posts of the States (VI-A, VI-C).

    The centre is the place of an object; the region a square of 1 to 50 km (q1) or 1 to 100 km
    (q2); one to three keywords joined by AND or by OR. Keywords of q1 have the distribution of the
    objects' terms; a query of q2 has at least one outside the top 1 % of the terms. In q3 each of
    10 x 10 regions has the queries of q1 or of q2.
    """
    rng = np.random.default_rng(seed)
    place = rng.integers(0, len(stream), count)
    lon, lat = stream.lon[place], stream.lat[place]
    second = {"q1": np.zeros(count, np.bool_), "q2": np.ones(count, np.bool_)}.get(group)
    if second is None:
        regions = np.random.default_rng(REGIONS_SEED)
        is_second = regions.random((REGIONS_PER_SIDE, REGIONS_PER_SIDE)) < 0.5
        column = (
            ((lon + 180) / 360 * REGIONS_PER_SIDE).astype(np.int64).clip(0, REGIONS_PER_SIDE - 1)
        )
        row = ((lat + 90) / 180 * REGIONS_PER_SIDE).astype(np.int64).clip(0, REGIONS_PER_SIDE - 1)
        second = is_second[row, column]
    side_km = rng.uniform(1, np.where(second, 100, 50))
    west, south, east, north = STATES
    middle = np.radians((south + north) / 2)
    width = side_km / (_KM_PER_DEGREE * np.cos(middle)) * (360 / (east - west))
    height = side_km / _KM_PER_DEGREE * (180 / (north - south))
    words = stream.terms[rng.integers(0, len(stream.terms), (count, 3))]
    words[second, 0] = rng.choice(infrequent(stream), int(second.sum()))
    lengths = rng.integers(1, 4, count)
    kinds = np.full(count, QueryKind.RANGE_CONTINUOUS, np.uint8)
    text = _text(words, lengths, rng.random(count) < 0.5)
    return Queries(kinds, boxes_around(lon, lat, width, height), *text)


def infrequent(stream: Stream) -> NDArray[np.uint64]:
    """Returns the occurrences of terms that are not in the top 1 % of the terms."""
    known, held, counts = np.unique(stream.terms, return_inverse=True, return_counts=True)
    frequent = np.zeros(len(known), np.bool_)
    frequent[np.argsort(-counts, kind="stable")[: int(np.ceil(FREQUENT_SHARE * len(known)))]] = True
    return stream.terms[~frequent[held]]


def after_objects(
    seed: int,
    stream: Stream,
    count: int,
    side_share: float,
    keywords: int,
    kinds: tuple[QueryKind, ...] = (QueryKind.RANGE_CONTINUOUS,),
) -> Queries:
    """Creates queries from the place and the words of an object (SSTD 7.1, Tornado 6).

    Args:
        seed: For all random draws.
        stream: The objects.
        count: How many of each kind.
        count: How many of each kind.
        side_share: Side of the region relative to the side of the world, in both directions.
        keywords: Words of the object, joined by AND; fewer if it has fewer, 0 for none.
        kinds: Kinds of query; each has the same regions and words.
    """
    rng = np.random.default_rng(seed)
    place = rng.integers(0, len(stream), count)
    boxes = boxes_around(stream.lon[place], stream.lat[place], side_share * 360, side_share * 180)
    first = stream.term_offsets[place]
    held = stream.term_offsets[place + 1] - first
    lengths = np.minimum(keywords, held)
    # Distinct words of the text: a random start and the words after it, cyclically.
    at = rng.integers(0, np.maximum(held, 1))[:, None] + np.arange(max(keywords, 1))
    at = np.minimum(first[:, None] + at % np.maximum(held, 1)[:, None], len(stream.terms) - 1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    terms = stream.terms[at[np.arange(at.shape[1]) < lengths[:, None]]]
    times = len(kinds)
    return Queries(
        np.repeat(np.array(kinds, np.uint8), count),
        np.tile(boxes, (times, 1)),
        np.arange(times * count + 1),
        np.concatenate([[0], np.cumsum(np.tile(np.diff(offsets), times))]),
        np.tile(terms, times),
    )


def of_frequency(seed: int, stream: Stream, count: int, side_share: float, level: float) -> Queries:
    """Creates queries of one keyword at a given place in the order of frequencies (Tornado 6.2).

    Args:
        seed, stream, count, side_share: As in `after_objects`.
        level: 0 for words of no object, 1 for the most frequent ones; between them the share of all
            occurrences that belong to less frequent words.
    """
    rng = np.random.default_rng(seed)
    made = after_objects(seed, stream, count, side_share, 1)
    if level == 0:
        words = rng.integers(0, 1 << 64, len(made.terms), np.uint64, endpoint=False)
        return replace(made, terms=words)
    known, counts = np.unique(stream.terms, return_counts=True)
    order = np.argsort(counts, kind="stable")
    sums = np.cumsum(counts[order]) / counts.sum()
    end = min(int(np.searchsorted(sums, level)) + 1, len(known))
    begin = int(np.searchsorted(sums, max(0.0, level - FREQUENCY_BAND)))
    return replace(made, terms=rng.choice(known[order[min(begin, end - 1) : end]], len(made.terms)))


def sstd_mix(seed: int, stream: Stream, count: int, area_share: float, keywords: int) -> Queries:
    """Creates equally many queries of SSTD's six kinds, `count` in all (7.1)."""
    each = max(1, count // len(SSTD_KINDS))
    return after_objects(seed, stream, each, float(np.sqrt(area_share)), keywords, SSTD_KINDS)


def _text(
    words: NDArray[np.uint64], lengths: NDArray[np.int64], is_or: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    """Returns (conj_offsets, term_offsets, terms) of each row's first words, each word once."""
    keep = np.arange(words.shape[1]) < lengths[:, None]
    for column in range(1, words.shape[1]):
        keep[:, column] &= (words[:, :column] != words[:, column : column + 1]).all(1)
    counts = keep.sum(1)
    conjunctions = np.where(is_or, counts, 1)
    terms_each = np.repeat(np.where(is_or, 1, counts), conjunctions)
    zero = np.zeros(1, np.int64)
    return (
        np.concatenate([zero, np.cumsum(conjunctions)]),
        np.concatenate([zero, np.cumsum(terms_each)]),
        words[keep],
    )
