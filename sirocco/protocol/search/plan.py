"""Finds the slots that can hold answers to a search, by the map in force.

Objects are stored where the map put them that was in force on their arrival. Once another map has
followed the first one every slot is asked: an old object may be anywhere, and a slot without
objects in the region answers in some microseconds. This is exact and simple (docs/adr/0014).

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
        # For the k nearest the first slots need not be the right ones: they only give a bound.
        first = slots_within(routing, _first_boxes(query))
    return SearchPlan(query, routing, first, has_changed)


def slots_within(routing: RoutingArrays, boxes: NDArray[np.float64]) -> tuple[int, ...]:
    """Returns the slots that can hold objects inside closed boxes, ascending.

    Args:
        routing: the map in force.
        boxes: f8[b, 4], degrees, rows (west, south, east, north).
    """
    routes = routing.route_boxes(boxes, np.array([0, len(boxes)], np.int64))
    return tuple(routes.slots.tolist())


def _first_boxes(query: Query) -> NDArray[np.float64]:
    if isinstance(query, KnnQuery):
        # A circle without extent: its boxes handle the two names of the meridian at 180 degrees.
        return Circle(query.lon, query.lat, 0.0).boxes()
    if isinstance(query, RankedQuery):
        return Circle(query.lon, query.lat, query.radius_m).boxes()
    return np.array([WORLD]) if query.region is None else query.region.boxes()
