"""`/v1/queries`: registers, replaces, shows and removes standing queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query, Request, Response
from sirocco_client import AlreadyExists, AsyncClient, InvalidArgument, NotFound, query_from_json
from sirocco_client.queries import query as client_queries
from sirocco_client.queries.region_json import COMPILED

from sirocco.model.json_text import load_json
from sirocco.services.gateway.answers import LargeAnswer
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.json_forms import json_response, registered_members

PAGE_SIZE_MAX = 1_000

# Memory of a query's JSON once it is read, as a multiple of the text.
QUERY_FACTOR = 32

# What an answer takes while it is made: of one query, and of a page of them. The cluster's pages
# have some 2 MB.
_QUERY_BYTES = 4 << 20
_PAGE_BYTES = 32 << 20

# Larger queries are read beside the loop.
_INLINE_BYTES = 16 << 10

# Two clients may register and remove the same id again and again.
_TRIES = 3

Subscriber = Annotated[str, Query(description="who receives the notifications")]


class Queries:
    """Changes and shows queries for the clients of a gateway."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def put(
        self,
        request: Request,
        id: str,
        subscriber: Subscriber = "",
        past: Annotated[
            str | None, Query(description="also answer from stored objects of this age, as `2h`")
        ] = None,
    ) -> Response:
        """Registers a query, or replaces the one of this id in one step."""
        front = self._front
        async with (
            front.call(request) as (caller, connected),
            front.bodies.whole(request, caller, front.limits.query_bytes, QUERY_FACTOR) as body,
        ):
            make = partial(_standing_query, query_id=id, subscriber=subscriber)
            query = await query_of(front, caller, body, make)
            is_new, made = await _replace(connected.client, query, past)
        return json_response({"id": id, "warnings": made.warnings}, 201 if is_new else 200)

    async def get(self, request: Request, id: str, subscriber: Subscriber = "") -> Response:
        """Returns a registered query."""
        front = self._front
        async with (
            front.call(request) as (caller, connected),
            front.bodies.held(caller, _QUERY_BYTES) as room,
        ):
            found = await connected.client.get(id)
            _check_subscriber(found, subscriber)
            return LargeAnswer(front, room.moved(), registered_members(found))

    async def delete(self, request: Request, id: str, subscriber: Subscriber = "") -> Response:
        """Removes a query; its objects no longer match once this is answered."""
        async with self._front.call(request) as (_, connected):
            if subscriber:
                _check_subscriber(await connected.client.get(id), subscriber)
            await connected.client.unregister(id)
        return json_response({"id": id})

    async def list(
        self,
        request: Request,
        subscriber: Subscriber = "",
        page_size: Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)] = 100,
        page_token: Annotated[str, Query(max_length=4_096)] = "",
    ) -> Response:
        """Returns a page of the registered queries, or of those of one subscriber."""
        front = self._front
        async with (
            front.call(request) as (caller, connected),
            front.bodies.held(caller, _PAGE_BYTES) as room,
        ):
            page = await connected.client.list_page(
                subscriber or None, page_size=page_size, page_token=page_token
            )
            content = await front.work(caller, partial(_written, page))
            return LargeAnswer(front, room.moved(), content)


async def query_of(
    front: Front, caller: Caller, body: bytes, make: Callable[[Any], client_queries.Query]
) -> client_queries.Query:
    """Returns the query of a body.

    Args:
        front: of the gateway.
        caller: whose time it takes beside the loop, where it takes long.
        body: JSON.
        make: makes the query of its members.
    """
    if len(body) <= _INLINE_BYTES:
        members = load_json(body, "query")
        if not is_compiled(members):
            return make(members)
    return await front.work(caller, lambda: make(load_json(body, "query")))


def is_compiled(members: Any) -> bool:
    """Whether the region is in a form that is compiled here: eighty bytes may take seconds."""
    region = members.get("region") if isinstance(members, dict) else None
    return isinstance(region, dict) and not COMPILED.isdisjoint(region)


def _written(page: client_queries.QueryPage) -> bytes:
    return orjson.dumps(
        {
            "queries": [registered_members(one) for one in page.queries],
            "next_page_token": page.next_page_token,
        }
    )


def _standing_query(members: Any, query_id: str, subscriber: str) -> client_queries.Query:
    if not subscriber:
        raise InvalidArgument("is missing", field="subscriber")
    if isinstance(members, dict):
        if members.get("id", query_id) != query_id:
            raise InvalidArgument("is not the id of the path", field="id")
        members = {"mode": "continuous", **members, "id": query_id}
    return query_from_json(members, subscriber)


async def _replace(
    client: AsyncClient, query: client_queries.Query, past: str | None
) -> tuple[bool, client_queries.Registration]:
    """Registers or replaces a query; returns whether it is new, and the result."""
    for _ in range(_TRIES):
        try:
            return False, await client.update(query, past=past)
        except NotFound:
            pass
        try:
            return True, await client.register(query, past=past)
        except AlreadyExists as error:
            # Another client was faster.
            last = error
    raise last


def _check_subscriber(found: client_queries.RegisteredQuery, subscriber: str) -> None:
    if subscriber and found.query.subscriber != subscriber:
        raise NotFound("this subscriber has no query of this id", field="id")
