"""Counts the load of an evaluator's leaves: a few numbers each, and some recent objects.

Objects arrive at a slot without the name of their leaf, so the routing arrays find it again here: a
tenth of the cost of matching an object, and nothing on the wire. Small batches wait until there are
many objects, so that neither their number nor the size of the map costs much. Of the objects of a
round every 2^n-th is kept, with n such that their number is bounded: the detail of single leaves is
computed from these on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.export import export_queries
from sirocco.model.text import TermColumns
from sirocco.protocol.contract.columns import EventColumns, event_keys
from sirocco.protocol.contract.query_samples import DRAW_MAX
from sirocco.protocol.contract.term_rows import concat_terms, take_terms
from sirocco.protocol.evaluator.limits import LIMITS, EvaluatorLimits
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.batch import Batch
from sirocco.protocol.evaluator.standing.query_families import KNN, RANGE, TRACKED
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.swarm_statistics import KEPT_SHARE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecentObjects:
    """Some objects of a round, in the order of their arrival.

    Attributes:
        lon, lat: f8[n], degrees.
        terms: n rows.
        event_keys: u8[n].
        met: i8[n], queries that each met.
        leaf: i4[n], position of its leaf in the map, -1: in none of the slots here.
        is_home: bool[n], whether the slot is the object's home.
        every: each represents this many.
    """

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    terms: TermColumns
    event_keys: NDArray[np.uint64]
    met: NDArray[np.int64]
    leaf: NDArray[np.int32]
    is_home: NDArray[np.bool_]
    every: int = 1

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self.lon)

    def take(self, rows: NDArray[np.intp]) -> RecentObjects:
        """Returns some of them."""
        return RecentObjects(
            lon=self.lon[rows],
            lat=self.lat[rows],
            terms=take_terms(self.terms, rows),
            event_keys=self.event_keys[rows],
            met=self.met[rows],
            leaf=self.leaf[rows],
            is_home=self.is_home[rows],
            every=self.every,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueryCounts:
    """The standing queries of a slot.

    Attributes:
        sampled: some of the range queries.
        draws: u8[q], of these: the numbers by which they were drawn, see `TermHashing.draws`.
        ranges: number of range queries.
        others: queries that check every object of the slot, whatever its leaf.
        arrived: queries that were registered in the round.
        bytes_total: memory of all.
        greatest_draw: at which a range query is still sampled.
    """

    sampled: QueryRows
    draws: NDArray[np.uint64]
    ranges: int
    others: int
    arrived: int
    bytes_total: int
    greatest_draw: int


# Of a slot whose queries are not sampled.
_NO_DRAWS = np.empty(0, np.uint64)
_NO_ROWS = QueryRows.of_boxes(np.empty((0, 4)), np.zeros(1, np.int64), _NO_DRAWS)
NO_QUERIES = QueryCounts(
    sampled=_NO_ROWS,
    draws=_NO_DRAWS,
    ranges=0,
    others=0,
    arrived=0,
    bytes_total=0,
    greatest_draw=DRAW_MAX,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Counted:
    """All counts at one moment; arrays are in the order of the map's leaves.

    Attributes:
        map: the map of the leaves.
        routing: of it, with a slot of its own for each leaf.
        queries: of each slot that is owned and up to date.
        objects, met, faded: f8[leaves], see `LeafLoads`, of the round that ended last.
        recent: some of its objects.
    """

    map: PartitionMap
    routing: RoutingArrays
    queries: dict[int, QueryCounts]
    objects: NDArray[np.float64]
    met: NDArray[np.float64]
    faded: NDArray[np.float64]
    recent: RecentObjects


class LeafCounts:
    """Counts objects by leaf, under the map in force."""

    def __init__(self, limits: EvaluatorLimits = LIMITS) -> None:
        self._limits = limits
        self._map: PartitionMap | None = None
        self._routing: RoutingArrays | None = None
        self._waiting: list[tuple[int, Batch, NDArray[np.int64]]] = []
        self._waiting_rows = 0
        self._recent: list[RecentObjects] = []
        self._recent_rows = 0
        self._every = 1
        self._skipped = 0
        self._arrived: dict[int, int] = {}
        self._objects = self._met = self._faded = np.zeros(0)
        self._last: Counted | None = None

    def use(self, partition_map: PartitionMap) -> None:
        """Restarts the counts for a map; the same map again changes nothing."""
        if partition_map is self._map:
            return
        leaves = len(partition_map.leaves)
        own = np.arange(leaves, dtype=np.int32)
        # A slot for each leaf: an object that goes to several leaves of a slot counts in each.
        self._routing = compile_map(replace(partition_map, slots=leaves, slot_of_leaf=own))
        self._map = partition_map
        self._faded = np.zeros(leaves)
        self._last = None
        self._begin()

    def take(self, slot: int, batch: Batch, object_rows: NDArray[np.int32]) -> None:
        """Counts objects that a slot matched.

        Args:
            slot: its number.
            batch: the objects.
            object_rows: i4[m], the row of each match.
        """
        if self._map is None or self._routing is None:
            return
        met = np.bincount(object_rows, minlength=len(batch))
        present, places = batch.present()
        self._waiting.append((slot, present, met[places]))
        self._waiting_rows += len(present)
        if self._waiting_rows >= self._limits.waiting_objects_max:
            self._add_up()

    def arrived(self, slot: int, queries: int) -> None:
        """Counts queries that were registered."""
        self._arrived[slot] = self._arrived.get(slot, 0) + queries

    def last_round(self, slots: dict[int, Slot], *, ends_round: bool) -> Counted | None:
        """Returns the counts of the last round, with the queries of now; None before the first.

        Args:
            slots: those that are owned and up to date.
            ends_round: the round ends here, and another begins.
        """
        if self._map is None or self._routing is None:
            return None
        queries = {number: self._queries(slot) for number, slot in slots.items()}
        if not ends_round:
            return None if self._last is None else replace(self._last, queries=queries)
        self._add_up()
        self._faded = KEPT_SHARE * self._faded + self._objects
        self._last = Counted(
            map=self._map,
            routing=self._routing,
            queries=queries,
            objects=self._objects,
            met=self._met,
            faded=self._faded,
            recent=replace(_joined(self._recent), every=self._every),
        )
        self._begin()
        return self._last

    def current_round(self, slots: Iterable[int]) -> Counted | None:
        """Returns the object counts of the present round; None without a map.

        Args:
            slots: those that are owned and up to date.
        """
        if self._map is None or self._routing is None:
            return None
        self._add_up()
        return Counted(
            map=self._map,
            routing=self._routing,
            queries=dict.fromkeys(slots, NO_QUERIES),
            objects=self._objects,
            met=self._met,
            faded=self._faded,
            recent=_joined([]),
        )

    def _begin(self) -> None:
        leaves = 0 if self._map is None else len(self._map.leaves)
        self._objects, self._met = np.zeros(leaves), np.zeros(leaves)
        self._waiting, self._waiting_rows = [], 0
        self._recent, self._recent_rows = [], 0
        self._every, self._skipped = 1, 0
        self._arrived = {}

    def _add_up(self) -> None:
        """Finds the leaves of the waiting objects."""
        if not self._waiting or self._map is None or self._routing is None:
            return
        batches = [batch for _, batch, _ in self._waiting]
        slots = np.repeat([slot for slot, _, _ in self._waiting], [len(each) for each in batches])
        met = np.concatenate([each for _, _, each in self._waiting])
        lon = np.concatenate([each.objects.lon for each in batches])
        lat = np.concatenate([each.objects.lat for each in batches])
        terms = concat_terms([part for each in batches for part in each.routed_terms.parts])
        keys = event_keys(EventColumns.concat([each.events for each in batches]))
        homes = np.concatenate([_homes(each) for each in batches])
        self._waiting, self._waiting_rows = [], 0
        routes = self._routing.route_objects(lon, lat, terms.offsets, terms.terms, keys)
        # While a map changes, objects still arrive by the leaves of the one before.
        is_here = self._map.slot_of_leaf[routes.slot] == slots[routes.row]
        leaves, rows = routes.slot[is_here], routes.row[is_here]
        count = len(self._objects)
        self._objects = self._objects + np.bincount(leaves, minlength=count)
        self._met = self._met + np.bincount(leaves, met[rows], count)
        leaf = np.full(len(lon), -1, np.int32)
        leaf[rows] = leaves
        self._remember(
            RecentObjects(
                lon=lon, lat=lat, terms=terms, event_keys=keys, met=met, leaf=leaf, is_home=homes
            )
        )

    def _remember(self, objects: RecentObjects) -> None:
        rows = np.arange(-self._skipped % self._every, len(objects), self._every)
        self._skipped = (self._skipped + len(objects)) % self._every
        if not len(rows):
            return
        self._recent.append(objects.take(rows))
        self._recent_rows += len(rows)
        while self._recent_rows > self._limits.recent_objects_max:
            joined = _joined(self._recent)
            kept = joined.take(np.arange(0, len(joined), 2))
            self._recent, self._recent_rows = [kept], len(kept)
            self._every *= 2
            self._skipped = 0

    def _queries(self, slot: Slot) -> QueryCounts:
        standing = slot.standing
        table = standing.families[RANGE].table
        rows = np.sort(table.live())
        # By the handle, so that all slots sample the same queries; under the key that evaluators
        # share, since clients can choose ids whose handles are small.
        draws = slot.hashing.draws(table.handle_rows(rows))
        greatest = greatest_draw(len(rows), self._limits.sampled_queries_max)
        is_chosen = draws <= np.uint64(greatest)
        others = sum(len(standing.families[family].table) for family in (KNN, TRACKED))
        return QueryCounts(
            sampled=export_queries(standing.ranges, rows[is_chosen]),
            draws=draws[is_chosen],
            ranges=len(rows),
            others=others,
            arrived=self._arrived.get(slot.number, 0),
            bytes_total=standing.bytes_total,
            greatest_draw=greatest,
        )


def greatest_draw(ranges: int, sampled_max: int = LIMITS.sampled_queries_max) -> int:
    """Returns the greatest draw at which range queries of a slot are sampled.

    Args:
        ranges: how many there are.
        sampled_max: about how many are sampled at most.
    """
    return DRAW_MAX >> max(0, (ranges - 1) // sampled_max).bit_length()


def _homes(batch: Batch) -> NDArray[np.bool_]:
    return np.ones(len(batch), np.bool_) if batch.homes is None else batch.homes


def _joined(parts: list[RecentObjects]) -> RecentObjects:
    if not parts:
        none, no_terms = np.empty(0), np.empty(0, np.uint64)
        leaf, met = np.empty(0, np.int32), np.empty(0, np.int64)
        terms = TermColumns(no_terms, np.zeros(1, np.int64), leaf, np.empty(0, np.uint16))
        return RecentObjects(
            lon=none,
            lat=none,
            terms=terms,
            event_keys=no_terms,
            met=met,
            leaf=leaf,
            is_home=np.empty(0, np.bool_),
        )
    return RecentObjects(
        lon=np.concatenate([part.lon for part in parts]),
        lat=np.concatenate([part.lat for part in parts]),
        terms=concat_terms([part.terms for part in parts]),
        event_keys=np.concatenate([part.event_keys for part in parts]),
        met=np.concatenate([part.met for part in parts]),
        leaf=np.concatenate([part.leaf for part in parts]),
        is_home=np.concatenate([part.is_home for part in parts]),
    )
