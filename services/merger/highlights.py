"""Places of the words that made objects match, for the queries that ask for them.

They are found when a notification is sent, from the object's text and the query's words. Slots and
logs do not hold them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import orjson
from sirocco_api.v1.columns_pb2 import HighlightColumns

from sirocco.codec.arrays import U4, pack
from sirocco.model.errors import InvalidArgument
from sirocco.model.folding.folded_terms import unmarked
from sirocco.model.hints.places import Place, TextPlaces
from sirocco.model.query import RangeQuery
from sirocco.protocol.contract.messages import Delivered
from sirocco.protocol.contract.query_definitions import query_of

__all__ = ["asks_for_highlights", "highlights_of"]

# For one response: characters that are searched, which takes about a second, and places that are
# sent, half a megabyte. Matches beyond these have no places.
CHARACTERS_MAX = 1 << 20
PLACES_MAX = 1 << 15

# Terms of the queries' alternatives that are looked up for matches, half a microsecond each.
TERMS_MAX = 1 << 19

# CPU time for reading the queries. The hardest take some ms each, and a response has thousands.
READING_CPU_S = 0.5

_ASKS = '"highlight":true'


def asks_for_highlights(delivered: Delivered) -> bool:
    """Returns whether any query of a record may ask for them."""
    specs = delivered.queries.specs
    return specs is not None and any(_ASKS in spec for spec in specs)


def highlights_of(
    delivered: Delivered, cpu_s: Callable[[], float] = time.thread_time
) -> HighlightColumns:
    """Returns the places of the words of a record's matches.

    Args:
        delivered: the record.
        cpu_s: CPU time of the thread.
    """
    queries = dict(_read(delivered.queries.specs or (), cpu_s))
    objects, matches = delivered.objects, delivered.matches
    texts: dict[int, TextPlaces] = {}
    left = CHARACTERS_MAX
    terms = {row: _terms_in(query) for row, query in queries.items()}
    terms_left = TERMS_MAX
    found: list[tuple[int, Place]] = []
    pairs = zip(matches.queries.tolist(), matches.objects.tolist(), strict=True)
    for match, (row, one) in enumerate(pairs):
        query = queries.get(row)
        if query is None or query.expression is None:
            continue
        terms_left -= terms[row]
        if terms_left < 0:
            break
        text = texts.get(one)
        if text is None:
            begin, end = objects.text_offsets[one : one + 2].tolist()
            left -= end - begin
            if left < 0:
                break
            text = texts[one] = TextPlaces(objects.text[begin:end].tobytes().decode())
        found += [(match, place) for place in text.matched(query.expression)]
        if len(found) > PLACES_MAX:
            break
    return _columns(found[:PLACES_MAX])


def _read(specs: Sequence[str], cpu_s: Callable[[], float]) -> Iterator[tuple[int, RangeQuery]]:
    """Yields the queries that ask for places, as far as there is time to read them."""
    end_s = cpu_s() + READING_CPU_S
    for row, spec in enumerate(specs):
        if _ASKS not in spec:
            continue
        if cpu_s() >= end_s:
            return
        query = _highlighted(spec)
        if query is not None:
            yield row, query


def _highlighted(spec: str) -> RangeQuery | None:
    try:
        query = query_of(spec)
    except (InvalidArgument, orjson.JSONDecodeError):
        # Of a later version.
        return None
    return query if isinstance(query, RangeQuery) and query.highlight else None


def _terms_in(query: RangeQuery) -> int:
    conjunctions = () if query.expression is None else query.expression.conjunctions
    return 1 + sum(len(one.positive) + len(one.negative) for one in conjunctions)


def _columns(found: list[tuple[int, Place]]) -> HighlightColumns:
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
