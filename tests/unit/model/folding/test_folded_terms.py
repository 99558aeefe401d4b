"""Terms to which accents do not matter, compared with the contract's words over all of Unicode."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.characters import FoldedMaker
from sirocco.model.characters import UNICODE_VERSION, folded_table
from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import Expression
from sirocco.model.folding.folded_terms import folded_tokens_of, is_folded, present_terms
from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.hints.places import matched_places, spans_of
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import is_pattern, pattern_rows, words_of
from sirocco.model.query import canonical, identity_of, parse_query
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from tests.oracle import words
from tests.unit.model.hints.test_places import ANY_TEXT

ACCENTED = st.text(alphabet="aàáeéøßłđıiİæœ\u0301\u0308\u0345\u3099かが火é ", max_size=12)
TEXTS = ANY_TEXT | ACCENTED
KEYED = TermHashing("0123456789abcdef0123456789abcdef")

VECTORS = [
    ("Zürich ZÜRICH Zu\u0308rich", ["zurich", "zurich", "zurich"]),
    ("Łódź Øresund Đà Nẵng", ["lodz", "oresund", "da", "nang"]),
    ("Ægir Œuvre Þór eð ŋ ĸ", ["aegir", "oeuvre", "thor", "ed", "n", "q"]),
    ("Straße İSTANBUL ısparta", ["strasse", "istanbul", "isparta"]),
    ("naïve ﬁancé 5½ é", ["naive", "fiance", "5", "1", "2", "e"]),
    ("ΦΩΤΙΆ ᾳ ὠδή", ["φωτια", "α", "ωδη"]),
    ("Ёлка Йод її", ["елка", "иод", "іі"]),
    ("مَدْرَسَة آب", ["مدرسة", "اب"]),
    ("שָׁלוֹם", ["שלום"]),
    # Marks that are letters to their readers stay.
    ("हिन्दी में", ["हिन्दी", "में"]),
    ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
    ("がか\u3099か", ["が", "が", "か"]),
    ("각", ["각"]),
    ("❤️ 🇫\u0301🇷", ["❤", "🇫🇷"]),
    ("a \u0301 b", ["a", "b"]),
]


@pytest.mark.parametrize(("text", "tokens"), VECTORS)
def test_accents_are_left_out(text: str, tokens: list[str]) -> None:
    assert folded_tokens_of(text) == tokens == words.tokens_of(text, fold=True)


@given(TEXTS)
def test_folded_tokens_are_those_of_the_reference(text: str) -> None:
    assert folded_tokens_of(text) == words.tokens_of(text, fold=True)


@given(TEXTS)
def test_places_of_folded_tokens(text: str) -> None:
    spans = spans_of(text, fold=True)
    assert [token for token, _, _ in spans] == folded_tokens_of(text)
    for token, start, end in spans:
        assert token in "".join(folded_tokens_of(text[start:end]))


@given(TEXTS)
def test_folding_a_folded_text_changes_nothing(text: str) -> None:
    tokens = folded_tokens_of(text)
    assert [each for token in tokens for each in folded_tokens_of(token)] == tokens


@st.composite
def texts_and_terms(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Returns texts, and terms of expressions about them."""
    texts = draw(st.lists(TEXTS, min_size=1, max_size=5))
    terms: set[str] = set()
    for text in texts:
        for written in draw(st.lists(st.sampled_from(text.split() or ["x"]), max_size=3)):
            bare = written.replace('"', "").replace("*", "").replace("(", "").replace(")", "")
            form = draw(st.sampled_from(["{0}", '"{0} a"', '"{0}"', "{0}*"])).format(bare)
            try:
                found = Expression.parse(form, fold=draw(st.booleans()))
            except InvalidArgument:
                continue
            terms.update(t for one in found.conjunctions for t in one.positive if is_pattern(t))
    return texts, sorted(terms)


