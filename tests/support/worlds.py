"""A small world: objects and queries on a grid, evaluators that count, maps that change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sirocco.schemes.balance.base.view import LeafDetail, LeafLoads, Memory, View
from sirocco.schemes.map.map import WORLD, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries
from sirocco.schemes.workload.spatial_aggregates import no_aggregates
from sirocco.schemes.workload.spatial_grid import even_grid
from sirocco.schemes.workload.swarm_statistics import KEPT_SHARE, no_statistics

GRID = even_grid(128, 64)
BYTES_PER_QUERY = 40
WORDS = np.sort(np.random.default_rng(5).integers(0, 2**64, 40, np.uint64, endpoint=False))
# Rounds that statistics cover: older ones have faded to a thousandth.
ROUNDS_KEPT = 8


class Stream:
    """Objects of some rounds, the newest last, and the standing queries.

    Attributes:
        rounds: (lon f8[n], lat f8[n], words i8[n, 2]) of each round.
        boxes: f8[q, 4].
        words: i8[q], the word of each query.
        came: i8[q], round in which it arrived.
    """

    def __init__(self, boxes, words):
        self.rounds = []
        self.boxes, self.words = boxes, words
        self.came = np.zeros(len(boxes), np.int64)
        self.number = 0

    def add(self, lon, lat, words, boxes=None, box_words=None):
        self.number += 1
        self.rounds = [*self.rounds, (lon, lat, words)][-ROUNDS_KEPT:]
        if boxes is not None:
            self.boxes = np.concatenate([self.boxes, boxes])
            self.words = np.concatenate([self.words, box_words])
            self.came = np.concatenate([self.came, np.full(len(boxes), self.number)])

    def met(self):
        """Returns for each object of the last round the queries whose box and word it meets."""
        lon, lat, words = self.rounds[-1]
        west, south, east, north = self.boxes.T
        inside = (west <= lon[:, None]) & (lon[:, None] <= east)
        inside &= (south <= lat[:, None]) & (lat[:, None] <= north)
        return (inside & (words[:, :, None] == self.words).any(1)).sum(1)

    def sample(self):
        lon, lat, words = self.rounds[-1]
        count, queries = len(lon), len(self.boxes)
        words = np.sort(words, 1)
        keep = np.stack([np.ones(count, np.bool_), words[:, 0] != words[:, 1]], 1)
        offsets = np.concatenate([[0], np.cumsum(keep.sum(1))]).astype(np.int64)
        return Sample(
            lon,
            lat,
            offsets,
            WORDS[words[keep]],
            keys_of(count),
            SampleQueries(
                np.full(queries, QueryKind.RANGE_CONTINUOUS, np.uint8),
                self.boxes,
                np.arange(queries + 1),
                WORDS[self.words],
                np.ones(queries),
            ),
        )


def keys_of(count):
    return np.random.default_rng(count).integers(0, 2**64, count, np.uint64, endpoint=False)


def leaves_of_objects(stream, arrays, index):
    """Returns (row, leaf id) of all objects of one round."""
    lon, lat, words = stream.rounds[index]
    words = np.sort(words, 1)
    keep = np.stack([np.ones(len(lon), np.bool_), words[:, 0] != words[:, 1]], 1)
    offsets = np.concatenate([[0], np.cumsum(keep.sum(1))]).astype(np.int64)
    routes = arrays.route_objects(lon, lat, offsets, WORDS[words[keep]], keys_of(len(lon)))
    return routes.row, routes.leaf


def loads_of(stream, partition_map, throughput=1.0):
    """Returns the loads that evaluators would report."""
    # One slot per leaf: otherwise only one of a slot's leaves is returned.
    count = len(partition_map.leaves)
    arrays = compile_map(
        replace(partition_map, slots=count, slot_of_leaf=np.arange(count, dtype=np.int32))
    )
    position = np.full(max(leaf.id for leaf in partition_map.leaves) + 1, -1)
    position[[leaf.id for leaf in partition_map.leaves]] = np.arange(count)
    objects, met, faded = np.zeros(count), np.zeros(count), np.zeros(count)
    for age in range(len(stream.rounds)):
        row, leaf = leaves_of_objects(stream, arrays, -1 - age)
        here = np.bincount(position[leaf], minlength=count)
        faded += KEPT_SHARE**age * here
        if age == 0:
            objects = here.astype(np.float64)
            met = np.bincount(position[leaf], stream.met()[row], count).astype(np.float64)
    number = len(stream.boxes)
    routes = arrays.route_boxes(
        stream.boxes, np.arange(number + 1), np.arange(number + 1), WORDS[stream.words]
    )
    queries = np.bincount(routes.slots, minlength=count).astype(np.float64)
    owner = np.repeat(np.arange(number), np.diff(routes.slot_offsets))
    new = np.bincount(routes.slots[stream.came[owner] == stream.number], minlength=count)
    arrivals = throughput * (objects + new)
    return LeafLoads(objects, met, faded, queries, arrivals, BYTES_PER_QUERY * queries)


def detail_of(stream, leaf, grid=GRID):
    """Returns the statistics of a leaf, counted from the recent rounds of the stream."""
    own = grid.within(leaf.box)
    statistics = no_statistics(own.columns, own.rows)
    west, south, east, north = leaf.box
    met = no_aggregates(own.columns, own.rows)
    first = stream.number - len(stream.rounds) + 1
    for index, (lon, lat, _) in enumerate(stream.rounds):
        inside = (west <= lon) & ((lon < east) | (east == WORLD[2]))
        inside &= (south <= lat) & ((lat < north) | (north == WORLD[3]))
        statistics = statistics.with_objects(own, lon[inside], lat[inside])
        is_new = stream.came == first + index
        if index == 0:
            is_new = stream.came <= first
        boxes = stream.boxes[is_new]
        near = (boxes[:, 0] < east) | (east == WORLD[2])
        near &= (boxes[:, 1] < north) | (north == WORLD[3])
        statistics = statistics.with_queries(own, boxes[near]).after_round()
        if index == len(stream.rounds) - 1:
            cost = stream.met()[inside]
            met = met.adding(own.columns_of(lon[inside]), own.rows_of(lat[inside]), cost)
    return LeafDetail(own, statistics, met)


def heavier(loads, weight):
    """Returns the loads of a stream in which each object counts `weight` times."""
    more = (weight * getattr(loads, name) for name in ("objects", "met", "faded"))
    return LeafLoads(*more, loads.queries, weight * loads.arrivals, loads.query_bytes)  # type: ignore[call-arg]


def view_of(stream, partition_map, owners, evaluators, memory=None, throughput=1.0, weight=1):
    return View(
        map=partition_map,
        owners=tuple(owners),
        evaluators=tuple(evaluators),
        loads=heavier(loads_of(stream, partition_map, throughput), weight),
        memory=memory or Memory(),
        sample=stream.sample(),
    )


def decide(balancer, view, stream, now_ms):
    """Calls a balancer, and again with the details that it requests; returns the plan."""
    # One request, and for SWARM one more for each machine that cannot be relieved.
    for _ in range(len(view.evaluators) + 1):
        plan = balancer.adjust(view, now_ms)
        if not plan.wants:
            return plan
        leaves = {leaf.id: leaf for leaf in view.map.leaves}
        found = {one: detail_of(stream, leaves[one]) for one in plan.wants}
        view = replace(view, details={**view.details, **found})
    raise AssertionError("the balancer never has enough")


def random_stream(rng, rounds=2, objects=300, queries=60):
    """Returns objects around a few places, and queries near them."""
    places = np.stack([rng.uniform(-170, 170, 3), rng.uniform(-80, 80, 3)], 1)
    spread = rng.choice([2.0, 10.0, 60.0])

    def near(count):
        at = places[rng.integers(0, 3, count)] + rng.normal(0, spread, (count, 2))
        return np.clip(at[:, 0], -180, 180), np.clip(at[:, 1], -90, 90)

    lon, lat = near(queries)
    half = rng.uniform(0.5, 12, queries)
    boxes = np.stack([lon - half, lat - half, lon + half, lat + half], 1)
    # Longitudes ±180 are one place, which these counts do not consider.
    boxes = np.clip(boxes, (-179, -89, -179, -89), (179, 89, 179, 89))
    stream = Stream(boxes, rng.integers(0, len(WORDS), queries))
    for _ in range(rounds):
        stream.add(*near(objects), rng.integers(0, len(WORDS), (objects, 2)))  # type: ignore[call-arg]
    return stream


def grid_map(rng, leaves, slots, keywords=0, scheme="random"):
    """Returns a random split of the grid; some leaves are split by keywords, two children each."""
    tiles = [(0, 0, GRID.columns, GRID.rows)]
    while len(tiles) < leaves:
        x0, y0, x1, y1 = tile = tiles.pop(int(rng.integers(len(tiles))))
        axis = int(rng.integers(2))
        low, high = tile[axis], tile[axis + 2]
        if high - low < 2:
            tiles.append(tile)
            continue
        at = int(rng.integers(low + 1, high)) if rng.random() < 0.5 else (low + high) // 2
        tiles += (
            [(x0, y0, at, y1), (at, y0, x1, y1)]
            if axis == 0
            else [(x0, y0, x1, at), (x0, at, x1, y1)]
        )
    boxes = [GRID.box(*tile) for tile in tiles]
    placed: list[tuple[tuple[float, float, float, float], Place | None]] = []
    nodes = []
    for number, box in enumerate(boxes):
        if number < keywords:
            child = rng.integers(0, 2, len(WORDS)).astype(np.int32)
            nodes.append(
                KeywordNode(
                    id=number, box=box, within=None, children=2, terms=WORDS, child_of_term=child
                )
            )
            placed += [(box, Place(number, 0)), (box, Place(number, 1))]
        else:
            placed.append((box, None))
    ids = rng.permutation(3 * len(placed))[: len(placed)]
    return PartitionMap(
        version=4,
        scheme=scheme,
        world=WORLD,
        leaves=tuple(Leaf(int(i), *one) for i, one in zip(ids, placed, strict=True)),
        text_nodes=(),
        slot_of_leaf=rng.integers(0, slots, len(placed)).astype(np.int32),
        load_of_leaf=np.ones(len(placed)),
        slots=slots,
        keyword_nodes=tuple(nodes),
    )


def true_loads(stream, partition_map, owners, evaluators):
    """Returns the evaluators' true work: the handling of objects and the queries that they meet."""
    loads = loads_of(stream, partition_map)
    work = loads.met + loads.objects
    number = {name: place for place, name in enumerate(evaluators)}
    machine = [number[owners[slot]] for slot in partition_map.slot_of_leaf]
    return np.bincount(machine, work, len(evaluators))
