"""All terms of a sliding window, compared with counting each window."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sirocco.index.store import window_term_counts
from sirocco.index.store.sliding_term_counts import NOTHING_FORGOTTEN
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.index.store.store_condition import ANY_OBJECT, Bounds
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.terms_search import TermCounts, count_terms
from sirocco.index.store.window_term_counts import TermRoom, WindowTermCounts
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.text import analyse_batch
from tests.support.seeds import drawn_seed
from tests.unit.index.store.test_frequent_terms import ROWS, condition_of, random_box, random_rows
from tests.unit.index.store.test_sliding_term_counts import append, counted, work


def of(found: TermCounts) -> dict[int, int]:
    assert (np.diff(found.hashes.astype(object)) > 0).all()
    return dict(zip(found.hashes.tolist(), found.counts.tolist(), strict=True))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[Bounds]:
    """The parts of the store that were counted."""
    seen: list[Bounds] = []

    def counting(view: Any, condition: Any, bounds: Bounds) -> TermCounts:
        seen.append(bounds)
        return count_terms(view, condition, bounds)

    monkeypatch.setattr(window_term_counts, "count_terms", counting)
    return seen


@pytest.mark.parametrize("trial", range(4))
def test_windows_that_slide_have_the_counts_of_a_search(trial: int, spans: list[Bounds]) -> None:
    seed = drawn_seed()
    print(f"seed {seed}, trial {trial}")
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 4.0, int(rng.choice([300, 3_000])))
    # Objects of several publishers do not arrive in order.
    arrivals_ms = 1_000 + np.arange(ROWS) - rng.integers(0, 40, ROWS)
    rows = replace(rows, arrivals_ms=arrivals_ms)
    store = SlotStore(StoreLimits(active_rows=int(rng.choice([500, 3_000])), slices=3))
    window, step = int(rng.choice([3_000, 12_000])), int(rng.integers(300, 1_400))
    keeps_ms = window + int(rng.choice([-800, 10, 3_000]))
    room = TermRoom(int(rng.choice([1 << 22, 700, 20])))
    left = room.left
    boxes = [None, *(random_box(rng, rows) for _ in range(4))]
    conditions = [ANY_OBJECT if box is None else condition_of(box) for box in boxes]
    kept = [WindowTermCounts(room) for _ in boxes]
    removed, taken, steps = NOTHING_FORGOTTEN, 0, 0
    for at_ms in range(1_000 + step, 1_000 + ROWS - 50, step):
        # Some objects after the step are already there.
        end = min(ROWS, at_ms - 1_000 + 50 + int(rng.integers(0, 300)))
        append(store, rows, taken, end)
        taken = end
        if rng.random() < 0.7:
            work(store)
        for slice_ in store.forget(at_ms - keeps_ms):
            removed = removed.and_slice(slice_)
        view, bounds = store.view(), Bounds(at_ms - window + 1, at_ms)
        for condition, one in zip(conditions, kept, strict=True):
            if rng.random() < 0.05:
                # Some steps are left out.
                continue
            found = one.count(view, condition, bounds, removed)
            assert of(found) == of(count_terms(view, condition, bounds))
            steps += 1
        assert room.left == left - sum(len(one._hashes) for one in kept) >= 0
    whole = sum(each.arrival_to_ms - each.arrival_from_ms + 1 == window for each in spans)
    if left == 1 << 22 and keeps_ms > window:
        assert whole < steps / 2, "nothing was counted on"
    for one in kept:
        one.forget()
    assert room.left == left


def test_only_what_enters_and_leaves_is_counted(spans: list[Bounds]) -> None:
    rows = random_rows(np.random.default_rng(3), 4.0, 300)
    rows = replace(rows, arrivals_ms=np.arange(ROWS))
    store = SlotStore(StoreLimits(active_rows=500))
    append(store, rows, 0, ROWS)
    kept = WindowTermCounts()
    for from_ms, to_ms in ((0, 900), (100, 1_200), (100, 1_200)):
        found = kept.count(store.view(), ANY_OBJECT, Bounds(from_ms, to_ms), NOTHING_FORGOTTEN)
        is_in = (np.arange(ROWS) >= from_ms) & (np.arange(ROWS) <= to_ms)
        assert of(found) == counted(rows, is_in)
    assert spans == [Bounds(0, 900), Bounds(901, 1_200), Bounds(0, 99)]


def test_without_room_each_window_is_counted(spans: list[Bounds]) -> None:
    rows = random_rows(np.random.default_rng(4), 4.0, 300)
    store = SlotStore(StoreLimits(active_rows=500))
    append(store, rows, 0, ROWS)
    room = TermRoom(10)
    kept = WindowTermCounts(room)
    for to_ms in (1_900, 2_200):
        kept.count(store.view(), ANY_OBJECT, Bounds(1_000, to_ms), NOTHING_FORGOTTEN)
    assert spans == [Bounds(1_000, 1_900), Bounds(1_000, 2_200)]
    assert (kept._counts.nbytes, room.left) == (0, 10)


def test_texts_of_new_terms_alone_are_looked_for() -> None:
    # Five more words with each object, and the first ones leave the window.
    words = [f"word{number}é" for number in range(400)]
    builder = ObjectColumnsBuilder()
    for number in range(60):
        text = " ".join(words[5 * number : 5 * number + 40])
        builder.add(parse_object({"id": number, "lon": 0, "lat": 0, "text": text}))
    rows, numbers = builder.build(), np.arange(60)
    store = SlotStore(StoreLimits(active_rows=16))
    terms = analyse_batch(rows.text, rows.text_offsets)
    store.append(rows, np.ones(60, np.uint64), numbers.astype(np.uint64), numbers, terms)
    asked: list[int] = []

    class Asked(TermNames):
        def of(self, hashes: Any, *others: Any) -> list[str]:
            asked.append(len(hashes))
            return super().of(hashes, *others)

    kept, names = WindowTermCounts(), Asked(kept_max=0)
    for to_ms in range(20, 60, 2):
        bounds = Bounds(to_ms - 10, to_ms)
        found = kept.count(store.view(), ANY_OBJECT, bounds, NOTHING_FORGOTTEN)
        data, offsets = kept.texts(found, names)
        texts = [data[a:b].tobytes().decode() for a, b in pairwise(offsets.tolist())]
        counts = dict(zip(texts, found.counts.tolist(), strict=True))
        held = [
            word
            for number in range(to_ms - 10, to_ms + 1)
            for word in words[5 * number : 5 * number + 40]
        ]
        assert counts == dict(Counter(held))
    assert asked == [90] + [10] * 19
