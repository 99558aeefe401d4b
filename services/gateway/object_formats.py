"""Bodies of objects → columns: NDJSON, JSON arrays, GeoJSON, CSV; bad lines are set apart.

A body holds thousands of objects, so that all of this runs in a thread of its own if it is large.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sirocco.loadgen.lines import ReadBatch, read_chunk
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.model.json_text import load_json
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, concat, parse_object
from sirocco.services.gateway.problems import PayloadTooLarge, UnsupportedMediaType
from sirocco.services.gateway.settings import GatewayLimits

# Lines that are read together.
_CHUNK_LINES = 2_000

# Errors of a body have no file.
_NO_FILE = ""


@dataclass(slots=True)
class ReadBody:
    """The objects of a body.

    Attributes:
        objects: The good ones, in order.
        lines: Line, or place in an array or collection, of each, from 1.
        bad: (line, error) of the others.
    """

    objects: ObjectColumns
    lines: list[int]
    bad: list[tuple[int, SiroccoError]] = field(default_factory=list)


def read_body(body: bytes, media_type: str, limits: GatewayLimits) -> ReadBody:
    """Reads the objects of a body.

    Raises:
        UnsupportedMediaType: No reader for this type.
        PayloadTooLarge: It has too many objects.
        InvalidArgument: It is no text of that type.
    """
    return READERS[media_type](body.removeprefix(b"\xef\xbb\xbf"), limits)


def media_type_of(header: str) -> str:
    """Returns the media type of a Content-Type header that objects can have.

    Raises:
        UnsupportedMediaType: No reader for it.
    """
    name = header.partition(";")[0].strip().lower()
    if name not in READERS:
        raise UnsupportedMediaType(
            f"{name!r:.60} is none of {', '.join(READERS)}", field="Content-Type"
        )
    return name


def memory_factor(media_type: str) -> int:
    """Returns what reading takes, as a multiple of the body: all of a JSON text is in memory."""
    return 2 if media_type in {"application/x-ndjson", "application/ndjson"} else 6


def _read_lines(body: bytes, limits: GatewayLimits) -> ReadBody:
    chunks = (read_chunk(chunk, _NO_FILE) for chunk in _chunks(body, limits.objects))
    return _joined(list(chunks))


def _chunks(body: bytes, lines_max: int) -> Iterator[list[tuple[int, bytes]]]:
    chunk: list[tuple[int, bytes]] = []
    count = number = begin = 0
    while begin < len(body):
        end = body.find(b"\n", begin)
        end = len(body) if end < 0 else end
        number += 1
        line = body[begin:end]
        begin = end + 1
        if not line or line.isspace():
            continue
        count += 1
        _check_count(count, lines_max)
        chunk.append((number, line))
        if len(chunk) == _CHUNK_LINES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _joined(batches: list[ReadBatch]) -> ReadBody:
    if not batches:
        return ReadBody(ObjectColumnsBuilder().build(), [])
    return ReadBody(
        concat([batch.objects for batch in batches]),
        np.concatenate([batch.lines for batch in batches]).tolist(),
        [(one.line, one.error) for batch in batches for one in batch.bad],
    )


def _read_array(body: bytes, limits: GatewayLimits) -> ReadBody:
    found = _load(body, limits)
    # One object is an array of one.
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list):
        raise InvalidArgument("is no array of objects", field="body")
    return _read_members(found, limits, lambda one: one)


def _read_geojson(body: bytes, limits: GatewayLimits) -> ReadBody:
    found = _load(body, limits)
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "Feature":
        features = [found]
    elif kind == "FeatureCollection" and isinstance(found.get("features"), list):
        features = found["features"]
    else:
        raise InvalidArgument("is neither a FeatureCollection nor a Feature", field="type")
    return _read_members(features, limits, _members_of_feature)


def _members_of_feature(feature: Any) -> Mapping[str, Any]:
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise InvalidArgument("is no Feature", field="type")
    geometry = feature.get("geometry")
    if not isinstance(geometry, dict) or geometry.get("type") != "Point":
        raise InvalidArgument("is no Point", field="geometry")
    at = geometry.get("coordinates")
    if not isinstance(at, list) or len(at) < 2:
        raise InvalidArgument("is no position of lon and lat", field="geometry.coordinates")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise InvalidArgument("is no object", field="properties")
    members = {**properties, "lon": at[0], "lat": at[1]}
    if "id" in feature:
        members["id"] = feature["id"]
    return members


def _read_csv(body: bytes, limits: GatewayLimits) -> ReadBody:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"is no UTF-8 at byte {error.start}", field="body") from None
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    builder, read = ObjectColumnsBuilder(), ReadBody(ObjectColumnsBuilder().build(), [])
    try:
        for count, row in enumerate(rows, 1):
            _check_count(count, limits.objects)
            try:
                builder.add(parse_object(_members_of_row(row)))
            except InvalidArgument as error:
                read.bad.append((rows.line_num, error.with_traceback(None)))
            else:
                read.lines.append(rows.line_num)
    except csv.Error as error:
        raise InvalidArgument(f"line {rows.line_num}: {error}", field="body") from None
    read.objects = builder.build()
    return read


def _members_of_row(row: Mapping[str | None, Any]) -> Mapping[str, Any]:
    if None in row:
        raise InvalidArgument("has more cells than the header", field="object")
    members: dict[str, Any] = {}
    for name, cell in row.items():
        if cell is None:
            raise InvalidArgument("has fewer cells than the header", field="object")
        if cell and name is not None:
            members[name] = cell
    for name in ("lon", "lat"):
        if name in members:
            members[name] = _number(members[name], name)
    for name in ("id", "ts"):
        if members.get(name, "").isdecimal() and members[name].isascii():
            members[name] = int(members[name])
    return members


def _number(text: str, field: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{text!r:.60} is no number", field=field) from None


def _read_members(
    found: list[Any], limits: GatewayLimits, members_of: Callable[[Any], Mapping[str, Any]]
) -> ReadBody:
    _check_count(len(found), limits.objects)
    builder, read = ObjectColumnsBuilder(), ReadBody(ObjectColumnsBuilder().build(), [])
    for number, one in enumerate(found, 1):
        try:
            builder.add(parse_object(members_of(one)))
        except InvalidArgument as error:
            read.bad.append((number, error.with_traceback(None)))
        else:
            read.lines.append(number)
    read.objects = builder.build()
    return read


def _load(body: bytes, limits: GatewayLimits) -> Any:
    if body.count(b"{") + body.count(b"[") > limits.containers:
        raise PayloadTooLarge(
            f"has more than {limits.containers} arrays and objects: send several", field="body"
        )
    return load_json(body, "body")


def _check_count(count: int, objects_max: int) -> None:
    if count > objects_max:
        raise PayloadTooLarge(f"has more than {objects_max} objects: send several", field="body")


# Media type → reader.
READERS: dict[str, Callable[[bytes, GatewayLimits], ReadBody]] = {
    "application/x-ndjson": _read_lines,
    "application/ndjson": _read_lines,
    "application/json": _read_array,
    "application/geo+json": _read_geojson,
    "text/csv": _read_csv,
}
