"""Measures frequent terms and ranked search in the store of one slot, one JSON object per case.

usage: python benchmarks/bench_search.py [--objects N] [--ranked-objects N] [--searches Q]
           [--data posts|clusters] [--cases terms,ranked] [--seed S]

Objects are world-wide posts (`loadgen.posts`: cities by population, words of their languages) or
those of the matching workload (`clusters`: Gaussian clusters, Zipf words), stretched over 60 by
30 degrees; each has its whole text. They arrive evenly over 30 days. One thread searches around
places of objects (dense, as objects are) and around any place (sparse):

- `build`: objects a second, and bytes for each object besides its text, with derived data;
- `terms`: k = 10 of a rectangle of 1 % of the space; `all` counts every term;
- `ranked`: k = 10, 5 keywords, 100 km, thirds, half-life of a day; keywords are words of the
  object at the place (`own`), or of any five objects (`any`).

Each search is first run once unmeasured. Times are CPU times of the thread: it never waits.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sirocco.index.base.compile import compile_queries
from sirocco.index.base.ragged import take_ragged
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.ranked_search import RankedSearch
from sirocco.index.store.store import SlotStore, StoreView
from sirocco.index.store.store_condition import Condition, compile_condition
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.terms_search import count_terms, top_terms
from sirocco.loadgen.match_workload import VOCABULARY, make_workload
from sirocco.loadgen.posts import WorldPosts
from sirocco.model.geometry import Rectangle
from sirocco.model.objects import ObjectColumns, pack_bytes
from sirocco.model.query import RankedQuery, TermsQuery, Weights
from sirocco.model.text import TextAnalyser, tokens_of

PART = 65_536
START_MS = 1_767_225_600_000
SPAN_MS = 30 * 86_400_000
DAY_MS = 86_400_000
SPACES = {"posts": (-180.0, -60.0, 180.0, 75.0), "clusters": (0.0, 20.0, 60.0, 50.0)}
RADIUS_M = 100_000.0
K = 10
KEYWORDS = 5


def report(case: str, **figures: object) -> None:
    print(json.dumps({"case": case, **figures}), flush=True)


@dataclass
class Asked:
    """Places and texts of some objects."""

    places: list[tuple[float, float]]
    texts: list[list[str]]


def posts(objects: int, seed: int) -> Iterator[ObjectColumns]:
    """Returns world-wide posts, without their attributes."""
    for batch in WorldPosts(seed).batches(objects, PART):
        none = np.zeros(len(batch) + 1, np.int64)
        yield replace(batch, attributes=np.empty(0, np.uint8), attribute_offsets=none)


def clusters(objects: int, seed: int) -> Iterator[ObjectColumns]:
    """Returns objects of the matching workload with texts of artificial words."""
    work = make_workload(1, min(objects, 1_000_000), seed)
    rng = np.random.default_rng(seed)
    words, word_offsets = pack_bytes([f"w{number} ".encode() for number in range(VOCABULARY)])
    west, south, east, north = SPACES["clusters"]
    made = len(work.lon)
    for first in range(0, objects, PART):
        count = min(PART, objects - first)
        # Later parts: the same texts at other places.
        texts = np.arange(first, first + count) % made
        places = texts if first < made else rng.integers(0, made, count)
        offsets, terms = take_ragged(work.object_offsets, texts)
        byte_offsets, taken = take_ragged(word_offsets, work.object_terms[terms])
        text_offsets = byte_offsets[offsets]
        lon = work.lon[places] + rng.normal(0, 1e-4, count)
        lat = work.lat[places] + rng.normal(0, 1e-4, count)
        none = np.zeros(count + 1, np.int64)
        yield ObjectColumns(
            ids=np.arange(first + 1, first + count + 1, dtype=np.uint64),
            names=np.empty(0, np.uint8),
            name_offsets=none,
            lon=west + (east - west) * lon.clip(0, 1),
            lat=south + (north - south) * lat.clip(0, 1),
            ts=np.full(count, START_MS),
            text=words[taken],
            text_offsets=text_offsets,
            attributes=np.empty(0, np.uint8),
            attribute_offsets=none,
        )


def stored(batch: ObjectColumns, analyser: TextAnalyser, first: int, objects: int) -> StoredRows:
    """Returns a batch as stored rows."""
    found = analyser.analyse_batch(batch.text, batch.text_offsets)
    seqs = np.arange(first, first + len(batch))
    arrivals_ms = START_MS + seqs * SPAN_MS // objects
    return StoredRows(
        objects=replace(batch, ts=arrivals_ms),
        sessions=(seqs % 50).astype(np.uint64),
        numbers=(seqs // 50).astype(np.uint64),
        arrivals_ms=arrivals_ms,
        seqs=seqs,
        lengths=found.lengths,
        term_offsets=found.offsets,
        terms=found.terms,
        counts=found.counts,
    )


def fill(data: str, objects: int, searches: int, seed: int) -> tuple[SlotStore, Asked]:
    """Fills a store."""
    store, analyser, asked = SlotStore(), TextAnalyser(), Asked([], [])
    rng = np.random.default_rng(seed)
    spent = 0.0
    make = posts if data == "posts" else clusters
    for batch in make(objects, seed):
        rows = stored(batch, analyser, store.next_seq, objects)
        begin = time.thread_time()
        store.append_rows(rows)
        while job := store.next_job():
            job.run()
            store.install(job)
        spent += time.thread_time() - begin
        wanted = -(-searches * 2 * len(batch) // objects)
        for row in rng.integers(0, len(batch), wanted).tolist():
            asked.places.append((float(batch.lon[row]), float(batch.lat[row])))
            asked.texts.append(sorted(set(tokens_of(batch.row(row).text))))
    order = rng.permutation(len(asked.places))[:searches].tolist()
    asked = Asked([asked.places[i] for i in order], [asked.texts[i] for i in order])
    own = sum(s.bytes_total - s.content_bytes for s in store.slices)
    report(
        "build",
        data=data,
        objects=objects,
        objects_per_s=round(objects / spent),
        slices=len(store.slices),
        bytes_per_object=round(own / max(1, sum(map(len, store.slices))), 1),
    )
    return store, asked


def measure(case: str, asked: Sequence[Callable[[], int]], **figures: object) -> None:
    """Runs each search twice, measures the second time."""
    for ask in asked:
        ask()
    took, found = np.empty(len(asked)), np.empty(len(asked))
    for i, ask in enumerate(asked):
        begin = time.thread_time()
        found[i] = ask()
        took[i] = time.thread_time() - begin
    p50, p95, p99 = np.percentile(took * 1e3, [50, 95, 99])
    report(
        case,
        **figures,
        searches=len(asked),
        found_mean=round(float(found.mean()), 1),
        mean_ms=round(float(took.mean() * 1e3), 3),
        p50_ms=round(p50, 3),
        p95_ms=round(p95, 3),
        p99_ms=round(p99, 3),
        max_ms=round(float(took.max() * 1e3), 2),
    )


def any_places(data: str, count: int) -> list[tuple[float, float]]:
    west, south, east, north = SPACES[data]
    drawn = np.random.default_rng(5).random((count, 2))
    return [(west + (east - west) * x, south + (north - south) * y) for x, y in drawn.tolist()]


def measure_terms(view: StoreView, data: str, asked: Asked) -> None:
    west, south, east, north = SPACES[data]
    width, height = (east - west) / 20, (north - south) / 20
    names = TermNames()
    for dense in (True, False):
        places = asked.places if dense else any_places(data, len(asked.places))
        regions = [
            Rectangle(
                max(-180.0, x - width), max(-90.0, y - height),
                min(180.0, x + width), min(90.0, y + height),
            )
            for x, y in places
        ]  # fmt: skip
        queries = [TermsQuery(id="q", mode="snapshot", k=K, region=region) for region in regions]
        conditions = [compile_condition(compile_queries([query], [0])) for query in queries]
        tops = [partial(_top, view, condition, names) for condition in conditions]
        measure("terms", tops, data=data, dense=dense)
        alls = [partial(_all, view, condition) for condition in conditions]
        measure("terms", alls, data=data, dense=dense, all=True)


def _top(view: StoreView, condition: Condition, names: TermNames) -> int:
    return len(top_terms(count_terms(view, condition, k=K), K, names))


def _all(view: StoreView, condition: Condition) -> int:
    return len(count_terms(view, condition))


def measure_ranked(view: StoreView, data: str, asked: Asked) -> None:
    now_ms = START_MS + SPAN_MS
    rng = np.random.default_rng(7)
    words = [word for text in asked.texts for word in text]
    for dense in (True, False):
        places = asked.places if dense else any_places(data, len(asked.places))
        for whose in ("own", "any") if dense else ("any",):
            searches = []
            for place, text in zip(places, asked.texts, strict=True):
                drawn = [words[i] for i in rng.integers(0, len(words), KEYWORDS).tolist()]
                chosen = rng.permutation(text).tolist()[:KEYWORDS] if whose == "own" else drawn
                searches.append(partial(_ranked, view, ranked_query(place, chosen), now_ms))
            measure("ranked", searches, data=data, dense=dense, keywords=whose)


def ranked_query(place: tuple[float, float], keywords: list[str]) -> RankedQuery:
    return RankedQuery(
        id="q",
        mode="snapshot",
        lon=place[0],
        lat=place[1],
        radius_m=RADIUS_M,
        k=K,
        keywords=tuple(sorted(set(keywords))),
        weights=Weights(1 / 3, 1 / 3, 1 / 3),
        half_life_ms=DAY_MS,
    )


def _ranked(view: StoreView, query: RankedQuery, now_ms: int) -> int:
    return len(RankedSearch(query).search(view, now_ms).distances_m)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=5_000_000)
    parser.add_argument("--ranked-objects", type=int, default=20_000_000)
    parser.add_argument("--searches", type=int, default=1_000)
    parser.add_argument("--data", choices=tuple(SPACES), default="posts")
    parser.add_argument("--cases", default="terms,ranked")
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    cases = options.cases.split(",")
    sizes = {
        options.objects: [measure_terms, measure_ranked],
        options.ranked_objects: [measure_ranked],
    }
    for objects, measures in sizes.items():
        wanted = [one for one in measures if one.__name__.removeprefix("measure_") in cases]
        if not wanted or not objects:
            continue
        store, asked = fill(options.data, objects, options.searches, options.seed)
        gc.collect()
        for one in wanted:
            one(store.view(), options.data, asked)
        del store


if __name__ == "__main__":
    main()
