"""Which slots can hold answers to a search, by the map in force.

Objects lie where the map put them that was in force when they came. Once another has followed the
first one every slot is asked: an object of long ago may be anywhere, and a slot that holds nothing
in the region says so in some microseconds. Exactly and simply (docs/adr/0014).

A search goes where a registration of the same condition would: to every slot with a leaf that an
object inside its boxes could have been routed to. Only the k nearest have no region of their own:
they are looked for in two phases (SSTD 6), first where their point lies, then within the distance
that this has shown to be far enough. The first phase is often the last: the nearest that hold a
word, which may be rare, are looked for in all that the point's evaluator has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.model.geometry import Circle
from sirocco.model.query import KnnQuery, Query, RankedQuery
from sirocco.schemes.map.map import WORLD
from sirocco.schemes.map.routing import RoutingArrays


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The slots of one search.

    Attributes:
        query: what is asked.
        routing: the map in force.
        first: slots to ask at once, ascending.
        has_changed: whether objects may have been put where the map in force would not.
    """

    query: Query
    routing: RoutingArrays
    first: tuple[int, ...]
    has_changed: bool = False

    @property
    def has_rest(self) -> bool:
        """Whether there is a second phase."""
        return isinstance(self.query, KnnQuery)

    @property
    def asks_nearby(self) -> bool:
        """Whether who has the point's slot is to look into its others as well.

        Few objects may hold a word: then the first slot bounds little, and without that most of
        them would be asked in a second phase. With a filter on attributes looking costs too much.
        """
        query = self.query
        return isinstance(query, KnnQuery) and query.expression is not None and query.where is None

    def rest(self, radius_m: float | None) -> tuple[int, ...]:
        """The slots of the second phase, ascending; some may have been asked in the first.

        Args:
            radius_m: no answer is farther from the query's point; None when nothing is known.
        """
        query = self.query
        if not isinstance(query, KnnQuery):
            return ()
        if self.has_changed:
            return tuple(range(self.routing.slots))
        if radius_m is None:
            return slots_within(self.routing, np.array([WORLD]))
        return slots_within(self.routing, Circle(query.lon, query.lat, radius_m).boxes())


def plan_search(routing: RoutingArrays, query: Query, *, has_changed: bool = False) -> SearchPlan:
    """Plans one search."""
    if has_changed and not isinstance(query, KnnQuery):
        first = tuple(range(routing.slots))
    else:
        # Of the k nearest the first slots need not be the right ones: they but give a bound.
        first = slots_within(routing, _first_boxes(query))
    return SearchPlan(query, routing, first, has_changed)


def slots_within(routing: RoutingArrays, boxes: NDArray[np.float64]) -> tuple[int, ...]:
    """The slots that can hold objects inside closed boxes, ascending.

    Args:
        routing: the map in force.
        boxes: f8[b, 4], degrees, rows (west, south, east, north).
    """
    routes = routing.route_boxes(boxes, np.array([0, len(boxes)], np.int64))
    return tuple(routes.slots.tolist())


def _first_boxes(query: Query) -> NDArray[np.float64]:
    if isinstance(query, KnnQuery):
        # A circle without extent: its boxes know of the meridian that has two names.
        return Circle(query.lon, query.lat, 0.0).boxes()
    if isinstance(query, RankedQuery):
        return Circle(query.lon, query.lat, query.radius_m).boxes()
    return np.array([WORLD]) if query.region is None else query.region.boxes()
