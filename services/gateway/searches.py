"""`POST /v1/search` and `POST /v1/explain`: questions that are answered once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request, Response
from sirocco_client import Client, FailedPrecondition, query_from_json
from sirocco_client.region_json import with_plain_region

from sirocco.explain.cluster_state import count_recent, read_cluster, read_registered
from sirocco.explain.report import ExplainedQuery, RecentMatches, report, window_of
from sirocco.model.durations import parse_duration_ms
from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import load_json
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.members import read_integer, read_mapping, read_string
from sirocco.model.objects import parse_object
from sirocco.model.query import parse_query
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.json_forms import (
    answer_collection,
    answer_members,
    json_response,
)
from sirocco.services.gateway.queries import QUERY_FACTOR

GEOJSON = "application/geo+json"

# Seconds that a report of `explain` may take, its search included.
_EXPLAIN_S = 30.0

_EXPLAIN_MEMBERS = frozenset({"query", "object", "arrival", "window", "search"})


class Searches:
    """Answers questions of the clients of a gateway."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def search(
        self,
        request: Request,
        position: Annotated[
            str | None, Query(description="a publish's `position`: find at least its objects")
        ] = None,
        now: Annotated[int | None, Query(description="search as of this time, epoch ms")] = None,
        allow_partial: Annotated[
            bool, Query(description="also answer without parts of the cluster")
        ] = False,
    ) -> Response:
        """Answers a query from what has arrived so far."""
        front, limits = self._front, self._front.limits
        async with (
            front.call(request) as (caller, connected),
            front.bodies.whole(request, caller, limits.query_bytes, QUERY_FACTOR) as body,
        ):
            members = load_json(body, "query")
            if isinstance(members, dict):
                members = {"id": "search", "mode": "snapshot", **members}
            answer = await connected.client.search(
                query_from_json(members, ""),
                now_ms=now,
                position_token=position,
                allow_partial=allow_partial,
            )
            if len(answer) > limits.answer_objects:
                raise FailedPrecondition(
                    f"the answer has {len(answer)} objects, the limit over HTTP is "
                    f"{limits.answer_objects}: ask for a smaller region or window"
                )
            form = _form_of(request.headers.get("accept", ""))
            if form == GEOJSON:
                return json_response(answer_collection(answer), media_type=GEOJSON)
            return json_response(answer_members(answer, is_full=form == "full"))

    async def explain(self, request: Request) -> Response:
        """Explains a query as `sirocco explain --json` does, with an object also its match.

        The body is a query, or an object with `query` (a query, or the id of a registered one) and,
        if wanted, `object`, `arrival`, `window` and `search` (false: count no recent matches).
        """
        front = self._front
        async with (
            front.call(request) as (caller, _),
            front.bodies.whole(request, caller, front.limits.query_bytes, QUERY_FACTOR) as body,
        ):
            asked = load_json(body, "query")
            members = await front.explain(partial(self._report, asked, caller))
        return json_response(members)

    def _report(self, asked: Any, caller: Caller) -> dict[str, Any]:
        settings = self._front.settings
        asked = _envelope(read_mapping(asked, "query"))
        with Client(
            settings.routers, tls=settings.tls(), token=caller.token, timeout_s=_EXPLAIN_S
        ) as client:
            named = asked["query"]
            explained = (
                read_registered(client, named)
                if isinstance(named, str)
                else ExplainedQuery(
                    parse_query(
                        with_plain_region({"mode": "continuous", "id": "query"} | dict(named))
                    )
                )
            )
            one = parse_object(asked["object"]) if "object" in asked else None
            window = asked.get("window")
            window_ms = window_of(
                explained.query,
                None
                if window is None
                else parse_duration_ms(read_string(window, "window", bytes_max=64), "window"),
            )
            return report(
                explained,
                read_cluster(client),
                count_recent(client, explained, window_ms)
                if asked.get("search", True) is not False
                else RecentMatches(window_ms, why="the caller asked for none"),
                one,
                now_ms=time.time_ns() // 1_000_000,
                arrival_ms=_arrival_ms(asked),
            )


def _arrival_ms(asked: Mapping[str, Any]) -> int | None:
    if "arrival" not in asked:
        return None
    greatest = DEFAULT_LIMITS.ts_ms
    return read_integer(asked["arrival"], "arrival", least=-greatest, greatest=greatest)


def _envelope(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the request with the query as a member; a bare query has a kind."""
    if "kind" in asked:
        return {"query": asked}
    if "query" not in asked:
        raise InvalidArgument("is missing", field="query")
    for name in asked:
        if name not in _EXPLAIN_MEMBERS:
            known = ", ".join(sorted(_EXPLAIN_MEMBERS))
            raise InvalidArgument(f"unknown member; known are {known}", field=f"{name:.80}")
    if not isinstance(asked["query"], str):
        read_mapping(asked["query"], "query")
    return asked


def _form_of(accept: str) -> str:
    """Returns the form of an answer that a client asks for: GeoJSON, `full` objects, or ids."""
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == GEOJSON:
            return GEOJSON
        if name == "application/json" and "objects=full" in parameters:
            return "full"
    return ""
