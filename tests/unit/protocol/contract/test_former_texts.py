"""Texts of queries whose compiled form is of an earlier analysis."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.index.base.compile import NO_WORDS, compile_queries, with_texts
from sirocco.index.base.query_rows import TEXT_COLUMNS, QueryRows
from sirocco.index.routing.keyword_slots import ANY_TERM
from sirocco.model.limits import STORED_LIMITS
from sirocco.model.query import Query, digest_of_query, parse_query, query_handle
from sirocco.model.text import ANALYSIS
from sirocco.protocol.contract.messages import NO_PAST, Change
from sirocco.protocol.contract.query_words import analysed_from, may_read_otherwise
from sirocco.protocol.router.queries import former_analysis

RECT = {"rect": {"west": 0, "south": 0, "east": 1, "north": 1}}
TEXTS = ("fire", "火事", "a OR (b AND NOT c)", "", "wi-fi", "x AND NOT (y OR 大火)")


def query(text: str, **more: Any) -> Query:
    members = {"id": text or "none", "kind": "range", "mode": "continuous", "region": RECT} | more
    return parse_query(members | ({"text": text} if text else {}), limits=STORED_LIMITS)


def texts_of(rows: QueryRows) -> list[Any]:
    """The texts of queries, read term by term."""
    read = []
    for first, last in zip(rows.conj_offsets, rows.conj_offsets[1:], strict=False):
        conjunctions = []
        for at in range(first, last):
            both = [
                getattr(rows, f"{sign}_terms")[
                    getattr(rows, f"{sign}_offsets")[at] : getattr(rows, f"{sign}_offsets")[at + 1]
                ].tolist()
                for sign in ("pos", "neg")
            ]
            conjunctions.append(both)
        read.append(conjunctions)
    return read


@pytest.mark.parametrize("has_words", [False, True])
def test_some_queries_take_the_texts_of_others(has_words: bool) -> None:
    rng = random.Random(5)
    for _ in range(50):
        before = [query(rng.choice(TEXTS)) for _ in range(rng.randint(1, 6))]
        rows = compile_queries(before, [0] * len(before))
        former = rows if has_words else replace(rows, **NO_WORDS)
        places = rng.sample(range(len(before)), rng.randint(1, len(before)))
        after = list(before)
        for place in places:
            after[place] = query(rng.choice(TEXTS))
        others = compile_queries([after[place] for place in places], [0] * len(places))
        found = with_texts(former, others, np.array(places))
        wanted = compile_queries(after, [0] * len(after))
        assert texts_of(found) == texts_of(wanted)
        for name in set(QueryRows.__slots__) - set(TEXT_COLUMNS):
            assert np.array_equal(getattr(found, name), getattr(rows, name))
        # The words of those that were renewed are known, and no others are invented.
        known = dict(_words(wanted))
        assert all(known[word] == term for word, term in _words(found) if word in known)


def _words(rows: QueryRows) -> list[tuple[bytes, int]]:
    pairs = zip(rows.pos_word_rows.tolist(), rows.pos_terms.tolist(), strict=True)
    ends = rows.word_offsets
    return [(rows.words[ends[w] : ends[w + 1]].tobytes(), t) for w, t in pairs if w >= 0]


def test_words_of_ascii_alone_are_the_same_in_every_analysis() -> None:
    assert not may_read_otherwise(query("big Fire AND drill_7"))
    assert not may_read_otherwise(query(""))
    for text in ("火事", "wi-fi", "a OR b", "İstanbul"):
        assert may_read_otherwise(query(text))


def test_only_the_version_of_a_definition_takes_its_text() -> None:
    former = replace(compile_queries([query("x"), query("x")], [0, 0]), **NO_WORDS)
    definitions = {(1, 5): query("火事"), (2, 6): query("火事")}
    handles, revisions = np.array([1, 2], np.uint64), np.array([5, 7])
    found = texts_of(analysed_from(former, handles, revisions, definitions))
    assert found == texts_of(compile_queries([query("火事"), query("x")], [0, 0]))


def test_the_owner_of_a_registry_renews_digests_and_keywords() -> None:
    changes = [_change(query("fire"), 0), _change(query("火事"), 0)]
    state = {
        "handles": np.array([change.handle for change in changes], np.uint64),
        "revisions": np.array([3, 4]),
        "digests": np.array([11, 12], np.uint64),
        "summary.said": np.array([1, 0]),
        "summary.keys": np.array([21, 22], np.uint64),
        "summary.several": np.array([[0, 21], [1, 22], [1, 23]], np.uint64),
    }
    assert former_analysis.is_due(state)
    made = former_analysis.with_analysis(state, [(3, changes[0]), (4, changes[1])])
    assert not former_analysis.is_due(made)
    assert made["digests"].tolist() == [11, digest_of_query(query("火事"), "ops")]
    assert made["summary.keys"].tolist() == [21, ANY_TERM]
    assert made["summary.several"].tolist() == [[0, 21]]
    assert made["summary.said"].tolist() == [0, 0]
    assert former_analysis.STALE in made
    # A record that is not the version in force says nothing.
    other = former_analysis.with_analysis(state, [(2, changes[1])])
    assert other["digests"].tolist() == [11, 12]
    assert former_analysis.STALE not in other
    assert int(other["analysis"][0]) == ANALYSIS


def _change(definition: Query, expected: int) -> Change:
    return Change(
        handle=query_handle(definition.id),
        query=definition,
        subscriber="ops",
        start_ms=0,
        expected_revision=expected,
        digest=1,
        epoch=1,
        past_ms=NO_PAST,
    )


def test_stored_pairs_that_begin_with_a_long_vowel_are_read_as_they_were_written() -> None:
    members = {
        **{"id": "b", "kind": "ranked", "mode": "continuous", "radius_m": 1, "k": 1},
        **{"point": {"lon": 0, "lat": 0}, "keywords": ["コー", "ヒー", "ーヒ"]},
    }
    whole = parse_query(members | {"keywords": ["コーヒー"]})
    assert parse_query(members, limits=STORED_LIMITS) == whole
    assert parse_query(members) != whole
