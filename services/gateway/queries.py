"""`/v1/queries`: registers, replaces, shows and removes standing queries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from sirocco_client import AlreadyExists, AsyncClient, InvalidArgument, NotFound, query_from_json
from sirocco_client import queries as client_queries

from sirocco.model.json_text import load_json
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.json_forms import json_response, registered_members

PAGE_SIZE_MAX = 1_000

# Memory of a query's JSON once it is read, as a multiple of the text.
QUERY_FACTOR = 8

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
            query = _standing_query(load_json(body, "query"), id, subscriber)
            is_new, made = await _replace(connected.client, query, past)
        return json_response({"id": id, "warnings": made.warnings}, 201 if is_new else 200)

    async def get(self, request: Request, id: str, subscriber: Subscriber = "") -> Response:
        """Returns a registered query."""
        async with self._front.call(request) as (_, connected):
            found = await connected.client.get(id)
        _check_subscriber(found, subscriber)
        return json_response(registered_members(found))

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
        async with self._front.call(request) as (_, connected):
            page = await connected.client.list_page(
                subscriber or None, page_size=page_size, page_token=page_token
            )
        return json_response(
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
