"""Measures standing kNN queries over several slots; prints one JSON object per case.

usage: python benchmarks/bench_knn_slots.py [--queries N] [--objects M] [--slots S] [--k K]
           [--poll P] [--seed S]

Posts and queries are those of `bench_knn`. A k-d cut of equal counts divides the world among the
slots; all queries are in each of them. Every poll brings P posts, and each slot takes its part.
Figures are of the last quarter of the posts: CPU time of the one thread an object, how many lists
of slots an object enters, each a report to a merger, and with how many postings it was compared.
All cases take the same posts in turns, so that ratios hold on a busy machine.

- `one_slot`: all objects and queries are in one slot;
- `own_radii`: each slot knows its own k nearest objects alone;
- `shared`: the slots of one process send each other their radii (ADR 65);
- `shared_by_4`: as many processes of four slots each;
- `radius_of_all`: each slot gets the radius of all before each poll: the least that can be
  reported, and so the most that radii from mergers could save.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass

import numpy as np
from bench_knn import Posts, make_posts, make_queries  # type: ignore[import-not-found]
from numpy.typing import NDArray

from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.standing.query_table import NamedQueries, QueryTable
from sirocco.protocol.evaluator.standing.knn_radii import KnnRadii

PROCESS_SLOTS = 4


def cut_of(posts: Posts, slots: int) -> NDArray[np.int64]:
    """Returns i8[n], the slot of each post: halves of equal counts, along the longer side."""
    numbers = np.zeros(len(posts), np.int64)
    parts = [np.arange(len(posts))]
    while len(parts) < slots:
        halves = []
        for rows in parts:
            spans = [np.ptp(posts.lon[rows]), np.ptp(posts.lat[rows])]
            order = rows[np.argsort((posts.lon, posts.lat)[int(np.argmax(spans))][rows])]
            halves += np.array_split(order, 2)
        parts = halves
    for number, rows in enumerate(parts):
        numbers[rows] = number
    return numbers


class Slot:
    """An index with the names of its queries, as a slot has them."""

    def __init__(self, queries: Posts, k: int, seed: int) -> None:
        rows, points = make_queries(queries, seed)
        self.index = KnnIndex()
        self.table = QueryTable()
        count = len(rows)
        self.rows = self.index.insert(rows, points, np.full(count, k, np.int32), 0)
        handles = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        no_ids = np.empty(0, np.uint8), np.zeros(count + 1, np.int64)
        names = NamedQueries(handles, *no_ids, np.zeros(count, np.uint32))
        self.table.put(self.rows, names, ("one",), np.zeros(count, np.int64), None)

    def match(self, posts: Posts, numbers: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns the rows whose lists the posts enter, once for each entry."""
        zeros = np.zeros(len(posts), np.int64)
        found = self.index.match(
            posts.lon, posts.lat, posts.offsets, posts.terms, zeros, numbers.astype(np.int64),
            numbers, zeros.astype(np.uint64), numbers,
        )  # fmt: skip
        return found.query_rows

    def shrunk(self, entered: NDArray[np.int32]) -> KnnRadii:
        """Returns what other slots should know, as `StandingQueries.take_radii`."""
        rows, bounds_mm = self.index.take_shrunk(entered)
        return KnnRadii(self.table.handle_rows(rows), self.table.revisions[rows], bounds_mm)

    def learn(self, radii: KnnRadii) -> None:
        """Takes what other slots know, as `StandingQueries.draw_in`."""
        rows = self.table.find(radii.handles)
        rows[self.table.revisions[rows] != radii.revisions] = -1
        self.index.draw_in(rows, radii.bounds_mm)


