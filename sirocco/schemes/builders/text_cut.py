"""Shared code of the schemes that only split the vocabulary (PS2Stream VI.B)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.builders.qt_tree import MAP_TERMS_MAX
from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import WORLD, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_terms import TermSet, term_set
from sirocco.schemes.workload.keyword_workload import KeywordWorkload, keyword_workload
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.sample_keys import FREQUENT_TERMS_MAX

# Keys of a map with a chosen child; the others belong to the child of their hash. With the frequent
# terms they fill the limit of a map.
CHOSEN_TERMS_MAX = MAP_TERMS_MAX - FREQUENT_TERMS_MAX

# (keys, children, number of objects, costs) → i4[m], the child of each key.
Deal: TypeAlias = Callable[[TermSet, int, int, LoadCosts], NDArray[np.int32]]


def text_cut(
    name: str,
    sample: Sample,
    leaves: int,
    slots: int,
    deal: Deal,
    chosen_terms_max: int = CHOSEN_TERMS_MAX,
) -> PartitionMap:
    """Makes the vocabulary of the world a keyword node with one leaf per slot.

    More leaves than slots would only send objects to several leaves of one slot, so there are
    `slots` leaves, or `leaves` if these are fewer. Terms that are not keys of the sample's queries
    belong to the leaf of their hash: all of them if there are no such queries.

    Args:
        name: Name of the scheme.
        sample, leaves, slots: See `Scheme.build`.
        deal: Selects the child of each key.
        chosen_terms_max: Keys with a chosen child.
    """
    check_counts(leaves, slots)
    workload = keyword_workload(sample)
    objects = np.arange(len(sample), dtype=np.int32)
    queries = np.arange(len(workload.key_of_query), dtype=np.int32)
    children = min(leaves, slots)
    terms = term_set(workload, objects, queries)
    terms = heaviest(terms, workload.costs, children, chosen_terms_max)
    child = deal(terms, children, len(sample), workload.costs)
    load = loads_of_children(terms, child, children, len(sample), workload)
    return world_map(
        name, children, slots, load, workload, terms=workload.keys[terms.keys], child=child
    )


def heaviest(terms: TermSet, costs: LoadCosts, children: int, terms_max: int) -> TermSet:
    """Returns the keys with the largest weight, as many as a map may list."""
    if len(terms) <= terms_max:
        return terms
    order = np.argsort(-terms.weights(costs, children), kind="stable")
    return terms.take(np.sort(order[:terms_max]))


def loads_of_children(
    terms: TermSet,
    child: NDArray[np.int32],
    children: int,
    objects: int,
    workload: KeywordWorkload,
) -> NDArray[np.float64]:
    """Returns the load of each child of a keyword node over the world, f8[children].

    An object's home is a child by a hash, so each child gets an equal share of the objects that are
    not sent to it anyway.
    """
    reached = np.repeat(child.astype(np.int64), np.diff(terms.offsets)) * objects + terms.holders
    sought = sorted_distinct(reached) // max(objects, 1)
    seekers = np.bincount(sought, minlength=children).astype(np.float64)
    keyed = np.bincount(child, terms.queries, children).astype(np.float64)
    unkeyed = np.full(children, float((workload.key_of_query < 0).sum()))
    return workload.costs.load(
        seekers + (objects - seekers) / children,
        np.full(children, objects / children),
        seekers,
        keyed,
        unkeyed,
    )


def world_map(
    name: str,
    children: int,
    slots: int,
    load: NDArray[np.float64],
    workload: KeywordWorkload,
    *,
    terms: NDArray[np.uint64],
    child: NDArray[np.int32],
    by_term: bool = True,
) -> PartitionMap:
    """Returns the map whose only tile is a keyword node, with one child per slot."""
    node = KeywordNode(
        id=0,
        box=WORLD,
        within=None,
        children=children,
        terms=terms,
        child_of_term=child.astype(np.int32),
        by_term=by_term,
    )
    return PartitionMap(
        version=1,
        scheme=name,
        world=WORLD,
        leaves=tuple(Leaf(i, WORLD, Place(0, i)) for i in range(children)),
        text_nodes=(),
        slot_of_leaf=np.arange(children, dtype=np.int32),
        load_of_leaf=load if load.any() else np.ones(children),
        slots=slots,
        keyword_nodes=(node,),
        frequent_terms=workload.frequent,
        frequencies=workload.frequencies,
    )
