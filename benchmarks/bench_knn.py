"""Measures standing kNN queries and tracked range queries; prints one JSON object per case.

usage: python benchmarks/bench_knn.py [--queries N] [--objects M] [--k K] [--seed S]

kNN: objects are posts of the clustered world of `loadgen.posts`; queries are at the places of other
posts, every other one with a keyword of its post. Batches of 1,000; rates are those of one core
(CPU time of the one thread).

- `warm_up`: from empty lists, stretch by stretch; `objects_seen` at the end of each;
- `steady`: a quarter of M more objects after M, best and mean of its stretches;
- `churn`: 50 queries removed and 50 inserted, with 10 objects of the past each, with every 1,000
  objects.

Tracked: 50,000 things move by about a kilometre with each object, M / 5 objects in all, and
10,000 boxes of 2 to 40 km follow them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.standing.track.track_index import ENTERS, EXITS, TrackIndex
from sirocco.loadgen.posts import WorldPosts
from sirocco.model.text import TextAnalyser

# About the objects of one poll.
BATCH = 1_000
CHURN = 50
STRETCHES = 5
THINGS = 50_000
TRACKED_QUERIES = 10_000
WORLD = [-180.0, -90.0, 180.0, 90.0]


@dataclass(frozen=True, slots=True)
class Posts:
    """Places and terms of n posts."""

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.lon)

    def slice(self, begin: int, end: int) -> Posts:
        own = self.offsets[begin : end + 1]
        terms = self.terms[own[0] : own[-1]]
        return Posts(self.lon[begin:end], self.lat[begin:end], own - own[0], terms)


def make_posts(count: int, seed: int) -> Posts:
    """Draws posts and analyses their texts."""
    analyser = TextAnalyser()
    lon, lat, terms, lengths = [], [], [], []
    for batch in WorldPosts(seed).batches(count):
        found = analyser.analyse_batch(batch.text, batch.text_offsets)
        lon.append(batch.lon)
        lat.append(batch.lat)
        terms.append(found.terms)
        lengths.append(np.diff(found.offsets))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    return Posts(np.concatenate(lon), np.concatenate(lat), offsets, np.concatenate(terms))


def make_queries(posts: Posts, seed: int) -> tuple[QueryRows, NDArray[np.float64]]:
    """Creates a query from each post: every other one with one of its keywords."""
    rng = np.random.default_rng(seed)
    lengths = np.diff(posts.offsets)
    picked = posts.offsets[:-1] + (rng.random(len(posts)) * lengths).astype(np.int64)
    has_term = (np.arange(len(posts)) % 2 == 1) & (lengths > 0)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(has_term)])
    boxes = np.tile(WORLD, (len(posts), 1))
    queries = QueryRows.of_boxes(boxes, offsets, posts.terms[picked[has_term]])
    return queries, np.column_stack([posts.lon, posts.lat])


class Stream:
    """Feeds posts to an index, numbered as a publisher would."""

    def __init__(self, index: KnnIndex, posts: Posts) -> None:
        self.index = index
        self.posts = posts
        self.done = 0
        self.hits = 0

    def batch(self, count: int) -> float:
        """Matches the next `count` posts; returns the seconds taken."""
        last = min(self.done + count, len(self.posts))
        posts, n = self.posts.slice(self.done, last), last - self.done
        numbers = np.arange(self.done + 1, last + 1, dtype=np.uint64)
        arrival_ms, sessions = np.zeros(n, np.int64), np.zeros(n, np.uint64)
        positions = numbers.astype(np.int64)
        started = time.thread_time()
        found = self.index.match(
            posts.lon, posts.lat, posts.offsets, posts.terms, arrival_ms, positions,
            numbers, sessions, numbers,
        )  # fmt: skip
        seconds = time.thread_time() - started
        self.hits += len(found)
        self.done = last
        return seconds

    def run(self, count: int) -> tuple[float, float]:
        """Matches `count` posts in batches; returns (seconds, hits an object)."""
        begin, hits, seconds = self.done, self.hits, 0.0
        end = min(begin + count, len(self.posts))
        while self.done < end:
            seconds += self.batch(min(BATCH, end - self.done))
        return seconds, (self.hits - hits) / (end - begin)


def report(case: str, **figures: object) -> None:
    print(json.dumps({"case": case, **figures}), flush=True)


def insert_all(index: KnnIndex, queries: Posts, k: int, seed: int) -> float:
    seconds = 0.0
    for begin in range(0, len(queries), BATCH):
        rows, points = make_queries(queries.slice(begin, begin + BATCH), seed)
        sizes = np.full(len(rows), k, np.int32)
        started = time.thread_time()
        index.insert(rows, points, sizes, 0)
        seconds += time.thread_time() - started
    return seconds


def warm_up(stream: Stream, objects: int) -> float:
    """Fills the lists; returns the seconds taken."""
    total_s = 0.0
    for seen in sorted({min(objects, 10**e * m) for e in range(3, 8) for m in (1, 3)}):
        count = seen - stream.done
        seconds, hits = stream.run(count)
        total_s += seconds
        report(
            "warm_up",
            objects_seen=seen,
            objects_per_s=round(count / seconds),
            hits_per_object=round(hits, 2),
            hits_per_s=round(hits * count / seconds),
            full_lists=round(stream.index.statistics().full_lists / stream.index.live_queries, 3),
        )
    return total_s


def steady(stream: Stream, count: int, **figures: object) -> None:
    """Measures full lists, and the memory of a query."""
    index, live = stream.index, stream.index.live_queries
    stretches = [stream.run(count // STRETCHES) for _ in range(STRETCHES)]
    statistics = index.statistics()
    report(
        "steady",
        queries=live,
        objects=count,
        objects_per_s=round(count / STRETCHES / min(s for s, _ in stretches)),
        objects_per_s_mean=round(count / sum(s for s, _ in stretches)),
        hits_per_object=round(sum(hits for _, hits in stretches) / STRETCHES, 2),
        postings_per_query=round(statistics.postings / live, 2),
        bytes_per_list=round(statistics.list_bytes_total / live, 1),
        bytes_per_query_beside=round(
            (statistics.bytes_total - statistics.list_bytes_total) / live, 1
        ),
        **figures,
    )


def churn(stream: Stream, fresh: Posts, k: int, seed: int, count: int) -> None:
    """Matches while queries start and end; new ones know ten past objects."""
    index = stream.index
    rng = np.random.default_rng(seed)
    oldest = np.arange(index.live_queries, dtype=np.int32)
    seconds = changing_s = 0.0
    hits = stream.hits
    for step in range(count // BATCH):
        seconds += stream.batch(BATCH)
        at = step * CHURN % (min(len(oldest), len(fresh)) - CHURN)
        rows, points = make_queries(fresh.slice(at, at + CHURN), seed)
        ids = rng.integers(1, stream.done, (CHURN, 10)).astype(np.uint64)
        near_m = np.sort(rng.exponential(2_000, (CHURN, 10)), axis=1)
        started = time.thread_time()
        index.remove(oldest[at : at + CHURN], stream.done + 1)
        inserted = index.insert(rows, points, np.full(CHURN, k, np.int32), stream.done + 1)
        for i, row in enumerate(inserted.tolist()):
            index.seed(row, ids[i], ids[i], ids[i], near_m[i])
        index.reclaim(stream.done + 1)
        changing_s += time.thread_time() - started
        oldest[at : at + CHURN] = inserted
    done = count // BATCH * BATCH
    report(
        "churn",
        objects_per_s=round(done / (seconds + changing_s)),
        objects_per_s_without_changes=round(done / seconds),
        changes_per_s=round(2 * CHURN * (count // BATCH) / changing_s),
        hits_per_object=round((stream.hits - hits) / done, 2),
    )


def tracked(places: Posts, objects: int, seed: int) -> None:
    """Measures enter and exit events of moving things."""
    rng = np.random.default_rng(seed)
    queries, points = make_queries(places.slice(0, TRACKED_QUERIES), seed)
    half = np.exp(rng.uniform(np.log(0.01), np.log(0.2), (len(queries), 1)))
    boxes = np.concatenate([points - half, points + half], 1).clip(WORLD[:2] * 2, WORLD[2:] * 2)
    # Without text: for a moving thing only the places matter.
    offsets = np.zeros(len(boxes) + 1, np.int64)
    queries = QueryRows.of_boxes(boxes, offsets, np.empty(0, np.uint64))
    index = TrackIndex()
    asked = np.full(len(queries), 1 << ENTERS | 1 << EXITS, np.uint8)
    index.insert(queries, np.ones(len(queries), np.uint64), asked, 0)
    things = rng.integers(len(places), size=THINGS)
    lon, lat = places.lon[things].copy(), places.lat[things].copy()
    seconds, events = 0.0, 0
    for begin in range(0, objects, BATCH):
        moved = rng.integers(THINGS, size=BATCH)
        lon[moved] = (lon[moved] + rng.normal(0, 0.01, BATCH)).clip(-180, 180)
        lat[moved] = (lat[moved] + rng.normal(0, 0.01, BATCH)).clip(-90, 90)
        values = (moved.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        columns = lon[moved], lat[moved], np.zeros(BATCH + 1, np.int64), np.empty(0, np.uint64)
        life = np.zeros(BATCH, np.int64), np.full(BATCH, begin, np.int64)
        started = time.thread_time()
        found = index.match(
            *(*columns, *life, np.arange(BATCH)),
            *(np.ones(BATCH, np.uint64), values),
        )
        seconds += time.thread_time() - started
        events += len(found)
    report(
        "tracked",
        queries=len(queries),
        objects_per_s=round(objects / seconds),
        events_per_object=round(events / objects, 3),
        values_inside=index.tracked_values,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=200_000)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    n, k, seed = options.objects, options.k, options.seed
    queries = make_posts(options.queries, seed)
    index = KnnIndex()
    inserts_per_s = round(options.queries / insert_all(index, queries, k, seed))
    stream = Stream(index, make_posts(n + n // 4 + n // 10, seed + 1))
    warm_up_s = warm_up(stream, n)
    steady(stream, n // 4, k=k, inserts_per_s=inserts_per_s, warm_up_s=round(warm_up_s, 1))
    churn(stream, queries, k, seed, n // 10)
    tracked(queries, n // 5, seed)


if __name__ == "__main__":
    main()
