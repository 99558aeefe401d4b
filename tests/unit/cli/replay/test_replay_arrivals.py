"""Objects of a far year in a replay are refused by name, and the rest continues without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sirocco.cli.replay.arrivals import STEPS_MAX, Arrivals
from sirocco.model.objects import MISSING_TS
from sirocco.model.query import parse_query

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# 30 June 9999, and the first millisecond of Unix time.
FAR_MS, EPOCH_MS = 253_402_300_799_000, 0


def terms(step: str, ttl: str | None = None) -> Any:
    members = {"id": "t", "kind": "terms", "mode": "continuous", "k": 3, "step": step}
    return parse_query(members | ({} if ttl is None else {"ttl": ttl}))


def refused(arrivals: Arrivals, *ts: int) -> list[int]:
    return [row for row, _ in arrivals.jumps(np.array(ts, np.int64))]


def test_objects_too_far_ahead_of_the_clock_are_refused_by_row() -> None:
    ts = np.array([NOW_MS, NOW_MS + HOUR_MS, MISSING_TS, NOW_MS + HOUR_MS + 1, FAR_MS, 5], np.int64)
    found = dict(Arrivals(HOUR_MS).too_far(ts, NOW_MS))
    assert list(found) == [3, 4]
    assert {error.field for error in found.values()} == {"ts"}
    assert "--arrival-skew-max" in str(found[3])
    assert list(Arrivals(None).too_far(ts, NOW_MS)) == []


def test_years_without_objects_are_as_long_as_their_steps() -> None:
    """A file of years has steps of an hour or a week."""
    arrivals = Arrivals(HOUR_MS)
    for step in ("1h", "7d"):
        arrivals.expect(terms(step))
    assert refused(arrivals, EPOCH_MS, MISSING_TS, NOW_MS - DAY_MS) == []
    assert refused(arrivals, NOW_MS) == []


def test_what_makes_too_many_steps_is_refused_and_the_next_continues_from_the_one_before() -> None:
    arrivals = Arrivals(HOUR_MS)
    arrivals.expect(terms("1s"))
    begin_ms = NOW_MS - 1_000 * DAY_MS
    most_ms = STEPS_MAX * 1_000
    late_ms = begin_ms + most_ms + 1_000
    assert refused(arrivals, begin_ms, late_ms, late_ms, begin_ms + 5, late_ms + 5) == [1, 2, 4]
    ((row, error),) = arrivals.jumps(np.array([MISSING_TS, late_ms + 5], np.int64))
    assert (row, error.field) == (1, "ts")
    # Also in another batch, and after an arrival that is nearer.
    assert refused(arrivals, begin_ms + DAY_MS, late_ms + 5, FAR_MS) == [2]
    # Without steps any year will do.
    assert refused(Arrivals(HOUR_MS), begin_ms, FAR_MS) == []


def test_queries_have_no_steps_after_their_lifetimes() -> None:
    arrivals = Arrivals(HOUR_MS)
    for _ in range(50):
        arrivals.expect(terms("1s", "1d"))
    # 50 × 86,400 steps.
    assert refused(arrivals, EPOCH_MS, NOW_MS) == []


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_counted_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrivals = Arrivals(HOUR_MS, steps_max=20)
    queries = [
        (int(step), int(ttl))
        for step, ttl in zip(rng.integers(1, 30, 4), rng.integers(1, 200, 4), strict=True)
    ]
    for step, ttl in queries:
        arrivals.expect(terms(f"{step}ms", f"{ttl}ms"))
    start = last = int(rng.integers(-100, 100))
    ts = [start]
    wanted = []
    for row in range(1, 40):
        at = int(last + rng.integers(-10, 120))
        ts.append(at)
        steps = sum(
            last < start + i * step <= at
            for step, ttl in queries
            for i in range(1, ttl // step + 1)
        )
        if steps > 20:
            wanted.append(row)
        else:
            last = max(last, at)
    cut = int(rng.integers(1, 39))
    found = refused(arrivals, *ts[:cut])
    found += [cut + row for row in refused(arrivals, *ts[cut:])]
    assert found == wanted, f"seed={seed}"
