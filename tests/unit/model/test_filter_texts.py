"""Filters that stay parsed: which, and how many."""

from __future__ import annotations

import orjson
import pytest

from sirocco.model.attributes import Filter
from sirocco.model.errors import InvalidArgument
from sirocco.model.filter_texts import ParsedFilters


def text_of(number: int) -> str:
    return orjson.dumps({"a": {"in": [number, number + 1]}}).decode()


def test_the_texts_that_were_wanted_last_stay_parsed() -> None:
    texts = [text_of(number) for number in range(10, 60)]
    parsed = ParsedFilters(text_max=5 * 64)
    kept = parsed.get(texts[0])
    assert kept == Filter.parse(orjson.loads(texts[0]))
    other = parsed.get(texts[1])
    for text in texts:
        parsed.get(text)
        # The one that is wanted again and again is carried from one generation to the next.
        assert parsed.get(texts[0]) is kept
        assert len(parsed) <= 10
    assert parsed.get(texts[1]) is not other


def test_long_ones_do_not_stay() -> None:
    parsed = ParsedFilters(text_max=5)
    first = parsed.get(text_of(1))
    assert parsed.get(text_of(1)) is first
    parsed.get(text_of(2))
    assert parsed.get(text_of(1)) is not first
    assert len(parsed) <= 2


def test_what_is_no_filter_is_refused_each_time() -> None:
    parsed = ParsedFilters()
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            parsed.get('{"a": []}')
        with pytest.raises(orjson.JSONDecodeError):
            parsed.get("{")
