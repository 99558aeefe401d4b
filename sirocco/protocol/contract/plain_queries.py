"""Changes of queries as columns, from the request of a client to the slots.

Most standing queries have a rectangle, or no region, and words that must all be held. A bulk
request brings thousands of them; as columns they cost no step of Python each. All others are
`Query` values. What either form leads to is the same: records, digests, slots, answers.

A removal has nothing of its query but the id, so queries of all kinds are removed in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.base.compile import take_queries
from sirocco.index.base.query_rows import NEVER_MS, SHAPE_BOX, QueryRows
from sirocco.index.base.ragged import take_ragged
from sirocco.kernels.base.blake2b import BLOCK_BYTES, fingerprint_spans
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.base.plain_queries import digest_plain
from sirocco.kernels.text.plain_terms import intern_terms
from sirocco.model.expression import Conjunction, Expression
from sirocco.model.geometry import Rectangle
from sirocco.model.query import RangeQuery
from sirocco.model.text import hash_rows
from sirocco.protocol.contract.columns import QueryNames, take_names
from sirocco.protocol.contract.messages import AT_ONCE_MS, NO_PAST, NO_REVISION, Change

Rows: TypeAlias = NDArray[np.intp]

_WORLD = (-180.0, -90.0, 180.0, 90.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainQueries:
    """Plain continuous range queries without a lifetime; n rows.

    Attributes:
        names: their handles, ids and subscribers.
        fingerprints: u8[n], see `fingerprint_of`.
        digests: u8[n], see `digest_of`.
        texts: u1[b], expressions as the clients wrote them; text_offsets: i8[n + 1].
        has_box: bool[n], whether there is a region.
        rows: their conditions.
    """

    names: QueryNames
    fingerprints: NDArray[np.uint64]
    digests: NDArray[np.uint64]
    texts: NDArray[np.uint8]
    text_offsets: NDArray[np.int64]
    has_box: NDArray[np.bool_]
    rows: QueryRows

    def __len__(self) -> int:
        return len(self.names)

    @property
    def handles(self) -> NDArray[np.uint64]:
        """Returns u8[n], the hashes of the ids."""
        return self.names.handles

    def take(self, rows: NDArray[np.integer]) -> PlainQueries:
        """Returns some of the queries, in the given order."""
        text_offsets, places = take_ragged(self.text_offsets, rows)
        return PlainQueries(
            names=take_names(self.names, rows),
            fingerprints=self.fingerprints[rows],
            digests=self.digests[rows],
            texts=self.texts[places],
            text_offsets=text_offsets,
            has_box=self.has_box[rows],
            rows=take_queries(self.rows, rows),
        )

    def id(self, row: int) -> str:
        """Returns the id of a query."""
        begin, end = self.names.id_offsets[row : row + 2].tolist()
        return self.names.ids[begin:end].tobytes().decode()

    def subscriber(self, row: int) -> str:
        """Returns the subscriber of a query."""
        return self.names.subscribers[int(self.names.subscriber_rows[row])]

    def query(self, row: int) -> RangeQuery:
        """Returns a query as a value."""
        rows = self.rows
        begin, end = self.text_offsets[row : row + 2].tolist()
        source = self.texts[begin:end].tobytes().decode()
        terms = rows.pos_word_rows[rows.pos_offsets[row] : rows.pos_offsets[row + 1]].tolist()
        words = [
            rows.words[rows.word_offsets[word] : rows.word_offsets[word + 1]].tobytes().decode()
            for word in terms
        ]
        return RangeQuery(
            id=self.id(row),
            mode="continuous",
            region=Rectangle(*rows.boxes[row].tolist()) if self.has_box[row] else None,
            expression=Expression(source, (Conjunction(tuple(words)),)) if source else None,
        )


def plain_queries(
    data: NDArray[np.uint8],
    spans: NDArray[np.int64],
    has_box: NDArray[np.bool_],
    boxes: NDArray[np.float64],
) -> PlainQueries:
    """Returns the plain queries that `kernels.base.plain_queries` has found.

    Args:
        data: u1, where they were read.
        spans: i8[n, 6], begin and end of id, subscriber and text.
        has_box: bool[n]
        boxes: f8[n, 4], west, south, east, north.
    """
    ids, id_offsets = _pieces(data, spans[:, 0], spans[:, 1])
    texts, text_offsets = _pieces(data, spans[:, 4], spans[:, 5])
    handles = hash_rows(ids, id_offsets)
    fingerprints = np.empty(len(handles), np.uint64)
    fingerprint_spans(ids, id_offsets, fingerprints)
    rows, term_rows = _conditions(texts, text_offsets, has_box, boxes)
    subscriber_rows, subscribers = _subscribers(data, spans[:, 2], spans[:, 3])
    names, name_offsets = pack_subscribers(subscriber_rows, subscribers)
    digests = np.empty(len(handles), np.uint64)
    # The identity holds numbers as this writer writes them, here all of them at once.
    numbers = orjson.dumps(np.ascontiguousarray(boxes), option=orjson.OPT_SERIALIZE_NUMPY)
    digest_plain(
        *(ids, id_offsets, names, name_offsets, has_box, np.frombuffer(numbers, np.uint8)),
        *(rows.pos_offsets, term_rows, rows.words, rows.word_offsets, digests),
    )
    return PlainQueries(
        names=QueryNames(handles, ids, id_offsets, subscriber_rows, subscribers),
        fingerprints=fingerprints,
        digests=digests,
        texts=texts,
        text_offsets=text_offsets,
        has_box=has_box,
        rows=rows,
    )


def pack_subscribers(
    subscriber_rows: NDArray[np.uint32], subscribers: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the subscriber of each row as one column: u1[b], i8[n + 1]."""
    encoded = [name.encode() for name in subscribers]
    flat = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    taken, places = take_ragged(offsets, subscriber_rows.astype(np.int64))
    return flat[places], taken


