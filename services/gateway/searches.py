"""`POST /v1/search`, `/v1/searches` and `/v1/explain`: questions that are answered once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query, Request, Response
from sirocco_api.v1.search_service_pb2 import SearchResponse
from sirocco_client import Client, FailedPrecondition, SearchAnswer, query_from_json
from sirocco_client.calls.many_searches import SearchResult
from sirocco_client.calls.searching import Searching
from sirocco_client.errors import SiroccoError as ClientError
from sirocco_client.objects.answer import SearchPart
from sirocco_client.queries.query import Query as ClientQuery
from sirocco_client.queries.region_json import with_plain_region

from sirocco.explain.cluster_state import count_recent, read_cluster, read_registered
from sirocco.explain.report import ExplainedQuery, RecentMatches, report, window_of
from sirocco.model.durations import parse_duration_ms
from sirocco.model.errors import DeadlineExceeded, InvalidArgument
from sirocco.model.errors import SiroccoError as EngineError
from sirocco.model.json_text import load_json
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.members import read_integer, read_mapping, read_string
from sirocco.model.objects import parse_object
from sirocco.model.query import Query as EngineQuery
from sirocco.model.query import parse_query
from sirocco.services.gateway.answers import LargeAnswer
from sirocco.services.gateway.bodies import Room
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.json_forms import (
    answer_collection,
    answer_members,
    json_response,
)
from sirocco.services.gateway.problems import problem_of
from sirocco.services.gateway.queries import QUERY_FACTOR, is_compiled, query_of
from sirocco.services.gateway.settings import GatewayLimits

GEOJSON = "application/geo+json"

# Seconds that a report of `explain` may take, its search included.
_EXPLAIN_S = 30.0

# What an answer takes while it is made: as a multiple of its bytes, and for each object.
_ANSWER_FACTOR = 3
_OBJECT_BYTES = 1_000

# Answers of more objects, or more bytes, are written beside the loop: 500 objects of the greatest
# size take a second.
_INLINE_OBJECTS = 500
_INLINE_BYTES = 1 << 18

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
        form = _form_of(request.headers.get("accept", ""))
        async with front.call(request) as (caller, connected):
            async with front.bodies.whole(
                request, caller, limits.query_bytes, QUERY_FACTOR
            ) as body:
                query = await query_of(front, caller, body, _snapshot_query)
            async with front.bodies.held(caller, 0) as room:
                state = _Growing(query, now, position, allow_partial, _Growth(limits, room))
                answer = await connected.client.answer_of(state)
                write = partial(_written, answer, form)
                if state.is_small:
                    content = write()
                else:
                    content = await front.work(caller, write)
                media_type = GEOJSON if form == GEOJSON else "application/json"
                return LargeAnswer(front, room.moved(), content, media_type)

    async def search_many(
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
        """Answers a list of queries in its order; those without an answer have an `error`.

        Several searches share what one costs on its way. The bounds of an answer hold for all
        together.
        """
        front, limits = self._front, self._front.limits
        is_full = _form_of(request.headers.get("accept", "")) == "full"
        async with front.call(request) as (caller, connected):
            async with front.bodies.whole(
                request, caller, limits.query_bytes, QUERY_FACTOR
            ) as body:
                asked = await _queries_of(front, caller, body)
            async with front.bodies.held(caller, 0) as room:
                growth = _Growth(limits, room)
                states = [
                    _Growing(one, now, position, allow_partial, growth)
                    for one in asked
                    if isinstance(one, ClientQuery)
                ]
                results = [one async for one in connected.client.answers_of(states)]
                write = partial(_all_written, asked, results, is_full=is_full)
                content = await front.work(caller, write)
                return LargeAnswer(front, room.moved(), content)

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
            asked, query = await front.work(caller, partial(_asked, body))
            members = await front.explain(caller, partial(self._report, asked, query, caller))
        return json_response(members)

    def _report(
        self, asked: Mapping[str, Any], query: EngineQuery | None, caller: Caller
    ) -> dict[str, Any]:
        settings = self._front.settings
        with Client(
            settings.routers, tls=settings.tls(), token=caller.token, timeout_s=_EXPLAIN_S
        ) as client:
            explained = (
                read_registered(client, asked["query"]) if query is None else ExplainedQuery(query)
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


class _Growth:
    """What the answers of one request take.

    Args:
        limits: of a gateway.
        room: memory for them.
    """

    def __init__(self, limits: GatewayLimits, room: Room) -> None:
        self._limits = limits
        self._room = room
        self._objects = self._bytes = 0

    def add(self, objects: int, size: int) -> None:
        """Holds memory for what arrives.

        Raises:
            FailedPrecondition: The answers have too many objects or bytes.
            ResourceExhausted: There is no memory for it.
        """
        self._objects += objects
        self._bytes += size
        limits = self._limits
        if self._objects > limits.answer_objects or self._bytes > limits.answer_bytes:
            raise FailedPrecondition(
                f"the answer has more than {limits.answer_objects} objects or "
                f"{limits.answer_bytes} bytes, the limits over HTTP: ask for a smaller region or "
                "window"
            )
        self._room.take(self._wanted())

    def forget(self, objects: int, size: int) -> None:
        """Gives back what was held for the parts of an answer that begins anew."""
        self._objects -= objects
        self._bytes -= size
        self._room.give_back(self._wanted())

    def _wanted(self) -> int:
        return _ANSWER_FACTOR * self._bytes + _OBJECT_BYTES * self._objects


class _Growing(Searching):
    """A search whose answer is refused when it grows beyond what is sent over HTTP."""

    def __init__(
        self,
        query: ClientQuery,
        now_ms: int | None,
        position_token: str | None,
        allow_partial: bool,
        growth: _Growth,
    ) -> None:
        self._growth = growth
        # Names that the client's state of a search does not have.
        self._held_objects = self._held_bytes = 0
        super().__init__(query, now_ms, position_token, allow_partial)

    @property
    def is_small(self) -> bool:
        """Whether its answer is written in no time."""
        return self._held_objects <= _INLINE_OBJECTS and self._held_bytes <= _INLINE_BYTES

    def restart(self) -> None:
        """Begins anew."""
        super().restart()
        self._growth.forget(self._held_objects, self._held_bytes)
        self._held_objects = self._held_bytes = 0

    def received(self, response: SearchResponse) -> SearchPart | None:
        """Holds the memory of a part first; raises what `_Growth.add` does."""
        objects = response.objects.count + len(response.terms.counts) // 8
        size = response.ByteSize()
        self._held_objects += objects
        self._held_bytes += size
        self._growth.add(objects, size)
        return super().received(response)


async def _queries_of(
    front: Front, caller: Caller, body: bytes
) -> list[ClientQuery | ClientError | EngineError]:
    """Returns the queries of a list, or what is wrong with them.

    Raises:
        InvalidArgument: It is no list, or too long.
        DeadlineExceeded: Their regions take too long to read.
    """
    listed = await front.work(caller, partial(load_json, body, "queries"))
    if not isinstance(listed, list):
        raise InvalidArgument("is no list of queries", field="queries")
    if len(listed) > front.limits.searches:
        raise InvalidArgument(
            f"has {len(listed)} queries, the limit is {front.limits.searches}: send several",
            field="queries",
        )
    found: list[ClientQuery | ClientError | EngineError] = []
    until_s = time.monotonic() + front.limits.call_s
    for number, members in enumerate(listed):
        make = partial(_one_of_many, members, number)
        # Beside the loop where it takes long, and otherwise with a turn for others in between.
        if is_compiled(members):
            found.append(await front.work(caller, make))
        else:
            found.append(make())
            await asyncio.sleep(0)
        if time.monotonic() > until_s:
            raise DeadlineExceeded("the queries take too long to read: send fewer", field="queries")
    return found


def _one_of_many(members: Any, number: int) -> ClientQuery | ClientError | EngineError:
    try:
        return _snapshot_query({"id": str(number), **read_mapping(members, "query")})
    except (ClientError, EngineError) as error:
        return error


def _snapshot_query(members: Any) -> ClientQuery:
    if isinstance(members, dict):
        members = {"id": "search", "mode": "snapshot", **members}
    return query_from_json(members, "")


def _written(answer: SearchAnswer, form: str) -> bytes:
    if form == GEOJSON:
        return orjson.dumps(answer_collection(answer))
    return orjson.dumps(answer_members(answer, is_full=form == "full"))


def _all_written(
    asked: Sequence[ClientQuery | ClientError | EngineError],
    results: Sequence[SearchResult],
    *,
    is_full: bool,
) -> bytes:
    answered = iter(results)
    answers: list[dict[str, Any]] = []
    for number, one in enumerate(asked):
        result = next(answered) if isinstance(one, ClientQuery) else None
        if result is not None and result.answer is not None:
            answers.append(answer_members(result.answer, is_full=is_full))
            continue
        query = one.id if isinstance(one, ClientQuery) else str(number)
        error = one if result is None else result.error
        assert isinstance(error, ClientError | EngineError)
        answers.append({"query": query, "error": problem_of(error)})
    return orjson.dumps({"answers": answers})


def _arrival_ms(asked: Mapping[str, Any]) -> int | None:
    if "arrival" not in asked:
        return None
    greatest = DEFAULT_LIMITS.ts_ms
    return read_integer(asked["arrival"], "arrival", least=-greatest, greatest=greatest)


def _asked(body: bytes) -> tuple[Mapping[str, Any], EngineQuery | None]:
    """Returns the members of a request, and its query unless it names a registered one."""
    asked = _envelope(read_mapping(load_json(body, "query"), "query"))
    named = asked["query"]
    if isinstance(named, str):
        return asked, None
    members = {"mode": "continuous", "id": "query"} | dict(named)
    return asked, parse_query(with_plain_region(members))


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
