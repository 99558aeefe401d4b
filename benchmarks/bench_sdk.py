"""Measures the client without a network: objects to columns, responses to notifications.

    python benchmarks/bench_sdk.py [--objects N] [--matches N] [--seed N]

One thread, texts of about 68 bytes and 10 terms, batches of 1,000; the best of five passes.
`stream` is the whole way of a publisher to a gRPC server in another process that only
acknowledges.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import grpc
from sirocco_api.v1 import publish_service_pb2_grpc
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import PublishResponse
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse
from sirocco_client import Client, Object, PublishFlow
from sirocco_client.notifications.decode import NotificationBatch
from sirocco_client.objects.encode import ObjectEncoder

BATCH = 1_000
PASSES = 5


def make_objects(count: int, rng: random.Random) -> list[dict[str, Any]]:
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(20_000)]
    return [
        {
            "id": i,
            "ts": 1_405_123_200_000 + i,
            "lon": rng.uniform(-180, 180),
            "lat": rng.uniform(-90, 90),
            "text": " ".join(rng.choices(words, k=10)),
        }
        for i in range(count)
    ]


def encode_many(objects: list[Any]) -> list[ObjectColumns]:
    encoder, found = ObjectEncoder(), []
    for begin in range(0, len(objects), BATCH):
        encoder.add_many(objects[begin : begin + BATCH])
        message = ObjectColumns()
        encoder.take(message)
        found.append(message)
    return found


def encode_singly(objects: list[Any]) -> None:
    encoder = ObjectEncoder()
    for each in objects:
        encoder.add(each)
        if len(encoder) == BATCH:
            encoder.take(ObjectColumns())


def make_response(objects: ObjectColumns, matches: int, rng: random.Random) -> bytes:
    """Returns a response in which every object matches the same number of 500 queries."""
    names = [f"query-{i}" for i in range(500)]
    response = ReceiveResponse(cursor="0.1", objects=objects)
    count = objects.count
    response.events.sessions = array("Q", [7] * count).tobytes()
    response.events.numbers = array("Q", range(count)).tobytes()
    response.events.arrivals_ms = array("q", [0] * count).tobytes()
    response.queries.handles = array("Q", range(len(names))).tobytes()
    response.queries.ids = "".join(names).encode()
    response.queries.id_offsets = array("I", accumulate(map(len, names), initial=0)).tobytes()
    rows = [row for row in range(count) for _ in range(matches)]
    response.matches.objects = array("I", rows).tobytes()
    response.matches.queries = array("I", rng.choices(range(len(names)), k=len(rows))).tobytes()
    return response.SerializeToString()


def best_us(count: int, run: Callable[[], object]) -> float:
    """Returns µs of CPU per item of the cheapest pass; a busy machine does not matter."""
    best = float("inf")
    for _ in range(PASSES):
        begin_s = time.process_time()
        run()
        best = min(best, time.process_time() - begin_s)
    return best / count * 1e6


def drain(items: Iterator[Any]) -> None:
    for _ in items:
        pass


class _Acknowledges(publish_service_pb2_grpc.PublishServiceServicer):
    def Publish(self, requests: Iterator[Any], context: object) -> Iterator[Any]:  # noqa: N802
        for request in requests:
            end = request.first_number + request.objects.count - 1
            yield PublishResponse(acknowledged_to=end)


def _serve(port_to: Any) -> None:
    server = grpc.server(ThreadPoolExecutor(4))
    publish_service_pb2_grpc.add_PublishServiceServicer_to_server(_Acknowledges(), server)
    port_to.put(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def stream_rate(objects: list[Any], flow: PublishFlow) -> tuple[float, float]:
    """Returns objects per second of a publisher, and its CPU in µs for each object."""
    context = multiprocessing.get_context("spawn")
    port_from = context.Queue()
    process = context.Process(target=_serve, args=(port_from,), daemon=True)
    process.start()
    try:
        with Client(f"127.0.0.1:{port_from.get()}") as client, client.publisher(flow) as publisher:
            publisher.publish_many(objects[:BATCH])
            publisher.flush()
            begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
            publisher.publish_many(objects)
            publisher.flush()
            seconds, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    finally:
        process.terminate()
        process.join()
    return len(objects) / seconds, cpu_s / len(objects) * 1e6


def report(case: str, us: float, unit: str, **members: Any) -> None:
    row = {"case": case, f"us_per_{unit}": round(us, 3), f"{unit}s_per_s": round(1e6 / us)}
    print(json.dumps(row | members))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=50_000)
    parser.add_argument("--matches", type=int, default=38, help="of each object")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    plain = make_objects(args.objects, rng)
    count = len(plain)
    cases = {
        "encode dicts, many": (encode_many, plain),
        "encode dicts, one by one": (encode_singly, plain),
        "encode dicts, not ASCII": (encode_many, [m | {"text": m["text"] + " é"} for m in plain]),
        "encode dicts, attributes": (encode_many, [m | {"size": 3, "open": True} for m in plain]),
        "encode dicts, string ids": (encode_many, [m | {"id": f"name-{m['id']}"} for m in plain]),
        "encode Object": (
            encode_many,
            [Object(m["id"], m["lon"], m["lat"], m["text"], m["ts"]) for m in plain],
        ),
    }
    for case, (run, objects) in cases.items():
        report(case, best_us(count, lambda run=run, objects=objects: run(objects)), "object")
    data = make_response(encode_many(plain)[0], args.matches, rng)
    matches = BATCH * args.matches

    def batch() -> NotificationBatch:
        return NotificationBatch(ReceiveResponse.FromString(data), "")

    report("decode columns", best_us(matches, lambda: batch().match_objects), "notification")
    report("decode pairs", best_us(matches, lambda: drain(batch().pairs())), "notification")
    report("decode items", best_us(matches, lambda: drain(iter(batch()))), "notification")
    per_object = make_response(encode_many(plain)[0], 1, rng)
    lone = best_us(
        BATCH, lambda: drain(iter(NotificationBatch(ReceiveResponse.FromString(per_object), "")))
    )
    report("decode items, one match an object", lone, "notification")
    for batch_objects in (100, 1_000, 4_000):
        flow = PublishFlow(batch_objects=batch_objects, outstanding_objects_max=4 * batch_objects)
        rate, cpu_us = stream_rate(plain, flow)
        report("stream", 1e6 / rate, "object", batch=batch_objects, client_cpu_us=round(cpu_us, 3))


if __name__ == "__main__":
    main()
