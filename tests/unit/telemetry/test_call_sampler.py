"""Which calls are traced."""

from __future__ import annotations

from sirocco.telemetry.call_sampler import CallSampler, TraceSettings
from sirocco.telemetry.trace_context import TraceContext

SAMPLED = TraceContext(1, 1)
UNSAMPLED = TraceContext(1, 1, is_sampled=False)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_context_decides_and_a_share_of_the_others_begins_a_trace() -> None:
    draws = iter([0.0, 0.009, 0.011])
    one = CallSampler(TraceSettings("", 0.01, 100), lambda: next(draws), Clock())
    assert [one.takes(SAMPLED), one.takes(UNSAMPLED)] == [True, False]
    assert [one.takes(None) for _ in range(3)] == [True, True, False]


def test_nobody_forces_more_than_the_rate() -> None:
    clock = Clock()
    one = CallSampler(TraceSettings("", 1.0, 5), lambda: 0.0, clock)
    assert sum(one.takes(SAMPLED) for _ in range(1_000)) == 5
    clock.now_s = 0.4
    assert sum(one.takes(None) for _ in range(1_000)) == 2
    clock.now_s = 3_600.0
    assert sum(one.takes(SAMPLED) for _ in range(1_000)) == 5


def test_a_share_of_none_draws_nothing() -> None:
    def never() -> float:
        raise AssertionError

    assert not CallSampler(TraceSettings("", 0.0, 5), never, Clock()).takes(None)
