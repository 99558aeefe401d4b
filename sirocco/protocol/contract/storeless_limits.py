"""Refuses queries that need stored objects, in a cluster that stores none.

Its routers hold back objects that no standing query needs (`keyword_filter`), so missed objects
could not even be noticed.
"""

from __future__ import annotations

from sirocco.model.errors import FailedPrecondition
from sirocco.model.query import Query, RangeQuery
from sirocco.protocol.contract.messages import NO_PAST

WHY = "this cluster stores no objects (SIROCCO_STORE=off): it takes standing range queries alone"


def check_standing(query: Query, past_ms: int) -> None:
    """Checks that a standing query needs only objects to come.

    Args:
        query: to be registered.
        past_ms: also ask for the objects of so long before; `NO_PAST` for none.

    Raises:
        FailedPrecondition: It needs others.
    """
    if not isinstance(query, RangeQuery):
        raise FailedPrecondition(WHY, field="kind")
    if query.track is not None:
        raise FailedPrecondition(f"{WHY}, none that tracks values", field="track")
    if past_ms != NO_PAST:
        raise FailedPrecondition(f"{WHY}, and keeps no past", field="past")
