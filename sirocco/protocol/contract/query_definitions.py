"""Definitions of queries as slots and mergers read them: canonical JSON."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import orjson

from sirocco.model.limits import STORED_LIMITS
from sirocco.model.query import Query, RangeQuery, TermsQuery, canonical, parse_query

# Definitions that stay parsed: several readers in turn parse those of one record of a slot (the
# check of the record, its slot, the other slots of the process). About 1 kB each; a `where` of 256
# KiB takes 5 MB, so only a few long ones stay.
PARSED_MAX = 4_096


PARSED_LENGTH_MAX = 2_048


PARSED_LONG_MAX = 16

_IN_COLUMNS = frozenset({"region", "text", "fold", "highlight", "where"})


def spec_of(query: Query) -> str:
    """Returns the definition of a query for slots and mergers: its canonical JSON."""
    return orjson.dumps(canonical(query)).decode()


# What the definition of a query contains that asks for places of words.
ASKS = '"highlight":true'

_SHOWN = frozenset({"id", "kind", "mode", "point", "k", "text", "fold", "highlight"})


def highlight_spec(query: RangeQuery) -> str:
    """Returns what slots and mergers need of a range query whose words are to be shown.

    Its other conditions are in columns, and a polygon would be repeated in each record of matches.
    """
    return spec_of(
        RangeQuery(id=query.id, mode=query.mode, expression=query.expression, highlight=True)
    )


def shown_spec(spec: str) -> str:
    """Returns what mergers need of a knn query whose words are to be shown.

    Its other conditions, up to 256 KiB, would be repeated in each record of lists.
    """
    return _short_shown(spec) if len(spec) <= PARSED_LENGTH_MAX else _shown(spec)


def query_of(spec: str) -> Query:
    """Returns the query of a definition.

    Raises:
        InvalidArgument: As `parse_query`.
        orjson.JSONDecodeError: It is no JSON.
    """
    return _short_query(spec) if len(spec) <= PARSED_LENGTH_MAX else _long_query(spec)


def outline_of(spec: str) -> Query:
    """Returns the query of a definition without what slots have in columns.

    That is region, text, and filter. Clients choose what these take to read, up to 20 ms, and each
    slot reads each query.

    Raises:
        InvalidArgument: As `parse_query`.
        orjson.JSONDecodeError: It is no JSON.
    """
    return _short_outline(spec) if len(spec) <= PARSED_LENGTH_MAX else _outline(spec)


def _parsed(spec: str) -> Query:
    return parse_query(orjson.loads(spec), limits=STORED_LIMITS)


def _outline(spec: str) -> Query:
    members = orjson.loads(spec)
    if not isinstance(members, dict):
        return parse_query(members, limits=STORED_LIMITS)
    rest = {name: value for name, value in members.items() if name not in _IN_COLUMNS}
    query = parse_query(rest, limits=STORED_LIMITS)
    if not isinstance(query, TermsQuery) and "highlight" in members:
        # Without a text it is refused.
        return replace(query, highlight=members["highlight"] is True)
    return query


def _shown(spec: str) -> str:
    members = orjson.loads(spec)
    return orjson.dumps({name: members[name] for name in members if name in _SHOWN}).decode()


_short_shown = lru_cache(PARSED_MAX)(_shown)


_short_query = lru_cache(PARSED_MAX)(_parsed)


_long_query = lru_cache(PARSED_LONG_MAX)(_parsed)


_short_outline = lru_cache(PARSED_MAX)(_outline)
