"""Builds a partition map from a history of objects and queries.

    python spark-jobs/build_map.py --objects 'history/*.jsonl.gz' --queries queries.jsonl --out map
    spark-submit spark-jobs/build_map.py …

Reads newline-delimited JSON, plain or .gz, as the command line tool does. The cluster counts all
objects over a fine grid and draws a seeded sample of bounded size; the tree is built from the
sample on the driver by `sirocco.schemes`, as the coordinator would. Writes the proposal (the
map's bytes) and beside it a JSON summary, which is also printed; either is written whole or not
at all. Exit status 0; 2 where the input cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name by which Spark's users know it

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, parse_object
from sirocco.model.query import Query, parse_query
from sirocco.schemes.map import PartitionMap
from sirocco.schemes.map_bytes import to_bytes
from sirocco.schemes.sample import Sample
from sirocco.schemes.sampling import sample_of
from sirocco.schemes.scheme import SCHEMES, scheme_named

# The driver holds the sample: 200,000 objects of 70 bytes take about 100 MB with their terms,
# and the balance of some hundred leaves does not get better with more.
SAMPLE_OBJECTS_MAX = 200_000
SAMPLE_QUERIES_MAX = 50_000

# Cells of the counting grid along longitude and latitude, 0.35 degrees each.
GRID = (1024, 512)


@dataclass(frozen=True, slots=True)
class Options:
    """What the job is asked for; see `--help`."""

    objects: str
    out: Path
    queries: str | None = None
    scheme: str = "qt-tree"
    leaves: int = 64
    slots: int = 16
    sample: int = SAMPLE_OBJECTS_MAX
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What the job found and made.

    Attributes:
        objects: Lines that hold an object's place.
        refused_objects: Lines that do not.
        sampled_objects: Objects that the map was built from.
        queries, refused_queries: Of the sampled lines, those that could and could not be read.
        cells: Cells of the counting grid that hold objects.
        sample_deviation: How far the sample's distribution over longitudes or latitudes is from
            that of all objects, 0 to 1; above a few hundredths the sample is too small.
        scheme, leaves, slots, text_nodes, map_bytes: Of the map.
        load_max_over_mean: Of the slots, as the cost model expects it.
    """

    objects: int
    refused_objects: int
    sampled_objects: int
    queries: int
    refused_queries: int
    cells: int
    sample_deviation: float
    scheme: str
    leaves: int
    slots: int
    text_nodes: int
    map_bytes: int
    load_max_over_mean: float


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Counts over all objects.

    Attributes:
        cells: i8[c], numbers of the cells that hold objects.
        objects: i8[c], objects of each.
        refused: Lines without a valid place.
        span_ms: Time between the first and the last object.
    """

    cells: np.ndarray
    objects: np.ndarray
    refused: int
    span_ms: int


def build_map(spark: SparkSession, options: Options) -> tuple[PartitionMap, Summary]:
    """Runs the job up to the map; writes nothing.

    Raises:
        InvalidArgument: An option is out of range or nothing can be read.
    """
    scheme = scheme_named(options.scheme)
    lines = read_lines(spark, options.objects, "objects")
    counts = count_cells(lines)
    objects, refused = parse_objects(draw_lines(lines, options.sample, options.seed))
    queries: list[Query] = []
    refused_queries = 0
    if options.queries is not None:
        asked = read_lines(spark, options.queries, "queries")
        queries, refused_queries = parse_queries(
            draw_lines(asked, SAMPLE_QUERIES_MAX, options.seed)
        )
    total = int(counts.objects.sum())
    sample = sample_of(objects, queries, total, counts.span_ms)
    partition_map = scheme.build(sample, options.leaves, options.slots)
    load = partition_map.load_of_slot()
    return partition_map, Summary(
        objects=total,
        refused_objects=max(counts.refused, refused),
        sampled_objects=len(sample),
        queries=len(queries),
        refused_queries=refused_queries,
        cells=len(counts.cells),
        sample_deviation=round(sample_deviation(counts, sample), 4),
        scheme=partition_map.scheme,
        leaves=len(partition_map.leaves),
        slots=partition_map.slots,
        text_nodes=len(partition_map.text_nodes),
        map_bytes=len(to_bytes(partition_map)),
        load_max_over_mean=round(float(load.max() / load.mean()), 4),
    )


def read_lines(spark: SparkSession, paths: str, field: str) -> DataFrame:
    """Returns the lines that are not blank, column `value`.

    Raises:
        InvalidArgument: There is no such file.
    """
    try:
        lines = spark.read.text(paths)
    except AnalysisException as error:
        raise InvalidArgument(
            f"cannot read {paths} ({error.getCondition()})", field=field
        ) from None
    return lines.where(F.length(F.trim("value")) > 0)


def count_cells(lines: DataFrame) -> Counts:
    """Counts all objects over the fine grid, in one pass."""
    columns, rows = GRID
    parsed = lines.select(F.from_json("value", "lon double, lat double, ts double").alias("o"))
    column = F.least(F.floor((F.col("o.lon") + 180) / 360 * columns), F.lit(columns - 1))
    row = F.least(F.floor((F.col("o.lat") + 90) / 180 * rows), F.lit(rows - 1))
    is_valid = F.col("o.lon").between(-180, 180) & F.col("o.lat").between(-90, 90)
    cell = F.when(is_valid, row * columns + column).otherwise(F.lit(-1))
    table = (
        parsed.groupBy(cell.alias("cell"))
        .agg(
            F.count(F.lit(1)).alias("objects"),
            F.min("o.ts").alias("first"),
            F.max("o.ts").alias("last"),
        )
        .toArrow()
        .to_pylist()
    )
    table.sort(key=lambda one: one["cell"])
    good = [one for one in table if one["cell"] >= 0]
    times = [one[end] for one in good for end in ("first", "last") if one[end] is not None]
    return Counts(
        cells=np.array([one["cell"] for one in good], np.int64),
        objects=np.array([one["objects"] for one in good], np.int64),
        refused=sum(one["objects"] for one in table if one["cell"] < 0),
        span_ms=int(max(times) - min(times)) if times else 0,
    )


def draw_lines(lines: DataFrame, count: int, seed: int) -> list[str]:
    """Returns at most `count` lines, sorted; equal files give equal lines however Spark cut them.

    Those are taken whose hash under the seed is least, so every line is as likely as another,
    and no task holds more than `count`.
    """
    drawn = lines.orderBy(F.xxhash64(F.lit(seed), "value"), "value").limit(count)
    return sorted(drawn.toArrow().column("value").to_pylist())


def parse_objects(lines: Sequence[str]) -> tuple[ObjectColumns, int]:
    """Returns the objects of the lines, and how many lines hold none."""
    rows = ObjectColumnsBuilder()
    refused = 0
    for line in lines:
        try:
            rows.add(parse_object(line))
        except InvalidArgument:
            refused += 1
    return rows.build(), refused


def parse_queries(lines: Sequence[str]) -> tuple[list[Query], int]:
    """Returns the queries of the lines, and how many lines hold none."""
    queries = []
    refused = 0
    for line in lines:
        try:
            queries.append(parse_query(orjson.loads(line)))
        except (InvalidArgument, orjson.JSONDecodeError):
            refused += 1
    return queries, refused


def sample_deviation(counts: Counts, sample: Sample) -> float:
    """Returns the greater Kolmogorov-Smirnov distance of the two axes, taken at grid lines."""
    if len(sample) == 0:
        return 0.0
    columns, rows = GRID
    everything = np.zeros(columns * rows)
    everything[counts.cells] = counts.objects
    by_row = everything.reshape(rows, columns)
    drawn = (
        np.minimum((sample.lon + 180) / 360 * columns, columns - 1),
        np.minimum((sample.lat + 90) / 180 * rows, rows - 1),
    )
    distances = []
    for cells, expected in zip(drawn, (by_row.sum(0), by_row.sum(1)), strict=True):
        found = np.bincount(cells.astype(np.int64), minlength=len(expected)).cumsum()
        gap = found / found[-1] - expected.cumsum() / max(float(expected.sum()), 1.0)
        distances.append(float(np.abs(gap).max()))
    return max(distances)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that a job killed in the middle leaves the old one or none."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(data)
    unfinished.replace(path)


def parse_options(arguments: Sequence[str] | None = None) -> tuple[Options, str]:
    """Returns the options and the Spark master to use where spark-submit names none."""
    default = Options("", Path())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", required=True, help="file, directory or pattern")
    parser.add_argument("--queries", help="file, directory or pattern; without: like the objects")
    parser.add_argument("--out", required=True, type=Path, help="proposal; summary: OUT.json")
    parser.add_argument("--scheme", default=default.scheme, choices=sorted(SCHEMES))
    parser.add_argument("--leaves", type=int, default=default.leaves)
    parser.add_argument("--slots", type=int, default=default.slots)
    parser.add_argument("--sample", type=int, default=default.sample, help="objects at most")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--master", default="local[*]", help="where not run by spark-submit")
    values = vars(parser.parse_args(arguments))
    master = values.pop("master")
    if not 0 <= values["sample"] <= SAMPLE_OBJECTS_MAX:
        parser.error(f"--sample: not from 0 to {SAMPLE_OBJECTS_MAX}")
    return Options(**values), master


def main() -> int:
    """Runs the job."""
    options, master = parse_options()
    builder = SparkSession.builder.appName("sirocco build_map")
    # spark-submit has chosen the master before Python starts.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(master)
    spark = builder.getOrCreate()
    try:
        partition_map, summary = build_map(spark, options)
    except InvalidArgument as error:
        print(f"build_map: {error}", file=sys.stderr)
        return 2
    finally:
        spark.stop()
    text = json.dumps(asdict(summary))
    write_whole(options.out, to_bytes(partition_map))
    write_whole(options.out.with_name(options.out.name + ".json"), text.encode() + b"\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
