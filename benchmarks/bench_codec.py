"""Measures the codec: one thread, one JSON line per case.

    python benchmarks/bench_codec.py [--objects N] [--seed N]

`encode_us` and `decode_us` turn a message into its request and back; `serialize_us` and
`parse_us` are protobuf's share beside. Texts have 10 terms and about 68 bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.hops import HOPS, decode, encode
from sirocco.codec.queries import read_query, write_query
from sirocco.index.base.query_rows import QueryRows
from sirocco.model.objects import ObjectColumns, pack_bytes
from sirocco.model.query import RangeQuery, parse_query
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns, MatchColumns, QueryNames
from sirocco.protocol.contract.messages import (
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    NO_TERMS,
    Found,
    Installed,
    IntakeObjects,
    Message,
    Routed,
)
from sirocco.protocol.contract.positions import Intervals

PASSES = 7


def make_objects(rng: np.random.Generator, count: int, attributes: bytes) -> ObjectColumns:
    """Returns objects with numeric ids."""
    words = [b"%05x%d" % (number, number % 7) for number in range(50_000)]
    texts = [b" ".join(words[w] for w in rng.integers(0, len(words), 10)) for _ in range(count)]
    text, text_offsets = pack_bytes(texts)
    each, attribute_offsets = pack_bytes([attributes] * count)
    return ObjectColumns(
        ids=rng.integers(0, 1 << 64, count, np.uint64),
        names=np.empty(0, np.uint8),
        name_offsets=np.zeros(count + 1, np.int64),
        lon=rng.uniform(-180, 180, count),
        lat=rng.uniform(-90, 90, count),
        ts=rng.integers(0, 1 << 41, count),
        text=text,
        text_offsets=text_offsets,
        attributes=each,
        attribute_offsets=attribute_offsets,
    )


def make_events(rng: np.random.Generator, count: int) -> EventColumns:
    """Returns this many events."""
    numbers = np.arange(1, count + 1, dtype=np.uint64)
    return EventColumns(rng.integers(0, 9, count, np.uint64), numbers, np.arange(count))


def make_names(rng: np.random.Generator, count: int) -> QueryNames:
    """Returns the names of queries of three subscribers."""
    ids, offsets = pack_bytes([b"query-%07d" % number for number in range(count)])
    handles = rng.integers(0, 1 << 64, count, np.uint64)
    subscribers = rng.integers(0, 3, count).astype(np.uint32)
    return QueryNames(handles, ids, offsets, subscribers, ("a", "b", "c"))


def make_queries(rng: np.random.Generator, count: int) -> QueryRows:
    """Returns queries of one box and two terms."""
    west, south = rng.uniform(-180, 179, count), rng.uniform(-90, 89, count)
    boxes = np.stack([west, south, west + 1, south + 1], axis=1)
    terms = rng.integers(0, 1 << 64, 2 * count, np.uint64)
    return QueryRows.of_boxes(boxes, np.arange(count + 1) * 2, terms)


def make_messages(rng: np.random.Generator, count: int) -> dict[str, Message]:
    """Returns the messages of the load, and a mark."""
    objects = make_objects(rng, count, b"")
    events, zeros = make_events(rng, count), np.zeros(count, np.uint32)
    found = analyse_batch(objects.text, objects.text_offsets)
    positions, intervals = np.arange(count), Intervals.of([(0, 0, 1 << 30, 5)])
    whole = make_objects(rng, count, b'{"status": "open"}')
    matches = MatchColumns(
        np.sort(rng.integers(0, count, 4 * count)).astype(np.uint32),
        rng.integers(0, count, 4 * count).astype(np.uint32),
    )
    names = make_names(rng, count)
    none = np.empty(0, np.uint64)
    return {
        "taken": IntakeObjects(
            session=1,
            first_number=1,
            span=count,
            acknowledged_to=0,
            received_ms=5,
            objects=objects,
            number_deltas=None,
        ),
        "routed": Routed(
            map_version=1,
            intervals=intervals,
            objects=objects,
            events=events,
            positions=positions,
            interval_rows=zeros,
            terms=found,
        ),
        "routed with attributes": Routed(
            map_version=1,
            intervals=intervals,
            objects=whole,
            events=events,
            positions=positions,
            interval_rows=zeros,
            terms=found,
        ),
        "mark": Routed(
            map_version=1,
            intervals=intervals,
            objects=NO_OBJECTS,
            events=NO_EVENTS,
            positions=NO_POSITIONS,
            interval_rows=NO_ROWS,
            terms=NO_TERMS,
        ),
        "found": Found(
            intervals=intervals,
            objects=objects,
            events=events,
            positions=positions,
            interval_rows=zeros,
            queries=names,
            matches=matches,
        ),
        "installed": Installed.plain(
            0, 0, names, positions, make_queries(rng, count), None, none, NO_POSITIONS
        ),
    }


def best_us(run: Callable[[], object], repeats: int = 200) -> float:
    """Returns µs for each call, of the fastest pass."""
    best = float("inf")
    for _ in range(PASSES):
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        best = min(best, time.perf_counter() - start)
    return round(best / repeats * 1e6, 2)


def measure_message(case: str, message: Message, count: int) -> dict[str, object]:
    """Returns the line of one message."""
    _, request = encode(message)
    value = request.SerializeToString()
    parse = HOPS[type(message)].request_class.FromString
    return {
        "case": case,
        "rows": count,
        "bytes": len(value),
        "encode_us": best_us(lambda: encode(message)),
        "serialize_us": best_us(request.SerializeToString),
        "parse_us": best_us(lambda: parse(value)),
        "decode_us": best_us(lambda: decode(request)),
    }


def measure_query() -> dict[str, object]:
    """Returns the line of one public query."""
    form = {
        "id": "query-0000001",
        "kind": "range",
        "mode": "continuous",
        "region": {"rect": {"west": 1, "south": 2, "east": 3, "north": 4}},
        "text": "(coffee AND free) OR pizza",
    }
    query = parse_query(form)
    assert isinstance(query, RangeQuery)
    message = write_query(query, "sub")
    return {
        "case": "query",
        "encode_us": best_us(lambda: write_query(query, "sub")),
        "decode_us": best_us(lambda: read_query(message)),
        "parse_query_us": best_us(lambda: parse_query(form)),
    }


def measure_checkpoint(rng: np.random.Generator, count: int) -> dict[str, object]:
    """Returns the line of a slot's state with this many queries."""
    queries = make_queries(rng, count)
    state = {name: getattr(queries, name) for name in QueryRows.__slots__}
    data = write_state(state)
    return {
        "case": "checkpoint",
        "rows": count,
        "bytes": len(data),
        "encode_us": best_us(lambda: write_state(state), 1),
        "decode_us": best_us(lambda: read_state(data), 1),
    }


def main() -> None:
    """Runs all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=512)
    parser.add_argument("--queries", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    for case, message in make_messages(rng, arguments.objects).items():
        print(json.dumps(measure_message(case, message, arguments.objects)))
    print(json.dumps(measure_query()))
    print(json.dumps(measure_checkpoint(rng, arguments.queries)))


if __name__ == "__main__":
    main()
