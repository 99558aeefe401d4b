"""Measures the filter at the router; prints one JSON object per number of queries.

usage: python -m benchmarks.bench_keyword_filter [--objects N] [--queries N ...] [--seed S]

Objects: 200 Gaussian clusters and a tenth uniform, 10 terms each of a Zipf vocabulary of 200,000.
Queries: regions of 0.1 % of the side around objects, one to three terms of the object in the
middle. Measured is CPU time of one thread, from records of `intake` to the bytes of records of
`slots`, with the filter and without, in turns; the best of three.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from benchmarks.bench_routing import make_objects, make_queries
from sirocco.codec.hops import encode
from sirocco.index.routing.keyword_slots import joined, set_of, words_of
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import IntakeObjects, Keywords
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.keyword_keys import least_frequent
from sirocco.schemes.workload.sample import QueryKind, Sample, no_queries
from sirocco.schemes.workload.sample_keys import frequent_terms

SLOTS, LEAVES = 16, 64
RECORD_OBJECTS = 1_000


def records(rng: np.random.Generator, count: int) -> list[IntakeObjects]:
    """Returns objects as a front appends them."""
    lon, lat, offsets, terms, _ = make_objects(rng, count)
    found = []
    for begin in range(0, count, RECORD_OBJECTS):
        builder = ObjectColumnsBuilder()
        for row in range(begin, min(count, begin + RECORD_OBJECTS)):
            words = " ".join(f"w{term:x}" for term in terms[offsets[row] : offsets[row + 1]])
            one = {"id": row, "lon": lon[row], "lat": lat[row], "text": words}
            builder.add(parse_object(json.dumps(one).encode()))
        objects = builder.build()
        found.append(
            IntakeObjects(
                session=1,
                first_number=begin + 1,
                span=len(objects),
                acknowledged_to=0,
                received_ms=1_000,
                objects=objects,
                number_deltas=None,
            )
        )
    return found


def sample_of(log: list[IntakeObjects]) -> Sample:
    lon = np.concatenate([taken.objects.lon for taken in log])
    lat = np.concatenate([taken.objects.lat for taken in log])
    terms = [analyse_batch(taken.objects.text, taken.objects.text_offsets) for taken in log]
    counts = np.concatenate([np.diff(each.offsets) for each in terms])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    keys = np.arange(len(lon), dtype=np.uint64)
    flat = np.concatenate([each.terms for each in terms])
    return Sample(lon, lat, offsets, flat, keys, no_queries())


def summary(rng: np.random.Generator, sample: Sample, routing, count: int) -> Keywords:
    """Returns the keywords that this many queries need."""
    queries = make_queries(rng, sample, count, 0.001, QueryKind.RANGE_CONTINUOUS)
    keys = least_frequent(queries.term_offsets, queries.terms, *frequent_terms(sample))
    routes = routing.route_boxes(queries.boxes, np.arange(count + 1))
    by_query = np.split(routes.slots, routes.slot_offsets[1:-1])
    sets = np.array([set_of(each.tolist(), words_of(SLOTS)) for each in by_query])
    terms, slots = joined(keys, sets)
    return Keywords(partition=0, epoch=1, terms=terms, slots=slots, begins=True, ends=True)


def run(log: list[IntakeObjects], routing, keywords: Keywords | None) -> tuple[float, IntakeRouter]:
    """Returns the seconds of one thread for the whole log."""
    router = IntakeRouter(slots=SLOTS, event_time=False, summarised=0 if keywords is None else 1)
    router.use({1: routing}, 1)
    router.own(0, 0, None, 0)
    offset = 0
    if keywords is not None:
        router.add(0, 0, keywords, 0)
        router.flush(0, at_once=True)
        offset = 1
    begin_s = time.thread_time()
    for number, taken in enumerate(log):
        router.add(0, offset + number, taken, 0)
        if router.is_full or number == len(log) - 1:
            for effect in router.flush(0, at_once=True):
                assert isinstance(effect, Append)
                encode(effect.message)[1].SerializeToString()
    return time.thread_time() - begin_s, router


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--queries", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--seed", type=int, default=20261121)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    log = records(rng, options.objects)
    sample = sample_of(log)
    scheme = scheme_named("qt-tree")
    routing = scheme.compile(scheme.build(sample, LEAVES, SLOTS))
    for count in options.queries:
        reported = summary(rng, sample, routing, count)
        without_s = with_s = float("inf")
        for _ in range(3):
            without_s = min(without_s, run(log, routing, None)[0])
            seconds, router = run(log, routing, reported)
            with_s = min(with_s, seconds)
        result = {
            "case": f"router with the filter, {count} queries",
            "keywords": len(reported.terms),
            "held_back_share": round(router.held_back_total / options.objects, 3),
            "us_per_object_without": round(1e6 * without_s / options.objects, 3),
            "us_per_object_with": round(1e6 * with_s / options.objects, 3),
            "ratio": round(with_s / without_s, 3),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
