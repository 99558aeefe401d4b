"""Query distribution statistics J as a table (SSTD 4.1.1, Figure 5).

SSTD keeps for each cell of a quadtree the probability that a query of each kind overlaps it, the
number and distribution of such queries' keywords, their lifetimes, and the arrivals of objects.
Here each cell at one level is the root of a subtree that one task computes, by the same
`sirocco.schemes.workload.statistics` and `cost` with which the schemes build; the few cells above
are a separate task. A branch ends where too few queries are left for statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StructField, StructType

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.map.map import WORLD, Box
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.cost import held_share_of, workload_by_kind
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries
from sirocco.schemes.workload.statistics import CellStatistics, QueryStatistics
from sirocco_spark.history import GRID, Counts
from sirocco_spark.workload import sample_of_workload

# 64 subtrees: enough for the tasks of a large cluster; a query over the whole world is copied to
# each of them.
SUBTREE_LEVEL = 3
# The counting grid does not resolve smaller cells: 0.7 degrees.
DEPTH_MAX = 9
# Fewer queries than this give no distribution of keywords.
CELL_QUERIES_MIN = 8
# Keywords listed for a cell; the others are summed up.
CELL_KEYWORDS = 16

# The task of the cells above the subtrees.
_ABOVE = -1

CELLS_DDL = (
    "level int, column int, row int, west double, south double, east double, north double, "
    "objects long, objects_per_s double, queries long, "
    "kinds array<struct<kind:string, queries:long, probability:double, lifetime:double, "
    "workload:double, keywords_per_query:array<double>>>, "
    "windows array<struct<upto_ms:long, share:double>>, "
    "keywords array<struct<term:long, share:double>>, keywords_distinct long, workload double"
)
_REAL, _WHOLE = pa.float64(), pa.int64()
_KIND = pa.struct(
    {
        "kind": pa.string(),
        "queries": _WHOLE,
        "probability": _REAL,
        "lifetime": _REAL,
        "workload": _REAL,
        "keywords_per_query": pa.list_(_REAL),
    }
)
_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("level", "column", "row"), pa.int32()),
        **dict.fromkeys(("west", "south", "east", "north"), _REAL),
        "objects": _WHOLE,
        "objects_per_s": _REAL,
        "queries": _WHOLE,
        "kinds": pa.list_(_KIND),
        "windows": pa.list_(pa.struct({"upto_ms": _WHOLE, "share": _REAL})),
        "keywords": pa.list_(pa.struct({"term": _WHOLE, "share": _REAL})),
        "keywords_distinct": _WHOLE,
        "workload": _REAL,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """The objects that the queries cover.

    Attributes:
        raster: i8[rows, columns], objects of each cell of the counting grid.
        sample: Some of them.
        span_ms: The time span of their arrivals.
        queries: Number of all queries.
    """

    raster: NDArray[np.int64]
    sample: Sample
    span_ms: int
    queries: int


def distribution(
    session: SparkSession, workload: DataFrame, counts: Counts, sample: Sample, depth: int
) -> DataFrame:
    """Returns the cells of J down to a level, see `CELLS_DDL`.

    Args:
        session: Runs it.
        workload: The queries, see `workload.WORKLOAD_DDL`.
        counts, sample: Of the objects.
        depth: Level of the smallest cells, at most `DEPTH_MAX`.
    """
    good = workload.where(F.col("refusal").isNull())
    total = good.count()
    plain = (counts.raster(), replace(sample, queries=sample.queries), counts.span_ms, total)
    shared = session.sparkContext.broadcast(plain)
    top = min(SUBTREE_LEVEL, depth)
    subtrees = good.mapInArrow(
        _dealing(top), StructType([*good.schema, StructField("subtree", IntegerType())])
    )
    return subtrees.groupBy("subtree").applyInArrow(_computing(shared, top, depth), CELLS_DDL)


def _dealing(level: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Copies each query to the subtrees that its box overlaps, and to the cells above."""

    def deal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not len(batch):
                continue
            boxes = [np.asarray(batch.column(n)) for n in ("west", "south", "east", "north")]
            west, south, east, north = boxes
            rows = [np.arange(len(batch))]
            cells = [np.full(len(batch), _ABOVE, np.int32)]
            for cell in range(1 << 2 * level):
                column, row = cell % (1 << level), cell >> level
                inside = overlapping(west, south, east, north, box_of(level, column, row))
                rows.append(np.flatnonzero(inside))
                cells.append(np.full(len(rows[-1]), cell, np.int32))
            taken = batch.take(pa.array(np.concatenate(rows)))
            yield taken.append_column("subtree", pa.array(np.concatenate(cells)))

    return deal


def overlapping(
    west: NDArray[np.float64],
    south: NDArray[np.float64],
    east: NDArray[np.float64],
    north: NDArray[np.float64],
    box: Box,
) -> NDArray[np.bool_]:
    """Returns which boxes overlap a cell, as in `QueryStatistics.within`."""
    before_east = (west < box[2]) | (box[2] == WORLD[2])
    before_north = (south < box[3]) | (box[3] == WORLD[3])
    after_west = east >= box[0]
    along = np.where(west > east, before_east | after_west, before_east & after_west)
    overlaps: NDArray[np.bool_] = along & before_north & (north >= box[1])
    return overlaps


def box_of(level: int, column: int, row: int) -> Box:
    """Returns the box of a cell of the quadtree over the world; its borders are exact."""
    width, height = 360 / (1 << level), 180 / (1 << level)
    west, south = -180 + column * width, -90 + row * height
    return west, south, west + width, south + height


