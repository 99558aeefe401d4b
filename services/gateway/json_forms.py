"""Values of the cluster as JSON for browsers: ids are strings, since numbers end at 2^53 there."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response
from sirocco_client import Object, RegisteredQuery, SearchAnswer
from sirocco_client.queries.query import write_query

from sirocco.codec.queries import read_query
from sirocco.model.query import canonical
from sirocco.services.notification_json import texts


def json_response(
    members: Any, status: int = 200, media_type: str = "application/json"
) -> Response:
    """Returns an answer in JSON."""
    return Response(orjson.dumps(members), status, media_type=media_type)


def object_members(one: Object) -> dict[str, Any]:
    """Returns an object's public form."""
    return one.members() | {"id": str(one.id)}


def answer_members(answer: SearchAnswer, *, is_full: bool) -> dict[str, Any]:
    """Returns the line of OUT for an answer; objects are whole if `is_full`."""
    members = answer.members()
    if answer.warnings:
        members["warnings"] = list(answer.warnings)
    if "objects" in members:
        members["objects"] = (
            [object_members(one) for one in answer.objects] if is_full else texts(answer.ids)
        )
    return members


def answer_collection(answer: SearchAnswer) -> dict[str, Any]:
    """Returns the objects of an answer as a FeatureCollection, in its order."""
    features = []
    for found in answer:
        properties = {
            name: value
            for name, value in found.object.members().items()
            if name not in ("id", "lon", "lat")
        }
        if found.distance_m is not None:
            properties["distance_m"] = found.distance_m
        if found.score is not None:
            properties["score"] = found.score
        features.append(
            {
                "type": "Feature",
                "id": str(found.object.id),
                "geometry": {
                    "type": "Point",
                    "coordinates": [found.object.lon, found.object.lat],
                },
                "properties": properties,
            }
        )
    members: dict[str, Any] = {"type": "FeatureCollection", "features": features}
    if answer.warnings:
        members["warnings"] = list(answer.warnings)
    if answer.missing_slots:
        members["missing_slots"] = list(answer.missing_slots)
    return members


def registered_members(registered: RegisteredQuery) -> dict[str, Any]:
    """Returns a registered query in its public form, and what the cluster knows of it."""
    query, subscriber = read_query(write_query(registered.query))
    return {
        "id": query.id,
        "subscriber": subscriber,
        "revision": str(registered.revision),
        "start_ms": registered.start_ms,
        "query": canonical(query),
    }
