"""Sets of keys with the objects that contain them, and the division of such a set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.routing.term_dealing import deal_terms
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_workload import KeywordWorkload


@dataclass(frozen=True, slots=True, eq=False)
class TermSet:
    """Some keys at some place.

    Attributes:
        keys: i4[m], ascending rows of the workload's keys.
        queries: f8[m], queries with each key that overlap the place.
        offsets: i8[m + 1], into `holders`.
        holders: i4, rows of the place's objects with each key.
        seekers: Number of distinct objects among them.
    """

    keys: NDArray[np.int32]
    queries: NDArray[np.float64]
    offsets: NDArray[np.int64]
    holders: NDArray[np.int32]
    seekers: int

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self.keys)

    @property
    def keyed(self) -> float:
        """Number of queries with one of the keys."""
        return float(self.queries.sum())

    def take(self, rows: NDArray[np.int64]) -> TermSet:
        """Returns the set of some of the keys, given by ascending rows of this set."""
        offsets, holders = take_rows(self.offsets, self.holders, rows)
        seekers = len(sorted_distinct(holders))
        return TermSet(self.keys[rows], self.queries[rows], offsets, holders, seekers)

    def weights(self, costs: LoadCosts, children: int) -> NDArray[np.float64]:
        """Returns the load that each key adds to one of `children` equal children, f8[m].

        The checks of a child are a product, so they are linearised around equal children: one more
        object meets a child's share of the queries, one more query its share of the objects.
        """
        objects = np.diff(self.offsets).astype(np.float64)
        by_object = costs.handling + costs.check * self.keyed / children
        by_query = costs.update + costs.check * self.seekers / children
        return objects * by_object + self.queries * by_query


def term_set(
    workload: KeywordWorkload, objects: NDArray[np.int32], queries: NDArray[np.int32]
) -> TermSet:
    """Returns all keys of some queries, with those of some objects that contain them.

    Args:
        workload: The workload.
        objects: Rows of its objects.
        queries: Rows of its queries.
    """
    own = workload.key_of_query[queries]
    count = np.bincount(own[own >= 0], minlength=len(workload.keys))
    keys = np.flatnonzero(count)
    row_of_key = np.full(len(workload.keys), -1, np.int32)
    row_of_key[keys] = np.arange(len(keys))
    offsets, held = take_rows(
        workload.object_offsets, workload.object_keys, objects.astype(np.int64)
    )
    row = row_of_key[held]
    holder = np.repeat(objects, np.diff(offsets))[row >= 0]
    row = row[row >= 0]
    # A stable sort of small integers is a radix sort; holders stay ascending.
    order = np.argsort(row, kind="stable")
    held_by = np.bincount(row, minlength=len(keys))
    return TermSet(
        keys.astype(np.int32),
        count[keys].astype(np.float64),
        np.concatenate([[0], np.cumsum(held_by)]).astype(np.int64),
        holder[order].astype(np.int32),
        len(sorted_distinct(holder)),
    )


def deal(terms: TermSet, children: int, objects: int, costs: LoadCosts) -> NDArray[np.int32]:
    """Assigns keys, the heaviest first, to the child with the least growth; see `deal_terms`.

    Args:
        terms: The keys.
        children: Number of children.
        objects: Number of objects of the workload.
        costs: The costs of Definition 1.

    Returns:
        i4[m], the child of each key.
    """
    order = np.argsort(-terms.weights(costs, children), kind="stable")
    child = np.empty(len(terms), np.int32)
    deal_terms(
        order,
        terms.offsets,
        terms.holders,
        terms.queries,
        objects,
        costs.check,
        costs.handling,
        costs.update,
        child,
        np.zeros(children),
        np.zeros(children),
    )
    return child


def halves(terms: TermSet, objects: int, costs: LoadCosts) -> tuple[TermSet, TermSet] | None:
    """Divides keys into two sets; None for fewer than two keys."""
    if len(terms) < 2:
        return None
    child = deal(terms, 2, objects, costs)
    return terms.take(np.flatnonzero(child == 0)), terms.take(np.flatnonzero(child == 1))
