"""The spatial-keyword join of many queries with the whole archive.

A task holds the index of all range queries, the one with which evaluators match, and takes slice by
slice; for the nearest objects it searches each slice as an evaluator would. So it finds what a
system would have found that had known the queries from the first object on (as `sirocco replay
--arrival event`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries, with_numbers
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.text.text_terms import terms_of_texts
from sirocco.index.store.sealing import seal
from sirocco.index.store.store import StoreLimits, StoreView, slice_table
from sirocco.index.store.store_condition import Bounds, Condition, compile_condition
from sirocco.index.store.store_search import search_knn
from sirocco.model.attributes import Filter
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import KnnQuery, Query, RangeQuery, kind_of
from sirocco.model.term_hashing import SECRET_BYTES, TermHashing
from sirocco_spark.blobs import open_blobs
from sirocco_spark.pieces import held_now, pieces_of

# One call of the index: its scratch memory grows with the batch, and the hits of a broad query are
# held until they are passed on.
_BATCH_ROWS = 65_536
_TIME_MIN_MS = -(1 << 63)

# `place` orders the objects of a query: by id, or by distance and then id. `object` is JSON.
FOUND_DDL = "query int, place double, id long, object string"
_SCHEMA = pa.schema(
    {"query": pa.int32(), "place": pa.float64(), "id": pa.int64(), "object": pa.string()}
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Joined:
    """Queries prepared for tasks; consists of the engine's values only, so that it can be sent.

    Attributes:
        ranges: The range queries, compiled.
        range_numbers: i4[r], numbers of these among all queries.
        filters: Their filters on attributes.
        from_ms, upto_ms: i8[r], bounds of arrivals that count, inclusive.
        nearest: (number, lon, lat, k, condition, from, up to) of each knn query.
        secret: For the numbers of terms: words that collide on the wire do not collide here.
    """

    ranges: QueryRows
    range_numbers: NDArray[np.int32]
    filters: list[Filter | None]
    from_ms: NDArray[np.int64]
    upto_ms: NDArray[np.int64]
    nearest: list[tuple[int, float, float, int, Condition, int, int]]
    secret: str


def can_join(query: Query) -> str:
    """Returns why a query cannot be answered from the archive; empty if it can."""
    kind = f"{query.mode} {kind_of(query)}: "
    match query:
        case RangeQuery(track=None):
            return ""
        case RangeQuery():
            return kind + "with `track` it depends on the order of all slots"
        case KnnQuery(mode="snapshot"):
            return ""
        case KnnQuery():
            return kind + "its changes depend on the order of all slots; ask a snapshot"
    return kind + "is answered by steps or statistics; ask the running system"


def prepare(queries: Sequence[Query], start_ms: int, now_ms: int) -> Joined:
    """Compiles queries that `can_join`.

    Args:
        queries: Numbered by their order.
        start_ms: When the lifetime of the continuous ones begins.
        now_ms: The time of the snapshots; later arrivals do not count at all.
    """
    ranges = [(i, q) for i, q in enumerate(queries) if isinstance(q, RangeQuery)]
    nearest = [(i, q) for i, q in enumerate(queries) if isinstance(q, KnnQuery)]

    hashing = TermHashing(secrets.token_hex(SECRET_BYTES))

    def from_ms(query: Query) -> int:
        if query.mode == "continuous":
            return start_ms
        return _TIME_MIN_MS if query.window_ms is None else now_ms - query.window_ms

    return Joined(
        ranges=compile_queries([q for _, q in ranges], [start_ms] * len(ranges)),
        range_numbers=np.array([i for i, _ in ranges], np.int32),
        filters=[q.where for _, q in ranges],
        from_ms=np.array([from_ms(q) for _, q in ranges], np.int64),
        upto_ms=np.full(len(ranges), now_ms, np.int64),
        nearest=[
            (i, q.lon, q.lat, q.k, _condition(q, hashing), from_ms(q), now_ms) for i, q in nearest
        ],
        secret=hashing.secret,
    )


def _condition(query: KnnQuery, hashing: TermHashing) -> Condition:
    rows = with_numbers(compile_queries([query], [0]), hashing)
    return compile_condition(rows, query.where, hashing=hashing)


def joining(uri: str, shared: Any) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    """Returns the function that tasks run: pieces of an archive in, `FOUND_DDL` out."""

    def join(items: Iterator[str]) -> Iterator[pa.RecordBatch]:
        joined = Joined(**shared.value)
        hashing = TermHashing(joined.secret)
        matcher = _Matcher(joined, hashing)
        blobs = open_blobs(uri)
        for piece in (piece for item in items for piece in pieces_of(item)):
            for rows in (part.rows().with_terms(hashing) for part in held_now(blobs, piece)):
                yield from matcher.matches(rows)
                if joined.nearest and len(rows):
                    yield _nearest(joined, rows)

    return join


class _Matcher:
    """The range queries of a task."""

    def __init__(self, joined: Joined, hashing: TermHashing) -> None:
        self._joined = joined
        self._hashing = hashing
        self._index = RangeIndex(expected_queries=len(joined.ranges), hashing=hashing)
        rows = self._index.insert(joined.ranges, 0)
        # The index assigns row numbers itself.
        self._place_of_row = np.zeros(int(rows.max(initial=0)) + 1, np.int64)
        self._place_of_row[rows] = np.arange(len(rows))
        self._has_filters = any(one is not None for one in joined.filters)

    def matches(self, rows: StoredRows) -> Iterator[pa.RecordBatch]:
        """Yields the matches of the objects."""
        if not len(self._joined.ranges):
            return
        objects = rows.objects
        for begin in range(0, len(rows), _BATCH_ROWS):
            part = slice(begin, min(begin + _BATCH_ROWS, len(rows)))
            own = objects.text_offsets[part.start : part.stop + 1]
            terms = terms_of_texts(
                self._index.vocabulary,
                self._hashing,
                objects.text[own[0] : own[-1]],
                own - own[0],
            )
            found = self._index.match(
                np.ascontiguousarray(objects.lon[part]),
                np.ascontiguousarray(objects.lat[part]),
                terms.offsets,
                terms.terms,
                np.ascontiguousarray(rows.arrivals_ms[part]),
                np.arange(1, part.stop - part.start + 1, dtype=np.int64),
            )
            hits = found.object_rows.astype(np.int64) + begin
            places = self._place_of_row[found.query_rows]
            yield self._batch(rows, *self._checked(rows, hits, places))

    def _checked(
        self, rows: StoredRows, hits: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keeps the pairs whose times and attributes count as well."""
        arrivals = rows.arrivals_ms[hits]
        keep = arrivals >= self._joined.from_ms[places]
        keep &= arrivals <= self._joined.upto_ms[places]
        if self._has_filters:
            filters = self._joined.filters
            for pair in np.flatnonzero(keep).tolist():
                where = filters[places[pair]]
                if where is not None:
                    keep[pair] = where.matches(_attributes(rows.objects, int(hits[pair])))
        return hits[keep], places[keep]

    def _batch(
        self, rows: StoredRows, hits: NDArray[np.int64], places: NDArray[np.int64]
    ) -> pa.RecordBatch:
        return found_batch(
            self._joined.range_numbers[places], np.zeros(len(hits)), rows.objects, hits
        )


