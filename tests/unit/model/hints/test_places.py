"""Where words stand in a text, for every text that Unicode can write."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.characters import UNICODE_VERSION
from sirocco.model.expression import Expression
from sirocco.model.hints.places import (
    PLACES_MAX,
    Place,
    keyword_places,
    matched_places,
    spans_of,
)
from sirocco.model.text import terms_of, tokens_of

# From each script that the analysis treats in its own way, and what composes or is left out.
SCRIPTS = (
    "abcXYZ_09 ,.-'\n\t\0\x7f",
    "äöüÄßẞéåŉǰſ",
    "\u0300\u0301\u0308\u0323\u0338\u0345\u034f\u20e3\ufe0f\u200d\u00ad",
    "ΑΣΊςὈᾳᾈİı\u0307",
    "हिन्दी\u093c\u0929\u09c7\u09be",
    "각한글\u1100\u1161\u11a8\u115f",
    "ﬁﬃ…½²™①Ａ＿\u3000\uff9e\uff76\ufdfa\u0344",
    "日本中文カタカ𠀀豈ーゔ\u3099ｶﾞａ1",
    "قرآن\u0653\u064b",
    "ไทยกำ\u0e33\u0eb3ខ្មែរမြန်",
    "👩‍👩🏽🎉<\u0338🇫🇷🇩❤\ufe0f©",
    "\U0001d400\U0001e900\U000e0100\U000f0000\U00011099\U000110ba",
)
ASSIGNED = st.characters(codec="utf-8").filter(
    lambda c: unicodedata.category(c) != "Cn" or unicodedata.unidata_version == UNICODE_VERSION
)
ANY_TEXT = st.text(ASSIGNED, max_size=30) | st.lists(
    st.sampled_from(SCRIPTS).flatmap(lambda script: st.text(alphabet=script, max_size=9)),
    max_size=8,
).map("".join)


def is_word_of(term: str, part: str) -> bool:
    """Whether a part of a text is this term, as the analysis reads it.

    Marks and U+30FC go with what is before them, and an iota below becomes a letter: a part that
    begins or ends with one may be cut otherwise than within its text.
    """
    return term in "".join(tokens_of(part))


@given(ANY_TEXT)
def test_spans_are_the_tokens_of_the_text(text: str) -> None:
    spans = spans_of(text)
    assert [token for token, _, _ in spans] == tokens_of(text)
    for token, start, end in spans:
        assert 0 <= start < end <= len(text)
        # What is highlighted is the word itself, at most with characters that belong to the same.
        assert is_word_of(token, text[start:end])
    assert [start for _, start, _ in spans] == sorted(start for _, start, _ in spans)


@given(ANY_TEXT)
def test_places_of_keywords_are_those_of_all_terms(text: str) -> None:
    terms = terms_of(text)
    found = keyword_places(sorted(set(terms)), text)
    assert sorted(place.term for place in found) == sorted(terms)
    for place in found:
        assert is_word_of(place.term, text[place.start : place.end])


@given(ANY_TEXT, st.data())
def test_a_phrase_and_a_beginning_of_the_text_are_found(text: str, data: st.DataObject) -> None:
    tokens = tokens_of(text)
    if not tokens:
        return
    first = data.draw(st.integers(0, len(tokens) - 1))
    count = data.draw(st.integers(1, min(4, len(tokens) - first)))
    # Written as in the text, so that the parser analyses it anew.
    spans = spans_of(text)
    piece = text[spans[first][1] : spans[first + count - 1][2]].replace('"', " ").replace("*", " ")
    expression = Expression.parse(f'"{piece}"')
    found = matched_places(expression, text)
    assert expression.matches(tokens) == bool(found)
    for place in found:
        words = place.term.strip('"*').replace(" ", "")
        assert is_word_of(words, text[place.start : place.end])


VECTORS: list[tuple[str, str, list[str]]] = [
    ("fire", "Big FIRE, fire! Fires", ["FIRE", "fire"]),
    ('"big fire"', "a big   fire, big\nfire.", ["big   fire", "big\nfire"]),
    ("evacuat*", "Evacuation: evacuate", ["Evacuation", "evacuate"]),
    ("strasse", "In der Straße brennt es", ["Straße"]),
    ("été", "E\u0301te\u0301.", ["E\u0301te\u0301"]),
    ("istanbul", "İSTANBUL!", ["İSTANBUL"]),
    ("1", "5½ cup", ["½"]),
    ("softhyphen", "soft\u00adhyphen", ["soft\u00adhyphen"]),
    ("火事", "東京駅で火事、火事", ["火事", "火事"]),
    ("❤", "I ❤️ you", ["❤️"]),
    ("👍", "👍🏽", ["👍"]),
    ("🇫🇷", "🇩🇪🇫🇷", ["🇫🇷"]),
    ("हिन्दी", "हिन्दी में", ["हिन्दी"]),
    ("서울*", "서울역 화재", ["서울역"]),
    ("สวัส", "สวัสดี", ["สวัส"]),
    ("พลุ OR ไฟ", "ไฟไหม้", ["ไฟ"]),
    ("fire NOT drill", "fire drill", []),
    ("(fire AND smoke) OR flood", "flood fire", ["flood"]),
    ("株式", "㍿", ["㍿"]),
]


@pytest.mark.parametrize(("expression", "text", "shown"), VECTORS)
def test_what_is_highlighted(expression: str, text: str, shown: list[str]) -> None:
    found = matched_places(Expression.parse(expression), text)
    assert [text[place.start : place.end] for place in found] == shown


def test_places_are_in_order_and_bounded() -> None:
    text = "a b " * 1_000
    found = matched_places(Expression.parse("b a"), text)
    assert found[:3] == [Place("a", 0, 1), Place("b", 2, 3), Place("a", 4, 5)]
    assert len(found) == PLACES_MAX


def test_a_huge_query_looks_at_a_part_of_a_huge_text() -> None:
    words = " OR ".join(f'"w{i} x"' for i in range(200))
    found: Any = matched_places(Expression.parse(words), "w0 x " + "y" * 65_000)
    assert found == [Place('"w0 x"', 0, 4)]
