"""Summaries of what the queries of a registry partition need (see `objects/keyword_filter`).

One keyword is enough for each alternative of a query, the least frequent one as far as the map
knows (Tornado 3.1 takes any one, PS2Stream IV.C the least frequent): an object that satisfies the
alternative contains it. An alternative without keywords, and a query of another kind than range,
need every object of their slots.

An owner relies only on keywords that it published in its ownership: a predecessor may have
published a new whole summary, without what this owner has read since. It does not repeat keywords
(Tornado's `forward`). When many are obsolete it republishes all live ones, in pieces. It does so
only after the log of the registry has shown a record of its own: then no record of a predecessor
can become valid that the summary lacks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_RANGE, kind_number
from sirocco.index.base.query_rows import QueryRows
from sirocco.index.base.ragged import take_ragged
from sirocco.index.routing.keyword_slots import (
    ANY_TERM,
    KeywordSlots,
    joined,
    keywords_max,
    set_of,
    words_of,
)
from sirocco.model.query import RangeQuery
from sirocco.protocol.contract.effects import Append, Effect, State
from sirocco.protocol.contract.messages import INTAKE, Change, Keywords
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.schemes.map.routing import RoutingArrays

Slots = tuple[int, ...]


def keys_of_queries(
    changes: list[Change], rows: QueryRows, routing: RoutingArrays
) -> list[tuple[int, ...]]:
    """Returns the keywords that stand for each query; `ANY_TERM` where none will do.

    Args:
        changes: queries, none of which is removed.
        rows: their conditions.
        routing: of a map, for the frequencies of terms.
    """
    keys = np.full(len(rows.pos_offsets) - 1, ANY_TERM, np.uint64)
    with_terms = np.flatnonzero(np.diff(rows.pos_offsets))
    if len(with_terms):
        offsets, places = take_ragged(rows.pos_offsets, with_terms)
        keys[with_terms] = routing.choose_keys(offsets, rows.pos_terms[places])
    every, ends = keys.tolist(), rows.conj_offsets.tolist()
    found: list[tuple[int, ...]] = []
    for row, change in enumerate(changes):
        own = set(every[ends[row] : ends[row + 1]])
        has_keys = _has_keys(change) and ANY_TERM not in own
        found.append(tuple(own) if has_keys else (ANY_TERM,))
    return found


def _has_keys(change: Change) -> bool:
    """Whether keywords can stand for a query: not for phrases and beginnings of words."""
    query = change.query
    if not isinstance(query, RangeQuery) or kind_number(query) != KIND_RANGE:
        return False
    return query.expression is None or not query.expression.patterns


class KeywordSummary:
    """The keywords of the live queries of one owned registry partition.

    Args:
        partition: of the registry.
        epoch: of the ownership.
        slots: number of slots.
        intake_partitions: number of intake partitions.
        live: the queries.
        limits: of the router.

    Attributes:
        is_published: a whole summary has been published, by this owner or a former one.
        obsolete: queries that have left or changed since the last whole summary.
    """

    def __init__(
        self,
        partition: int,
        epoch: int,
        slots: int,
        intake_partitions: int,
        live: LiveQueries,
        limits: RouterLimits = LIMITS,
    ) -> None:
        self.is_published = False
        self.obsolete = 0
        self._partition = partition
        self._epoch = epoch
        self._words = words_of(slots)
        self._intake_partitions = intake_partitions
        self._live = live
        self._limits = limits
        self._count_max = keywords_max(limits.keyword_table_bytes_max, self._words)
        # Keywords of one record.
        self._piece = max(1, limits.keyword_record_bytes_max // (8 + 8 * self._words))
        self._published = KeywordSlots(self._words, self._count_max)
        # By row of the live queries: the first keyword, and all where there are several.
        self._firsts = np.zeros(64, np.uint64)
        self._several: dict[int, tuple[int, ...]] = {}
        # The pieces of a whole summary yet to be published; None when none has begun.
        self._pieces: Iterator[Keywords] | None = None

    def put(
        self,
        handles: NDArray[np.uint64],
        changes: list[Change],
        rows: QueryRows,
        routing: RoutingArrays,
    ) -> list[Effect]:
        """Publishes the keywords of new or changed queries, whose slots are known by now."""
        places = self._live.rows_of(handles).tolist()
        for place, keys in zip(places, keys_of_queries(changes, rows, routing), strict=True):
            self._keep(place, keys)
        return self.placed(places)

    def placed(self, places: list[int]) -> list[Effect]:
        """Publishes the keywords of queries, by row, whose slots have changed."""
        terms: list[int] = []
        slots: list[Slots] = []
        for place in places:
            keys = self._keys(place)
            terms += keys
            slots += [self._live.slots(place)] * len(keys)
        return self._publish(np.array(terms, np.uint64), self._sets(slots))

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Notes that queries are about to leave or change."""
        self.obsolete += len(handles)
        for place in self._live.rows_of(handles).tolist():
            self._several.pop(place, None)

    @property
    def is_due(self) -> bool:
        """Whether a piece of a whole summary is due."""
        is_old = self.obsolete > max(self._limits.obsolete_queries_min, len(self._live) // 2)
        return self._pieces is not None or not self.is_published or is_old

    def next(self) -> list[Effect]:
        """Publishes the next piece of a whole summary; only while no other owner can append.

        It waits for queries that a change of the map has yet to copy: their slots are unknown.
        """
        if self._pieces is None:
            if self._live.unplaced:
                return []
            self._pieces = self._begin()
        piece = next(self._pieces)
        self._published.add(piece.terms, piece.slots)
        if piece.ends:
            self._pieces, self.is_published = None, True
        return self._everywhere(piece)

    def state(self) -> State:
        """Returns the state for a checkpoint, in the order of the live queries' columns."""
        places = self._live.places()
        several = [(at, self._several.get(place, ())) for at, place in enumerate(places.tolist())]
        flat = [(at, key) for at, keys in several for key in keys]
        return {
            "summary.said": np.array([self.is_published, self.obsolete], np.int64),
            "summary.keys": self._firsts[places],
            "summary.several": np.array(flat, np.uint64).reshape(-1, 2),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint, after the live queries have taken theirs."""
        places = self._live.rows_of(np.asarray(state["handles"], np.uint64))
        if "summary.said" not in state:
            # Of an older version: the needs of its queries are unknown, and not read again.
            for place in places.tolist():
                self._keep(place, (ANY_TERM,))
            return
        is_published, self.obsolete = state["summary.said"].tolist()
        self.is_published = bool(is_published)
        for place, key in zip(places.tolist(), state["summary.keys"].tolist(), strict=True):
            self._keep(place, (key,))
        for at, key in state["summary.several"].tolist():
            place = int(places[at])
            self._several[place] = (*self._several.get(place, ()), key)

    def _begin(self) -> Iterator[Keywords]:
        """Begins a whole summary, in pieces; later queries are published separately."""
        every = KeywordSlots(self._words, self._count_max)
        every.add(*self._all())
        # What is yet to be published counts as unknown: the keywords of a query that arrives
        # meanwhile are published at once, also if another query needs the same.
        self._published = KeywordSlots(self._words, self._count_max)
        self.obsolete = 0
        # With the slots that are open because keywords found no room: see `_publish`.
        return self._split(*every.items())

    def _all(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        places = self._live.places()
        # Of queries with several keywords the first one is among them.
        keys = [(place, key) for place, each in self._several.items() for key in each]
        rows = np.concatenate([places, np.array([place for place, _ in keys], places.dtype)])
        terms = np.concatenate(
            [self._firsts[places], np.array([key for _, key in keys], np.uint64)]
        )
        set_ids = self._live.slot_sets[rows]
        present, positions = np.unique(set_ids, return_inverse=True)
        sets = self._sets([self._live.slot_set(set_id) for set_id in present.tolist()])
        return joined(terms, sets[positions])

    def _split(self, terms: NDArray[np.uint64], sets: NDArray[np.uint64]) -> Iterator[Keywords]:
        size = self._piece
        for begin in range(0, max(1, len(terms)), size):
            end = begin + size
            yield Keywords(
                partition=self._partition,
                epoch=self._epoch,
                terms=terms[begin:end],
                slots=sets[begin:end],
                begins=begin == 0,
                ends=end >= len(terms),
            )

    def _publish(self, terms: NDArray[np.uint64], sets: NDArray[np.uint64]) -> list[Effect]:
        if not len(terms):
            return []
        open_before = self._published.open_set.copy()
        is_fresh = self._published.add(terms, sets)
        if not is_fresh.any():
            return []
        terms, sets = joined(terms[is_fresh], sets[is_fresh])
        if (self._published.open_set != open_before).any():
            # Some found no room, so their slots take every object from now on. That must be
            # published: in the tables of intake partitions other keywords may have found no room.
            terms = np.append(terms, np.uint64(ANY_TERM))
            sets = np.vstack([sets, self._published.open_set])
        effects: list[Effect] = []
        size = self._piece
        for begin in range(0, len(terms), size):
            own = slice(begin, begin + size)
            effects += self._everywhere(
                Keywords(
                    partition=self._partition, epoch=self._epoch, terms=terms[own], slots=sets[own]
                )
            )
        return effects

    def _everywhere(self, record: Keywords) -> list[Effect]:
        return [Append(INTAKE, partition, record) for partition in range(self._intake_partitions)]

    def _keep(self, place: int, keys: tuple[int, ...]) -> None:
        if place >= len(self._firsts):
            self._firsts = np.resize(self._firsts, max(place + 1, 2 * len(self._firsts)))
        self._firsts[place] = keys[0]
        self._several.pop(place, None)
        if len(keys) > 1:
            self._several[place] = keys

    def _keys(self, place: int) -> tuple[int, ...]:
        return self._several.get(place) or (int(self._firsts[place]),)

    def _sets(self, slots: list[Slots]) -> NDArray[np.uint64]:
        known: dict[Slots, NDArray[np.uint64]] = {}
        for each in slots:
            if each not in known:
                known[each] = set_of(each, self._words)
        return np.array([known[each] for each in slots], np.uint64).reshape(-1, self._words)


def was_published(state: State) -> bool:
    """Whether, by a checkpoint, a whole summary of all queries has been published."""
    return "summary.said" in state and bool(state["summary.said"][0])


def withdrawn(partition: int, epoch: int) -> Keywords:
    """Returns a record that withdraws the summary of a registry partition."""
    nothing = np.empty(0, np.uint64)
    return Keywords(
        partition=partition,
        epoch=epoch,
        terms=nothing,
        slots=nothing.reshape(0, 1),
        is_withdrawn=True,
    )
