"""Readers of what clients write, against slower ones, under damaged and hostile texts.

A reader refuses with a typed error, or says what the usual reader says. What it reads in vain is
counted: a text that costs far more than it weighs fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyarrow import parquet as pq
from sirocco_api.v1 import query_pb2
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest
from sirocco_client.errors import SiroccoError as ClientError
from sirocco_client.queries.region_json import region_from_json

from sirocco.codec.change_columns import read_change_columns, write_change_columns
from sirocco.codec.changes import read_change
from sirocco.codec.plain_queries import read_plain_queries
from sirocco.codec.queries import read_query
from sirocco.formats import delimited, geojson
from sirocco.formats.arrow_stream import read_arrow
from sirocco.formats.column_map import read_map
from sirocco.formats.parquet import read_parquet
from sirocco.internal_api.v1 import registry_service_pb2 as registry_pb
from sirocco.model.errors import SiroccoError
from sirocco.protocol.contract.plain_queries import PlainChanges, Removals
from sirocco.services.gateway.notifications import position_of
from sirocco.services.gateway.object_formats import MEDIA_TYPES, read_body
from sirocco.services.gateway.settings import LIMITS

_WORDS = ("coffee", "Tea", "AND", "OR", "a", "b_2", "x" * 40, "é", '"', "\\", " ", "")
_BYTES = (b"\x00", b"\x7f", b"\x80", b"\xff", b'"', b",", b"\n", b"{", b"[", b"]", b"}", b"\x1e")
_BEGINS = (b"\n", b"{", b",", b"\x1e")
_LIMITS = replace(LIMITS, objects=2_000, errors=50)


def _damaged(data: bytes, dice: Random) -> bytes:
    """Returns data with some bytes changed, left out, doubled or moved."""
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        at, to = (dice.randrange(len(data) + 1) for _ in range(2))
        piece = data[at : at + dice.choice((1, 2, 8, 60))]
        data = dice.choice(
            (
                data[:at] + dice.choice(_BYTES) * dice.choice((1, 1, 9)) + data[at + 1 :],
                data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :],
                data[:at] + data[at + len(piece) :],
                data[:to] + piece * dice.choice((1, 3)) + data[to:],
                data[:at],
            )
        )
    return data


def _query(dice: Random) -> query_pb2.Query:
    one = query_pb2.Query(
        id="".join(dice.choices("abc019/:-~ ", k=dice.choice((1, 8, 128)))),
        subscriber=dice.choice(("s", "t" * 128)),
        mode=query_pb2.QUERY_MODE_CONTINUOUS,
    )
    one.range.text = dice.choice((" ", " AND ")).join(dice.choices(_WORDS, k=dice.randrange(4)))
    if dice.random() < 0.7:
        rect = one.range.region.rect
        rect.west, rect.south, rect.east, rect.north = (dice.uniform(-91, 91) for _ in range(4))
    return one


def plain_registrations(dice: Random) -> None:
    """Bulk requests as columns, against single queries."""
    request = RegisterQueriesRequest(start_ms=dice.randrange(-5, 5))
    for _ in range(dice.randrange(6)):
        request.queries.append(_query(dice))
    try:
        request = RegisterQueriesRequest.FromString(_damaged(request.SerializeToString(), dice))
    except DecodeError:
        return
    found = read_plain_queries(request.SerializeToString(), len(request.queries))
    if found is None:
        return
    for place, row in enumerate(found[0].tolist()):
        query, subscriber = read_query(request.queries[row])
        assert found[1].query(place) == query
        assert found[1].subscriber(place) == subscriber


def plain_records(dice: Random) -> None:
    """Records of the registry as columns, against single ones."""
    request = RegisterQueriesRequest(queries=[_query(dice) for _ in range(6)])
    found = read_plain_queries(request.SerializeToString(), 6)
    if found is None:
        return
    count = len(found[0])
    numbers = [np.array(dice.choices((0, 1, 1 << 40), k=count), np.int64) for _ in range(4)]
    changes = PlainChanges(
        queries=found[1],
        starts_ms=numbers[0],
        expected_revisions=numbers[1],
        epochs=numbers[2],
        sinces=numbers[3],
        are_starts_given=numbers[0] > 1,
    )
    removals = Removals(found[1].handles, *numbers[:3])
    written = write_change_columns(changes) + write_change_columns(removals)
    values = [_damaged(value, dice) for value in written]
    for rows, read in read_change_columns(values):
        for place, row in enumerate(rows.tolist()):
            single = read_change(registry_pb.ChangeRequest.FromString(values[row]))
            assert read.change(place) == single


def _lines(dice: Random) -> bytes:
    fields = ("1", "-0.5", "a", '"b"', '"', '""', 'c"', "\r", "é", "x" * 300, "")
    line = ",".join(dice.choices(fields, k=dice.choice((3, 4, 4, 4, 5))))
    # Lines that are alike: what is read again is read again for each of them.
    return ("id,lon,lat,text\n" + f"{line}\n" * dice.choice((1, 3, 400))).encode()


def _features(dice: Random) -> bytes:
    feature = json.dumps(
        {
            "type": "Feature",
            "id": dice.randrange(9),
            "geometry": {"type": "Point", "coordinates": [dice.uniform(-200, 200), 1]},
            "properties": {"text": dice.choice(_WORDS)},
        }
    )
    part = dice.choice((feature, feature, '{"a":[0,', '{"a":"', feature[: dice.randrange(90)]))
    between = dice.choice(("\n", ",\n", "\x1e", ""))
    text = between.join([part] * dice.choice((1, 3, 400)))
    whole = dice.random() < 0.5
    return (f'{{"type":"FeatureCollection","features":[{text}]}}' if whole else text).encode()


def bodies(dice: Random) -> None:
    """Bodies of all media types: no row is lost without a word, no work without an end."""
    kind = dice.choice(sorted(MEDIA_TYPES))
    made = _lines if kind.startswith("text/") else _features
    body = _damaged(made(dice), dice)
    if kind.startswith("text/tab"):
        body = body.replace(b",", b"\t")
    try:
        found = read_body(body, kind, _LIMITS, {})
    except SiroccoError:
        return
    assert len(found.lines) == len(found.objects)
    assert found.lines == sorted(set(found.lines))
    assert len(found.bad) == min(found.bad_count, _LIMITS.errors)
    # A row begins after one of these.
    assert found.bad_count + len(found.lines) <= sum(map(body.count, _BEGINS)) + 1


def tables_in_pages(dice: Random) -> None:
    """Parquet with damaged pages, or a damaged end: rows, or a typed error."""
    count = dice.choice((1, 70, 400))
    columns = {
        "id": pa.array(range(count)),
        "lon": pa.array([dice.uniform(-180, 180) for _ in range(count)]),
        "lat": pa.array([1.0] * count),
        "text": pa.array([None if row % 7 == 6 else f"text {row % 50}" for row in range(count)]),
        "kinds": pa.array([["a", "bb"][: row % 3] for row in range(count)]),
    }
    out = BytesIO()
    pq.write_table(
        pa.table(columns),
        out,
        compression=dice.choice(("none", "snappy", "gzip", "zstd")),
        use_dictionary=dice.random() < 0.7,
        data_page_version=dice.choice(("1.0", "2.0")),
        data_page_size=dice.choice((200, 1 << 20)),
    )
    data = bytearray(out.getvalue())
    for _ in range(dice.choice((0, 1, 1, 3))):
        data[dice.randrange(4, len(data) - 8)] = dice.choice((0, 1, 127, 255, dice.randrange(256)))
    with suppress(SiroccoError):
        rows = list(islice(read_parquet(BytesIO(data), {}, 64), 2 * count))
        assert [number for number, _ in rows] == list(range(1, len(rows) + 1))


def streams_of_arrow(dice: Random) -> None:
    """Damaged streams of Arrow's IPC: rows, or a typed error."""
    count = dice.choice((1, 70, 400))
    columns = {
        "id": pa.array(range(count)),
        "lon": pa.array([dice.uniform(-180, 180) for _ in range(count)]),
        "lat": pa.array([1.0] * count),
        "text": pa.array([f"text {row % 50}" for row in range(count)]).dictionary_encode(),
        "kinds": pa.array([["a", "bb"][: row % 3] for row in range(count)]),
        "views": pa.array(
            [f"a text of some length {row}" for row in range(count)], pa.string_view()
        ),
    }
    out = BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=dice.choice((None, "lz4", "zstd")))
    with pa.ipc.new_stream(out, pa.table(columns).schema, options=options) as writer:
        writer.write_table(pa.table(columns), dice.choice((1, 64, 1_000)))
    data = bytearray(out.getvalue())
    for _ in range(dice.choice((0, 1, 1, 3))):
        at = dice.randrange(len(data) - 8)
        if dice.random() < 0.3:
            data[at & ~7 : (at & ~7) + 8] = dice.choice((-1, 1, 1 << 31, 1 << 62)).to_bytes(
                8, "little", signed=True
            )
        else:
            data[at] = dice.choice((0, 1, 127, 255, dice.randrange(256)))
    with suppress(SiroccoError):
        rows = list(islice(read_arrow(bytes(data), {}), 2 * count))
        assert [number for number, _ in rows] == list(range(1, len(rows) + 1))


