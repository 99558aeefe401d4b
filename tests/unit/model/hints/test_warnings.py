"""Warnings about queries that are valid, but probably meant otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from sirocco.model.hints.warnings import warnings_of
from sirocco.model.query import parse_query

WIDE = [[[-170, 0], [170, 0], [170, 10], [-170, 0]]]
NARROW = [[[10, 0], [170, 0], [170, 10], [10, 0]]]


def warned(members: dict[str, Any]) -> tuple[str, ...]:
    return warnings_of(parse_query({"id": "q", "kind": "range", "mode": "snapshot"} | members))


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("fire and not drill", "text: 'and' at character 5 is a word to be found"),
        ("a (or) b", "text: 'or' at character 3 is a word"),
        ("not a", "the operator is NOT"),
        ("“big fire”", "text: “ at character 0 means nothing"),
        ("«big fire»", 'a phrase stands between two "'),
        ("evacuat＊", "text: ＊ at character 7 means nothing"),
        ("fire NOT fire", "text: contradicts itself"),
    ],
)
def test_texts_that_probably_mean_something_else(text: str, warning: str) -> None:
    (found,) = warned({"text": text})
    assert warning in found


@pytest.mark.parametrize(
    "text",
    [
        "fire AND NOT drill",
        '"and or not"',
        "android notary orb",
        '"big fire"',
        "evac*",
        "a OR b NOT c",
    ],
)
def test_texts_that_mean_what_they_say(text: str) -> None:
    assert warned({"text": text}) == ()


def test_polygons_wider_than_half_the_earth() -> None:
    (found,) = warned({"region": {"polygon": WIDE}})
    assert found.startswith("region.polygon: is wider than half the Earth")
    assert warned({"region": {"polygon": NARROW}}) == ()
    knn = {"kind": "knn", "point": {"lon": 0, "lat": 0}, "k": 1, "text": "a or b"}
    assert len(warned(knn)) == 1