def _computing(shared: Any, top: int, depth: int) -> Callable[[pa.Table], pa.Table]:
    def compute(queries: pa.Table) -> pa.Table:
        field = Field(*shared.value)
        subtree = queries.column("subtree")[0].as_py()
        tree = _Tree(field, queries)
        if subtree == _ABOVE:
            rows = list(tree.cells(0, 0, 0, top - 1))
        else:
            rows = list(tree.cells(top, subtree % (1 << top), subtree >> top, depth))
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    return compute


class _Tree:
    """One subtree of J."""

    def __init__(self, field: Field, queries: pa.Table) -> None:
        self._field = field
        self._columns: SampleQueries = sample_of_workload(queries)
        spans = queries.column("span_ms").fill_null(-1).to_numpy()
        self._spans_ms = np.asarray(spans, np.int64)
        self._statistics = QueryStatistics(self._columns)
        # Probabilities are relative to all queries, not to those of the subtree.
        self._share = len(self._columns) / max(field.queries, 1)

    def cells(self, level: int, column: int, row: int, depth: int) -> Iterator[dict[str, Any]]:
        """Yields a cell and all below it."""
        root = self._statistics.within(self._statistics.root(), box_of(level, column, row))
        everything = np.arange(len(self._field.sample))
        yield from self._descend(level, column, row, depth, root, everything)

    def _descend(
        self,
        level: int,
        column: int,
        row: int,
        depth: int,
        cell: CellStatistics,
        objects: NDArray[np.int64],
    ) -> Iterator[dict[str, Any]]:
        if level > depth or len(cell.queries) == 0:
            return
        box = box_of(level, column, row)
        inside = objects[self._within(objects, box)]
        yield self._row(level, column, row, cell, inside)
        if level == depth or len(cell.queries) < CELL_QUERIES_MIN:
            return
        for child in range(4):
            x, y = 2 * column + child % 2, 2 * row + child // 2
            below = self._statistics.within(cell, box_of(level + 1, x, y))
            yield from self._descend(level + 1, x, y, depth, below, inside)

    def _within(self, objects: NDArray[np.int64], box: Box) -> NDArray[np.bool_]:
        lon, lat = self._field.sample.lon[objects], self._field.sample.lat[objects]
        east = (lon < box[2]) | (box[2] == WORLD[2])
        north = (lat < box[3]) | (box[3] == WORLD[3])
        inside: NDArray[np.bool_] = (lon >= box[0]) & east & (lat >= box[1]) & north
        return inside

    def _row(
        self,
        level: int,
        column: int,
        row: int,
        cell: CellStatistics,
        objects: NDArray[np.int64],
    ) -> dict[str, Any]:
        among_all = replace(cell, reach=cell.reach * self._share)
        count = objects_of(self._field.raster, level, column, row)
        work = workload_by_kind(among_all, count, held_share_of(cell, self._held(objects)))
        queries = np.bincount(self._columns.kinds[cell.queries], minlength=len(QueryKind))
        kinds = [
            {
                "kind": kind.name.lower(),
                "queries": int(queries[kind]),
                "probability": float(among_all.reach[kind]),
                "lifetime": float(cell.lifetime[kind]),
                "workload": float(work[kind]),
                "keywords_per_query": cell.lengths[kind].tolist()
                if kind < len(cell.lengths)
                else None,
            }
            for kind in QueryKind
            if queries[kind]
        ]
        west, south, east, north = box_of(level, column, row)
        seconds = self._field.span_ms / 1000
        keywords, distinct = self._keywords(cell)
        return {
            **{"level": level, "column": column, "row": row},
            **{"west": west, "south": south, "east": east, "north": north},
            "objects": count,
            "objects_per_s": count / seconds if seconds > 0 else None,
            "queries": len(cell.queries),
            "kinds": kinds,
            "windows": self._windows(cell.queries),
            "keywords": keywords,
            "keywords_distinct": distinct,
            "workload": float(work.sum()),
        }

    def _held(self, objects: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns bool[v], which keywords the objects hold."""
        sample, vocabulary = self._field.sample, self._statistics.vocabulary
        held = sorted_distinct(take_rows(sample.term_offsets, sample.terms, objects)[1])
        found: NDArray[np.bool_] = np.isin(vocabulary, held, assume_unique=True)
        return found

    def _keywords(self, cell: CellStatistics) -> tuple[list[dict[str, Any]], int]:
        """Returns the most frequent keywords of all kinds of query, and their total number."""
        _, terms = take_rows(self._columns.term_offsets, self._columns.terms, cell.queries)
        distinct, counts = np.unique(terms, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:CELL_KEYWORDS]
        listed = [
            {"term": int(distinct[i].view(np.int64)), "share": float(counts[i] / len(terms))}
            for i in best
        ]
        return listed, len(distinct)

    def _windows(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Returns Pr(q.tau = T) over powers of two; null means no limit."""
        spans = self._spans_ms[rows]
        exponents = np.ceil(np.log2(np.maximum(spans, 1))).astype(np.int64)
        exponents[spans < 0] = -1
        values, counts = np.unique(exponents, return_counts=True)
        return [
            {"upto_ms": None if v < 0 else 1 << v, "share": c / len(rows)}
            for v, c in zip(values.tolist(), counts.tolist(), strict=True)
        ]


def objects_of(raster: NDArray[np.int64], level: int, column: int, row: int) -> int:
    """Returns the exact objects of a cell: its borders are borders of the counting grid."""
    width, height = GRID[0] >> level, GRID[1] >> level
    part = raster[row * height : (row + 1) * height, column * width : (column + 1) * width]
    return int(part.sum())
