"""`sirocco publish`: publishes objects from a file or standard input to a running cluster."""

from __future__ import annotations

import argparse
from typing import Any

from sirocco.cli.files.object_format import add_format
from sirocco.cli.terminal.numbers import rate
from sirocco.cli.terminal.paths import filled
from sirocco.cli.terminal.remote import add_connection


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "publish",
        description="Publishes objects and returns when all are acknowledged: lines of JSON, "
        "GeoJSON, CSV or TSV with a header, or Parquet.",
    )
    parser.add_argument(
        "file",
        type=filled,
        nargs="?",
        default="-",
        help="plain or gzip; - is standard input (the default)",
    )
    add_format(parser)
    parser.add_argument("--rate", type=rate, metavar="OBJECTS_PER_S", help="no faster than this")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from sirocco.cli.publish.run import run_publish  # noqa: PLC0415 - the engine

    return run_publish(args)
