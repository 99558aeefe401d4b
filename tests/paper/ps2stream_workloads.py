"""Workloads as in PS2Stream VI, and Definition 1 counted from the routes."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.keyword_workload import keyword_workload
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries, no_queries

WORDS = 20_000
# A power law: word 0 is the most frequent.
LIKELIHOOD = np.cumsum(1 / np.arange(1, WORDS + 1))


def csr(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return offsets, np.concatenate([np.empty(0, np.uint64), *rows]).astype(np.uint64)


def queries_of(boxes, texts):
    """Returns continuous range queries with these keywords."""
    kinds = np.full(len(boxes), QueryKind.RANGE_CONTINUOUS, np.uint8)
    columns = (np.array(boxes, np.float64).reshape(-1, 4), *csr(texts), np.ones(len(boxes)))
    return SampleQueries(kinds, *columns)


def sample_of(places, texts, queries=None):
    """Returns a sample of objects at places (lon, lat) with texts (lists of small numbers)."""
    lon, lat = np.array(places, np.float64).reshape(-1, 2).T.copy()
    keys = np.random.default_rng(1).permutation(len(lon)).astype(np.uint64)
    return Sample(lon, lat, *csr(texts), keys, queries or no_queries())  # type: ignore[call-arg]


def frequent_words(rng, count):
    return np.searchsorted(LIKELIHOOD, rng.random(count) * LIKELIHOOD[-1])


@functools.cache
def shaped_like(shape, seed, objects=6000, queries=1500):
    """Q1: words as frequent as in objects, small regions. Q2: a rare word, large regions.

    Q3: Q1 in one half of the world and Q2 in the other. The paper's regions are up to 1 and 2 % of
    the country wide; with a few thousand queries instead of millions, those of Q2 have to be larger
    for as many to overlap.
    """
    rng = np.random.default_rng(seed)
    places = rng.uniform((-100, -50), (100, 50), (objects, 2))
    texts = [np.unique(frequent_words(rng, int(rng.integers(3, 9)))) for _ in range(objects)]
    boxes, asked = [], []
    for centre in places[rng.integers(objects, size=queries)]:
        is_first = centre[0] < 0 if shape == "q3" else shape == "q1"
        words = frequent_words(rng, int(rng.integers(1, 4)))
        side = rng.uniform(0.2, 2.0)
        if not is_first:
            words[0] = rng.integers(WORDS // 100, WORDS)
            side = rng.uniform(40.0, 80.0)
        west = centre[0] - side / 2
        east = centre[0] + side / 2
        if shape == "q3":
            west, east = (west, min(east, -0.1)) if is_first else (max(west, 0.1), east)
        boxes.append((west, centre[1] - side / 2, east, centre[1] + side / 2))
        asked.append(np.unique(words))
    return sample_of(places, texts, queries_of(np.clip(boxes, -90, 179), asked))


def definition_1(partition_map, sample, costs=None):
    """Returns the load of each leaf, f8[leaves], counted from the routes of objects and queries.

    Homes alone are not counted but assumed to be even, as their hash is the router's own.
    """
    workload = keyword_workload(sample, costs)
    leaves = partition_map.leaves
    position = {leaf.id: number for number, leaf in enumerate(leaves)}
    # One slot per leaf, so that routes are given leaf by leaf.
    apart = replace(
        partition_map, slot_of_leaf=np.arange(len(leaves), dtype=np.int32), slots=len(leaves)
    )
    arrays = compile_map(apart)
    is_keyed = workload.key_of_query >= 0
    reached = arrays.route_boxes(
        workload.sample.queries.boxes,
        np.arange(len(is_keyed) + 1),
        np.concatenate([[0], np.cumsum(is_keyed)]),
        workload.keys[workload.key_of_query[is_keyed]],
    )
    keyed, unkeyed = np.zeros(len(leaves)), np.zeros(len(leaves))
    asked: list[set[Any]] = [set() for _ in leaves]
    for query, key in enumerate(workload.key_of_query.tolist()):
        for one in reached.leaves[reached.leaf_offsets[query] : reached.leaf_offsets[query + 1]]:
            at = position[int(one)]
            (keyed if key >= 0 else unkeyed)[at] += 1
            if key >= 0:
                asked[at].add(int(workload.keys[key]))
    routes = arrays.route_objects(
        sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys
    )
    led = routes.term_slots
    if led is None:
        led = np.repeat(routes.slot, np.diff(sample.term_offsets))
    seeking = {
        (row, int(led[i]))
        for row in range(len(sample))
        for i in range(sample.term_offsets[row], sample.term_offsets[row + 1])
        if led[i] >= 0 and int(sample.terms[i]) in asked[led[i]]
    }
    seekers = np.bincount([leaf for _, leaf in seeking], minlength=len(leaves)).astype(np.float64)
    is_home = slice(None) if routes.homes is None else routes.homes
    homes = np.bincount(routes.slot[is_home], minlength=len(leaves)).astype(np.float64)
    for own in partition_map.leaves_of_keyword_nodes():
        homes[own] = homes[own].mean()
    objects = homes.copy()
    nodes = zip(partition_map.keyword_nodes, partition_map.leaves_of_keyword_nodes(), strict=True)
    for node, own in nodes:
        if not node.by_term:
            seekers[own] = homes[own]
            continue
        within = homes[own] * len(own)
        objects[own] = seekers[own] + (within - seekers[own]) / len(own)
    return workload.costs.load(objects, homes, seekers, keyed, unkeyed)
