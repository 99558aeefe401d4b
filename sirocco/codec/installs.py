"""`Installed` (compiled query changes of one slot) ⇄ `InstallRequest`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.codec.arrays import (
    F8,
    I8,
    U1,
    U4,
    U8,
    check_between,
    pack,
    read_column,
    read_offsets,
    read_rows,
)
from sirocco.codec.columns import Member, put_names, read_locators, read_names
from sirocco.index.base.kinds import KIND_RANGE, kind_number
from sirocco.index.base.query_rows import (
    FLAG_RESIDUAL,
    SHAPE_CIRCLE,
    SHAPE_POLYGON,
    QueryRows,
)
from sirocco.internal_api.v1 import slot_service_pb2 as pb
from sirocco.kernels.base.wire_checks import are_boxes
from sirocco.kernels.standing.pyramid import CONJ_TERMS_MAX
from sirocco.model.errors import InvalidArgument
from sirocco.model.filter_texts import filter_of
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import pack_bytes
from sirocco.model.query import RangeQuery, query_handle
from sirocco.model.text import hash_rows
from sirocco.protocol.contract.columns import QueryNames
from sirocco.protocol.contract.messages import NO_PAST, NOT_COPIED, EndedColumns, Installed
from sirocco.protocol.contract.query_definitions import outline_of, query_of

_RING_VERTICES_MIN = 3


def write_installed(message: Installed) -> pb.InstallRequest:
    """Returns the request of a message."""
    rows = message.rows
    request = pb.InstallRequest(
        registry_partition=message.registry_partition,
        floor=message.floor,
        removed=pack(message.removed, U8),
        removed_revisions=pack(message.removed_revisions, I8),
    )
    if message.copied_at != NOT_COPIED:
        request.copied_at = message.copied_at
    if message.begins_ms is not None:
        request.begins_ms = pack(message.begins_ms, I8)
    if message.sinces is not None:
        request.sinces = pack(message.sinces, I8)
    if message.reports_end is not None:
        request.asks_end = pack(message.reports_end, U1)
    if message.ended is not None:
        _put_ended(request, message.ended)
    put_names(request.names, message.names)
    if not len(rows):
        return request
    request.revisions = pack(message.revisions, I8)
    request.expires_ms = pack(rows.expires_ms, I8)
    request.conjunction_offsets = pack(rows.conj_offsets, U4)
    request.positive_offsets = pack(rows.pos_offsets, U4)
    request.positive_terms = pack(rows.pos_terms, U8)
    request.negative_offsets = pack(rows.neg_offsets, U4)
    request.negative_terms = pack(rows.neg_terms, U8)
    if rows.has_words and len(rows.words):
        request.words = pack(rows.words, U1)
        request.word_offsets = pack(rows.word_offsets, U4)
        request.positive_word_rows = pack(rows.pos_word_rows, U4)
        request.negative_word_rows = pack(rows.neg_word_rows, U4)
    request.box_offsets = pack(rows.box_offsets, U4)
    request.boxes = pack(rows.boxes, F8)
    request.shapes = pack(rows.shape, U1)
    if (rows.shape == SHAPE_CIRCLE).any():
        request.circles = pack(rows.circles, F8)
    if len(rows.ring_offsets) > 1:
        request.ring_offsets = pack(rows.polygon_offsets, U4)
        request.vertex_offsets = pack(rows.ring_offsets, U4)
        request.vertices = pack(rows.vertices, F8)
    if message.filters is not None and any(message.filters):
        data, offsets = pack_bytes([text.encode() for text in message.filters])
        request.filters = pack(data, U1)
        request.filter_offsets = pack(offsets, U4)
    if message.kinds.any() or message.specs is not None or (message.past_ms != NO_PAST).any():
        request.kinds = pack(message.kinds, U1)
        request.starts_ms = pack(message.starts_ms, I8)
        request.past_ms = pack(message.past_ms, I8)
        request.slot_counts = pack(message.slot_counts, U4)
        request.homes = pack(message.homes, U1)
    if message.locators is not None and any(message.locators):
        lengths = [len(each) // U8.itemsize for each in message.locators]
        request.locators = b"".join(message.locators)
        request.locator_offsets = pack(np.cumsum([0, *lengths]), U4)
    return request


def read_installed(request: pb.InstallRequest) -> Installed:
    """Returns the message of a request.

    `QueryRows.flags` is not sent: a row is residual if it has a filter.

    Raises:
        InvalidArgument: Columns that do not fit together or that the index cannot hold.
    """
    with Member("names"):
        names = read_names(request.names)
    count = len(names)
    filters, has_filter = _read_filters(request, count)
    conj_offsets = read_offsets(request.conjunction_offsets, count, None, "conjunction_offsets")
    conjunctions = np.diff(conj_offsets)
    check_between(conjunctions, 1, DEFAULT_LIMITS.conjunctions, "conjunction_offsets")
    pos_offsets, pos_terms, neg_offsets, neg_terms = _read_text(request, int(conj_offsets[-1]))
    box_offsets, boxes = _read_boxes(request, count)
    shape, circles, polygon_offsets, ring_offsets, vertices = _read_shapes(request, count)
    rows = QueryRows(
        conj_offsets=conj_offsets,
        pos_offsets=pos_offsets,
        pos_terms=pos_terms,
        neg_offsets=neg_offsets,
        neg_terms=neg_terms,
        box_offsets=box_offsets,
        boxes=boxes,
        shape=shape,
        circles=circles,
        polygon_offsets=polygon_offsets,
        ring_offsets=ring_offsets,
        vertices=vertices,
        expires_ms=read_column(request.expires_ms, I8, "expires_ms", rows=count),
        flags=has_filter * np.uint8(FLAG_RESIDUAL),
        **_read_words(request, pos_terms, neg_terms),
    )
    removed = read_column(request.removed, U8, "removed")
    plain = Installed.plain(
        request.registry_partition,
        request.floor,
        names,
        read_column(request.revisions, I8, "revisions", rows=count),
        rows,
        filters,
        removed,
        read_column(request.removed_revisions, I8, "removed_revisions", rows=len(removed)),
    )
    if request.locators or request.locator_offsets:
        offsets = request.locator_offsets
        locators = read_locators(request.locators, offsets, count, "locators")
        plain = replace(plain, locators=locators)
    if request.HasField("copied_at"):
        if request.copied_at < 0:
            raise InvalidArgument("must not be negative", field="copied_at")
        plain = replace(plain, copied_at=request.copied_at)
    if request.begins_ms:
        begins_ms = read_column(request.begins_ms, I8, "begins_ms", rows=count)
        plain = replace(plain, begins_ms=begins_ms)
    if request.sinces:
        sinces = read_column(request.sinces, I8, "sinces", rows=count)
        plain = replace(plain, sinces=sinces)
    if request.asks_end:
        reports_end = read_column(request.asks_end, U1, "asks_end", rows=count) != 0
        plain = replace(plain, reports_end=reports_end)
    if request.HasField("ended"):
        plain = replace(plain, ended=_read_ended(request))
    return _with_questions(plain, request)


def _put_ended(request: pb.InstallRequest, ended: EndedColumns) -> None:
    put_names(request.ended, ended.names)
    request.ended_revisions = pack(ended.revisions, I8)
    request.ended_by = pack(ended.by, I8)
    request.ended_is_over = pack(ended.has_expired, U1)


def _read_ended(request: pb.InstallRequest) -> EndedColumns:
    with Member("ended"):
        names = read_names(request.ended)
    count = len(names)
    return EndedColumns(
        names,
        read_column(request.ended_revisions, I8, "ended_revisions", rows=count),
        read_column(request.ended_by, I8, "ended_by", rows=count),
        read_column(request.ended_is_over, U1, "ended_is_over", rows=count) != 0,
    )


def _with_questions(plain: Installed, request: pb.InstallRequest) -> Installed:
    """Adds the queries' requests beyond the selection of future objects."""
    names, count = plain.names, len(plain.names)
    columns = request.kinds, request.starts_ms, request.past_ms, request.slot_counts, request.homes
    if names.specs is None and not any(columns):
        return plain
    kinds = read_column(request.kinds, U1, "kinds", rows=count)
    _check_specs(names, kinds, plain.rows.has_words)
    past_ms = read_column(request.past_ms, I8, "past_ms", rows=count)
    if (past_ms < NO_PAST).any():
        raise InvalidArgument("must not be negative", field="past_ms")
    return replace(
        plain,
        kinds=kinds,
        starts_ms=read_column(request.starts_ms, I8, "starts_ms", rows=count),
        past_ms=past_ms,
        slot_counts=read_column(request.slot_counts, U4, "slot_counts", rows=count),
        homes=read_column(request.homes, U1, "homes", rows=count) != 0,
    )


