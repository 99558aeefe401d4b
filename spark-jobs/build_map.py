r"""Builds a partition map from a history of objects and queries.

    python spark-jobs/build_map.py --objects archive:/var/lib/sirocco/sirocco \
        --queries kafka:localhost:9092 --scheme kdt-tree --out map
    spark-submit spark-jobs/build_map.py …

The cluster counts all objects over a fine grid and draws a seeded sample of bounded size; the map
is built from the sample on the driver by `sirocco.schemes`, as the coordinator would. Writes the
proposal (the map's bytes) and beside it a JSON summary, which is also printed; the proposal is
written last, and either whole or not at all. Exit status 0; 2 where the input cannot be used.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sirocco_spark  # noqa: F401 - first: says what is missing
import xxhash
from pyspark.sql import SparkSession
from sirocco_spark import job
from sirocco_spark.comparison import unbalanced
from sirocco_spark.history import doubts, sample_deviation
from sirocco_spark.options import MapOptions, map_parser, parsed
from sirocco_spark.past import read_history
from sirocco_spark.publish import write_whole
from sirocco_spark.session import phase

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.scheme import SCHEMES, scheme_named
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import to_bytes

NAME = "build_map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MapOptions):
    """The job's options; see `--help`."""

    scheme: str = "qt-tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The findings and the result of the job.

    Attributes:
        objects: Their number.
        refused_objects, refused_queries: What was left out, and why; see `job.refusals`.
        sampled_objects: Objects that the map was built from.
        queries: Queries that it was built from.
        cells: Cells of the counting grid that hold objects.
        sample_deviation: Distance between the sample's distribution over longitudes or latitudes
            and that of all objects, 0 to 1; above a few hundredths the sample is too small.
        scheme, leaves, slots, text_nodes, keyword_nodes, map_bytes: Of the map.
        map_digest: xxh3-64 of its bytes: identifies the proposal of this summary.
        load_max_over_mean: Of the slots, by the cost model.
        build_seconds: Time that the scheme took.
        warnings: Reasons to trust the map less.
    """

    objects: int
    refused_objects: dict[str, Any]
    sampled_objects: int
    queries: int
    refused_queries: dict[str, Any]
    cells: int
    sample_deviation: float
    scheme: str
    leaves: int
    slots: int
    text_nodes: int
    keyword_nodes: int
    map_bytes: int
    map_digest: str
    load_max_over_mean: float
    build_seconds: float
    warnings: list[dict[str, str]]


def build_map(session: SparkSession, options: Options) -> tuple[PartitionMap, Summary]:
    """Runs the job up to the map; writes nothing.

    Raises:
        InvalidArgument: An option is out of range, nothing can be read, or there is no object.
    """
    scheme = scheme_named(options.scheme)
    found = read_history(
        session, NAME, options.objects, options.queries, options.sample, options.seed
    )
    counts, sample = found.counts, found.sample
    with phase(session, NAME, f"building {options.scheme}"):
        begun = time.monotonic()
        partition_map = scheme.build(sample, options.leaves, options.slots)
        seconds = time.monotonic() - begun
    load = partition_map.load_of_slot()
    warnings = doubts(sample, sample.queries, options.leaves) + unbalanced(partition_map)
    data = to_bytes(partition_map)
    return partition_map, Summary(
        objects=counts.total,
        refused_objects=job.refusals(counts.refused),
        sampled_objects=len(sample),
        queries=len(sample.queries),
        refused_queries=job.refusals(found.refused_queries),
        cells=len(counts.cells),
        sample_deviation=round(sample_deviation(counts, sample), 4),
        scheme=partition_map.scheme,
        leaves=len(partition_map.leaves),
        slots=partition_map.slots,
        text_nodes=len(partition_map.text_nodes),
        keyword_nodes=len(partition_map.keyword_nodes),
        map_bytes=len(data),
        map_digest=xxhash.xxh3_64_hexdigest(data),
        load_max_over_mean=round(float(load.max() / load.mean()), 4),
        build_seconds=round(seconds, 3),
        warnings=[asdict(one) for one in warnings],
    )


def run(session: SparkSession, options: Options) -> dict[str, Any]:
    """Runs the job and writes the map; returns the summary.

    Raises:
        InvalidArgument: See `build_map`, or there is no directory for the map.
    """
    if not options.out.parent.is_dir():
        raise InvalidArgument(f"there is no directory {options.out.parent}", field="out")
    partition_map, summary = build_map(session, options)
    text = json.dumps(asdict(summary))
    write_whole(options.out.with_name(options.out.name + ".json"), text.encode() + b"\n")
    write_whole(options.out, to_bytes(partition_map))
    return asdict(summary)


def parse_options(arguments: Sequence[str] | None = None) -> tuple[Options, str]:
    """Returns the options, and the Spark master to use if spark-submit names none."""
    parser = map_parser(__doc__, "proposal; summary: OUT.json")
    parser.add_argument(
        "--scheme",
        default="qt-tree",
        choices=sorted(SCHEMES),
        help="how the map is split (qt-tree)",
    )
    values, master = parsed(parser, arguments)
    return Options(**values), master


def main() -> int:
    """Runs the job."""
    options, master = parse_options()
    return job.run(NAME, master, lambda session: run(session, options))


if __name__ == "__main__":
    sys.exit(main())
