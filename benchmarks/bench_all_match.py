"""What standing queries that match every object cost: CPU time of a cluster for each match.

Exactness forbids to drop a match, so nothing but their number and the rate of objects bounds what
such queries take. An operator chooses the limits `queries` and `objects_per_s` by this figure.

All services, the log in memory and the client that receives run in this process. Each number of
queries has a cluster of its own. Range queries have no condition. Each object is nearer to the
point of the knn queries than all before, so that each changes each list; lists are reported at the
ends of windows. Prints one JSON line a number of queries: CPU time of the process an object, until
the last notification, and how much of it each query adds to what is spent without queries.

    python -m benchmarks.bench_all_match [--kind range|knn] [--k 10] [--queries 0 100 1000]
        [--objects 5000]
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sirocco_client import Client, KnnQuery, Object, RangeQuery

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

SUBSCRIBER = "bench"
WARM_UP = 500

# Without a notification for so long all have been received.
QUIET_S = 3.0


@dataclass
class Received:
    """What a subscriber has received, and the CPU time of the process at the last batch.

    Attributes:
        matches: pairs of a query and an object, or lists.
        cpu_s: of the process.
        last_s: monotonic clock.
    """

    matches: int = 0
    cpu_s: float = 0.0
    last_s: float = field(default_factory=time.monotonic)

    def count(self, matches: int) -> None:
        """Counts a batch."""
        self.matches += matches
        self.cpu_s, self.last_s = time.process_time(), time.monotonic()


def objects(begin: int, end: int) -> Iterator[Object]:
    """Yields objects on a meridian, each nearer to the equator than those before."""
    for number in range(begin, end):
        yield Object(number + 1, 2.0, 80.0 / (1.0 + number / 100), "fire at the harbour")


def query(kind: str, number: int, k: int) -> RangeQuery | KnnQuery:
    """Returns a query that each object matches."""
    name = f"q{number}"
    if kind == "range":
        return RangeQuery(id=name, subscriber=SUBSCRIBER)
    return KnnQuery(id=name, subscriber=SUBSCRIBER, lon=2.0, lat=0.0, k=k)


def measured(arguments: argparse.Namespace, queries: int) -> tuple[float, int]:
    """Returns the CPU microseconds an object, and how many matches or lists were received."""
    with (
        EmbeddedCluster(ClusterSettings()) as cluster,
        Client(cluster.router_address, timeout_s=120.0) as client,
        client.subscribe(SUBSCRIBER, credit=100_000) as notifications,
        client.publisher() as publisher,
    ):
        wanted = [query(arguments.kind, number, arguments.k) for number in range(queries)]
        for result in client.register_many(wanted):
            assert result.error is None, result.error
        received = Received()

        def receive() -> None:
            for batch in notifications.batches():
                received.count(len(batch) + len(batch.lists))

        reader = threading.Thread(target=receive)
        reader.start()

        def publish(begin: int, end: int) -> None:
            for each in objects(begin, end):
                publisher.publish(each)
            client.await_processed(publisher.flush().position_token)
            received.count(0)
            while time.monotonic() - received.last_s < QUIET_S:
                time.sleep(QUIET_S / 10)

        publish(0, WARM_UP)
        before, before_s = received.matches, time.process_time()
        publish(WARM_UP, WARM_UP + arguments.objects)
        spent_us = (received.cpu_s - before_s) / arguments.objects * 1e6
        notifications.close()
        reader.join()
    return spent_us, received.matches - before


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=("range", "knn"), default="range")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--queries", type=int, nargs="+", default=[0, 100, 1_000])
    parser.add_argument("--objects", type=int, default=5_000)
    arguments = parser.parse_args()
    without_us = None
    for queries in arguments.queries:
        cpu_us, matches = measured(arguments, queries)
        found = {
            "kind": arguments.kind,
            "queries": queries,
            "cpu_us_an_object": round(cpu_us, 1),
            "received": matches,
        }
        if not queries:
            without_us = cpu_us
        elif without_us is not None:
            found["cpu_us_a_match"] = round((cpu_us - without_us) / queries, 3)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
