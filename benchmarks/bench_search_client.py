"""Searches through the client over an idle cluster in this process; one JSON object a case.

usage: python benchmarks/bench_search_client.py [--objects N] [--searches Q] [--evaluators E]
                                                      [--cases CASE …] [--seed S] [--moved]

The objects are those of the clustered workload of `loadgen` (10 words an object), published through
the whole way; then one thread of a client asks, one search after the other, and nothing else goes
on. Times are wall times from the call to the decoded ids, in milliseconds. Cases:

    nothing     a small rectangle with a word that no object holds: what the way itself costs
    range       0.01 % of the space and one keyword: the place of an object and a word of it
    range_rare  the same around any place with a word of any object
    knn         k = 10, any text, at the place of an object moved by up to a degree
    knn_word    the same with one keyword
    terms       k = 10 over 1 % of the space
    ranked      k = 10 within 100 km, 5 keywords
    fresh       one object is published, then found by its position token: from the acknowledgement
                of the publish to the answer

With --moved the leaf under most of the remembered objects then moves to another slot, and the cases
are measured again, as `CASE, leaf moved`.

`answers` is the mean number of objects or terms, `slots` the mean number of slots asked, `cpu_ms`
the CPU time of the whole process a search, the idle loops of all services included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

import numpy as np
from drawn_searches import DrawnSearches, settle  # type: ignore[import-not-found]
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import Client, PublishFlow
from sirocco_client.queries import query as ask
from sirocco_client.queries.regions import Rectangle

from sirocco.codec.columns import put_objects
from sirocco.loadgen.clusters import ClusteredWorkload
from sirocco.runtime.process.process_tuning import tune
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.services.embedded import EmbeddedCluster

SEED = 20260101
BATCH = 4_096
WARM_UP = 30

CASES = ("nothing", "range", "range_rare", "knn", "knn_word", "terms", "ranked", "fresh")


def publish(client: Client, count: int, made: DrawnSearches, seed: int) -> None:
    """Publishes the objects and waits until all are stored."""
    begin_s = time.monotonic()
    flow = PublishFlow(batch_objects=BATCH, outstanding_objects_max=16 * BATCH)
    with client.publisher(flow) as publisher:
        for objects in ClusteredWorkload(seed).objects(count, BATCH):
            made.remember(objects)
            message = ObjectsMessage()
            put_objects(message, objects)
            publisher.publish_columns(message)
        token = publisher.flush().position_token
    client.await_processed(token, timeout_s=600)
    seconds = time.monotonic() - begin_s
    report("published", objects=count, seconds=round(seconds, 1), per_s=round(count / seconds))


def move_leaf(client: Client, made: DrawnSearches) -> None:
    """Moves the leaf of most remembered objects to the next slot, and waits until that is over."""
    state = client.map_change(with_map=True)
    found = from_bytes(state.partition_map)
    routing = scheme_named(found.scheme).compile(found)
    lon, lat = made.places()
    no_terms = np.zeros(len(lon) + 1, np.int64), np.empty(0, np.uint64)
    routes = routing.route_objects(lon, lat, *no_terms, np.zeros(len(lon), np.uint64))
    leaf = int(np.bincount(routes.leaf).argmax())
    row = [each.id for each in found.leaves].index(leaf)
    slots = found.slot_of_leaf.copy()
    slots[row] = (slots[row] + 1) % found.slots
    changed = replace(found, slot_of_leaf=slots, version=found.version + 1)
    begin_s = time.monotonic()
    version = client.propose_map(to_bytes(changed))
    while (now := client.map_change()).map_version < version or now.phase != "none":
        time.sleep(0.05)
    seconds = round(time.monotonic() - begin_s, 2)
    report("a leaf moves", leaves=len(found.leaves), slots=found.slots, seconds=seconds)


def measure(
    client: Client, made: DrawnSearches, case: str, searches: int, suffix: str = ""
) -> None:
    """Runs queries of a case one after the other."""
    took_ms, answers, slots = [], 0, 0
    begin_cpu_s = 0.0
    for number, query in zip(range(WARM_UP + searches), made.queries(case), strict=False):
        if number == WARM_UP:
            begin_cpu_s = time.process_time()
        begin_s = time.perf_counter()
        answer = client.search(query)
        found = len(answer.ids) + len(answer.terms)
        if number >= WARM_UP:
            took_ms.append((time.perf_counter() - begin_s) * 1_000)
            answers += found
            slots += answer.slots
    cpu_ms = 1_000 * (time.process_time() - begin_cpu_s) / searches
    figures = {"cpu_ms": cpu_ms, "answers": answers / searches, "slots": slots / searches}
    rounded = {name: round(value, 3) for name, value in figures.items()}
    report(case + suffix, **percentiles(took_ms), **rounded)


def measure_fresh(client: Client, searches: int) -> None:
    """Searches for objects published just before."""
    took_ms = []
    with client.publisher(PublishFlow(linger_ms=0)) as publisher:
        for number in range(searches):
            publisher.publish({"id": number, "lon": 12.5, "lat": 7.5, "text": f"fresh{number}"})
            token = publisher.flush().position_token
            query = ask.RangeQuery(
                id="f", subscriber="", mode="snapshot", text=f"fresh{number}",
                region=Rectangle(12.0, 7.0, 13.0, 8.0),
            )  # fmt: skip
            begin_s = time.perf_counter()
            assert client.search(query, position_token=token).ids == [number]
            took_ms.append((time.perf_counter() - begin_s) * 1_000)
    report("fresh", **percentiles(took_ms))


def percentiles(took_ms: list[float]) -> dict[str, float]:
    """Returns p50, p95, p99 and the greatest."""
    points = np.percentile(took_ms, [50, 95, 99, 100])
    names = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
    return {name: round(float(point), 3) for name, point in zip(names, points, strict=True)}


def report(case: str, **figures: object) -> None:
    """Prints a row."""
    print(json.dumps({"case": case, **figures}), flush=True)


def main() -> int:
    """Fills a cluster and searches it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=5_000_000)
    parser.add_argument("--searches", type=int, default=2_000)
    parser.add_argument("--evaluators", type=int, default=1)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--moved", action="store_true", help="again after one leaf has moved")
    asked = parser.parse_args()
    tune()
    made = DrawnSearches(asked.seed)
    settings = ClusterSettings(slots=asked.slots)
    with (
        EmbeddedCluster(settings, evaluators=asked.evaluators) as cluster,
        Client(cluster.router_address) as client,
    ):
        publish(client, asked.objects, made, asked.seed)
        settle()
        for case in asked.cases:
            if case == "fresh":
                measure_fresh(client, min(asked.searches, 200))
            else:
                measure(client, made, case, asked.searches)
        if asked.moved:
            move_leaf(client, made)
            for case in asked.cases:
                if case != "fresh":
                    measure(client, made, case, asked.searches, ", leaf moved")
    return 0


if __name__ == "__main__":
    sys.exit(main())
