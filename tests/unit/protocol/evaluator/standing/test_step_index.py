"""The due steps of standing terms and ranked queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sirocco.index.store.sliding_term_counts import SlidingTermCounts
from sirocco.index.store.store_condition import ANY_OBJECT
from sirocco.index.store.window_term_counts import WindowTermCounts
from sirocco.model.query import TermsQuery
from sirocco.protocol.contract.messages import NO_PAST
from sirocco.protocol.evaluator.standing.step_schedule import StepIndex

EVERY_3_S = TermsQuery(id="q", mode="continuous", k=5, window_ms=10_000, step_ms=3_000)


def inserted(index: StepIndex, query: TermsQuery, start_ms: int) -> int:
    one, handles = np.ones(1, np.uint32), np.ones(1, np.uint64)
    starts_ms, past_ms = np.array([start_ms]), np.array([NO_PAST])
    (row,) = index.insert(
        [query], handles, [ANY_OBJECT], starts_ms, past_ms, one, one.astype(np.bool_)
    )
    return int(row)


def due(index: StepIndex, time_ms: int) -> list[tuple[int, int]]:
    return [(at_ms, entry.row) for at_ms, entry in index.take_due(time_ms, at_most=100)]


def test_steps_are_due_once_until_the_lifetime_is_over() -> None:
    index = StepIndex()
    row = inserted(index, replace(EVERY_3_S, ttl_ms=7_000), 1_000)
    assert due(index, 4_000) == []
    assert due(index, 4_001) == [(4_000, row)]
    assert due(index, 60_000) == [(7_000, row)]
    assert due(index, 90_000) == []


def test_a_reused_row_has_no_step_of_the_former_query() -> None:
    # init: the next step of a query that ended is still in the queue.
    index = StepIndex()
    row = inserted(index, EVERY_3_S, 1_000)
    index.remove(np.array([row], np.int32), position=5)
    assert index.reclaim(5) == 1

    # test: the next query in its row begins at the same time, and ends before its first step.
    assert inserted(index, replace(EVERY_3_S, ttl_ms=600), 1_000) == row

    # check
    assert due(index, 60_000) == []


def test_a_terms_query_still_counts_on_when_another_slot_gets_it() -> None:
    index = StepIndex()
    row = inserted(index, EVERY_3_S, 1_000)
    before = index.queries[row].kept
    assert isinstance(before, SlidingTermCounts)
    index.share(np.array([row], np.int32))
    kept = index.queries[row].kept
    assert isinstance(kept, WindowTermCounts)
    # Another copy of it changes nothing.
    index.share(np.array([row], np.int32))
    assert index.queries[row].kept is kept
    # What enters and leaves would be more than the window.
    wide = inserted(index, replace(EVERY_3_S, id="r", step_ms=6_000), 1_000)
    index.share(np.array([wide], np.int32))
    assert index.queries[wide].kept is None


def test_copies_of_a_checkpoint_count_on_from_their_first_step() -> None:
    index, restored = StepIndex(), StepIndex()
    row = inserted(index, EVERY_3_S, 1_000)
    index.share(np.array([row], np.int32))
    state = {**index.state(np.array([row], np.int32)), "handles": np.ones(1, np.uint64)}
    (again,) = restored.restore([EVERY_3_S], [lambda: ANY_OBJECT], state)
    assert isinstance(restored.queries[int(again)].kept, WindowTermCounts)