@dataclass
class Case:
    """Slots that take the same posts as those of other cases.

    Attributes:
        slots: all of them.
        shares: how many neighbours send each other their radii.
        cpu_s, entries: in total.
    """

    slots: list[Slot]
    shares: int = 1
    cpu_s: float = 0.0
    entries: int = 0
    sent: int = 0
    tested_before: int = 0

    @property
    def tested(self) -> int:
        """Postings that were compared with an object."""
        return sum(slot.index.statistics().postings_tested for slot in self.slots)

    def take(self, parts: list[tuple[Posts, NDArray[np.uint64]]]) -> None:
        """Takes one poll: the posts of each slot, with their numbers."""
        begun = time.thread_time()
        shrunk: list[list[KnnRadii]] = [[] for _ in self.slots[:: self.shares]]
        for number, (posts, numbers) in enumerate(parts):
            if not len(posts):
                continue
            slot = self.slots[number]
            entered = slot.match(posts, numbers)
            self.entries += len(entered)
            if self.shares > 1 and len(entered):
                shrunk[number // self.shares].append(slot.shrunk(entered))
        for first, radii in enumerate(shrunk):
            if not radii:
                continue
            shared = KnnRadii.joined(radii)
            self.sent += len(shared.handles)
            for slot in self.slots[first * self.shares : (first + 1) * self.shares]:
                slot.learn(shared)
        self.cpu_s += time.thread_time() - begun

    def draw_in(self, bounds_mm: NDArray[np.int64]) -> None:
        """Gives each slot the radius of all."""
        begun = time.thread_time()
        for slot in self.slots:
            slot.index.draw_in(slot.rows, bounds_mm)
        self.cpu_s += time.thread_time() - begun


def taken(posts: Posts, rows: NDArray[np.int64]) -> Posts:
    lengths = np.diff(posts.offsets)[rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    places = np.arange(offsets[-1]) + np.repeat(posts.offsets[rows] - offsets[:-1], lengths)
    return Posts(posts.lon[rows], posts.lat[rows], offsets, posts.terms[places])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=400_000)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--poll", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    queries = make_posts(options.queries, options.seed)
    posts = make_posts(options.objects, options.seed + 1)
    slot_of = cut_of(posts, options.slots)
    # Posts come in no order of places.
    order = np.random.default_rng(options.seed).permutation(len(posts))

    def case(slots: int, shares: int = 1) -> Case:
        return Case([Slot(queries, options.k, options.seed) for _ in range(slots)], shares)

    one, many = case(1), options.slots
    cases = {
        "one_slot": one,
        "own_radii": case(many),
        "shared": case(many, many),
        f"shared_by_{PROCESS_SLOTS}": case(many, PROCESS_SLOTS),
        "radius_of_all": case(many),
    }
    every = one.slots[0]
    last_quarter = len(posts) // 4 * 3
    for begin in range(0, len(posts), options.poll):
        if begin == last_quarter // options.poll * options.poll:
            for each in cases.values():
                each.cpu_s, each.entries, each.sent = 0.0, 0, 0
                each.tested_before = each.tested
        rows = order[begin : begin + options.poll]
        whole = [(taken(posts, rows), rows.astype(np.uint64) + np.uint64(1))]
        own = [rows[slot_of[rows] == number] for number in range(many)]
        parts = [(taken(posts, each), each.astype(np.uint64) + np.uint64(1)) for each in own]
        for name, each in cases.items():
            if name == "radius_of_all":
                each.draw_in(every.index.bounds_mm(every.rows))
            each.take(whole if each is one else parts)
    measured = len(posts) - last_quarter // options.poll * options.poll
    for name, each in cases.items():
        figures = {
            "ns_an_object": round(each.cpu_s / measured * 1e9),
            "against_one_slot": round(each.cpu_s / one.cpu_s, 2),
            "entries_an_object": round(each.entries / measured, 3),
            "tested_an_object": round((each.tested - each.tested_before) / measured, 1),
            "radii_sent_an_object": round(each.sent / measured, 3),
        }
        print(json.dumps({"case": name, **figures}), flush=True)


if __name__ == "__main__":
    main()
