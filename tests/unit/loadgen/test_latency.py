"""Percentiles within one percent; send times by number; sending at a rate."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.loadgen.latency import LatencyHistogram, SendTimes
from sirocco.loadgen.pace import Pace

SEED = 20261121


def test_percentiles_are_within_one_percent() -> None:
    durations_ms = np.random.default_rng(SEED).lognormal(3, 1.5, 50_000)
    histogram = LatencyHistogram()
    for part in np.array_split(durations_ms, 7):
        histogram.add(part)
    assert len(histogram) == 50_000
    for percent in (50, 95, 99):
        exact = float(np.percentile(durations_ms, percent, method="inverted_cdf"))
        assert histogram.percentile_ms(percent) == pytest.approx(exact, rel=0.0101), f"seed {SEED}"
    assert histogram.summary_ms()["max"] == pytest.approx(durations_ms.max(), abs=1e-3)


def test_an_empty_histogram_and_durations_out_of_range() -> None:
    histogram = LatencyHistogram()
    assert histogram.summary_ms() == {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    histogram.add(np.array([0.0, -1.0, 1e9]))
    assert len(histogram) == 3
    assert histogram.summary_ms()["max"] == 1e9


def test_durations_count_from_the_batch_of_the_number() -> None:
    sent = SendTimes()
    for batch in range(3_000):
        sent.add(1 + 10 * batch, float(batch))
    numbers = np.array([1, 10, 11, 29_991, 30_000], np.uint64)
    durations_ms = sent.durations_ms(numbers, 3_000.0)
    assert durations_ms.tolist() == [3e6, 3e6, 2_999e3, 1e3, 1e3]


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s = 0.0

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s
        self.slept_s += duration_s


def test_a_pace_keeps_its_rate() -> None:
    clock = _Clock()
    pace = Pace(1_000.0, clock_s=lambda: clock.now_s, sleep=clock.sleep)
    for _ in range(50):
        pace.wait(100)
    assert clock.now_s - 100.0 == pytest.approx(4.9)
    assert pace.batch_rows(4_096) == 20


def test_a_pace_gives_due_times_even_if_it_is_late() -> None:
    clock = _Clock()
    pace = Pace(1_000.0, clock_s=lambda: clock.now_s, sleep=clock.sleep)
    assert [pace.wait(100), pace.wait(100)] == pytest.approx([100.0, 100.1])
    clock.now_s += 0.5
    assert pace.wait(100) == pytest.approx(100.2)
    # Beyond the lag that is made up for nothing was due.
    clock.now_s += 60
    assert pace.wait(100) == pytest.approx(clock.now_s - 1)


def test_a_pace_catches_up_but_does_not_burst_after_a_stall() -> None:
    clock = _Clock()
    pace = Pace(1_000.0, clock_s=lambda: clock.now_s, sleep=clock.sleep)
    pace.wait(100)
    clock.now_s += 60
    for _ in range(10):
        pace.wait(100)
    assert clock.slept_s == 0
    for _ in range(10):
        pace.wait(100)
    assert clock.slept_s == pytest.approx(0.9)


def test_no_rate_never_waits() -> None:
    clock = _Clock()
    pace = Pace(None, clock_s=lambda: clock.now_s, sleep=clock.sleep)
    pace.wait(10**9)
    assert clock.slept_s == 0
    assert pace.batch_rows(4_096) == 4_096
