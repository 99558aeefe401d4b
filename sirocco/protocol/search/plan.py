"""Finds the slots that can hold answers to a search.

Objects are stored where the map put them that was in force on their arrival. So a search asks the
slots of the map in force, and those beside them that may hold leftovers of former maps in its
leaves (`search.leftovers`). While a change is under way it asks every slot.

A search goes where a registration of the same condition would: to every slot with a leaf that an
object inside its boxes could have been routed to. Only the k nearest have no region of their own.
They are searched in two phases (SSTD 6): first at their point, then within the distance that the
first phase has shown to be enough. The first phase is often the last: for the nearest objects with
a word, which may be rare, all slots of the point's evaluator are searched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.model.geometry import Circle
from sirocco.model.query import KnnQuery, Query, RankedQuery
from sirocco.protocol.search.leftovers import Former
from sirocco.schemes.map.map import WORLD
from sirocco.schemes.map.routing import RoutingArrays


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The slots of one search.

    Attributes:
        query: what is asked.
        routing: the map in force.
        first: slots to ask at once, ascending.
        former: objects of former maps; None if the map in force is the first one.
    """

    query: Query
    routing: RoutingArrays
    first: tuple[int, ...]
    former: Former | None = None

    @property
    def is_everywhere(self) -> bool:
        """Whether objects may be in any slot."""
        return self.former is not None and self.former.is_everywhere

    @property
    def has_rest(self) -> bool:
        """Whether there is a second phase."""
        return isinstance(self.query, KnnQuery)

    @property
    def asks_nearby(self) -> bool:
        """Whether the evaluator of the point's slot also searches its other slots.

        Few objects may hold a word: then the first slot bounds little, and most of the others would
        be asked in a second phase. With a filter on attributes such a search costs too much.
        """
        query = self.query
        return isinstance(query, KnnQuery) and query.expression is not None and query.where is None

    def rest(self, radius_m: float | None) -> tuple[int, ...]:
        """Returns the slots of the second phase, ascending; some may have been asked in the first.

        Args:
            radius_m: no answer is farther from the query's point; None when nothing is known.
        """
        query = self.query
        if not isinstance(query, KnnQuery):
            return ()
        if self.is_everywhere:
            return tuple(range(self.routing.slots))
        circle = Circle(query.lon, query.lat, radius_m) if radius_m is not None else None
        boxes = np.array([WORLD]) if circle is None else circle.boxes()
        return slots_within(self.routing, boxes, self.former)


def plan_search(routing: RoutingArrays, query: Query, former: Former | None = None) -> SearchPlan:
    """Plans one search."""
    # For the k nearest the first slots need not be the right ones: they only give a bound.
    first = slots_within(
        routing, _first_boxes(query), None if isinstance(query, KnnQuery) else former
    )
    return SearchPlan(query, routing, first, former)


def slots_within(
    routing: RoutingArrays, boxes: NDArray[np.float64], former: Former | None = None
) -> tuple[int, ...]:
    """Returns the slots that can hold objects inside closed boxes, ascending.

    Args:
        routing: the map in force.
        boxes: f8[b, 4], degrees, rows (west, south, east, north).
        former: objects of former maps; None for none.
    """
    if former is not None and former.is_everywhere:
        return tuple(range(routing.slots))
    routes = routing.route_boxes(boxes, np.array([0, len(boxes)], np.int64))
    slots = routes.slots.tolist()
    if former is None:
        return tuple(slots)
    beside = former.leftovers.slots_beside(routes.leaves, former.from_ms, routing.slots)
    return tuple(sorted(beside.union(slots)))


def _first_boxes(query: Query) -> NDArray[np.float64]:
    if isinstance(query, KnnQuery):
        # A circle without extent: its boxes handle the two names of the meridian at 180 degrees.
        return Circle(query.lon, query.lat, 0.0).boxes()
    if isinstance(query, RankedQuery):
        return Circle(query.lon, query.lat, query.radius_m).boxes()
    return np.array([WORLD]) if query.region is None else query.region.boxes()
