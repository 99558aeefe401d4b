"""Places of words in notifications: what they may cost a merger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from sirocco.model.hints.places import TextPlaces
from sirocco.model.objects import pack_bytes
from sirocco.services.merger import highlights
from sirocco.services.merger.highlights import TERMS_MAX, highlights_of


def delivered(queries: int, terms: int, objects: int) -> Any:
    """Returns matches of all queries by all objects."""
    words = " OR ".join(f"w{number}" for number in range(terms))
    specs = [
        orjson.dumps(
            {
                "id": f"q{number}",
                "kind": "range",
                "text": words,
                "highlight": True,
                "mode": "continuous",
            }
        ).decode()
        for number in range(queries)
    ]
    text, offsets = pack_bytes([b"w0 said"] * objects)
    pairs = np.indices((queries, objects)).reshape(2, -1)
    return SimpleNamespace(
        queries=SimpleNamespace(specs=specs),
        objects=SimpleNamespace(text=text, text_offsets=offsets),
        matches=SimpleNamespace(queries=pairs[0], objects=pairs[1]),
        lists=None,
    )


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of terms of each query that was looked up."""
    found: list[int] = []

    class Counted(TextPlaces):
        def matched(self, expression: Any) -> Any:
            found.append(sum(len(one.positive) for one in expression.conjunctions))
            return super().matched(expression)

    monkeypatch.setattr(highlights, "TextPlaces", Counted)
    return found


def test_many_large_queries_of_one_object_are_not_all_looked_up(looked: list[int]) -> None:
    highlights_of(delivered(queries=30, terms=256, objects=100))
    assert 0 < sum(looked) <= TERMS_MAX


def test_usual_ones_are(looked: list[int]) -> None:
    found, _ = highlights_of(delivered(queries=10, terms=3, objects=100))
    assert len(looked) == 1_000
    assert len(found.matches) == 4 * 1_000


def test_reading_the_queries_takes_a_bounded_time(looked: list[int]) -> None:
    hours = iter(range(100))
    highlights_of(delivered(queries=10, terms=3, objects=1), cpu_s=lambda: 0.1 * next(hours))
    assert len(looked) == 4