def _nearest(joined: Joined, rows: StoredRows) -> pa.RecordBatch:
    """Returns for each knn query the nearest among some objects."""
    order = np.argsort(rows.seqs, kind="stable")
    dense = rows.take(order)
    # A slice holds consecutive objects; a piece may be a part of one.
    seqs = np.arange(len(dense), dtype=np.int64)
    sealed = (seal(_renumbered(dense, seqs)),)
    nothing = StoreLimits(active_rows=1).active_slice(len(dense)).view()
    view = StoreView(sealed, nothing, len(dense), slice_table(sealed))
    numbers, places, parts = [], [], []
    for number, lon, lat, k, condition, from_ms, upto_ms in joined.nearest:
        nearest = search_knn(view, lon, lat, k, condition, Bounds(from_ms, upto_ms))
        objects = nearest.gather()
        if objects is not None:
            numbers.append(np.full(len(nearest), number, np.int32))
            places.append(nearest.distances_m)
            parts.append(objects)
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=_SCHEMA)
    whole = StoredRows.concat(parts).objects
    return found_batch(
        np.concatenate(numbers), np.concatenate(places), whole, np.arange(len(whole))
    )


def _renumbered(rows: StoredRows, seqs: NDArray[np.int64]) -> StoredRows:
    return StoredRows.from_columns({**rows.columns(), "seqs": seqs})


def found_batch(
    queries: NDArray[np.int32],
    places: NDArray[np.float64],
    objects: ObjectColumns,
    rows: NDArray[np.int64],
) -> pa.RecordBatch:
    """Returns pairs of queries and objects as rows."""
    ids = objects.ids[rows]
    starts, ends = objects.name_offsets[rows].tolist(), objects.name_offsets[rows + 1].tolist()
    data = objects.names
    written = [
        orjson.dumps(data[a:b].tobytes().decode()).decode() if a < b else str(number)
        for number, a, b in zip(ids.tolist(), starts, ends, strict=True)
    ]
    # Unsigned numbers keep their order when half of the range is subtracted.
    ordered = (ids ^ np.uint64(1 << 63)).view(np.int64)
    return pa.RecordBatch.from_arrays(
        [pa.array(queries), pa.array(places), pa.array(ordered), pa.array(written, pa.string())],
        schema=_SCHEMA,
    )


def _attributes(objects: ObjectColumns, row: int) -> dict[str, Any]:
    begin, end = objects.attribute_offsets[row : row + 2].tolist()
    if begin == end:
        return {}
    members = orjson.loads(objects.attributes[begin:end].tobytes())
    return members if isinstance(members, dict) else {}
