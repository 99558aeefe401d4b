"""The work of each slot: held-out objects and queries are routed, matched and counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage

from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.timing import seconds_of
from sirocco.codec.columns import put_objects, read_objects
from sirocco.index.standing.range_index import RangeIndex
from sirocco.schemes.map.routing import ObjectRoutes, RoutingArrays

# About the objects of one poll, and the best batch for the index.
BATCH = 1_000
PASSES = 4

# PS2Stream VI-A: the index of its workers, GI2, has 2^6 x 2^6 cells.
GI2_SIDE = 64

# VI-A: five objects for each query that is inserted or deleted, these two in equal numbers.
INSERTIONS_PER_OBJECT = 0.1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SlotLoads:
    """The load of each slot, m slots.

    Attributes:
        objects: i8[m], objects sent to it.
        homes: i8[m], objects that it stores.
        wanted: i8[m], objects with the key of a query of the slot: all that a keyword filter at the
            router would send (Tornado 4.1, H2 of PS2Stream IV-C).
        queries: i8[m], standing range queries sent to it.
        checks: i8[m], pairs that PS2Stream's workers would check: the query is listed under a term
            of the object in the object's cell of GI2 (IV-D).
        matches: i8[m], pairs that match.
        match_s: f8[m], CPU time of matching its objects in a range index of its queries.
        insert_s: f8[m], CPU time of inserting its queries.
        send_s: f8[m], CPU time of gathering, encoding and decoding its objects.
        index_bytes: i8[m], memory of the index.
    """

    objects: NDArray[np.int64]
    homes: NDArray[np.int64]
    wanted: NDArray[np.int64]
    queries: NDArray[np.int64]
    checks: NDArray[np.int64]
    matches: NDArray[np.int64]
    match_s: NDArray[np.float64]
    insert_s: NDArray[np.float64]
    send_s: NDArray[np.float64]
    index_bytes: NDArray[np.int64]

    def products(self) -> NDArray[np.float64]:
        """Returns the first term of PS2Stream's load (Definition 1), |O_i| |Q_i|, f8[m]."""
        return self.objects.astype(np.float64) * self.queries

    def work_s(self, inserted: float) -> NDArray[np.float64]:
        """Returns Definition 1 in measured CPU time, f8[m].

        Objects are received and matched, and a share of the queries is inserted. Deletion, which
        costs as much as insertion in every scheme, is left out.

        Args:
            inserted: Inserted over standing queries, see `INSERTIONS_PER_OBJECT`.
        """
        return self.match_s + self.send_s + self.insert_s * inserted


class WrongMatchesError(AssertionError):
    """The slots together found other pairs than one index of all queries."""


def all_pairs(stream: Stream, queries: Queries) -> NDArray[np.int64]:
    """Returns the pairs of one index of everything, ascending i8: object x queries + query."""
    index = RangeIndex()
    numbers = _insert(index, queries, np.arange(len(queries)))
    return np.sort(_match(index, stream, numbers, len(queries)))


class SchemeWork:
    """The work of all slots of one scheme.

    Args:
        arrays: The scheme's.
        stream: The objects.
        queries: Standing range queries; they are inserted at once.
    """

    def __init__(self, arrays: RoutingArrays, stream: Stream, queries: Queries) -> None:
        self._arrays, self._stream, self._queries = arrays, stream, queries
        routes = route_stream(arrays, stream)
        self._rows = _rows_of_slots(routes.slot, routes.row.astype(np.int64), arrays.slots)
        found = queries.route(arrays)
        query_rows = np.repeat(np.arange(len(queries)), np.diff(found.slot_offsets))
        self._asked = _rows_of_slots(found.slots, query_rows, arrays.slots)
        homes = routes.slot if routes.homes is None else routes.slot[routes.homes]
        self._homes = np.bincount(homes, minlength=arrays.slots)
        self._slots = [
            _SlotWork(stream, own, queries, mine)
            for own, mine in zip(self._rows, self._asked, strict=True)
        ]

    def once(self) -> None:
        """Does the work of all slots, one after the other."""
        for slot in self._slots:
            slot.once()

    def loads(self, expected: NDArray[np.int64], *, with_checks: bool = True) -> SlotLoads:
        """Returns the counts and measurements.

        Args:
            expected: The result of `all_pairs`.
            with_checks: Count `checks` and `wanted`, which takes long; otherwise they are 0.

        Raises:
            WrongMatchesError: The slots together do not find exactly these pairs.
        """
        together = np.unique(np.concatenate([slot.pairs for slot in self._slots]))
        if not np.array_equal(together, expected):
            raise WrongMatchesError(f"{len(together)} pairs of the slots, not {len(expected)}")
        looked_at = [(0, 0)] * len(self._slots)
        if with_checks:
            lists = _QueryLists(self._stream, self._queries, self._arrays)
            pairs = zip(self._rows, self._asked, strict=True)
            looked_at = [lists.checks(own, mine) for own, mine in pairs]
        return SlotLoads(
            objects=np.array([len(own) for own in self._rows]),
            homes=self._homes,
            wanted=np.array([wanted for _, wanted in looked_at]),
            queries=np.array([len(mine) for mine in self._asked]),
            checks=np.array([checks for checks, _ in looked_at]),
            matches=np.array([len(slot.pairs) for slot in self._slots]),
            match_s=np.array([slot.match_s for slot in self._slots]),
            insert_s=np.array([slot.insert_s for slot in self._slots]),
            send_s=np.array([slot.send_s for slot in self._slots]),
            index_bytes=np.array([slot.index.bytes_total for slot in self._slots]),
        )


