"""Which live queries a change of the map makes unplaced."""

from __future__ import annotations

import numpy as np

from sirocco.protocol.contract.messages import NEVER_MS
from sirocco.protocol.router.queries.live_queries import LiveQueries

SLOT_SETS: list[tuple[int, ...]] = [(0,), (1,), (1, 2), (0, 1, 2, 3), (3,)]


def some_live() -> LiveQueries:
    live = LiveQueries()
    count = len(SLOT_SETS)
    handles = np.arange(10, 10 + count, dtype=np.uint64)
    live.put(handles, list(range(count)), [0] * count, np.full(count, NEVER_MS), SLOT_SETS)
    return live


def unplaced(live: LiveQueries) -> list[int]:
    assert live.unplaced == len(live.unplaced_rows())
    return live.handles[live.unplaced_rows()].tolist()


def test_queries_in_slots_of_the_change_may_move_and_those_in_all_slots_stay() -> None:
    live = some_live()
    live.unplace({1}, 4)
    assert unplaced(live) == [11, 12]
    assert not live.is_overdue


def test_nothing_moves_where_no_slot_changes() -> None:
    live = some_live()
    live.unplace(frozenset(), 4)
    assert unplaced(live) == []


def test_all_queries_may_move_where_slots_report_nothing() -> None:
    live = some_live()
    live.unplace(None, 4)
    assert unplaced(live) == [10, 11, 12, 13, 14]


def test_what_was_unplaced_before_stays_so_and_removed_queries_do_not_count() -> None:
    live = some_live()
    live.drop(np.array([11], np.uint64))
    live.lose(np.array([14], np.uint64), (0, 3))
    live.unplace({1}, 4)
    assert unplaced(live) == [12, 14]
    assert live.is_overdue


def test_a_query_that_is_in_all_slots_for_a_change_alone_may_move() -> None:
    live = some_live()
    live.placed(np.array([1], np.int32), [(0, 1, 2, 3)], [(1,)])
    live.unplace({1}, 4)
    assert unplaced(live) == [11, 12]
