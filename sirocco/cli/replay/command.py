"""`sirocco replay`: replays files on real services, and writes every match."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sirocco_client import Client

from sirocco.cli.files.object_format import add_format
from sirocco.cli.replay.results import ResultsFile
from sirocco.cli.terminal.numbers import count, duration_ms, rate
from sirocco.cli.terminal.paths import filled, path
from sirocco.cli.terminal.progress import Bar
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_json
from sirocco.loadgen.live_lines import is_live
from sirocco.model.errors import InvalidArgument

SCHEMES = (
    "qt-tree",
    "a-grid",
    "swarm",
    "kdt-tree",
    "uniform-grid",
    "kd-tree",
    "r-tree",
    "text-frequency",
    "text-hypergraph",
    "text-metric",
    "replicated",
)


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "replay",
        description="Starts all services, registers the queries, publishes the objects in file "
        "order, writes every match to OUT as a line of JSON, and prints a summary as JSON. Files "
        "are lines of JSON, plain or gzip; objects may also be GeoJSON, CSV, TSV or Parquet.",
    )
    files = parser.add_argument_group("files")
    files.add_argument("--objects", type=path, required=True, metavar="FILE", help="objects")
    add_format(files)
    files.add_argument("--queries", type=path, metavar="FILE", help="queries")
    files.add_argument("--results", type=path, required=True, metavar="OUT", help="overwritten")
    files.add_argument(
        "--sample", type=path, metavar="FILE", help="build the map from these (head of --objects)"
    )
    shape = parser.add_argument_group("cluster")
    shape.add_argument(
        "--scheme", choices=SCHEMES, default="qt-tree", help="how the workload is split"
    )
    shape.add_argument("--routers", type=count, default=1, metavar="N", help="routers (1)")
    shape.add_argument("--evaluators", type=count, default=1, metavar="N", help="evaluators (1)")
    shape.add_argument("--mergers", type=count, default=1, metavar="N", help="mergers (1)")
    shape.add_argument("--leaves", type=count, metavar="N", help="leaves (4 per slot, ≥ 64)")
    shape.add_argument("--slots", type=count, metavar="N", help="slots (4 per evaluator, ≥ 8)")
    shape.add_argument("--log", choices=("memory",), help="all in this process (the default)")
    shape.add_argument(
        "--kafka", type=filled, metavar="HOST:PORT", help="services as processes on this broker"
    )
    shape.add_argument("--redis", type=filled, metavar="URL", help="and this Redis")
    shape.add_argument(
        "--store",
        choices=("on", "off"),
        default="on",
        help="off: objects that no query needs are not sent; only standing range queries (on)",
    )
    shape.add_argument(
        "--balance",
        choices=("on", "off"),
        default="off",
        help="on: move load between evaluators while it runs; off: one map throughout (off)",
    )
    stream = parser.add_argument_group("stream")
    stream.add_argument(
        "--arrival",
        choices=("wall", "event"),
        default="wall",
        help="event: an object arrives at its own ts",
    )
    stream.add_argument(
        "--arrival-skew-max",
        type=duration_ms,
        default="unlimited",
        metavar="DURATION",
        help="with event: refuse objects that are further ahead of the clock (unlimited)",
    )
    stream.add_argument("--rate", type=rate, metavar="OBJECTS_PER_S", help="no faster than this")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if (args.kafka is None) != (args.redis is None):
        raise CommandError("--kafka and --redis go together")
    if args.kafka is not None and args.log is not None:
        raise CommandError("--log memory and --kafka exclude one another")
    for source in (args.objects, args.queries, args.sample):
        # Before anything else is started; a pipe cannot be opened twice.
        if source is not None and not is_live(source):
            source.open("rb").close()
            if args.results.exists() and args.results.samefile(source):
                raise CommandError(f"--results would overwrite {source}, which is read")
    return _replay(args)


def _replay(args: argparse.Namespace) -> int:
    with Bar() as bar:
        bar.begin("loading the engine")
        # Imported here, under the bar: the first import compiles the kernels.
        from sirocco.cli.replay.run import Replay, ReplayFiles  # noqa: PLC0415

        backend_of = _backend(args)
        bar.begin("starting services")
        files = ReplayFiles(
            objects=args.objects,
            queries=args.queries,
            event_arrivals=args.arrival == "event",
            objects_per_s=args.rate,
            skew_max_ms=args.arrival_skew_max,
            form=args.format,
            columns=args.map,
        )
        with ResultsFile(args.results) as out, backend_of as backend:
            with Client(backend.router_address) as client:
                replay = Replay(client, files, out, bar)
                summary = replay.run()
            cpu = {name: round(used, 3) for name, used in backend.cpu_seconds().items()}
            summary["cpu_seconds"] = cpu
            summary["peak_memory_bytes"] = backend.peak_memory_bytes()
            bar.begin("stopping services")
    print_json(summary)
    return ExitCode.BAD_LINES if replay.bad_lines else ExitCode.OK


def _sample(args: argparse.Namespace) -> Path | None:
    """Returns the objects as their own sample; None where services could not read them."""
    from sirocco.loadgen.object_files import is_lines  # noqa: PLC0415 - the engine

    # Objects read from a pipe for a sample would be missing from the stream.
    if is_live(args.objects) or args.format not in (None, "ndjson"):
        return None
    try:
        return args.objects if args.format or is_lines(args.objects, args.objects.name) else None
    except InvalidArgument:
        # Its reader reports that it is no text.
        return None


def _backend(args: argparse.Namespace) -> AbstractContextManager[Any]:
    from sirocco.cli.replay.backends import Shape, memory_backend, process_backend  # noqa: PLC0415

    slots = args.slots or max(8, 4 * args.evaluators)
    shape = Shape(
        routers=args.routers,
        evaluators=args.evaluators,
        mergers=args.mergers,
        slots=slots,
        leaves=args.leaves or max(64, 4 * slots),
        scheme=args.scheme,
        event_arrivals=args.arrival == "event",
        sample=args.sample or _sample(args),
        balances=args.balance == "on",
        store=args.store == "on",
    )
    if args.kafka is None:
        return memory_backend(shape)
    return process_backend(shape, args.kafka, args.redis)
