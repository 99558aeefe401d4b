"""Places of the words that made objects match, or enter lists, for the queries that ask for them.

They are found when a notification is sent, from the object's text and the query's words. Slots and
logs do not hold them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray
from sirocco_api.v1.columns_pb2 import HighlightColumns

from sirocco.codec.arrays import U4, pack
from sirocco.model.errors import InvalidArgument
from sirocco.model.folding.folded_terms import unmarked
from sirocco.model.hints.places import Place, TextPlaces
from sirocco.model.query import KnnQuery, RangeQuery, RankedQuery
from sirocco.protocol.contract.columns import NO_ROW
from sirocco.protocol.contract.messages import Delivered
from sirocco.protocol.contract.query_definitions import ASKS, query_of
from sirocco.protocol.contract.query_specs import definition_of_spec

__all__ = ["asks_for_highlights", "highlights_of"]

# For one response: characters that are searched, which takes about a second, and places that are
# sent, half a megabyte. Matches beyond these have no places.
CHARACTERS_MAX = 1 << 20
PLACES_MAX = 1 << 15

# Terms of the queries' alternatives that are looked up for matches, half a microsecond each.
TERMS_MAX = 1 << 19

# CPU time for reading the queries. The hardest take some ms each, and a response has thousands.
READING_CPU_S = 0.5

# Queries that may ask for places.
_Shown: TypeAlias = RangeQuery | KnnQuery | RankedQuery


def asks_for_highlights(delivered: Delivered) -> bool:
    """Returns whether any query of a record may ask for them."""
    specs = delivered.queries.specs
    return specs is not None and any(ASKS in spec for spec in specs)


def highlights_of(
    delivered: Delivered, cpu_s: Callable[[], float] = time.thread_time
) -> tuple[HighlightColumns, HighlightColumns]:
    """Returns the places of the words of a record's matches, and of what is new in its lists.

    Args:
        delivered: the record.
        cpu_s: CPU time of the thread.
    """
    search = _Search(delivered, cpu_s)
    matches, lists = delivered.matches, delivered.lists
    rows = np.arange(len(matches.queries))
    of_matches = _columns(search.places(rows, matches.queries, matches.objects))
    if lists is None:
        return of_matches, _columns(())
    entries = np.flatnonzero(lists.objects != NO_ROW)
    owners = np.searchsorted(lists.entry_offsets, entries, side="right") - 1
    of_lists = search.places(entries, lists.queries[owners], lists.objects[entries])
    return of_matches, _columns(of_lists)


class _Search:
    """A search for the words of a record's queries, which ends where its budgets do."""

    def __init__(self, delivered: Delivered, cpu_s: Callable[[], float]) -> None:
        self._objects = delivered.objects
        self._queries = dict(_read(delivered.queries.specs or (), cpu_s))
        self._terms = {row: _terms_in(query) for row, query in self._queries.items()}
        self._texts: dict[int, TextPlaces] = {}
        self._characters_left = CHARACTERS_MAX
        self._terms_left = TERMS_MAX
        self._places_left = PLACES_MAX

    def places(
        self,
        matches: NDArray[np.integer],
        queries: NDArray[np.uint32],
        objects: NDArray[np.uint32],
    ) -> Iterator[tuple[int, Place]]:
        """Yields the places of words by match.

        Args:
            matches: their numbers.
            queries, objects: rows of the query and the object of each.
        """
        columns = (matches.tolist(), queries.tolist(), objects.tolist())
        for match, row, one in zip(*columns, strict=True):
            query = self._queries.get(row)
            if query is None:
                continue
            self._terms_left -= self._terms[row]
            text = self._text(one) if self._terms_left >= 0 else None
            if text is None:
                return
            places = _places_of(query, text)[: self._places_left]
            self._places_left -= len(places)
            for place in places:
                yield match, place
            if not self._places_left:
                return

    def _text(self, one: int) -> TextPlaces | None:
        text = self._texts.get(one)
        if text is None:
            begin, end = self._objects.text_offsets[one : one + 2].tolist()
            self._characters_left -= end - begin
            if self._characters_left < 0:
                return None
            whole = self._objects.text[begin:end].tobytes().decode()
            text = self._texts[one] = TextPlaces(whole)
        return text


def _places_of(query: _Shown, text: TextPlaces) -> list[Place]:
    if isinstance(query, RankedQuery):
        return text.keywords(query.keywords)
    return [] if query.expression is None else text.matched(query.expression)


def _read(specs: Sequence[str], cpu_s: Callable[[], float]) -> Iterator[tuple[int, _Shown]]:
    """Yields the queries that ask for places, as far as there is time to read them."""
    end_s = cpu_s() + READING_CPU_S
    for row, spec in enumerate(specs):
        if ASKS not in spec:
            continue
        if cpu_s() >= end_s:
            return
        query = _highlighted(spec)
        if query is not None:
            yield row, query


def _highlighted(spec: str) -> _Shown | None:
    try:
        query = query_of(definition_of_spec(spec))
    except (InvalidArgument, orjson.JSONDecodeError):
        # Of a later version.
        return None
    return query if isinstance(query, _Shown) and query.highlight else None


def _terms_in(query: _Shown) -> int:
    if isinstance(query, RankedQuery):
        return 1 + len(query.keywords)
    conjunctions = () if query.expression is None else query.expression.conjunctions
    return 1 + sum(len(one.positive) + len(one.negative) for one in conjunctions)


def _columns(found: Iterable[tuple[int, Place]]) -> HighlightColumns:
    names: dict[str, int] = {}
    rows = [
        (match, place.start, place.end, names.setdefault(unmarked(place.term), len(names)))
        for match, place in found
    ]
    matches, starts, ends, terms = np.array(rows, np.uint32).reshape(-1, 4).T
    return HighlightColumns(
        matches=pack(matches, U4),
        starts=pack(starts, U4),
        ends=pack(ends, U4),
        terms=pack(terms, U4),
        names=list(names),
    )
