"""The input of a scheme: counts over all objects, and samples of objects and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sirocco.model.text import tokens_of_batch
from sirocco.schemes.workload.sample import Sample, SampleQueries, no_queries
from sirocco_spark.columns import CONTENT, PLACE, bytes_of, plain
from sirocco_spark.inputs import Objects
from sirocco_spark.job import Warning

# The driver holds the sample: 200,000 objects of 70 bytes take about 100 MB with their terms, and a
# larger one does not improve the balance of some hundred leaves.
SAMPLE_OBJECTS_MAX = 200_000
SAMPLE_QUERIES_MAX = 50_000

# Cells of the counting grid along longitude and latitude, 0.35 degrees each.
GRID = (1024, 512)

# Drawn in addition to the expectation, in standard deviations: one in a thousand million samples
# would be too small.
_SPARE_DEVIATIONS = 6.0

# With fewer objects for each leaf, splits depend on chance as much as on the workload.
_OBJECTS_A_LEAF_MIN = 20


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Counts over all objects.

    Attributes:
        cells: i8[c], numbers of the cells that hold objects.
        objects: i8[c], objects of each.
        refused: (reason, count) of rows that are not objects.
        first_ms, last_ms: Least and greatest arrival; both 0 if none is known.
    """

    cells: NDArray[np.int64]
    objects: NDArray[np.int64]
    refused: list[tuple[str, int]]
    first_ms: int
    last_ms: int

    @property
    def total(self) -> int:
        """Number of all objects."""
        return int(self.objects.sum())

    @property
    def span_ms(self) -> int:
        """Time between the first and the last arrival."""
        return self.last_ms - self.first_ms

    def raster(self) -> NDArray[np.int64]:
        """Returns the counts as i8[rows, columns], from south to north, west to east."""
        columns, rows = GRID
        flat = np.zeros(columns * rows, np.int64)
        flat[self.cells] = self.objects
        return flat.reshape(rows, columns)


def count_cells(objects: Objects) -> Counts:
    """Counts all objects over the fine grid, in one pass."""
    columns, rows = GRID
    frame = objects.read(PLACE)
    column = F.least(F.floor((F.col("lon") + 180) / 360 * columns), F.lit(columns - 1))
    row = F.least(F.floor((F.col("lat") + 90) / 180 * rows), F.lit(rows - 1))
    table = (
        frame.groupBy((row * columns + column).alias("cell"), "refusal")
        .agg(
            F.count(F.lit(1)).alias("objects"),
            F.min("arrival").alias("first"),
            F.max("arrival").alias("last"),
        )
        .toArrow()
        .to_pylist()
    )
    good = sorted((one for one in table if one["refusal"] is None), key=lambda one: one["cell"])
    times = [one[end] for one in good for end in ("first", "last") if one[end] is not None]
    return Counts(
        cells=np.array([one["cell"] for one in good], np.int64),
        objects=np.array([one["objects"] for one in good], np.int64),
        refused=[
            *objects.refused,
            *((one["refusal"], one["objects"]) for one in table if one["refusal"] is not None),
        ],
        first_ms=min(times, default=0),
        last_ms=max(times, default=0),
    )


def draw_objects(objects: Objects, total: int, count: int, seed: int) -> Sample:
    """Draws at most `count` of `total` objects, the same ones however Spark splits the input.

    It takes those of least hash under the seed, so every object is equally likely: also each
    reading of a sensor that stays in place. Only rows that can be among them are sorted: their
    number is known up to chance.
    """
    columns = (*CONTENT, "arrival", *objects.numbering)
    frame = objects.read(columns).where(F.col("refusal").isNull())
    key = F.xxhash64(F.lit(seed), *columns)
    likely = frame
    if count < total:
        spare = count + _SPARE_DEVIATIONS * np.sqrt(count) + 1
        likely = frame.where(_share_of(key) <= min(1.0, float(spare) / total))
    table = drawn_least(likely, columns, key, count)
    if table.num_rows < min(count, total):
        table = drawn_least(frame, columns, key, count)
    return sample_of_table(table)


def _share_of(key: Column) -> Column:
    """Returns the position of a hash between the least and the greatest, 0 to 1."""
    return key / F.lit(2.0**64) + 0.5


def drawn_least(frame: DataFrame, columns: Sequence[str], key: Column, count: int) -> pa.Table:
    """Returns the rows of least hash, ordered by these columns."""
    kept = frame.select(*columns, key.alias("key"))
    return kept.orderBy("key", *columns).limit(count).orderBy(*columns).toArrow()


def sample_of_table(table: pa.Table) -> Sample:
    """Returns sampled rows as a scheme's sample without queries.

    The objects' ids replace the event keys, which are assigned only at publication.
    """
    terms = tokens_of_batch(*bytes_of(table.column("text")))
    return Sample(
        plain(table.column("lon"), np.float64),
        plain(table.column("lat"), np.float64),
        terms.offsets,
        terms.terms,
        plain(table.column("id"), np.uint64),
        no_queries(),
    )


def doubts(sample: Sample, queries: SampleQueries, leaves: int) -> list[Warning]:
    """Returns the reasons to doubt a map built from a sample."""
    found = []
    if len(sample) and np.ptp(sample.lon) == 0 and np.ptp(sample.lat) == 0:
        found.append(Warning("one-place", "all objects are in one place: space cannot part them"))
    if len(sample) and len(sample.terms) == 0:
        found.append(Warning("no-text", "no object has a text: words cannot part them"))
    if len(queries) == 0:
        found.append(
            Warning("no-queries", "no queries are known: schemes assume some or leave them out")
        )
    if 0 < len(sample) < _OBJECTS_A_LEAF_MIN * leaves:
        found.append(Warning("small-sample", f"{len(sample)} objects are few for {leaves} leaves"))
    return found


def sample_deviation(counts: Counts, sample: Sample) -> float:
    """Returns the greater Kolmogorov-Smirnov distance of the two axes, taken at grid lines."""
    if len(sample) == 0:
        return 0.0
    columns, rows = GRID
    by_row = counts.raster().astype(np.float64)
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
