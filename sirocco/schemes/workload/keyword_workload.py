"""A sample for splits by keywords: the keys of objects and of queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.map.keyword_keys import least_frequent
from sirocco.schemes.workload.assumed_queries import assumed_queries
from sirocco.schemes.workload.columns import places_among, take_rows
from sirocco.schemes.workload.keyword_load import LoadCosts, costs_for
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries
from sirocco.schemes.workload.sample_keys import frequent_terms

# Maximum number of queries; of more, a regular selection is used. Each leaf of a split lists the
# queries that reach it, so that some ten thousand that reach all leaves fill a gigabyte.
QUERIES_MAX = 1 << 16


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeywordWorkload:
    """Input of the schemes that split by keywords.

    Attributes:
        sample: The sample with the selected queries.
        costs: Costs of its objects and queries.
        frequent, frequencies: As in a map.
        keys: u8[k], ascending, the keys of queries.
        object_offsets: i8[n + 1], into `object_keys`.
        object_keys: i4, rows of `keys` for the keys of each object.
        key_of_query: i4[q], row of `keys`; -1 for a query without a key.
    """

    sample: Sample
    costs: LoadCosts
    frequent: NDArray[np.uint64]
    frequencies: NDArray[np.float32]
    keys: NDArray[np.uint64]
    object_offsets: NDArray[np.int64]
    object_keys: NDArray[np.int32]
    key_of_query: NDArray[np.int32]


def keyword_workload(
    sample: Sample, costs: LoadCosts | None = None, queries_max: int = QUERIES_MAX
) -> KeywordWorkload:
    """Finds the keys of a sample's queries and the objects that contain them.

    Only continuous range queries with keywords have keys: PS2Stream has no others, and one keyword
    does not determine what the others match. A sample without queries gets the continuous range
    queries of `assumed_queries`.

    Args:
        sample: The sample.
        costs: Costs; None: those for its number of queries.
        queries_max: Maximum number of queries.
    """
    queries = sample.queries
    if len(queries) == 0:
        queries = assumed_queries(sample)
        rows = np.flatnonzero(queries.kinds == QueryKind.RANGE_CONTINUOUS)
        queries = _take(queries, rows)
    costs = costs or costs_for(len(queries))
    if len(queries) > queries_max:
        rows = np.linspace(0, len(queries) - 1, queries_max).astype(np.int64)
        weight = len(queries) / queries_max
        queries = _take(queries, rows)
        costs = LoadCosts(
            costs.check * weight,
            costs.handling,
            costs.insertion * weight,
            costs.deletion * weight,
        )
    frequent, frequencies = frequent_terms(sample)
    has_key = (queries.kinds == QueryKind.RANGE_CONTINUOUS) & (np.diff(queries.term_offsets) > 0)
    keyed = np.flatnonzero(has_key)
    offsets, terms = take_rows(queries.term_offsets, queries.terms, keyed)
    keys, key_of = np.unique(
        least_frequent(offsets, terms, frequent, frequencies), return_inverse=True
    )
    key_of_query = np.full(len(queries), -1, np.int32)
    key_of_query[keyed] = key_of
    object_offsets, object_keys = places_among(sample.term_offsets, sample.terms, keys)
    return KeywordWorkload(
        sample=replace(sample, queries=queries),
        costs=costs,
        frequent=frequent,
        frequencies=frequencies,
        keys=keys,
        object_offsets=object_offsets,
        object_keys=object_keys,
        key_of_query=key_of_query,
    )


def _take(queries: SampleQueries, rows: NDArray[np.int64]) -> SampleQueries:
    offsets, terms = take_rows(queries.term_offsets, queries.terms, rows)
    return SampleQueries(
        queries.kinds[rows], queries.boxes[rows], offsets, terms, queries.lifetimes[rows]
    )
