"""Values of records → objects: mapping of members, formats, and what is put aside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from sirocco.codec.columns import read_objects
from sirocco.loadgen.lines import object_lines
from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sections import Section
from sirocco.services.connector.sources.member_map import MemberMap, read_member_map
from sirocco.services.connector.sources.records import Decoded, RecordReader, feature


@dataclass
class One:
    data: bytes | None
    at: int
    name: bytes | None = None
    ts_ms: int = -1

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> bytes | None:
        return self.name

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, self.ts_ms)


def mapped(map: Any = None, **more: Any) -> MemberMap:
    given = {"map": map, **more}
    section = Section({name: each for name, each in given.items() if each is not None}, "s")
    found = read_member_map(section)
    section.end()
    return found


def read(values: list[Any], mapping: MemberMap | None = None, **more: Any) -> Decoded:
    data = [json.dumps(each).encode() if isinstance(each, dict) else each for each in values]
    reader = RecordReader(mapping or mapped(), more.pop("record_bytes", 1 << 20), **more)
    # Offsets with gaps.
    return reader.read([One(each, 3 * row, b"key", 77) for row, each in enumerate(data)])


def objects(found: Decoded) -> list[dict[str, Any]]:
    if found.objects is None:
        return []
    return [json.loads(line) for line in object_lines(read_objects(found.objects))]


def item(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "lon": 1.0, "lat": 2.0, "text": "x", **more}


def test_numbers_are_offsets_and_one_more_and_bad_records_are_told_apart() -> None:
    found = read([item(1), b"{", None, item(2, lat=91), item(3), b"y" * 200], record_bytes=150)
    assert [each["id"] for each in objects(found)] == [1, 3]
    assert found.numbers == [1, 13]
    assert [each.offset() for each in found.records] == [0, 12]
    assert found.empty == 1
    bad = sorted((each.record.offset(), each.reason, each.error.field) for each in found.bad)
    assert bad == [(3, "decode", "object"), (9, "mapping", "lat"), (15, "size", "value")]


def test_integers_beyond_64_bits_are_not_rounded() -> None:
    value = b'{"k": 18446744073709551616, "a": 1, "b": 2, "c": "t"}'
    found = read([value], mapped("id=k,lon=a,lat=b,text=c"))
    assert objects(found) == []
    assert (found.bad[0].reason, found.bad[0].error.field) == ("mapping", "id")


NESTED = {
    "order": {"no": 17, "at": {"x": 5, "y": 6}},
    "title": "a",
    "body": "b",
    "kind": "c",
    "none": None,
}


@pytest.mark.parametrize(
    ("mapping", "wanted"),
    [
        (
            mapped("id=order.no,lon=order.at.x,lat=order.at.y,text=title+body"),
            {"id": 17, "lon": 5, "lat": 6, "text": "a b", "order": NESTED["order"], "kind": "c"},
        ),
        (
            mapped(
                {"id": "$key", "lon": "order.at.x", "lat": "order.at.y", "ts": "$timestamp"},
                attributes=["order.no", "kind", "missing.too"],
            ),
            {"id": "key", "lon": 5, "lat": 6, "text": "", "ts": 77, "no": 17, "kind": "c"},
        ),
    ],
)
def test_members_come_from_their_paths(mapping: MemberMap, wanted: dict[str, Any]) -> None:
    assert objects(read([NESTED], mapping)) == [wanted]


@pytest.mark.parametrize(
    ("mapping", "field"),
    [
        (mapped("id=no.such,lon=order.at.x,lat=order.at.y"), "no.such"),
        (mapped("id=order,lon=order.at.x,lat=order.at.y"), "id"),
        (mapped("id=kind,lon=title.x,lat=order.at.y"), "title.x"),
        (mapped("id=kind,lon=order.at.x,lat=order.at.y,text=order"), "order"),
    ],
)
def test_what_is_missing_or_of_another_kind_is_named(mapping: MemberMap, field: str) -> None:
    (bad,) = read([NESTED], mapping).bad
    assert (bad.reason, bad.error.field) == ("mapping", field)


@pytest.mark.parametrize(
    ("map", "more", "field"),
    [
        ("nonsense", {}, "s.map"),
        ({"name": "x"}, {}, "s.map.name"),
        ({"lon": ["a", "b"]}, {}, "s.map.lon"),
        ({"lon": "a..b"}, {}, "s.map.lon"),
        ({"text": "$key"}, {}, "s.map.text"),
        (3, {}, "s.map"),
        (None, {"attributes": ["a.b", "c.b"]}, "s.attributes"),
        (None, {"attributes": ["a.lon"]}, "s.attributes"),
        (None, {"attributes": []}, "s.attributes"),
    ],
)
def test_mappings_that_make_no_sense_are_refused(
    map: Any, more: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        mapped(map, **more)
    assert caught.value.field == field


def test_features_are_objects_at_their_points() -> None:
    one = {
        "type": "Feature",
        "id": 5,
        "geometry": {"type": "Point", "coordinates": [1, 2]},
        "properties": {"text": "t", "a": 1},
    }
    found = read([one, one | {"geometry": None}, b"[]"], decode=feature)
    assert objects(found) == [{"id": 5, "lon": 1, "lat": 2, "text": "t", "a": 1}]
    assert [each.error.field for each in found.bad] == ["geometry", "object"]


def test_a_value_of_deep_nesting_is_put_aside() -> None:
    deep = b'{"id": 1, "lon": 1, "lat": 1, "a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    (bad,) = read([deep]).bad
    assert bad.reason in {"decode", "mapping"}
    (bad,) = read([deep], mapped("id=id")).bad
    assert bad.reason in {"decode", "mapping"}
