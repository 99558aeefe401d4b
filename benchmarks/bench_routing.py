"""Measures building a map and routing by it; prints one JSON object per case.

usage: python benchmarks/bench_routing.py [--objects N] [--sample N] [--seed S]

Objects: 200 Gaussian clusters of Zipf weights and a tenth uniform, 10 terms each of a Zipf
vocabulary of 200,000. Queries: one to three terms of an object, at its place. Regions of 0.1 %
of the side, continuous, give a map split in space; snapshots of half the world one split by text
too. Rates are the best of three passes over batches of 4,096 objects or queries.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries, no_queries

BATCH = 4096
VOCABULARY = 200_000
TERMS = 10


def make_objects(rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    weights = 1 / np.arange(1, 201)
    cluster = rng.choice(200, count, p=weights / weights.sum())
    centre = rng.uniform((-170, -80), (170, 80), (200, 2))
    spread = np.exp(rng.uniform(np.log(0.1), np.log(5), 200))
    places = centre[cluster] + rng.standard_normal((count, 2)) * spread[cluster][:, None]
    background = rng.random(count) < 0.1
    places[background] = rng.uniform((-180, -90), (180, 90), (int(background.sum()), 2))
    places = np.clip(places, (-180, -90), (180, 90))
    words = rng.integers(0, 2**64, VOCABULARY, np.uint64, endpoint=False)
    rank = np.exp(rng.random((count, TERMS)) * np.log(VOCABULARY)).astype(np.int64)
    rank.sort(1)
    distinct = np.ones(rank.shape, np.bool_)
    distinct[:, 1:] = rank[:, 1:] != rank[:, :-1]
    offsets = np.concatenate([[0], np.cumsum(distinct.sum(1))])
    keys = rng.integers(0, 2**64, count, np.uint64, endpoint=False)
    return places[:, 0].copy(), places[:, 1].copy(), offsets, words[rank[distinct]], keys


def make_queries(
    rng: np.random.Generator, sample: Sample, count: int, side: float, kind: QueryKind
) -> SampleQueries:
    rows = rng.integers(0, len(sample), count)
    x, y = sample.lon[rows], sample.lat[rows]
    boxes = np.stack([x - 180 * side, y - 90 * side, x + 180 * side, y + 90 * side], 1)
    boxes = np.clip(boxes, (-180, -90, -180, -90), (180, 90, 180, 90))
    first = sample.term_offsets[rows]
    held = sample.term_offsets[rows + 1] - first
    lengths = np.minimum(rng.integers(1, 4, count), held)
    terms = [sample.terms[a : a + n] for a, n in zip(first, lengths, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    kinds = np.full(count, kind, np.uint8)
    return SampleQueries(kinds, boxes, offsets, np.concatenate(terms), np.ones(count))


def best_rate(count: int, once) -> float:
    return count / min(_seconds(once) for _ in range(3))


def _seconds(once) -> float:
    start = time.perf_counter()
    once()
    return time.perf_counter() - start


def batches(objects: tuple[np.ndarray, ...]) -> list[tuple[np.ndarray, ...]]:
    lon, lat, offsets, terms, keys = objects
    out: list[tuple[np.ndarray, ...]] = []
    for at in range(0, len(lon), BATCH):
        own = offsets[at : at + BATCH + 1]
        rows = slice(at, at + BATCH)
        out.append((lon[rows], lat[rows], own - own[0], terms[own[0] : own[-1]], keys[rows]))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=500_000)
    parser.add_argument("--sample", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    objects = make_objects(rng, options.objects)
    head = objects[2][: options.sample + 1]
    rows = slice(0, options.sample)
    sample = Sample(
        objects[0][rows],
        objects[1][rows],
        head,
        objects[3][: head[-1]],
        objects[4][rows],
        no_queries(),
    )
    work = batches(objects)
    cases = (
        ("uniform-grid", "space", 0.001, QueryKind.RANGE_CONTINUOUS),
        ("qt-tree", "space", 0.001, QueryKind.RANGE_CONTINUOUS),
        ("qt-tree", "text", 0.5, QueryKind.RANGE_SNAPSHOT),
    )
    for scheme_name, cut, side, kind in cases:
        queries = make_queries(rng, sample, 20_000, side, kind)
        for leaves in (64, 1024):
            measure(scheme_name, cut, leaves, replace_queries(sample, queries), work)


def replace_queries(sample: Sample, queries: SampleQueries) -> Sample:
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    return Sample(*columns, queries)


def measure(scheme_name: str, cut: str, leaves: int, sample: Sample, work: list) -> None:
    scheme = SCHEMES[scheme_name]
    start = time.perf_counter()
    partition_map = scheme.build(sample, leaves, 64)
    build_s = time.perf_counter() - start
    arrays = scheme.compile(partition_map)
    objects = sum(len(batch[0]) for batch in work)
    rate = best_rate(objects, lambda: [arrays.route_objects(*batch) for batch in work])
    load = partition_map.load_of_slot()
    result = {
        "case": f"route_objects {scheme_name} cut={cut} leaves={leaves}",
        "objects_per_s": round(rate),
        "leaves": len(partition_map.leaves),
        "text_nodes": len(partition_map.text_nodes),
        "build_s": round(build_s, 2),
        "load_max_over_mean": round(float(load.max() / load.mean()), 3),
        "map_bytes": len(to_bytes(partition_map)),
        "arrays_bytes": arrays.nbytes(),
    }
    print(json.dumps(result), flush=True)
    rng = np.random.default_rng(1)
    for side in (0.001, 0.01, 0.1):
        boxes = make_queries(rng, sample, 20_000, side, QueryKind.RANGE_CONTINUOUS).boxes
        offsets = np.arange(BATCH + 1)
        parts = [boxes[at : at + BATCH] for at in range(0, len(boxes) - BATCH, BATCH)]
        routes = [arrays.route_boxes(part, offsets) for part in parts]
        found = sum(len(route.leaves) for route in routes)
        count = BATCH * len(parts)
        rate = best_rate(count, lambda p=parts, o=offsets: [arrays.route_boxes(b, o) for b in p])
        result = {
            "case": f"route_boxes {scheme_name} cut={cut} leaves={leaves} side={side}",
            "queries_per_s": round(rate),
            "leaves_per_query": round(found / count, 2),
            "ns_per_leaf": round(1e9 * count / rate / found, 1),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