def _pieces(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the bytes of some spans, one after the other, and i8[n + 1], where each begins."""
    lengths = ends - begins
    offsets = np.zeros(len(begins) + 1, np.int64)
    lengths.cumsum(out=offsets[1:])
    return data[np.arange(offsets[-1]) + (begins - offsets[:-1]).repeat(lengths)], offsets


def _subscribers(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], tuple[str, ...]]:
    flat, offsets = _pieces(data, begins, ends)
    count, lengths = len(begins), np.diff(offsets)
    if count and (lengths == lengths[0]).all():
        table = flat.reshape(count, -1)
        if (table == table[0]).all():
            return np.zeros(count, np.uint32), (table[0].tobytes().decode(),)
    joined = flat.tobytes()
    known: dict[bytes, int] = {}
    rows = [known.setdefault(joined[a:b], len(known)) for a, b in pairwise(offsets.tolist())]
    return np.array(rows, np.uint32), tuple(name.decode() for name in known)


def _conditions(
    texts: NDArray[np.uint8],
    text_offsets: NDArray[np.int64],
    has_box: NDArray[np.bool_],
    boxes: NDArray[np.float64],
) -> tuple[QueryRows, NDArray[np.int32]]:
    """Returns the compiled conditions, and the word of each term."""
    count = len(has_box)
    terms_max = len(texts) // 2 + 2 * count
    term_offsets = np.empty(count + 1, np.int64)
    term_rows = np.empty(terms_max, np.int32)
    words = np.empty(len(texts) + 8, np.uint8)
    word_offsets = np.empty(terms_max + 1, np.int64)
    hashes = np.empty(terms_max, np.uint64)
    columns = (term_offsets, term_rows, words, word_offsets, hashes)
    found = intern_terms(texts, text_offsets, *columns, *secret())
    term_rows = term_rows[: term_offsets[-1]]
    one_each = np.arange(count + 1, dtype=np.int64)
    none = np.zeros(count + 1, np.int64)
    world = np.array(_WORLD)
    rows = QueryRows(
        conj_offsets=one_each,
        pos_offsets=term_offsets,
        pos_terms=hashes[term_rows],
        neg_offsets=none,
        neg_terms=np.empty(0, np.uint64),
        box_offsets=one_each,
        boxes=np.where(has_box[:, None], boxes, world),
        shape=np.full(count, SHAPE_BOX, np.uint8),
        circles=np.zeros((count, 3)),
        polygon_offsets=none,
        ring_offsets=np.zeros(1, np.int64),
        vertices=np.empty((0, 2)),
        expires_ms=np.full(count, NEVER_MS, np.int64),
        flags=np.zeros(count, np.uint8),
        words=words[: word_offsets[found]].copy(),
        word_offsets=word_offsets[: found + 1].copy(),
        pos_word_rows=term_rows,
        neg_word_rows=np.empty(0, np.int32),
    )
    return rows, term_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainChanges:
    """`registry`: changes of plain queries, a record each; columns of `Change`, n rows.

    Attributes:
        queries: the queries from now on.
        starts_ms, expected_revisions, epochs, sinces: i8[n]
        are_starts_given: bool[n]
    """

    queries: PlainQueries
    starts_ms: NDArray[np.int64]
    expected_revisions: NDArray[np.int64]
    epochs: NDArray[np.int64]
    sinces: NDArray[np.int64]
    are_starts_given: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def handles(self) -> NDArray[np.uint64]:
        """Returns u8[n], the hashes of the ids."""
        return self.queries.handles

    @property
    def digests(self) -> NDArray[np.uint64]:
        """Returns u8[n], see `digest_of`."""
        return self.queries.digests

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        """Returns u8[n], see `fingerprint_of`."""
        return self.queries.fingerprints

    def take(self, rows: NDArray[np.integer]) -> PlainChanges:
        """Returns some of the changes, in the given order."""
        return replace(
            self,
            queries=self.queries.take(rows),
            starts_ms=self.starts_ms[rows],
            expected_revisions=self.expected_revisions[rows],
            epochs=self.epochs[rows],
            sinces=self.sinces[rows],
            are_starts_given=self.are_starts_given[rows],
        )

    @property
    def begins_ms(self) -> NDArray[np.int64]:
        """Returns i8[n], as `Change.begins_ms`."""
        return np.where(
            self.are_starts_given, np.maximum(self.starts_ms, AT_ONCE_MS), np.int64(AT_ONCE_MS)
        )

    def change(self, row: int) -> Change:
        """Returns a change as a value."""
        queries = self.queries
        return Change(
            handle=int(queries.handles[row]),
            query=queries.query(row),
            subscriber=queries.subscriber(row),
            start_ms=int(self.starts_ms[row]),
            expected_revision=int(self.expected_revisions[row]),
            digest=int(queries.digests[row]),
            epoch=int(self.epochs[row]),
            past_ms=NO_PAST,
            is_start_given=bool(self.are_starts_given[row]),
            since=int(self.sinces[row]),
        )


@dataclass(frozen=True, slots=True)
class RemovedQueries:
    """Queries that are to be removed; n rows.

    Attributes:
        handles: u8[n], the hashes of the ids.
        fingerprints: u8[n], see `fingerprint_of`.
        ids: u1[b], UTF-8; id_offsets: i8[n + 1].
    """

    handles: NDArray[np.uint64]
    fingerprints: NDArray[np.uint64]
    ids: NDArray[np.uint8]
    id_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.handles)

    def take(self, rows: NDArray[np.integer]) -> RemovedQueries:
        """Returns some of the queries, in the given order."""
        id_offsets, places = take_ragged(self.id_offsets, rows)
        return RemovedQueries(
            self.handles[rows], self.fingerprints[rows], self.ids[places], id_offsets
        )

    def id(self, row: int) -> str:
        """Returns the id of a query."""
        begin, end = self.id_offsets[row : row + 2].tolist()
        return self.ids[begin:end].tobytes().decode()


def removed_queries(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[Rows, RemovedQueries]:
    """Returns the queries of some ids, without ids that are empty or longer than a block.

    Args:
        data: u1, where the ids are; begins, ends: i8[m], of each.

    Returns:
        Their rows, ascending, and the queries.
    """
    lengths = ends - begins
    rows = np.flatnonzero((lengths > 0) & (lengths <= BLOCK_BYTES))
    ids, id_offsets = _pieces(data, begins[rows], ends[rows])
    fingerprints = np.empty(len(rows), np.uint64)
    fingerprint_spans(ids, id_offsets, fingerprints)
    return rows, RemovedQueries(hash_rows(ids, id_offsets), fingerprints, ids, id_offsets)


@dataclass(frozen=True, slots=True)
class Removals:
    """`registry`: removals, a record each; columns of `Change`, n rows.

    Attributes:
        handles: u8[n]
        starts_ms, expected_revisions, epochs: i8[n]
    """

    handles: NDArray[np.uint64]
    starts_ms: NDArray[np.int64]
    expected_revisions: NDArray[np.int64]
    epochs: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.handles)

    @property
    def digests(self) -> NDArray[np.uint64]:
        """Returns u8[n], as `digest_of`: 0 for a removal."""
        return np.zeros(len(self), np.uint64)

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        """Returns u8[n], zeros: a record does not have the id."""
        return np.zeros(len(self), np.uint64)

    def take(self, rows: NDArray[np.integer]) -> Removals:
        """Returns some of the removals, in the given order."""
        return Removals(
            *(self.handles[rows], self.starts_ms[rows]),
            *(self.expected_revisions[rows], self.epochs[rows]),
        )

    def change(self, row: int) -> Change:
        """Returns a removal as a value."""
        return Change(
            handle=int(self.handles[row]),
            query=None,
            subscriber="",
            start_ms=int(self.starts_ms[row]),
            expected_revision=int(self.expected_revisions[row]),
            digest=0,
            epoch=int(self.epochs[row]),
        )


ChangeColumns: TypeAlias = PlainChanges | Removals


@dataclass(frozen=True, slots=True)
class ChangeRecords:
    """Consecutive records of the registry, as columns.

    Attributes:
        offsets: i8[n], ascending.
        changes: what they hold.
    """

    offsets: NDArray[np.int64]
    changes: ChangeColumns


assert NO_REVISION == -1, "the kernel that reads changes writes it for a missing `since`"
