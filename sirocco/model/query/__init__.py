"""Queries: their kinds as frozen values, and their JSON form for input and storage.

`parse_query` reads the JSON members of the public contract; `canonical` writes them so that
`parse_query(canonical(query)) == query`. Two queries are equal if they mean the same: `60m` is
`1h`, and expressions are compared in their disjunctive form.
"""

from __future__ import annotations

from sirocco.model.query.canonical_form import canonical
from sirocco.model.query.identity import (
    digest_of_query,
    fingerprint_of,
    identity_of,
    query_handle,
)
from sirocco.model.query.kinds import (
    ENDED,
    EVENTS,
    HALF_LIFE_MS,
    HALF_LIVES_AHEAD_MAX,
    MODES,
    RANKED_STEP_MS,
    Event,
    KnnQuery,
    Mode,
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    Weights,
    kind_of,
)
from sirocco.model.query.parsing import parse_query

__all__ = [
    "ENDED",
    "EVENTS",
    "HALF_LIFE_MS",
    "HALF_LIVES_AHEAD_MAX",
    "MODES",
    "RANKED_STEP_MS",
    "Event",
    "KnnQuery",
    "Mode",
    "Query",
    "RangeQuery",
    "RankedQuery",
    "TermsQuery",
    "Weights",
    "canonical",
    "digest_of_query",
    "fingerprint_of",
    "identity_of",
    "kind_of",
    "parse_query",
    "query_handle",
]
