"""`sirocco bench`: measures one part in isolation."""

from __future__ import annotations

import argparse
from typing import Any

from sirocco.cli.terminal.numbers import at_least_one, whole
from sirocco.cli.terminal.paths import path
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_json


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser("bench")
    steps = parser.add_subparsers(required=True, metavar="PART")
    match = steps.add_parser(
        "match",
        help="the matching kernel, one thread",
        description="Inserts queries one batch at a time as the service would, matches all "
        "objects in three passes, and prints JSON with inserts_per_s, objects_per_s (best pass), "
        "matches, bytes_per_query and peak_rss_bytes.",
    )
    match.add_argument(
        "--workload", type=path, metavar="DIR", help="flat files (default: made, seeded)"
    )
    match.add_argument(
        "--queries", type=at_least_one, required=True, metavar="N", help="number of queries"
    )
    match.add_argument("--objects", type=at_least_one, metavar="M", help="number of objects (all)")
    match.add_argument(
        "--seed", type=whole(0), default=20260101, help="of a made workload (20260101)"
    )
    match.set_defaults(run=_match)


def _match(args: argparse.Namespace) -> int:

    from sirocco.loadgen.match_bench import run_match_bench  # noqa: PLC0415 - compiles for seconds
    from sirocco.loadgen.match_workload import WorkloadError  # noqa: PLC0415

    try:
        figures = run_match_bench(args.workload, args.queries, args.objects, args.seed)
    except (WorkloadError, ValueError) as error:
        raise CommandError(str(error)) from None
    print_json(figures)
    return ExitCode.OK
