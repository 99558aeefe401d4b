"""Columns of tables: usual names, chosen names, and what is missing."""

from __future__ import annotations

import pytest

from sirocco.formats.column_map import COLUMNS_MAX, find_columns, has_place, read_map
from sirocco.model.errors import InvalidArgument


def test_usual_names_are_found_in_any_case() -> None:
    found = find_columns(["Latitude", "LON", "size", "ID", "Timestamp", "text"], {})
    assert (found.id, found.lon, found.lat, found.ts, found.text) == (3, 1, 0, 4, (5,))
    assert found.others == ((2, "size"),)


def test_chosen_names_come_first_and_the_rest_is_attributes() -> None:
    names = ["id", "lon", "lat", "x", "y", "a", "b", "key", ""]
    found = find_columns(names, read_map("lon=x, lat=y,text=a+b,id=key"))
    assert (found.id, found.lon, found.lat, found.text) == (7, 3, 4, (5, 6))
    # Attributes cannot be named as the fixed members.
    assert found.others == ()


@pytest.mark.parametrize(
    ("names", "chosen", "field", "message"),
    [
        (["id", "lon"], "", "header", "no column for lat: the map names it, as lat=COLUMN; there"),
        (["lon", "lat"], "", "header", "no column for id"),
        (["id", "lon", "lat"], "ts=when", "map", "no column 'when'; there are id, lon, lat"),
        (["id", "lon", "lat", "lat"], "", "header", "two columns 'lat'"),
        (["id", "lon", "lat", *map(str, range(COLUMNS_MAX))], "", "header", "more than 1000"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(
    names: list[str], chosen: str, field: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        find_columns(names, read_map(chosen) if chosen else {})
    assert caught.value.field == field
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("text", ["", "lon", "lon=", "place=x", "lon=a,lon=b", "=a", "lon=a,,"])
def test_a_wrong_map_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_map(text)
    assert caught.value.field == "map"


def test_a_header_with_a_place_is_one_of_a_table() -> None:
    assert has_place(["A", "Longitude", "y"])
    assert not has_place(["lon", "b"])


def test_a_column_cannot_be_named_again_and_again() -> None:
    # Each row would be joined of as many cells.
    with pytest.raises(InvalidArgument, match="map: names a column of text twice"):
        read_map("text=a+b" + "+a" * 8_000)
