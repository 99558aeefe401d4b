"""The option for the form in which a command prints what it has received."""

from __future__ import annotations

import argparse


def add_output_format(
    parser: argparse.ArgumentParser, text: str, default: str | None = None
) -> None:
    """Adds `--format`, with a help text and a default, and `--json` for its most usual value."""
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--format", choices=("table", "ndjson", "geojson"), default=default, help=text
    )
    output.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="ndjson",
        help="the same as --format ndjson",
    )
