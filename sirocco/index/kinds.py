"""The kinds of standing queries as slots number them."""

from __future__ import annotations

from sirocco.model.query import KnnQuery, Query, RangeQuery, TermsQuery

KIND_RANGE = 0
KIND_KNN = 1
KIND_TERMS = 2
KIND_RANKED = 3
# A range query that follows the values of an attribute.
KIND_TRACKED = 4


def kind_number(query: Query) -> int:
    """Returns the number of a query's kind."""
    if isinstance(query, RangeQuery):
        return KIND_RANGE if query.track is None else KIND_TRACKED
    if isinstance(query, KnnQuery):
        return KIND_KNN
    return KIND_TERMS if isinstance(query, TermsQuery) else KIND_RANKED
