"""Keywords of ranked queries keep their terms when a query is stored, sent, and read again."""

from __future__ import annotations

import random

import pytest

from sirocco.codec.queries import read_query, write_query
from sirocco.model.query import RankedQuery, canonical, parse_query
from sirocco.model.text import keywords_for, terms_of

POINT = {"lon": 0, "lat": 0}
LETTERS = ["コ", "ヒ", "ー", "ー", "ー\u0301", "東", "か\u3099", "a", "1", "ก", "ั", "-", "🔥"]


def ranked(*keywords: str) -> RankedQuery:
    query = parse_query(
        {
            "id": "b",
            "kind": "ranked",
            "mode": "snapshot",
            "point": POINT,
            "radius_m": 1,
            "k": 1,
            "keywords": list(keywords),
        }
    )
    assert isinstance(query, RankedQuery)
    return query


@pytest.mark.parametrize(
    "text",
    [
        "コーヒー",
        "ｺｰﾋｰ",
        "ラーメン",
        "スーーパー",
        "コー\u0301ーヒ",
        "ーヒ",
        "ー",
        "ーー",
        "東京タワー",
    ],
)
def test_terms_of_long_vowels_are_read_back(text: str) -> None:
    query = ranked(text)
    assert query.keywords == tuple(sorted(set(terms_of(text))))
    assert parse_query(canonical(query)) == query
    assert read_query(write_query(query, "sub")) == (query, "sub")


def test_any_terms_are_read_back() -> None:
    rng = random.Random(7)
    led = 0
    for _ in range(300):
        words = ["".join(rng.choices(LETTERS, k=rng.randint(1, 6))) for _ in range(3)]
        keywords = [word for word in words if terms_of(word)]
        if keywords:
            query = ranked(*keywords)
            form = keywords_for(query.keywords)
            assert ranked(*form) == query, keywords
            led += form != list(query.keywords)
    assert led > 20
