"""Options shared by several jobs: the source of a history, and the map to build from it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirocco_spark import job
from sirocco_spark.history import SAMPLE_OBJECTS_MAX

# The chart's default, too; a cluster of `sirocco local` has as many leaves and 8 slots.
LEAVES = 64
SLOTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """The options of a job that builds maps; see `--help`."""

    objects: str
    out: Path
    queries: str | None = None
    leaves: int = LEAVES
    slots: int = SLOTS
    sample: int = SAMPLE_OBJECTS_MAX
    seed: int = 0


def history_parser(doc: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options for a history and its sample."""
    parser = job.parser_of(doc)
    parser.add_argument("--objects", required=True, help=job.SOURCES)
    parser.add_argument("--queries", help="likewise; without: schemes assume some")
    parser.add_argument(
        "--sample",
        type=int,
        default=SAMPLE_OBJECTS_MAX,
        help=f"objects drawn at most ({SAMPLE_OBJECTS_MAX})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the drawing (0)")
    return parser


def map_parser(doc: str | None, out: str) -> argparse.ArgumentParser:
    """Returns a parser with all of `MapOptions`; `out`: what is written there."""
    parser = history_parser(doc)
    parser.add_argument("--out", required=True, type=Path, help=out)
    parser.add_argument("--leaves", type=int, default=LEAVES, help=f"of the map ({LEAVES})")
    parser.add_argument("--slots", type=int, default=SLOTS, help=f"as the cluster has ({SLOTS})")
    return parser


def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[dict[str, Any], str]:
    """Returns the values of a history's parser, and the master; exits if one is invalid."""
    values = vars(parser.parse_args(arguments))
    if not 0 < values["sample"] <= SAMPLE_OBJECTS_MAX:
        parser.error(f"--sample: not from 1 to {SAMPLE_OBJECTS_MAX}")
    return values, values.pop("master")
