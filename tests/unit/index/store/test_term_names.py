"""Texts of terms: found in the objects that hold them, and cached within a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.store import SlotStore
from sirocco.index.store.store_condition import ALL_TIME, ANY_OBJECT
from sirocco.index.store.store_search import Hits
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.terms_search import count_terms, named_counts, sources_of, top_terms
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.text import analyse_batch

WORDS = [f"word{number}" for number in range(40)]


@pytest.fixture
def store() -> SlotStore:
    builder = ObjectColumnsBuilder()
    for number in range(200):
        text = " ".join(WORDS[: 1 + number % len(WORDS)])
        builder.add(parse_object({"id": number, "lon": number / 2, "lat": 0, "text": text}))
    rows = builder.build()
    numbers = np.arange(1, 201)
    made = SlotStore()
    made.append(
        rows,
        np.ones(200, np.uint64),
        numbers.astype(np.uint64),
        numbers,
        analyse_batch(rows.text, rows.text_offsets),
    )
    return made


@pytest.mark.parametrize("kept_max", [0, 1, 7, 39, 40, 1_000])
def test_names_are_right_and_few_whatever_was_kept(store: SlotStore, kept_max: int) -> None:
    names, view = TermNames(kept_max=kept_max), store.view()
    for _ in range(3):
        found = count_terms(view)
        assert sorted(named_counts(found, names)) == sorted(WORDS)
        assert top_terms(found, 2, names) == [("word0", 200), ("word1", 195)]
        assert len(names._texts) <= kept_max


@pytest.mark.parametrize("is_sealed", [False, True])
def test_only_wanted_terms_are_kept(store: SlotStore, is_sealed: bool) -> None:
    if is_sealed:
        store.seal()
    found = count_terms(store.view(), k=2)
    names = TermNames()
    assert named_counts(found, names)
    assert sorted(names._texts.values()) == ["word0", "word1"]


def test_terms_of_sealed_slices_are_found_without_another_search(
    store: SlotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.seal()
    view = store.view()
    found = count_terms(view)
    read: list[int] = []
    gather = Hits.gather

    def noted(hits: Hits) -> StoredRows:
        read.append(len(hits))
        return gather(hits)

    monkeypatch.setattr(Hits, "gather", noted)

    counted = replace(found, hits=lambda: sources_of((view,), ANY_OBJECT, ALL_TIME))
    assert sorted(named_counts(counted, TermNames())) == sorted(WORDS)

    # At most one row for each term, however many rows the region holds.
    assert 0 < sum(read) <= len(WORDS)
