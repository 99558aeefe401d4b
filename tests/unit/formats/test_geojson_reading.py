"""GeoJSON as a stream: collections, sequences, and what cannot be read."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from sirocco.formats import geojson
from sirocco.formats.geojson import read_features
from sirocco.model.errors import InvalidArgument
from tests.support.cpu_time import cpu_ratio


def feature(number: int, **properties: Any) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [number, 2.5, 7]}
    return {"type": "Feature", "id": number, "geometry": point, "properties": properties}


def chunked(data: bytes, size: int) -> Iterator[bytes]:
    return iter([data[at : at + size] for at in range(0, len(data), size)])


def rows(text: str | bytes, size: int = 1 << 16) -> list[Any]:
    data = text if isinstance(text, bytes) else text.encode()
    return [
        (line, str(row) if isinstance(row, InvalidArgument) else row)
        for line, row in read_features(chunked(data, size))
    ]


FEATURES = [feature(111, text="a}]", n=[{"b": 1}]), feature(222), feature(333, text='\\"é{"')]
OBJECTS = [
    {"id": 111, "lon": 111, "lat": 2.5, "text": "a}]", "n": [{"b": 1}]},
    {"id": 222, "lon": 222, "lat": 2.5},
    {"id": 333, "lon": 333, "lat": 2.5, "text": '\\"é{"'},
]
COLLECTION = {"name": "x", "type": "FeatureCollection", "features": FEATURES, "bbox": [1, 2, 3, 4]}

FORMS = {
    "collection": json.dumps(COLLECTION),
    "indented": json.dumps(COLLECTION, indent=2),
    "lines": "".join(json.dumps(each) + "\n" for each in FEATURES),
    "sequence": "".join(f"\x1e{json.dumps(each)}\n" for each in FEATURES),
    "indented sequence": "".join(f"\x1e{json.dumps(each, indent=1)}\n" for each in FEATURES),
    "mark": "\ufeff" + json.dumps(COLLECTION, ensure_ascii=False),
    "one after the other": "".join(map(json.dumps, FEATURES)),
}


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1 << 16])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_objects(form: str, size: int) -> None:
    assert [row for _, row in rows(FORMS[form], size)] == OBJECTS


def test_an_object_has_the_line_on_which_its_feature_begins() -> None:
    for size in (1, 100, 1 << 16):
        lines = [line for line, _ in rows(FORMS["indented"], size)]
        text = FORMS["indented"].splitlines()
        assert [text[line - 1].strip() for line in lines] == ["{"] * 3
        assert '"id": 222' in text[lines[1] + 1]
    assert [line for line, _ in rows(FORMS["lines"])] == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "feature"}, "type: 'feature' is not Feature"),
        ({"geometry": None}, "geometry: must be a Point"),
        ({"geometry": {"type": "LineString", "coordinates": []}}, "geometry.type: 'LineString'"),
        ({"geometry": {"type": "Point", "coordinates": [1]}}, "geometry.coordinates: must be"),
        ({"properties": [1]}, "properties: must be an object"),
    ],
)
def test_a_wrong_feature_does_not_disturb_those_around_it(
    change: dict[str, Any], message: str
) -> None:
    whole = {**COLLECTION, "features": [FEATURES[0], FEATURES[1] | change, FEATURES[2]]}
    found = [row for _, row in rows(json.dumps(whole))]
    assert found[1].startswith(message)
    assert [found[0], found[2]] == [OBJECTS[0], OBJECTS[2]]


def test_ids_are_also_found_among_the_properties() -> None:
    one = feature(1, id="seven")
    del one["id"]
    assert rows(json.dumps(one))[0][1]["id"] == "seven"
    big = json.dumps(feature(1)).replace('"id": 1', '"id": 18446744073709551615')
    assert rows(big)[0][1]["id"] == 2**64 - 1


BROKEN = json.dumps(FEATURES[1]).replace(":", ",", 1)


@pytest.mark.parametrize("size", [1, 50, 1 << 16])
@pytest.mark.parametrize(
    "text",
    [
        "\n".join([json.dumps(FEATURES[0]), BROKEN, json.dumps(FEATURES[2])]),
        f"\x1e{json.dumps(FEATURES[0])}\n\x1e{BROKEN[:40]}\n\x1e{json.dumps(FEATURES[2])}\n",
        '{"type": "FeatureCollection", "features": [\n'
        + ",\n".join([json.dumps(FEATURES[0]), BROKEN, json.dumps(FEATURES[2])])
        + "\n]}\n",
    ],
)
def test_reading_goes_on_after_what_is_no_json(text: str, size: int) -> None:
    found = [row for _, row in rows(text, size)]
    assert found[0] == OBJECTS[0]
    assert found[-1] == OBJECTS[2]
    assert [each for each in found if isinstance(each, str)] == [found[1]]
    assert found[1].startswith("object: is no JSON")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "is no GeoJSON"),
        ("[]", "is no GeoJSON"),
        ('{"type": "FeatureCollection", "features": [', "ends within a value"),
        ('{"type": "Feat', "is no JSON: Unterminated string"),
        ('{"type": "FeatureCollection", "features": [NaN]}', "is no JSON: NaN is no number"),
        ("[" * 300_000, "is no GeoJSON"),
        ('{"a": ' + "[" * 300_000, "nested too deeply"),
        ('{"a": "' + "x" * 2_500_000 + '"}', "is no JSON within 1048576 characters"),
        ('{"a": 1' + "0" * 5_000 + "}", "is no JSON"),
        ('{"a" ' + " " * 3_000_000 + "1}", "':' is missing"),
    ],
)
def test_hostile_texts_give_an_error(text: str, message: str) -> None:
    found = rows(text)
    assert len(found) == 1
    assert message in found[0][1]
    # They are refused sooner than as much good text is read.
    count = max(len(text), 1_000) // len(FORMS["lines"]) + 1
    assert cpu_ratio(lambda: rows(text), lambda: rows(FORMS["lines"] * count), repeats=2) < 2


def test_what_is_wrong_is_found_without_reading_on() -> None:
    asked = 0

    def chunks() -> Iterator[bytes]:
        nonlocal asked
        yield b'{"type": "Feature", "id": {1}}\n'
        for asked in range(1, 100):
            yield json.dumps(feature(asked)).encode() + b"\n"

    line, error = next(read_features(chunks()))
    assert (line, str(error)[:18]) == (1, "object: is no JSON")
    assert asked <= 1


def test_memory_does_not_grow_with_the_collection() -> None:
    one = json.dumps(feature(1, text="x" * 500)).encode()

    def chunks() -> Iterator[bytes]:
        yield b'{"type": "FeatureCollection", "features": ['
        for _ in range(2_000):
            yield one + b","
        yield one + b"]}"

    tracemalloc.start()
    assert sum(1 for _ in read_features(chunks())) == 2_001
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_what_is_damaged_is_read_again_within_a_bound() -> None:
    # Each line begins a value that holds all lines after it, as deep as they may be nested.
    found = rows('\n{"a":[0,0,0,0,0,0,0,0,' * 20_000)
    assert 0 < len(found) < 2_000
    # A few of them take no other feature with them.
    damaged = '{"a":' * 5_000
    found = rows("\n".join([damaged, damaged, json.dumps(FEATURES[2])]))
    assert [isinstance(row, str) for _, row in found] == [True, True, False]


def test_what_is_left_out_is_not_kept() -> None:
    kept = 0

    def chunks() -> Iterator[bytes]:
        nonlocal kept
        yield b"{]\n"
        for _ in range(50):
            kept = max(kept, len(text._text))
            yield b" " * 10_000

    text = geojson._Text(chunks())
    with pytest.raises(geojson._UnreadableError):
        text.value()
    text.recover()
    assert 0 < kept < 40_000


def test_members_beside_the_features_are_not_kept() -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"type": "FeatureCollection"'
        for number in range(5_000):
            yield b',"%d": "%b"' % (number, b"x" * 500)
        yield b', "features": [%b]}' % json.dumps(feature(1)).encode()

    tracemalloc.start()
    assert sum(1 for _ in read_features(chunks())) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All of them are 2.5 MB.
    assert peak < 1_000_000
