"""Queries in the form of the cost model: kind, box, keywords, lifetime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sirocco.index.base.query_rows import NEVER_MS, QueryRows
from sirocco.model.query import Query, parse_query, query_handle
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.evaluator.standing.definitions import spec_query
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries, no_queries
from sirocco.schemes.workload.sampling import sample_queries
from sirocco_spark.blobs import open_blobs
from sirocco_spark.columns import plain
from sirocco_spark.inputs import open_specs
from sirocco_spark.pieces import checkpoint_names, newest_state
from sirocco_spark.session import in_tasks

# `span_ms` is the lifetime of a continuous query, the window of a snapshot; null means no limit.
WORKLOAD_DDL = (
    "handle long, revision long, kind int, west double, south double, east double, north double, "
    "terms array<long>, lifetime double, span_ms long, refusal string"
)
_SCHEMA = pa.schema(
    {
        "handle": pa.int64(),
        "revision": pa.int64(),
        "kind": pa.int32(),
        **dict.fromkeys(("west", "south", "east", "north"), pa.float64()),
        "terms": pa.list_(pa.int64()),
        "lifetime": pa.float64(),
        "span_ms": pa.int64(),
        "refusal": pa.string(),
    }
)
# Kinds of standing queries for which a checkpoint stores the JSON.
_SPEC_FAMILIES = ("knn", "steps", "tracked")


@dataclass(frozen=True, slots=True)
class Setting:
    """The objects that the queries are compared with.

    Attributes:
        sample: Some of them.
        total: Their number.
        span_ms: The time span of their arrivals.
    """

    sample: Sample
    total: int
    span_ms: int


def read_workload(session: SparkSession, source: str | None, setting: Setting) -> DataFrame:
    """Returns the queries of a source, see `job.SOURCES`; none without a source.

    Raises:
        InvalidArgument: There is no such source.
    """
    if source is None:
        return session.createDataFrame([], WORKLOAD_DDL)
    # Plain values: a broadcast is read before the executor knows this module.
    shared = session.sparkContext.broadcast((setting.sample, setting.total, setting.span_ms))
    kind, _, rest = source.partition(":")
    if kind == "archive":
        names = checkpoint_names(open_blobs(rest))
        found = in_tasks(session, names, _describing_checkpoints(rest, shared), WORKLOAD_DDL)
    else:
        found = open_specs(session, source).mapInArrow(_describing(shared), WORKLOAD_DDL)
    refused = found.where(F.col("refusal").isNotNull())
    columns = [name for name in found.columns if name not in ("revision", "refusal")]
    # A query is in every slot that its region meets, and perhaps twice in files of lines: the
    # newest counts. Lines have no revision; of different ones the greatest counts, by all of its
    # columns, so that it is the same one however the files were split.
    newest = (
        found.where(F.col("refusal").isNull())
        .groupBy("handle")
        .agg(F.max(F.struct("revision", *columns)).alias("one"))
        .select("one.*", F.lit(None).cast("string").alias("refusal"))
    )
    return newest.unionByName(refused)


def _describing(shared: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            specs = [one for one in batch.column("spec").to_pylist() if one is not None]
            queries = [parse_query(orjson.loads(spec)) for spec in specs]
            yield _query_batch(queries, Setting(*shared.value))
            reasons = [one for one in batch.column("refusal").to_pylist() if one is not None]
            if reasons:
                yield _refusals(reasons)

    return describe


def _query_batch(
    queries: Sequence[Query], setting: Setting, revisions: NDArray[np.int64] | None = None
) -> pa.RecordBatch:
    columns = sample_queries(queries, setting.sample, setting.total, setting.span_ms)
    handles = np.array([query_handle(query.id) for query in queries], np.uint64)
    spans = [q.ttl_ms if q.mode == "continuous" else q.window_ms for q in queries]
    own = np.zeros(len(queries), np.int64) if revisions is None else revisions
    return _batch(handles, own, columns, spans)


def _batch(
    handles: NDArray[np.uint64],
    revisions: NDArray[np.int64],
    queries: SampleQueries,
    spans_ms: Sequence[int | None],
) -> pa.RecordBatch:
    terms = pa.ListArray.from_arrays(
        pa.array(queries.term_offsets.astype(np.int32)), pa.array(queries.terms.view(np.int64))
    )
    arrays = [
        pa.array(handles.view(np.int64)),
        pa.array(revisions),
        pa.array(queries.kinds.astype(np.int32)),
        *(pa.array(np.ascontiguousarray(queries.boxes[:, i])) for i in range(4)),
        terms,
        pa.array(queries.lifetimes),
        pa.array(spans_ms, pa.int64()),
        pa.nulls(len(handles), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _refusals(reasons: Sequence[str]) -> pa.RecordBatch:
    nothing = [pa.nulls(len(reasons), field.type) for field in _SCHEMA if field.name != "refusal"]
    return pa.RecordBatch.from_arrays([*nothing, pa.array(reasons, pa.string())], schema=_SCHEMA)


# --- checkpoints of slots


def _describing_checkpoints(
    uri: str, shared: Any
) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    def describe(names: Iterator[str]) -> Iterator[pa.RecordBatch]:
        blobs = open_blobs(uri)
        for name in names:
            state, reason = newest_state(blobs, name)
            if state is None:
                yield _refusals([f"{name}: {reason}"])
            else:
                yield from _state_batches(state, Setting(*shared.value))

    return describe


def _state_batches(state: State, setting: Setting) -> Iterator[pa.RecordBatch]:
    """Yields the queries of a slot."""
    rows = QueryRows.from_columns(state, "query.")
    if len(rows):
        times_ms = state["times_ms"]
        known_ms = times_ms[times_ms != NO_TIME_MS]
        now_ms = int(known_ms.min()) if len(known_ms) else 0
        queries, spans_ms = range_queries(rows, now_ms, setting.span_ms)
        yield _batch(state["range.handles"], state["range.revisions"], queries, spans_ms)
    for family in _SPEC_FAMILIES:
        data, ends = state[f"{family}.specs"].tobytes(), state[f"{family}.specs_offsets"].tolist()
        parsed = [spec_query(data[a:b].decode()) for a, b in pairwise(ends)]
        if parsed:
            yield _query_batch(parsed, setting, state[f"{family}.revisions"])


def range_queries(
    rows: QueryRows, now_ms: int, span_ms: int
) -> tuple[SampleQueries, list[int | None]]:
    """Describes compiled standing range queries, as `sample_queries` does for queries of the model.

    Only the end of their lifetime is known, so its rest counts.

    Returns:
        The queries, and the rest of each lifetime, ms, None without end.
    """
    boxes = np.empty((len(rows), 4))
    terms: list[NDArray[np.uint64]] = []
    for row in range(len(rows)):
        own = rows.boxes[rows.box_offsets[row] : rows.box_offsets[row + 1]]
        # See `sampling._box`: two boxes form one that crosses the antimeridian.
        first = int(np.argmax(own[:, 2]))
        boxes[row] = (*own[first, [0, 1]], own[len(own) - 1 - first, 2], own[first, 3])
        conjunctions = range(int(rows.conj_offsets[row]), int(rows.conj_offsets[row + 1]))
        least = min(conjunctions, key=lambda c: int(rows.pos_offsets[c + 1] - rows.pos_offsets[c]))
        terms.append(rows.pos_terms[rows.pos_offsets[least] : rows.pos_offsets[least + 1]])
    left_ms = [
        None if end == NEVER_MS else max(end - now_ms, 0) for end in rows.expires_ms.tolist()
    ]
    is_known = span_ms > 0
    return SampleQueries(
        kinds=np.full(len(rows), QueryKind.RANGE_CONTINUOUS, np.uint8),
        boxes=boxes,
        term_offsets=np.concatenate([[0], np.cumsum([len(one) for one in terms])]).astype(np.int64),
        terms=np.concatenate([np.empty(0, np.uint64), *terms]),
        lifetimes=np.array(
            [1.0 if one is None or not is_known else one / span_ms for one in left_ms], np.float64
        ),
    ), left_ms


# --- back to arrays


def draw_queries(workload: DataFrame, count: int, seed: int) -> SampleQueries:
    """Draws at most `count` queries, the same ones however Spark splits the input."""
    key = F.xxhash64(F.lit(seed), "handle")
    good = workload.where(F.col("refusal").isNull())
    table = good.orderBy(key, "handle").limit(count).orderBy("handle").toArrow()
    return sample_of_workload(table)


def sample_of_workload(table: pa.Table) -> SampleQueries:
    """Returns rows of a workload as a scheme's queries."""
    if table.num_rows == 0:
        return no_queries()
    lists = table.column("terms").combine_chunks()
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    lengths = np.asarray(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    boxes = [plain(table.column(n), np.float64) for n in ("west", "south", "east", "north")]
    return SampleQueries(
        kinds=plain(table.column("kind"), np.int32).astype(np.uint8),
        boxes=np.stack(boxes, 1),
        term_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        terms=lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64),
        lifetimes=plain(table.column("lifetime"), np.float64),
    )
