"""The stored objects that a snapshot query meets, SSTD's measure of its cost (SSTD 4.1.1, 7.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.loads import route_stream
from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream
from sirocco.schemes.map.routing import RoutingArrays


@dataclass(frozen=True, slots=True)
class Visits:
    """The objects that a snapshot range query meets, on average.

    Attributes:
        leaves: Leaves to which the router sends it.
        holding: Of these, leaves that hold all its keywords: only there objects are examined.
        objects: Objects of these leaves, W_srq of SSTD's cost model.
        busiest: Of these objects, those of the slot that has most of them: they determine the time
            of an answer if slots work in parallel.
        found: Objects in the answer.
    """

    leaves: float
    holding: float
    objects: float
    busiest: float
    found: float


class Stored:
    """Objects stored in the leaves of a map.

    Args:
        arrays: The map's.
        stream: The objects.
    """

    def __init__(self, arrays: RoutingArrays, stream: Stream) -> None:
        self._arrays = arrays
        routes = route_stream(arrays, stream)
        home = slice(None) if routes.homes is None else routes.homes
        leaf = np.empty(len(stream), np.int64)
        leaf[routes.row[home]] = routes.leaf[home]
        self._objects = np.bincount(leaf, minlength=int(arrays.leaf_ids.max()) + 1)
        self._vocabulary, words = np.unique(stream.terms, return_inverse=True)
        owner = np.repeat(leaf, np.diff(stream.term_offsets))
        # (leaf, term) pairs that occur, as one ascending column.
        self._held = np.unique(owner * len(self._vocabulary) + words)

    def visits(self, queries: Queries, found: float) -> Visits:
        """Routes snapshot queries and counts.

        Args:
            queries: Each with at most one conjunction; a snapshot has no key, so every leaf that
                its region touches gets it.
            found: Mean size of an answer.
        """
        count = len(queries)
        routes = self._arrays.route_boxes(queries.boxes, np.arange(count + 1))
        query = np.repeat(np.arange(count), np.diff(routes.leaf_offsets))
        holds = self._holds(queries, query, routes.leaves.astype(np.int64))
        objects = np.where(holds, self._objects[routes.leaves], 0)
        slots = self._arrays.slots
        by_slot = np.bincount(query * slots + routes.slot_of_leaf, objects, count * slots)
        return Visits(
            leaves=len(query) / count,
            holding=float(holds.sum()) / count,
            objects=float(objects.sum()) / count,
            busiest=float(by_slot.reshape(count, slots).max(1).mean()),
            found=found,
        )

    def _holds(
        self, queries: Queries, query: NDArray[np.int64], leaf: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Returns for each (query, leaf) whether the leaf's objects have all keywords."""
        offsets = queries.term_offsets[queries.conj_offsets]
        lengths = np.diff(offsets)[query]
        at = np.arange(lengths.sum()) + np.repeat(
            offsets[:-1][query] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths
        )
        word = np.minimum(
            np.searchsorted(self._vocabulary, queries.terms), len(self._vocabulary) - 1
        )
        known = self._vocabulary[word] == queries.terms
        pair = np.repeat(leaf, lengths) * len(self._vocabulary) + word[at]
        place = np.minimum(np.searchsorted(self._held, pair), len(self._held) - 1)
        lacks = (self._held[place] != pair) | ~known[at]
        owner = np.repeat(np.arange(len(query)), lengths)
        return np.asarray(np.bincount(owner, lacks, len(query)) == 0)


def answer_size(stream: Stream, queries: Queries) -> float:
    """Returns the mean number of objects in an answer, by brute force for a few queries."""
    few = np.linspace(0, len(queries) - 1, min(len(queries), 50)).astype(np.int64)
    row = np.repeat(np.arange(len(stream)), np.diff(stream.term_offsets))
    total = 0
    for query in few.tolist():
        west, south, east, north = queries.boxes[query]
        inside = (stream.lon >= west) & (stream.lon <= east)
        inside &= (stream.lat >= south) & (stream.lat <= north)
        first, last = queries.term_offsets[queries.conj_offsets[[query, query + 1]]]
        for term in queries.terms[first:last]:
            holds = np.zeros(len(stream), np.bool_)
            holds[row[stream.terms == term]] = True
            inside &= holds
        total += int(inside.sum())
    return total / len(few)
