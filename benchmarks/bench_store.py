"""Measures the object store of one slot; prints one JSON object per case.

usage: python benchmarks/bench_store.py [--objects N] [--slots S] [--searches Q] [--seed S]

Objects and places are those of the matching workload (clustered, Zipf words, 10 terms an object),
each with a text of about 70 bytes; one thread searches. Cases:

- `append`: batches of 1,000 on one core, with sealing and merging, and the share of each; bytes
  for each object besides its text, attributes and string ids;
- `store_and_match`: the same batches are also matched with 100,000 standing range queries;
- `range`: a rectangle of 0.01 % of the space (1 % of each side) with one keyword; dense: around
  places of objects, with a word of that object or (`other_word`) a word by its frequency; sparse:
  around any place. `answer` reads the objects as well;
- `range_any_text`, `range_window` (the newest tenth), `range_circle` (about that size);
- `knn`: k = 10, any text; `knn_keyword`: with one keyword.

Each search is first run once unmeasured. Times are CPU times of the thread: it never waits.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from sirocco.index.base.compile import compile_queries
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.store.merging import MergeJob
from sirocco.index.store.store import SlotStore, StoreView
from sirocco.index.store.store_condition import Bounds, Condition, compile_condition
from sirocco.index.store.store_search import search_knn, search_range
from sirocco.loadgen.match_bench import UNIT_SQUARE, insert_all
from sirocco.loadgen.match_workload import MatchWorkload, make_workload, wire_hashes
from sirocco.model.geometry import Circle
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import RangeQuery

BATCH = 1_000
# Objects created at a time; places and words of all parts have the same distribution.
PART = 1_000_000
TEXT_BYTES = 70
QUERIES = 100_000
# The unit square is scaled so that metres are those of a city with its surroundings.
SIDE = 0.01


def report(case: str, **figures: object) -> None:
    print(json.dumps({"case": case, **figures}), flush=True)


@dataclasses.dataclass
class Asked:
    """The input of searches: places and words of objects.

    Attributes:
        lon, lat: f8[m], places of objects.
        words: u8[m], wire hash of a word of each of them.
        others: u8[m], words by frequency, of other objects.
    """

    lon: npt.NDArray[np.float64]
    lat: npt.NDArray[np.float64]
    words: npt.NDArray[np.uint64]
    others: npt.NDArray[np.uint64]


def varied(work: MatchWorkload, rng: np.random.Generator) -> MatchWorkload:
    """Returns other objects of the same distribution: places moved a little, with other texts."""
    order = rng.permutation(len(work.lon))
    moves = rng.normal(0, SIDE / 10, (2, len(order)))
    lon, lat = work.lon[order] + moves[0], work.lat[order] + moves[1]
    return dataclasses.replace(work, lon=lon.clip(0, 1), lat=lat.clip(0, 1))


def rows_of(work: MatchWorkload, begin: int, end: int, first: int) -> StoredRows:
    """Returns objects [begin, end) of a workload as stored rows; `first` is the first's number."""
    n = end - begin
    own = work.object_offsets[begin : end + 1]
    hashes = wire_hashes(work.object_terms[own[0] : own[-1]])
    offsets = own - own[0]
    text_offsets = np.arange(n + 1, dtype=np.int64) * TEXT_BYTES
    none = np.zeros(n + 1, np.int64)
    numbers = np.arange(first, first + n, dtype=np.int64)
    rows = np.repeat(np.arange(n), np.diff(offsets))
    ordered = np.lexsort((hashes, rows))
    return StoredRows(
        objects=ObjectColumns(
            ids=numbers.astype(np.uint64),
            names=np.empty(0, np.uint8),
            name_offsets=none,
            lon=work.lon[begin:end],
            lat=work.lat[begin:end],
            ts=1_700_000_000_000 + numbers - numbers % 7,
            text=np.full(n * TEXT_BYTES, ord("x"), np.uint8),
            text_offsets=text_offsets,
            attributes=np.empty(0, np.uint8),
            attribute_offsets=none,
        ),
        sessions=(numbers % 50).astype(np.uint64),
        numbers=(numbers // 50).astype(np.uint64),
        arrivals_ms=1_700_000_000_000 + numbers,
        seqs=numbers,
        lengths=np.diff(offsets).astype(np.int32),
        term_offsets=offsets,
        terms=hashes[ordered],
        counts=np.ones(len(hashes), np.uint16),
    )


def batches_of(rows: StoredRows) -> list[StoredRows]:
    return [
        rows.take(np.arange(begin, min(begin + BATCH, len(rows))))
        for begin in range(0, len(rows), BATCH)
    ]


def fill(objects: int, slots: int, seed: int, searches: int) -> tuple[list[SlotStore], Asked]:
    """Fills stores; objects are dealt to them in turns, so that each has all places."""
    # The first access to a page of a virtual machine's memory costs its host ten times as much as
    # later ones, and is unrelated to the store.
    np.ones(objects * 400, np.uint8)
    stores = [SlotStore() for _ in range(slots)]
    append_s = seal_s = merge_s = 0.0
    merged = parts = 0
    rng = np.random.default_rng(seed)
    lon, lat, words = [], [], []
    made = make_workload(1, min(PART, objects), seed)
    for first in range(0, objects, PART):
        count = min(PART, objects - first)
        work = varied(made, rng) if first else made
        chosen = rng.integers(0, count, 2 * searches)
        lon.append(work.lon[chosen])
        lat.append(work.lat[chosen])
        spans = work.object_offsets[chosen], work.object_offsets[chosen + 1]
        words.append(wire_hashes(work.object_terms[rng.integers(*spans)]))
        for slot, store in enumerate(stores):
            begin, end = count * slot // slots, count * (slot + 1) // slots
            rows = rows_of(work, begin, end, store.next_seq)
            batches = batches_of(rows)
            gc.collect()
            for batch in batches:
                sealed = store.slices
                started = time.thread_time()
                store.append_rows(batch)
                took = time.thread_time() - started
                if store.slices is sealed:
                    append_s += took
                    continue
                seal_s += took
                while job := store.next_job():
                    started = time.thread_time()
                    job.run()
                    store.install(job)
                    merge_s += time.thread_time() - started
                    assert isinstance(job, MergeJob)
                    merged += sum(map(len, job.sources))
                    parts += len(job.sources)
    total = append_s + seal_s + merge_s
    own = sum(s.bytes_total - s.content_bytes for store in stores for s in store.slices)
    rows_sealed = sum(len(s) for store in stores for s in store.slices)
    terms = sum(len(s.terms) for store in stores for s in store.slices)
    report(
        "append",
        objects=objects,
        stores=slots,
        objects_per_s=round(objects / total),
        append_ns=round(append_s / objects * 1e9),
        seal_ns=round(seal_s / objects * 1e9),
        merge_ns=round(merge_s / objects * 1e9),
        merges_per_object=round(merged / objects, 2),
        merge_row_ns=round(merge_s / max(1, merged) * 1e9),
        slices=max(len(store.slices) for store in stores),
        terms_per_object=round(terms / max(1, rows_sealed), 2),
        bytes_per_object=round(own / max(1, rows_sealed), 1),
    )
    picked = rng.permutation(2 * searches * len(lon))[: 2 * searches]
    lons, lats = (np.concatenate(part)[picked] for part in (lon, lat))
    hashes = np.concatenate(words)[picked]
    return stores, Asked(lons[:searches], lats[:searches], hashes[:searches], hashes[searches:])


def store_and_match(objects: int, seed: int) -> None:
    """Does the work of a slot with each object: match it, store it."""
    work = make_workload(QUERIES, objects, seed)
    index = RangeIndex(UNIT_SQUARE)
    insert_all(index, work)
    store, pairs, match_s = SlotStore(), 0, 0.0
    batches = batches_of(rows_of(work, 0, objects, 0))
    began = time.thread_time()
    for batch in batches:
        started = time.thread_time()
        pairs += len(
            index.match(
                batch.objects.lon, batch.objects.lat, batch.term_offsets, batch.terms,
                batch.arrivals_ms, batch.seqs,
            )
        )  # fmt: skip
        match_s += time.thread_time() - started
        store.append_rows(batch)
        while job := store.next_job():
            job.run()
            store.install(job)
    total = time.thread_time() - began
    report(
        "store_and_match",
        queries=QUERIES,
        objects=objects,
        objects_per_s=round(objects / total),
        match_ns=round(match_s / objects * 1e9),
        store_ns=round((total - match_s) / objects * 1e9),
        matches=pairs,
    )


def measure(case: str, asked: Sequence[Callable[[], int]], **figures: object) -> None:
    """Runs each search twice, measures the second time."""
    for ask in asked:
        ask()
    took, found = np.empty(len(asked)), 0
    for i, ask in enumerate(asked):
        started = time.thread_time()
        found += ask()
        took[i] = time.thread_time() - started
    p50, p95, p99 = np.percentile(took * 1e3, [50, 95, 99])
    report(
        case,
        **figures,
        searches=len(asked),
        found_mean=round(found / len(asked), 1),
        p50_ms=round(p50, 4),
        p95_ms=round(p95, 4),
        p99_ms=round(p99, 4),
        max_ms=round(float(took.max() * 1e3), 3),
    )


def box_condition(x: float, y: float, words: Sequence[int]) -> Condition:
    box = np.array([[x - SIDE / 2, y - SIDE / 2, x + SIDE / 2, y + SIDE / 2]])
    query = QueryRows.of_boxes(box, np.array([0, len(words)], np.int64), np.array(words, np.uint64))
    return compile_condition(query)


def search_all(stores: list[SlotStore], asked: Asked, searches: int) -> None:
    views = [store.view() for store in stores]
    newest = max(int(v.active.arrivals_ms[: len(v.active)].max(initial=0)) for v in views)
    span = sum(store.next_seq for store in stores) // len(stores)
    window = Bounds(arrival_from_ms=newest - span // 10)
    rng = np.random.default_rng(5)
    spots = list(zip(asked.lon.tolist(), asked.lat.tolist(), strict=True))
    anywhere = [tuple(p) for p in rng.random((searches, 2)).tolist()]

    def ranges(
        places: list, words: npt.NDArray[np.uint64] | None, bounds: Bounds, takes: bool = False
    ) -> list:
        conditions = [
            box_condition(x, y, [] if words is None else [int(words[i])])
            for i, (x, y) in enumerate(places)
        ]
        return range_searches(views, conditions, bounds, takes)

    every = Bounds()
    measure("range", ranges(spots, asked.words, every), dense=True)
    measure("range", ranges(spots, asked.others, every), dense=True, other_word=True)
    measure("range", ranges(anywhere, asked.others, every), dense=False)
    measure("answer", ranges(anywhere, asked.others, every, takes=True), dense=False)
    measure("range_any_text", ranges(spots, None, every), dense=True)
    measure("range_any_text", ranges(anywhere, None, every), dense=False)
    measure("range_window", ranges(spots, asked.words, window), dense=True)
    circles = compile_queries(
        [
            RangeQuery(id="q", mode="snapshot", region=Circle(x, y, SIDE * 60_000))
            for x, y in spots[: searches // 4]
        ],
        [0] * (searches // 4),
    )
    conditions = [compile_condition(circles, row=i) for i in range(len(circles))]
    measure("range_circle", range_searches(views, conditions, every), dense=True)
    for case, words in (("knn", None), ("knn_keyword", asked.words)):
        for dense, places in ((True, spots), (False, anywhere)):
            measure(case, knn_searches(views, places, words), dense=dense)


def range_searches(
    views: list[StoreView], conditions: list[Condition], bounds: Bounds, takes: bool = False
) -> list:
    def search(i: int) -> int:
        found = search_range(views[i % len(views)], conditions[i], bounds)
        if takes:
            found.gather()
        return len(found)

    return [partial(search, i) for i in range(len(conditions))]


def knn_searches(
    views: list[StoreView], places: list, words: npt.NDArray[np.uint64] | None
) -> list:
    world = np.array([[-180.0, -90.0, 180.0, 90.0]])
    conditions = []
    for i in range(len(places)):
        own = np.empty(0, np.uint64) if words is None else words[i : i + 1]
        query = QueryRows.of_boxes(world, np.array([0, len(own)], np.int64), own)
        conditions.append(compile_condition(query))

    def search(i: int) -> int:
        lon, lat = places[i]
        return len(search_knn(views[i % len(views)], lon, lat, 10, conditions[i]))

    return [partial(search, i) for i in range(len(places))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=5_000_000)
    parser.add_argument("--slots", type=int, default=1, help="stores that share the objects")
    parser.add_argument("--searches", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    store_and_match(min(PART // 2, options.objects), options.seed)
    stores, asked = fill(options.objects, options.slots, options.seed, options.searches)
    gc.freeze()
    search_all(stores, asked, options.searches)


if __name__ == "__main__":
    main()