@given(texts_and_terms(), st.sampled_from([WIRE_TERMS, KEYED]), st.data())
def test_texts_hold_what_the_reference_finds(
    drawn: tuple[list[str], list[str]], hashing: TermHashing, data: st.DataObject
) -> None:
    texts, terms = drawn
    table = QueryPatterns(hashing.numbers)
    half = len(terms) // 2
    table.add(terms[:half])
    table.add(terms)
    dropped = set(data.draw(st.lists(st.sampled_from(terms)))) if terms else set()
    if dropped:
        gone = {table.known[term] for term in dropped}
        table.keep(lambda number: number not in gone)
    assert set(table.known) == set(terms) - dropped
    numbers, offsets = hashing.patterns(*pack_bytes([text.encode() for text in texts]), table)
    names = {number: term for term, number in table.known.items()}
    assert len(table) == len(names)
    for text, (begin, end) in zip(texts, pairwise(offsets.tolist()), strict=True):
        wanted = {term for term in present_terms(table.known, text) if is_pattern(term)}
        assert {names[number] for number in numbers[begin:end].tolist()} == wanted


def test_an_index_without_folded_terms_reads_no_table() -> None:
    table = QueryPatterns(WIRE_TERMS.numbers)
    table.add(['"a b"', "ab*"])
    folded_table.cache_clear()
    WIRE_TERMS.patterns(*pack_bytes([b"a b abc"]), table)
    assert folded_table.cache_info().currsize == 0


def test_terms_of_an_expression_are_marked() -> None:
    expression = Expression.parse('zürich NOT "été chaud" ANY(caf* über)', fold=True)
    terms = {t for one in expression.conjunctions for t in (*one.positive, *one.negative)}
    assert terms == {"~zurich", '~"ete chaud"', "~caf*", "~uber"}
    assert all(map(is_folded, terms))
    assert all(map(is_pattern, terms))
    assert not any(map(words_of, terms))
    packed = pack_bytes([each.encode() for each in (*sorted(terms), "zurich")])
    assert pattern_rows(*packed).tolist() == [0, 1, 2, 3]
    assert expression != Expression.parse("zurich", fold=True)
    assert Expression.parse("zürich", fold=True) == Expression.parse("ZURICH", fold=True)
    assert Expression.parse("zurich", fold=True) != Expression.parse("zurich")


@pytest.mark.parametrize(
    ("source", "text", "shown"),
    [
        ("zurich", "Von Zürich nach Zurich", ["Zürich", "Zurich"]),
        ("Zürich", "zurich", ["zurich"]),
        ('"cafe noir"', "un café  noir", ["café  noir"]),
        ("lod*", "w Łodzi", ["Łodzi"]),
        ("strasse NOT zürich", "Straße in Zurich", []),
        ("e", "E\u0301!", ["E\u0301"]),
    ],
)
def test_places_of_words_whose_accents_do_not_matter(
    source: str, text: str, shown: list[str]
) -> None:
    found = matched_places(Expression.parse(source, fold=True), text)
    assert [text[place.start : place.end] for place in found] == shown


def test_queries_say_that_accents_do_not_matter() -> None:
    members = {"id": "q", "kind": "range", "mode": "continuous", "text": "Zürich"}
    plain, folded = parse_query(members), parse_query(members | {"fold": True})
    assert parse_query(members | {"fold": False}) == plain != folded
    assert identity_of(plain) != identity_of(folded)
    assert canonical(folded) == members | {"fold": True}
    assert parse_query(canonical(folded)) == folded
    for wrong, field in (
        ({"fold": 1}, "fold"),
        ({"fold": None}, "fold"),
        ({"kind": "ranked", "fold": True}, "fold"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            parse_query(members | wrong)
        assert refused.value.field == field
    without = {name: value for name, value in members.items() if name != "text"}
    with pytest.raises(InvalidArgument, match="needs `text`"):
        parse_query(without | {"fold": True})


def test_the_table_is_what_the_script_writes() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        pytest.skip("the interpreter has another version of Unicode")
    table = folded_table()
    for name, column in FoldedMaker().columns().items():
        assert np.array_equal(getattr(table, name), column), name