def slot_loads(
    schemes: Iterable[tuple[str, RoutingArrays]],
    stream: Stream,
    queries: Queries,
    expected: NDArray[np.int64],
    *,
    with_checks: bool = True,
) -> dict[str, SlotLoads]:
    """Routes objects and queries by several schemes and does the work of each.

    All schemes take part in each pass: other work on the machine then slows one pass of all of them
    rather than all passes of one.

    Args:
        schemes: Name and arrays of each.
        stream, queries: See `SchemeWork`.
        expected, with_checks: See `SchemeWork.loads`.

    Raises:
        WrongMatchesError: The slots of a scheme do not find exactly the expected pairs.
    """
    works = {name: SchemeWork(arrays, stream, queries) for name, arrays in schemes}
    for _ in range(PASSES):
        for work in works.values():
            work.once()
    return {name: w.loads(expected, with_checks=with_checks) for name, w in works.items()}


class _SlotWork:
    """One slot with the objects and queries that were sent to it.

    Attributes:
        index: Holds the queries.
        insert_s: CPU time of inserting them.
        match_s, send_s: Of the fastest pass so far.
        pairs: i8, object x queries + query of each match of the last pass.
    """

    def __init__(
        self,
        stream: Stream,
        rows: NDArray[np.int64],
        queries: Queries,
        asked: NDArray[np.int64],
    ) -> None:
        self._stream, self._rows, self._width = stream, rows, len(queries)
        self._taken = stream.take(rows)
        self.index = RangeIndex()
        mine = queries.take(asked)
        self.insert_s, self._numbers = seconds_of(partial(_insert, self.index, mine, asked))
        self.match_s = self.send_s = float("inf")
        self.pairs = np.empty(0, np.int64)

    def once(self) -> None:
        """Does the work of all objects."""
        seconds, hits = seconds_of(
            partial(_match, self.index, self._taken, self._numbers, self._width)
        )
        self.match_s = min(self.match_s, seconds)
        self.send_s = min(self.send_s, seconds_of(partial(_send, self._stream, self._rows))[0])
        self.pairs = self._rows[hits // self._width] * self._width + hits % self._width


def route_stream(arrays: RoutingArrays, stream: Stream) -> ObjectRoutes:
    """Routes all objects at once."""
    return arrays.route_objects(
        stream.lon, stream.lat, stream.term_offsets, stream.terms, stream.keys
    )


def wanted_share(arrays: RoutingArrays, stream: Stream, queries: Queries) -> float:
    """Returns the share of objects sent that hold the key of a query of their slot."""
    routes = route_stream(arrays, stream)
    rows = _rows_of_slots(routes.slot, routes.row.astype(np.int64), arrays.slots)
    found = queries.route(arrays)
    query_rows = np.repeat(np.arange(len(queries)), np.diff(found.slot_offsets))
    asked = _rows_of_slots(found.slots, query_rows, arrays.slots)
    lists = _QueryLists(stream, queries, arrays)
    wanted = sum(lists.checks(*pair)[1] for pair in zip(rows, asked, strict=True))
    return wanted / len(routes.row)


class _QueryLists:
    """Counts the pairs that the lists of GI2 would give (PS2Stream IV-D)."""

    def __init__(self, stream: Stream, queries: Queries, arrays: RoutingArrays) -> None:
        if not arrays.is_by_keyword:
            # A worker knows the frequencies of terms, though such a map does not.
            terms, held = np.unique(stream.terms, return_counts=True)
            arrays = replace(arrays, frequent_terms=terms, frequencies=held.astype(np.float32))
        offsets, keys = queries.keys(arrays)
        counts = np.diff(offsets)
        self._key_query = np.repeat(np.arange(len(queries)), counts)
        self._vocabulary = np.unique(keys)
        keyed = np.searchsorted(self._vocabulary, keys)
        # A query without keys has a number of its own, which every object has.
        none = np.flatnonzero(counts == 0)
        self._none = len(self._vocabulary)
        self._key_query = np.concatenate([self._key_query, none])
        self._key = np.concatenate([keyed, np.full(len(none), self._none)])
        self._has_none = len(none) > 0
        low = np.array([stream.lon.min(), stream.lat.min()])
        high = np.array([stream.lon.max(), stream.lat.max()])
        self._low, self._scale = low, GI2_SIDE / np.maximum(high - low, 1e-9)
        self._spans = self._cells(queries.boxes.reshape(-1, 2)).reshape(-1, 4)
        place = self._cells(np.stack([stream.lon, stream.lat], 1))
        self._cell = place[:, 1] * GI2_SIDE + place[:, 0]
        term = np.searchsorted(self._vocabulary, stream.terms)
        term = np.minimum(term, max(self._none - 1, 0))
        known = np.zeros(len(term), np.bool_)
        if self._none:
            known = self._vocabulary[term] == stream.terms
        # Terms that are not keys probe nothing.
        row = np.repeat(np.arange(len(stream)), np.diff(stream.term_offsets))
        self._term_offsets = np.searchsorted(row[known], np.arange(len(stream) + 1))
        self._terms = term[known]

    def checks(self, rows: NDArray[np.int64], queries: NDArray[np.int64]) -> tuple[int, int]:
        """Returns (checked pairs, objects with a key of the slot)."""
        listed, lengths = np.unique(self._postings(queries), return_counts=True)
        width = self._none + 1
        keys = np.zeros(width, np.bool_)
        keys[listed % width] = True
        each = np.diff(self._term_offsets)[rows]
        at = np.arange(each.sum()) + np.repeat(
            self._term_offsets[:-1][rows] - np.concatenate([[0], np.cumsum(each)[:-1]]), each
        )
        owner = np.repeat(np.arange(len(rows)), each)
        term = self._terms[at]
        if self._has_none:
            owner = np.concatenate([owner, np.arange(len(rows))])
            term = np.concatenate([term, np.full(len(rows), self._none)])
        if len(listed) == 0:
            return 0, 0
        probe = self._cell[rows][owner] * width + term
        place = np.minimum(np.searchsorted(listed, probe), len(listed) - 1)
        seen = lengths[place[listed[place] == probe]]
        wanted = np.unique(owner[keys[term]])
        return int(seen.sum()), len(wanted)

    def _postings(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns i8, a number for the cell and the key of each entry of these queries."""
        chosen = np.zeros(len(self._spans), np.bool_)
        chosen[queries] = True
        entry = np.flatnonzero(chosen[self._key_query])
        spans = self._spans[self._key_query[entry]]
        widths, heights = spans[:, 2] - spans[:, 0] + 1, spans[:, 3] - spans[:, 1] + 1
        counts = widths * heights
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        x = np.repeat(spans[:, 0], counts) + number % np.repeat(widths, counts)
        y = np.repeat(spans[:, 1], counts) + number // np.repeat(widths, counts)
        cell = y * GI2_SIDE + x
        return np.asarray(cell * (self._none + 1) + np.repeat(self._key[entry], counts))

    def _cells(self, places: NDArray[np.float64]) -> NDArray[np.int64]:
        found = ((places - self._low) * self._scale).astype(np.int64)
        return np.asarray(np.clip(found, 0, GI2_SIDE - 1))


def _rows_of_slots(
    slot: NDArray[np.int32], row: NDArray[np.int64], slots: int
) -> list[NDArray[np.int64]]:
    order = np.argsort(slot, kind="stable")
    ends = np.cumsum(np.bincount(slot, minlength=slots))
    return np.split(row[order], ends[:-1])


def _insert(index: RangeIndex, queries: Queries, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Inserts queries of these numbers; returns the number of each row of the index."""
    rows = [np.empty(0, np.int32)]
    for begin in range(0, len(queries), BATCH):
        batch = np.arange(begin, min(begin + BATCH, len(queries)))
        rows.append(index.insert(queries.take(batch).rows(), 0))
    taken = np.concatenate(rows)
    number_of_row = np.empty(len(taken), np.int64)
    number_of_row[taken] = numbers
    return number_of_row


def _match(
    index: RangeIndex, stream: Stream, numbers: NDArray[np.int64], width: int
) -> NDArray[np.int64]:
    """Returns i8, row of the object x width + number of the query for each pair."""
    parts = [np.empty(0, np.int64)]
    for begin in range(0, len(stream), BATCH):
        end = min(begin + BATCH, len(stream))
        offsets = stream.term_offsets[begin : end + 1]
        found = index.match(
            stream.lon[begin:end],
            stream.lat[begin:end],
            offsets - offsets[0],
            stream.terms[offsets[0] : offsets[-1]],
            np.zeros(end - begin, np.int64),
            np.arange(begin + 1, end + 1),
        )
        parts.append((found.object_rows + begin) * width + numbers[found.query_rows])
    return np.concatenate(parts)


def _send(stream: Stream, rows: NDArray[np.int64]) -> int:
    """Gathers objects, encodes them as records and decodes these; returns their bytes."""
    total = 0
    for begin in range(0, len(rows), BATCH):
        message = ObjectsMessage()
        put_objects(message, stream.columns.take(rows[begin : begin + BATCH]))
        value = message.SerializeToString()
        read_objects(ObjectsMessage.FromString(value))
        total += len(value)
    return total