def _check_specs(names: QueryNames, kinds: NDArray[np.uint8], has_words: bool) -> None:
    """Refuses invalid definitions, and those not of their row's handle and kind.

    Args:
        names: with the definitions.
        kinds: u1[q], of the rows.
        has_words: whether the rows hold the words of texts. Else slots take texts from definitions.
    """
    read = outline_of if has_words else query_of
    specs = names.specs or ("",) * len(kinds)
    for row in np.flatnonzero((kinds != KIND_RANGE) | np.array([bool(spec) for spec in specs])):
        with Member(f"names.specs[{row}]"):
            try:
                query = read(specs[row])
            except orjson.JSONDecodeError as error:
                raise InvalidArgument(f"is no JSON: {error}") from None
            is_needed = kinds[row] != KIND_RANGE or (
                isinstance(query, RangeQuery) and query.highlight
            )
            if kind_number(query) != kinds[row] or not is_needed:
                raise InvalidArgument("is not of the row's kind")
            if query_handle(query.id) != names.handles[row]:
                raise InvalidArgument("is not that of the row's query")


def _read_text(
    request: pb.InstallRequest, conjunctions: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64]]:
    pos_terms = read_column(request.positive_terms, U8, "positive_terms")
    neg_terms = read_column(request.negative_terms, U8, "negative_terms")
    pos_offsets = read_offsets(
        request.positive_offsets, conjunctions, len(pos_terms), "positive_offsets"
    )
    neg_offsets = read_offsets(
        request.negative_offsets, conjunctions, len(neg_terms), "negative_offsets"
    )
    positives, negatives = np.diff(pos_offsets), np.diff(neg_offsets)
    check_between(positives, 0, CONJ_TERMS_MAX, "positive_offsets")
    check_between(negatives, 0, CONJ_TERMS_MAX, "negative_offsets")
    if len(neg_terms) and negatives[positives == 0].any():
        raise InvalidArgument("a conjunction holds only negations", field="positive_offsets")
    return pos_offsets, pos_terms, neg_offsets, neg_terms


