"""The JSON members of a query, as they are stored."""

from __future__ import annotations

from typing import Any

from sirocco.model.durations import format_duration
from sirocco.model.query.kinds import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery, kind_of
from sirocco.model.text import keywords_for


def canonical(query: Query) -> dict[str, Any]:
    """Returns the JSON members that `parse_query` reads back to an equal query.

    Defaults of the contract are written out, so that a stored query keeps its meaning.
    """
    form: dict[str, Any] = {"id": query.id, "kind": kind_of(query), "mode": query.mode}
    match query:
        case RangeQuery():
            if query.track is not None:
                form["track"] = query.track
        case KnnQuery():
            form |= {"point": {"lon": query.lon, "lat": query.lat}, "k": query.k}
        case TermsQuery():
            form["k"] = query.k
        case RankedQuery():
            form |= {
                "point": {"lon": query.lon, "lat": query.lat},
                "radius_m": query.radius_m,
                "k": query.k,
                "keywords": keywords_for(query.keywords),
                "weights": {
                    "text": query.weights.text,
                    "space": query.weights.space,
                    "time": query.weights.time,
                },
                "half_life": format_duration(query.half_life_ms),
            }
    if not isinstance(query, TermsQuery) and query.highlight:
        form["highlight"] = True
    if query.events:
        form["events"] = list(query.events)
    if isinstance(query, RangeQuery | TermsQuery) and query.region is not None:
        form["region"] = query.region.canonical()
    if not isinstance(query, RankedQuery) and query.expression is not None:
        form["text"] = query.expression.source
        if query.expression.fold:
            form["fold"] = True
    if query.where is not None:
        form["where"] = query.where.canonical()
    durations = {"ttl": query.ttl_ms, "window": query.window_ms}
    if isinstance(query, TermsQuery | RankedQuery):
        durations["step"] = query.step_ms
    if isinstance(query, RangeQuery):
        durations |= {"dwell": query.dwell_ms, "leave_after": query.leave_after_ms}
    return form | {k: format_duration(v) for k, v in durations.items() if v is not None}
