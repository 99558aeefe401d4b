"""Measures standing terms queries in one slot; prints one JSON object a case.

usage: python benchmarks/bench_steps.py [--queries N] [--rate R] [--window S] [--step S]
           [--steps N] [--side SHARE] [--shared] [--searched] [--seed S]

A slot takes world-wide posts (`loadgen.posts`) that arrive at R objects a second, in records of
1,000: it does not analyse texts (routers do), but matches, stores, seals, merges slices, and
answers the due steps, up to the records for mergers. Queries ask for the 10 most frequent terms of
the last S seconds within a rectangle around a post, SHARE of each side of the inhabited world (0.01
of each side is 0.01 % of the area, SSTD's default); their steps are spread evenly over time. Before
the measurement a whole window of posts is stored.

- `store`: the posts of the first window, without queries;
- `first`: the first step of each query, whose window is counted as a whole;
- `terms`: N steps of each query after that. It keeps up with R when `objects_per_s` is at least R.
  `step_us` is the mean time of a step of a query without the time of storing; `parts` is the
  number of records for mergers.

`--shared`: other slots hold the queries, too. Then a slot has to report all terms, not the first
10. `--searched`: each step is a search, for comparison.
Times are CPU times of the one thread.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sirocco.index.base.compile import compile_queries
from sirocco.loadgen.posts import WorldPosts
from sirocco.model.geometry import Rectangle
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import TermsQuery, query_handle
from sirocco.model.text import TextAnalyser
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import Change, Installed, Routed
from sirocco.protocol.contract.positions import Intervals, position_of
from sirocco.protocol.evaluator.reports.step_records import StepReport, step_founds
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.queries.install_records import Installs

# About the objects of one poll.
BATCH = 1_000
START_MS = 1_767_225_600_000
WORLD = (-180.0, -60.0, 180.0, 75.0)
K = 10
# Queries are at the places of some of the first objects.
PLACES = 200_000


@dataclass(slots=True)
class Spent:
    """The work done, and the CPU seconds of its parts."""

    objects: int = 0
    steps: int = 0
    parts: int = 0
    take_s: float = 0.0
    merge_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.take_s + self.merge_s


class Stream:
    """The log of one slot, and the slot that takes it.

    Args:
        rate: objects that arrive in a second.
        seed: of the posts.
    """

    def __init__(self, rate: int, seed: int) -> None:
        self.slot = Slot(0, 1)
        self.slot.open(0, 0, 1, START_MS)
        self.lon: list[float] = []
        self.lat: list[float] = []
        self._rate = rate
        self._batches = WorldPosts(seed).batches(1 << 40, BATCH)
        self._analyser = TextAnalyser()
        self._taken = self._records_taken = 0

    @property
    def now_ms(self) -> int:
        """Returns when the next object arrives."""
        return START_MS + self._taken * 1_000 // self._rate

    def run(self, objects: int) -> Spent:
        """Takes the next objects."""
        spent = Spent()
        for record in self._records(objects):
            spent.objects += len(record.objects)
            begin_s = time.thread_time()
            reports = self.slot.take([(self.slot.offset, record)])
            reported = [one for one in reports if isinstance(one, StepReport)]
            spent.parts += sum(1 for one in reported for _ in step_founds(one))
            spent.take_s += time.thread_time() - begin_s
            spent.steps += sum(len(one.results) for one in reported)
            # The archive keeps up: slices that it lacks are not merged yet.
            self.slot.past.manifest.saved_seq = self.slot.past.store.next_seq - 1
            begin_s = time.thread_time()
            while (job := self.slot.past.next_job()) is not None:
                self.slot.past.worked(job())
            spent.merge_s += time.thread_time() - begin_s
        return spent

    def install(self, queries: Sequence[TermsQuery], starts_ms: Sequence[int], slots: int) -> None:
        """Registers queries with history over their windows, all at once."""
        changes = [
            Change(
                handle=query_handle(query.id),
                query=query,
                subscriber="s",
                start_ms=start_ms,
                expected_revision=-1,
                digest=0,
                past_ms=query.window_ms or 0,
            )
            for query, start_ms in zip(queries, starts_ms, strict=True)
        ]
        installs = Installs(0, 0)
        rows = compile_queries(queries, list(starts_ms))
        everywhere = tuple(range(slots))
        installs.install(list(enumerate(changes, 1)), rows, [everywhere] * len(changes))
        reported: Installed = installs.installed(0)
        self.slot.take([(self.slot.offset, reported)])

    def _records(self, objects: int) -> Iterator[Routed]:
        end = self._taken + objects
        while self._taken < end:
            posts = next(self._batches)
            if len(self.lon) < PLACES:
                self.lon += posts.lon.tolist()
                self.lat += posts.lat.tolist()
            yield self._record(posts)
            self._taken += len(posts)
            self._records_taken += 1

    def _record(self, posts: ObjectColumns) -> Routed:
        count = len(posts)
        numbers = np.arange(self._taken, self._taken + count)
        arrivals_ms = START_MS + numbers * 1_000 // self._rate
        begin, end = position_of(self._records_taken), position_of(self._records_taken + 1)
        none = np.zeros(count + 1, np.int64)
        return Routed(
            map_version=1,
            intervals=Intervals.of([(0, begin, end, int(arrivals_ms[-1]))]),
            objects=replace(posts, attributes=np.empty(0, np.uint8), attribute_offsets=none),
            events=EventColumns(
                (numbers % 50).astype(np.uint64), numbers.astype(np.uint64), arrivals_ms
            ),
            positions=begin + np.arange(count),
            interval_rows=np.zeros(count, np.uint32),
            terms=self._analyser.analyse_batch(posts.text, posts.text_offsets),
        )


def make_queries(
    stream: Stream, count: int, side: float, window_ms: int, step_ms: int, seed: int
) -> list[TermsQuery]:
    """Returns queries around posts."""
    rng = np.random.default_rng(seed)
    west, south, east, north = WORLD
    width, height = side * (east - west) / 2, side * (north - south) / 2
    queries = []
    for number, row in enumerate(rng.integers(0, len(stream.lon), count).tolist()):
        lon, lat = stream.lon[row], stream.lat[row]
        region = Rectangle(
            max(-180.0, lon - width), max(-90.0, lat - height),
            min(180.0, lon + width), min(90.0, lat + height),
        )  # fmt: skip
        queries.append(
            TermsQuery(
                id=f"q{number}",
                mode="continuous",
                k=K,
                region=region,
                window_ms=window_ms,
                step_ms=step_ms,
            )
        )
    return queries


def report(case: str, **figures: object) -> None:
    print(json.dumps({"case": case, **figures}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=100_000, help="objects a second")
    parser.add_argument("--window", type=int, default=60, help="seconds")
    parser.add_argument("--step", type=int, default=10, help="seconds")
    parser.add_argument("--steps", type=int, default=2, help="of each query")
    parser.add_argument("--side", type=float, default=0.01, help="share of each side of the world")
    parser.add_argument("--shared", action="store_true", help="other slots hold them, too")
    parser.add_argument("--searched", action="store_true", help="each step is a search")
    parser.add_argument("--seed", type=int, default=20260101)
    asked = parser.parse_args()
    window_ms, step_ms = 1_000 * asked.window, 1_000 * asked.step
    stream = Stream(asked.rate, asked.seed)
    stored = stream.run(asked.rate * asked.window)
    store_s = stored.total_s / stored.objects
    report(
        "store",
        objects=stored.objects,
        objects_per_s=round(stored.objects / stored.total_s),
        take_ns=round(1e9 * stored.take_s / stored.objects),
        merge_ns=round(1e9 * stored.merge_s / stored.objects),
        slices=len(stream.slot.past.store.slices),
    )
    queries = make_queries(stream, asked.queries, asked.side, window_ms, step_ms, asked.seed)
    starts_ms = [
        stream.now_ms + 1 + number * step_ms // len(queries) for number in range(len(queries))
    ]
    stream.install(queries, starts_ms, 2 if asked.shared else 1)
    gc.collect()
    gc.freeze()
    if asked.searched:
        for entry in stream.slot.standing.steps.queries.values():
            entry.kept = None
    for case, steps in (("first", 1), ("terms", asked.steps)):
        done = stream.run(asked.rate * asked.step * steps)
        report(
            case,
            queries=len(queries),
            rate=asked.rate,
            window_s=asked.window,
            step_s=asked.step,
            side=asked.side,
            shared=asked.shared,
            searched=asked.searched,
            objects=done.objects,
            steps=done.steps,
            objects_per_s=round(done.objects / done.total_s),
            step_us=round(1e6 * (done.total_s - store_s * done.objects) / max(1, done.steps)),
            parts=done.parts,
        )


if __name__ == "__main__":
    main()
