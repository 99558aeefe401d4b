"""Numbers of the kinds of standing queries in slots."""

from __future__ import annotations

from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery

KIND_RANGE = 0
KIND_KNN = 1
KIND_TERMS = 2
KIND_RANKED = 3
# A range query that tracks the values of an attribute.
KIND_TRACKED = 4


_NUMBERS = {
    RangeQuery: KIND_RANGE,
    KnnQuery: KIND_KNN,
    TermsQuery: KIND_TERMS,
    RankedQuery: KIND_RANKED,
}


def kind_number(query: Query) -> int:
    """Returns the number of a query's kind."""
    if type(query) is RangeQuery and query.track is not None:
        return KIND_TRACKED
    return _NUMBERS[type(query)]
