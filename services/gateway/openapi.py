"""What the description of the API says beyond the handlers' own parameters: bodies and examples."""

from __future__ import annotations

from typing import Any

_OBJECT = {"id": "17", "ts": 1405123200000, "lon": -73.98, "lat": 40.75, "text": "free coffee"}
_LINE = '{"id": 17, "lon": -73.98, "lat": 40.75, "text": "free coffee"}\n'
_FEATURE = {
    "type": "Feature",
    "id": 17,
    "geometry": {"type": "Point", "coordinates": [-73.98, 40.75]},
    "properties": {"text": "free coffee"},
}
_REGION = {"rect": {"west": -74.1, "south": 40.6, "east": -73.7, "north": 40.9}}
_QUERY = {"kind": "range", "region": _REGION, "text": "coffee AND free", "ttl": "72h"}
_SEARCH = {"kind": "range", "region": _REGION, "text": "coffee", "window": "1h"}
_REGISTERED = {
    "id": "q1",
    "subscriber": "anna",
    "revision": "4",
    "start_ms": 1405123200000,
    "query": {"id": "q1", "mode": "continuous", **_QUERY},
}

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_ANY = {"type": "object", "additionalProperties": True}


def _members(optional: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


SCHEMAS: dict[str, Any] = {
    "Problem": _members(
        ("field", "retry_after_ms"),
        type=_TEXT,
        title=_TEXT,
        status=_WHOLE,
        detail=_TEXT,
        code=_TEXT,
        field=_TEXT,
        retry_after_ms=_WHOLE,
    ),
    "Object": {
        **_members(
            ("ts", "text"),
            id={"oneOf": [_TEXT, _WHOLE]},
            lon={"type": "number"},
            lat={"type": "number"},
            ts={"oneOf": [_WHOLE, _TEXT]},
            text=_TEXT,
        ),
        "additionalProperties": True,
    },
    "BadLine": _members(line=_WHOLE, field={"type": ["string", "null"]}, detail=_TEXT),
    "Published": _members(
        ("more_errors",),
        acknowledged=_WHOLE,
        position=_TEXT,
        errors=_list(_named("BadLine")),
        more_errors=_WHOLE,
    ),
    "Query": {
        **_members(
            ("id", "mode", "text", "region"),
            id=_TEXT,
            kind={"type": "string", "enum": ["range", "knn", "terms", "ranked"]},
            mode={"type": "string", "enum": ["continuous", "snapshot"]},
            text=_TEXT,
            region=_ANY,
        ),
        "additionalProperties": True,
    },
    "Registration": _members(id=_TEXT, warnings=_list(_TEXT)),
    "RegisteredQuery": _members(
        id=_TEXT, subscriber=_TEXT, revision=_TEXT, start_ms=_WHOLE, query=_named("Query")
    ),
    "QueryPage": _members(queries=_list(_named("RegisteredQuery")), next_page_token=_TEXT),
    "Answer": {
        **_members(
            ("objects", "distance_m", "score", "terms", "at", "missing_slots", "warnings"),
            query=_TEXT,
            objects=_list({"oneOf": [_TEXT, _named("Object")]}),
            distance_m=_list({"type": "number"}),
            score=_list({"type": "number"}),
            terms=_list({"type": "array"}),
            at=_WHOLE,
            missing_slots=_list(_WHOLE),
            warnings=_list(_TEXT),
        ),
    },
    "FailedSearch": _members(query=_TEXT, error=_named("Problem")),
    "Notification": _members(("object",), query=_TEXT, object=_named("Object")),
}
SCHEMAS["Notification"]["additionalProperties"] = True


def _content(
    schema: dict[str, Any], example: Any, media_type: str = "application/json"
) -> dict[str, Any]:
    return {media_type: {"schema": schema, "example": example}}


def _answer(what: str, schema: str, example: Any) -> dict[str, Any]:
    return {"description": what, "content": _content(_named(schema), example)}


_PROBLEM = {
    "description": "an error; `field` names what is wrong",
    "content": _content(
        _named("Problem"),
        {
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "detail": "'x' is no number",
            "code": "INVALID_ARGUMENT",
            "field": "region.rect.west",
        },
        "application/problem+json",
    ),
}


def _call(answers: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "responses": {**answers, "default": _PROBLEM},
        "security": [{}, {"bearer": []}],
    }
    if body is not None:
        extra["requestBody"] = {"required": True, "content": body}
    return extra


def _query_body(example: Any) -> dict[str, Any]:
    return _content(_named("Query"), example)


PUBLISH = _call(
    {
        "200": _answer(
            "what the log has, also with bad lines",
            "Published",
            {
                "acknowledged": 2,
                "position": "CgQIABAC",
                "errors": [{"line": 3, "field": "lon", "detail": "is missing"}],
            },
        )
    },
    {
        **_content(_TEXT, _LINE, "application/x-ndjson"),
        **_content(_list(_named("Object")), [_OBJECT]),
        **_content(
            _ANY, {"type": "FeatureCollection", "features": [_FEATURE]}, "application/geo+json"
        ),
        **_content(_TEXT, "id,lon,lat,text\n17,-73.98,40.75,free coffee\n", "text/csv"),
        **_content(
            {"type": "string", "format": "binary"},
            "PAR1 … (a file, GeoParquet too)",
            "application/vnd.apache.parquet",
        ),
        **_content(
            {"type": "string", "format": "binary"},
            "a stream of Arrow's IPC, GeoArrow's points too",
            "application/vnd.apache.arrow.stream",
        ),
    },
)
PUT_QUERY = _call(
    {
        "201": _answer("registered", "Registration", {"id": "q1", "warnings": []}),
        "200": _answer("replaced, or there already", "Registration", {"id": "q1", "warnings": []}),
    },
    _query_body(_QUERY),
)
GET_QUERY = _call({"200": _answer("the query", "RegisteredQuery", _REGISTERED)})
DELETE_QUERY = _call(
    {"200": {"description": "removed", "content": _content(_members(id=_TEXT), {"id": "q1"})}}
)
LIST_QUERIES = _call(
    {"200": _answer("a page", "QueryPage", {"queries": [_REGISTERED], "next_page_token": ""})}
)
SEARCH = _call(
    {
        "200": {
            "description": "ids; whole objects with `Accept: application/json; objects=full`",
            "content": {
                **_content(_named("Answer"), {"query": "search", "objects": ["17", "23"]}),
                **_content(
                    _ANY,
                    {"type": "FeatureCollection", "features": [_FEATURE]},
                    "application/geo+json",
                ),
            },
        }
    },
    _query_body(_SEARCH),
)
SEARCHES = _call(
    {
        "200": {
            "description": "an answer for each query, in their order, or its `error`; whole "
            "objects with `Accept: application/json; objects=full`",
            "content": _content(
                _members(answers=_list({"oneOf": [_named("Answer"), _named("FailedSearch")]})),
                {
                    "answers": [
                        {"query": "0", "objects": ["17", "23"]},
                        {"query": "cafés", "objects": []},
                    ]
                },
            ),
        }
    },
    _content(_list(_named("Query")), [_SEARCH, {"id": "cafés", **_SEARCH}]),
)
EXPLAIN = _call(
    {"200": {"description": "the report", "content": _content(_ANY, {"query": _REGISTERED})}},
    _content(_ANY, {"query": _QUERY, "object": _OBJECT}),
)
NOTIFICATIONS = _call(
    {
        "200": {
            "description": "server-sent events; a WebSocket at the same address sends "
            '`{"id": …, "data": …}`',
            "content": _content(
                _TEXT,
                'id: 0.17\ndata: {"query":"q1","object":{"id":"17","lon":-73.98,"lat":40.75}}\n\n',
                "text/event-stream",
            ),
        }
    }
)
LIVE = _call(
    {
        "200": {
            "description": "server-sent events of the types `map`, `state`, `balance`, `objects`",
            "content": _content(
                _TEXT,
                'event: state\ndata: {"cluster":"sirocco","objects_per_s":2990}\n\n',
                "text/event-stream",
            ),
        }
    }
)


def completed(description: dict[str, Any]) -> dict[str, Any]:
    """Returns a description with the schemas and the way of authentication added."""
    components = description.setdefault("components", {})
    components["schemas"] = {**SCHEMAS, **components.get("schemas", {})}
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path in description["paths"].values():
        for call in path.values():
            # Parameters of a wrong form are answered as all errors are.
            call["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    return description