def _read_words(
    request: pb.InstallRequest, pos_terms: NDArray[np.uint64], neg_terms: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """Returns the words of the terms; nothing if the record is of an earlier version."""
    rows_of_terms = request.positive_word_rows or request.negative_word_rows
    if not (request.words or request.word_offsets or rows_of_terms):
        return {}
    words = read_column(request.words, U1, "words")
    count = max(0, len(request.word_offsets) // U4.itemsize - 1)
    offsets = read_offsets(request.word_offsets, count, len(words), "word_offsets", least=1)
    hashes = hash_rows(words, offsets)
    columns: dict[str, NDArray[Any]] = {"words": words, "word_offsets": offsets}
    for name, terms in (("positive", pos_terms), ("negative", neg_terms)):
        field = f"{name}_word_rows"
        rows = read_rows(getattr(request, field), len(terms), count, field)
        if len(rows) and not np.array_equal(hashes[rows], terms):
            raise InvalidArgument("are not the words of the terms", field=field)
        columns[f"{name[:3]}_word_rows"] = rows.astype(np.int32)
    return columns


def _read_boxes(
    request: pb.InstallRequest, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    box_offsets = read_offsets(request.box_offsets, count, None, "box_offsets", least=1)
    boxes = read_column(request.boxes, F8, "boxes", rows=4 * int(box_offsets[-1])).reshape(-1, 4)
    if not are_boxes(boxes):
        raise InvalidArgument("must lie in the world, west <= east, south <= north", field="boxes")
    return box_offsets, boxes


def _read_shapes(request: pb.InstallRequest, count: int) -> tuple[Any, ...]:
    """Returns shapes, circles, offsets of polygons and of rings, vertices."""
    shape = read_column(request.shapes, U1, "shapes", rows=count)
    if (shape > SHAPE_POLYGON).any():
        raise InvalidArgument("is none of box, circle, polygon", field="shapes")
    if request.circles or (shape == SHAPE_CIRCLE).any():
        circles = read_column(request.circles, F8, "circles", rows=3 * count).reshape(-1, 3)
        # Any radius is valid: a large one contains the whole world.
        _check_places(circles, "circles")
        if not (circles[:, 2] >= 0).all():
            raise InvalidArgument("has a radius below 0", field="circles")
    else:
        circles = np.zeros((count, 3))
    is_polygon = shape == SHAPE_POLYGON
    if request.ring_offsets or is_polygon.any():
        polygon_offsets = read_offsets(request.ring_offsets, count, None, "ring_offsets")
        if (is_polygon & (np.diff(polygon_offsets) == 0)).any():
            raise InvalidArgument("a polygon has no ring", field="ring_offsets")
    else:
        polygon_offsets = np.zeros(count + 1, np.int64)
    if len(request.vertices) % (2 * F8.itemsize):
        raise InvalidArgument("has a longitude without a latitude", field="vertices")
    vertices = read_column(request.vertices, F8, "vertices").reshape(-1, 2)
    _check_places(vertices, "vertices")
    ring_offsets = read_offsets(
        request.vertex_offsets,
        int(polygon_offsets[-1]),
        len(vertices),
        "vertex_offsets",
        least=_RING_VERTICES_MIN,
    )
    return shape, circles, polygon_offsets, ring_offsets, vertices


def _check_places(table: NDArray[np.float64], field: str) -> None:
    """Refuses rows (lon, lat, …) outside the world."""
    if not ((np.abs(table[:, 0]) <= 180) & (np.abs(table[:, 1]) <= 90)).all():
        raise InvalidArgument("has a place outside the world", field=field)


def _read_filters(
    request: pb.InstallRequest, count: int
) -> tuple[tuple[str, ...] | None, NDArray[np.bool_]]:
    """Returns the filters, each one valid, and which rows have one."""
    data = request.filters
    if not data and not request.filter_offsets:
        return None, np.zeros(count, np.bool_)
    offsets = read_offsets(request.filter_offsets, count, len(data), "filter_offsets")
    has_filter = offsets[1:] > offsets[:-1]
    filters = [""] * count
    for row in np.flatnonzero(has_filter).tolist():
        with Member(f"filters[{row}]"):
            filters[row] = _read_filter(data[offsets[row] : offsets[row + 1]])
    return tuple(filters), has_filter


def _read_filter(data: bytes) -> str:
    try:
        text = data.decode()
        filter_of(text)
    except (orjson.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"is no JSON: {error}") from None
    return text
