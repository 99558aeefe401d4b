"""Expressions: grammar, errors, and the disjunctive form, compared with the syntax tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import (
    Conjunction,
    Expression,
    disjunctive_form,
    parse_syntax,
)
from sirocco.model.limits import STORED_LIMITS, Limits
from tests.oracle import holds
from tests.support.cpu_time import cpu_ratio

WORDS = "abcdef"


def conjunctions(source: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(c.positive, c.negative) for c in Expression.parse(source).conjunctions]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("coffee", [(("coffee",), ())]),
        ("(coffee AND free) OR pizza", [(("coffee", "free"), ()), (("pizza",), ())]),
        ("a b OR c d", [(("a", "b"), ()), (("c", "d"), ())]),
        ("a AND NOT b", [(("a",), ("b",))]),
        ("a NOT b OR c", [(("a",), ("b",)), (("c",), ())]),
        ("a (b OR c)", [(("a", "b"), ()), (("a", "c"), ())]),
        ("NOT NOT a", [(("a",), ())]),
        ("NOT (a OR NOT b)", [(("b",), ("a",))]),
        ("ANY(louvre museum)", [(("louvre",), ()), (("museum",), ())]),
        ("ANY ( New-York rome )", [(('"new york"',), ()), (("rome",), ())]),
        ("c NOT ANY(a b)", [(("c",), ("a", "b"))]),
        ("c NOT wi-fi", [(("c",), ('"wi fi"',))]),
        ("New-York", [(('"new york"',), ())]),
        ("wi-fi-wi", [(('"wi fi wi"',), ())]),
        ('"Big  FIRE" now', [(('"big fire"', "now"), ())]),
        ('"fire"', [(("fire",), ())]),
        ('"a b"OR c"d e"', [(('"a b"',), ()), (('"d e"', "c"), ())]),
        ("evacuat* NOT Drill*", [(("evacuat*",), ("drill*",))]),
        ('ANY("big fire" evac* x)', [(('"big fire"',), ()), (("evac*",), ()), (("x",), ())]),
        ("火事 ❤️", [(('"火 事"', "❤"), ())]),
        ("火", [(("火",), ())]),
        ("and or not any", [(("and", "any", "not", "or"), ())]),
        ("Straße OR STRASSE", [(("strasse",), ())]),
        ("a OR a b", [(("a",), ())]),
        ("a OR (b NOT b)", [(("a",), ())]),
        ("a\u2003b\tc\nd", [(("a", "b", "c", "d"), ())]),
        ("ＡＮＤ b", [(("and", "b"), ())]),
    ],
)
def test_forms(source: str, expected: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    assert conjunctions(source) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "empty"),
        (" \t", "empty"),
        ("a OR", "ends at character 4"),
        ("OR a", "instead of OR at character 0"),
        ("a AND AND b", "instead of AND at character 6"),
        ("a AND OR b", "instead of OR at character 6"),
        ("NOT", "ends at character 3"),
        ("(a", "expected ) at character 2"),
        ("a)", "unexpected ) at character 1"),
        ("()", "instead of ) at character 1"),
        ("ANY a", "expected ( at character 4"),
        ("ANY()", "instead of ) at character 4"),
        ("ANY(a", "ends at character 5"),
        ("ANY(a AND b)", "instead of AND at character 6"),
        ("ANY(a (b))", "instead of ( at character 6"),
        ("a --- b", "'---' holds no letter, digit or emoji at character 2"),
        ("NOT a", "only negations"),
        ("a OR NOT b", "only negations"),
        ("(" * 40 + "a" + ")" * 40, "nested deeper than 32 at character 33"),
        ("NOT " * 4_000 + "a", "nested deeper"),
        ("x" * 20_000, "longer than 16384 bytes"),
        ("é" * 10_000, "longer than 16384 bytes"),
        (" ".join("a" * 1_025), "more than 1024 terms"),
        ('a "b c', "a quote without its partner at character 2"),
        ('a b" OR c', "a quote without its partner at character 3"),
        ('a ""', "an empty phrase at character 2"),
        ('a "--"', "an empty phrase at character 2"),
        ("a *", "is not one word of a script with spaces, at character 2"),
        ("fi*re", "a star that does not end a word at character 2"),
        ("fire**", "a star that does not end a word at character 4"),
        ('"big fir*"', "a star that does not end a word at character 8"),
        ('"big fire"*', "is not one word of a script with spaces, at character 10"),
        ("a b*", "fewer than 2 characters before the star at character 3"),
        ("wi-f*", "is not one word of a script with spaces, at character 4"),
        ("火事*", "is not one word of a script with spaces, at character 2"),
        ("-".join("a" * 65), "a phrase of more than 64 words at character 0"),
    ],
)
def test_errors_name_the_fault_and_its_place(source: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Expression.parse(source, "text")
    assert message in caught.value.message
    assert caught.value.field == "text"


@pytest.mark.parametrize(
    "source", ["fire AND NOT fire", "NOT (fire OR NOT fire)", "(a OR b) NOT a NOT b", "a a NOT a"]
)
def test_what_contradicts_itself_is_allowed_and_matches_nothing(source: str) -> None:
    expression = Expression.parse(source, "text")
    assert not any(expression.matches(terms) for terms in ([], ["a"], ["b"], ["a", "b"], ["fire"]))
    (conjunction,) = expression.conjunctions
    assert conjunction.positive


def test_conjunctions_are_limited() -> None:
    assert len(Expression.parse("ANY(" + " ".join(f"w{i}" for i in range(256)) + ")").conjunctions)
    with pytest.raises(InvalidArgument, match="257 conjunctions, the limit is 256"):
        Expression.parse("ANY(" + " ".join(f"w{i}" for i in range(257)) + ")")


@pytest.mark.parametrize(
    "source",
    [
        " ".join(f"(a{i} OR b{i})" for i in range(400)),
        " ".join(f"ANY({' '.join(f'a{i}x{j}' for j in range(40))})" for i in range(25)),
        "x NOT (" + " OR ".join(f"(a{i} b{i} c{i})" for i in range(300)) + ")",
        " ".join(f"(a{i} OR NOT a{i + 1})" for i in range(400)),
    ],
)
def test_explosions_are_stopped_early(source: str) -> None:
    def refused() -> None:
        with pytest.raises(InvalidArgument, match="too entangled"):
            Expression.parse(source)

    # The largest that is accepted takes a tenth; without a bound, these would run for hours.
    largest = "ANY(" + " ".join(f"w{i}" for i in range(256)) + ")"
    assert cpu_ratio(refused, lambda: Expression.parse(largest)) < 100


def test_unit_factors_tame_products() -> None:
    """2^12 products on the way, one at the end: the order of multiplication avoids them."""
    source = " ".join(f"(a{i} OR b{i})" for i in range(12)) + "".join(
        f" NOT b{i}" for i in range(12)
    )
    assert len(Expression.parse(source).conjunctions) == 1


def test_limits_are_arguments() -> None:
    with pytest.raises(InvalidArgument, match="limit is 2"):
        Expression.parse("a OR b OR c", limits=Limits(conjunctions=2))


def sources() -> st.SearchStrategy[str]:
    word = st.sampled_from([*WORDS, "a-b", "C", "d.e.f", "ab*", '"a b"', '"c"'])
    leaf = st.one_of(
        word, st.lists(word, min_size=1, max_size=3).map(lambda w: f"ANY({' '.join(w)})")
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(lambda e: f"NOT {e}" if " " not in e else f"NOT ({e})"),
            inner.map(lambda e: f"({e})"),
            st.tuples(inner, st.sampled_from([" ", " AND ", " OR "]), inner).map("".join),
        ),
        max_leaves=10,
    )


TEXTS = st.lists(st.sampled_from([*WORDS, "ab", "abc"]), max_size=9)


@given(sources(), st.lists(TEXTS, min_size=1, max_size=8))
def test_form_equals_direct_evaluation(source: str, cases: list[list[str]]) -> None:
    expression, refusal = parse_or_refusal(source)
    if expression is None:
        # Direct evaluation agrees: a text without terms matches.
        assert "negations" in refusal
        assert holds(source, [])
        return
    for case in cases:
        assert expression.matches(case) == holds(source, case)
    first, *others = expression.conjunctions
    if first.positive == first.negative:
        # It contradicts itself.
        assert not others
        return
    assert_simplified(expression.conjunctions)


def parse_or_refusal(source: str) -> tuple[Expression | None, str]:
    try:
        return Expression.parse(source), ""
    except InvalidArgument as error:
        return None, error.message


def assert_simplified(found: tuple[Conjunction, ...]) -> None:
    literals = [
        frozenset([(t, True) for t in c.positive] + [(t, False) for t in c.negative]) for c in found
    ]
    assert len(set(literals)) == len(literals)
    for conjunction, own in zip(found, literals, strict=True):
        assert conjunction.positive == tuple(sorted(set(conjunction.positive)))
        assert conjunction.negative == tuple(sorted(set(conjunction.negative)))
        assert conjunction.positive
        assert not set(conjunction.positive) & set(conjunction.negative)
        assert not any(other < own for other in literals)


@given(sources())
def test_equal_meaning_of_spacing_and_parentheses(source: str) -> None:
    expression, _ = parse_or_refusal(source)
    assume(expression is not None)
    assert Expression.parse(f" ( {source} ) ") == expression


def plain_sources() -> st.SearchStrategy[str]:
    word = st.sampled_from(["a", "B", "b", "c_3", "42", "and", "AND", "OR", "ANY", "é", "x-y", "-"])
    gap = st.sampled_from([" ", " ", " AND ", "  ", "\t"])
    rest = st.lists(st.tuples(gap, word).map("".join), max_size=5).map("".join)
    return st.tuples(word, rest, st.sampled_from(["", "", " ", "\n"])).map("".join)


@given(plain_sources(), st.integers(1, 4), st.integers(1, 12))
def test_plain_words_are_read_as_the_grammar_reads_them(
    source: str, terms_max: int, bytes_max: int
) -> None:
    limits = Limits(expression_terms=terms_max, expression_bytes=bytes_max)

    def by_grammar() -> Expression:
        node = parse_syntax(source, limits=limits)
        return Expression(source, disjunctive_form(node, limits=limits))

    def as_parsed() -> Expression:
        return Expression.parse(source, limits=limits)

    assert result_or_refusal(as_parsed) == result_or_refusal(by_grammar)


def result_or_refusal(action: Callable[[], Expression]) -> Expression | str:
    try:
        return action()
    except InvalidArgument as error:
        return error.message


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ('"big fire"', ["a", "big", "fire"], True),
        ('"big fire"', ["fire", "big"], False),
        ('"big fire"', ["big", "red", "fire"], False),
        ('"a a b"', ["a", "a", "a", "b"], True),
        ('c NOT "big fire"', ["c", "fire", "big"], True),
        ('c NOT "big fire"', ["c", "big", "fire"], False),
        ("evacuat*", ["evacuation"], True),
        ("evacuat*", ["evacuat"], True),
        ("evacuat*", ["evacua"], False),
        ("火事", ["大", "火", "事"], True),
        ("火事", ["事", "火"], False),
    ],
)
def test_phrases_and_beginnings(source: str, text: list[str], expected: bool) -> None:
    assert holds(source, text) is expected
    assert Expression.parse(source).matches(text) is expected


@pytest.mark.parametrize(
    ("source", "positive"),
    [
        ("c* fire", ("c", "fire")),
        ('rock"n"roll', ("n", "rock", "roll")),
        ('"fire', ("fire",)),
        ("fir*", ("fir*",)),
        ("-".join("ab" * 40), ('"' + " ".join("ab" * 40) + '"',)),
    ],
)
def test_stored_queries_with_marks_that_meant_nothing_are_read(
    source: str, positive: tuple[str, ...]
) -> None:
    (one,) = Expression.parse(source, limits=STORED_LIMITS).conjunctions
    assert one.positive == positive


def test_beginnings_are_bounded_together() -> None:
    """Each byte is a node in every slot: 31 beginnings of 500 bytes took 2.7 MB there."""
    source = " ".join(f"b{i}{'y' * 500}*" for i in range(31))
    with pytest.raises(InvalidArgument, match="more than 2048 bytes of beginnings") as refused:
        Expression.parse(source)
    assert refused.value.field == "text"
    Expression.parse(f"ANY({' '.join(f'begin{i:03}*' for i in range(256))})")
    # What is stored keeps its meaning.
    assert len(Expression.parse(source, limits=STORED_LIMITS).patterns) == 31
