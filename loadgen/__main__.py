"""Writes workloads as lines of JSON, and measures clusters under load.

`python -m sirocco.loadgen posts --count 1000 --seed 7`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import orjson
from sirocco_client import Client, SiroccoError

from sirocco.loadgen.clusters import ClusteredShape, ClusteredWorkload
from sirocco.loadgen.lines import object_lines
from sirocco.loadgen.measure import Load, measure
from sirocco.loadgen.places import city_objects, load_cities
from sirocco.loadgen.posts import PostsShape, WorldPosts
from sirocco.model.objects import ObjectColumns


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = _parser().parse_args(arguments)
    try:
        args.run(args)
    except BrokenPipeError:
        # The reader has closed the pipe. Nothing may be flushed into it at exit.
        sys.stdout = None
    except (OSError, SiroccoError) as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sirocco.loadgen",
        description="Seeded workloads as lines of JSON; the same seed gives the same lines.",
    )
    commands = parser.add_subparsers(required=True, metavar="WORKLOAD")

    posts = commands.add_parser("posts", help="world-wide posts with local events")
    _common(posts)
    posts.add_argument("--rate", type=float, default=2_000.0, help="posts a second of event time")
    posts.set_defaults(run=_posts)

    clusters = commands.add_parser("clusters", help="the reference workload: clusters, Zipf words")
    _common(clusters)
    clusters.add_argument("--rate", type=float, help="objects a second of event time")
    clusters.add_argument("--queries", type=int, default=0, help="how many queries to write")
    clusters.add_argument("--queries-out", type=Path, help="file for the queries")
    clusters.set_defaults(run=_clusters)

    cities = commands.add_parser("cities", help="the cities of the world as objects")
    cities.add_argument("--out", type=Path, help="file (default: standard output)")
    cities.set_defaults(run=_cities)

    measuring = commands.add_parser("measure", help="latency of a cluster under a steady load")
    measuring.add_argument("--router", required=True, metavar="HOST:PORT", help="of the cluster")
    measuring.add_argument("--rate", type=float, required=True, help="objects a second")
    measuring.add_argument("--seconds", type=float, default=20.0, help="how long (20)")
    measuring.add_argument("--queries", type=int, default=10_000, help="standing queries (10000)")
    measuring.add_argument("--batch", type=int, default=1_000, help="objects a publish (1000)")
    measuring.add_argument("--seed", type=int, default=1, help="seed (1)")
    measuring.set_defaults(run=_measure)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000, help="how many objects (10000)")
    parser.add_argument("--seed", type=int, default=1, help="seed (1)")
    parser.add_argument("--out", type=Path, help="file (default: standard output)")


def _posts(args: argparse.Namespace) -> None:
    world = WorldPosts(args.seed, PostsShape(posts_per_s=args.rate))
    _write(args.out, world.batches(args.count))


def _clusters(args: argparse.Namespace) -> None:
    workload = ClusteredWorkload(args.seed, ClusteredShape(arrivals_per_s=args.rate))
    if args.queries_out is not None:
        with args.queries_out.open("wb") as out:
            for query in workload.queries(args.queries):
                out.write(orjson.dumps(query) + b"\n")
    _write(args.out, workload.objects(args.count))


def _cities(args: argparse.Namespace) -> None:
    _write(args.out, [city_objects(load_cities())])


def _measure(args: argparse.Namespace) -> None:
    load = Load(args.rate, args.seconds, args.queries, args.batch, args.seed)
    with Client(args.router) as client:
        print(orjson.dumps(measure(client, load)).decode())


def _write(path: Path | None, batches: Iterable[ObjectColumns]) -> None:
    if path is None:
        _write_to(sys.stdout.buffer, batches)
    else:
        with path.open("wb") as out:
            _write_to(out, batches)


def _write_to(out: BinaryIO, batches: Iterable[ObjectColumns]) -> None:
    for batch in batches:
        out.write(b"".join(line + b"\n" for line in object_lines(batch)))
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