def rereading(dice: Random) -> None:
    """How much of a table and of GeoJSON is read in vain."""
    table = delimited._Lines(iter(enumerate(_damaged(_lines(dice), dice).splitlines(True), 1)))
    try:
        while True:
            next(table)
            if dice.random() < 0.3:
                table.recover()
            elif dice.random() < 0.3:
                table.take()
    except (StopIteration, delimited._UnusableError):
        pass
    assert table._again_bytes <= (delimited._AGAIN_MAX + 1) * (table._read_bytes + 1)
    text = geojson._Text(iter((_damaged(_features(dice), dice),)))
    while text.skip(geojson._BETWEEN):
        try:
            list(geojson._top(text))
        except geojson._UnreadableError:
            text.recover()
    most = geojson._VAIN_MAX * text._total + geojson._VAIN_ALWAYS
    # Beyond the bound each character is looked at once more.
    assert text._vain <= most + text._total + geojson.FEATURE_CHARACTERS_MAX


def regions(dice: Random) -> None:
    """Regions in all forms: rings, or a typed error."""
    point = [dice.choice((-180, 180, 0, 179.9, dice.uniform(-181, 181))), dice.uniform(-91, 91)]
    near = [point[0] + dice.choice((0, 1e-12, 1, 359)), point[1] + dice.choice((0, 1e-12, 1))]
    ring = [dice.choice((point, near, [0, 90], [180, -90], [1, 1])) for _ in range(6)]
    form: dict[str, Any] = dice.choice(
        (
            {"geojson": {"type": "Polygon", "coordinates": [ring, ring[::-1]]}},
            {"geojson": {"type": "MultiPolygon", "coordinates": [[ring], [ring[1:]]]}},
            {"buffer": {"line": ring, "radius_m": dice.choice((0.001, 1e3, 4e6, 5e6))}},
            {"wkt": f"POLYGON(({', '.join(f'{x} {y}' for x, y in ring)}))"},
            {"h3": ["85283473fffffff", dice.choice(("8009fffffffffff", "0", "f" * 15))]},
            {"geohash": "".join(dice.choices("0aé9z", k=3))},
            {"tile": f"{dice.randrange(40)}/{dice.randrange(9)}/1"},
        )
    )
    text = _damaged(json.dumps(form).encode(), dice).decode(errors="replace")
    try:
        value = json.loads(text)
    except ValueError:
        return
    with suppress(ClientError):
        region_from_json(value)


def positions(dice: Random) -> None:
    """Ids of events and names of columns: a value, or a typed error."""
    text = _damaged(dice.choice((b"0.17", b"12.345~6", b"1.2~3~4")), dice).decode("latin-1")
    with suppress(ClientError):
        found = position_of(text, "cursor")
        assert found.cursor is None or text.startswith(found.cursor)
    mapped = _damaged(b"lon=x,lat=y,text=a+b", dice).decode("latin-1")
    with suppress(SiroccoError):
        read_map(mapped)


WORKS: tuple[Callable[[Random], None], ...] = (
    *(
        plain_registrations,
        plain_records,
        bodies,
        tables_in_pages,
        streams_of_arrow,
        rereading,
        regions,
        positions,
    ),
)
