"""Memory of the live queries of an owner."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.protocol.contract.messages import NEVER_MS
from sirocco.protocol.router.queries.live_queries import LiveQueries

PIECE = 10_000


def entered(count: int) -> LiveQueries:
    """Returns some live queries, which came piece by piece."""
    live = LiveQueries()
    handles = np.random.default_rng(3).integers(1, 1 << 63, count).astype(np.uint64)
    for begin in range(0, count, PIECE):
        own = handles[begin : begin + PIECE]
        revisions = list(range(begin, begin + len(own)))
        expires_ms = np.full(len(own), NEVER_MS, np.int64)
        live.put(own, revisions, revisions, expires_ms, [(1,)] * len(own))
    assert live.rows_of(handles).tolist() == list(range(count))
    return live


@pytest.mark.parametrize("count", [90_000, 135_000, 170_000])
def test_a_query_takes_little_more_than_its_columns(count: int) -> None:
    live = entered(count)
    # 49 for its columns and an eighth of that to grow, 13 to be found by its handle.
    assert live.bytes_total <= 68 * count
    assert live.bytes_total >= 49 * count


def test_ended_queries_leave_their_memory_to_others() -> None:
    live = entered(50_000)
    before = live.bytes_total
    live.drop(live.handles[:30_000].copy())
    assert len(live) == 20_000
    handles = np.arange(1, 30_001, dtype=np.uint64)
    none = np.full(30_000, NEVER_MS, np.int64)
    live.put(handles, list(range(30_000)), [0] * 30_000, none, [(1,)] * 30_000)
    assert live.bytes_total == before
    assert (live.rows_of(handles) >= 0).all()
