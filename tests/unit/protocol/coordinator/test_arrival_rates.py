"""Added arrivals at leaves, as routers count them, and loads computed from them."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.protocol.contract.load_messages import ArrivalReport
from sirocco.protocol.coordinator.arrival_rates import RoutedTotals, routed_totals, with_arrivals
from sirocco.schemes.balance.base.view import LeafLoads
from tests.support.values import uniform_map

MAP = uniform_map(2, 2)
FIRST, SECOND = (leaf.id for leaf in MAP.leaves)


def arrival_report(*objects: tuple[int, float], version: int = MAP.version) -> ArrivalReport:
    leaves, counts = zip(*objects, strict=True) if objects else ((), ())
    return ArrivalReport(version, np.array(leaves, np.int32), np.array(counts, np.float64))


def test_what_routers_sent_adds_up_by_leaf() -> None:
    both = {"r": arrival_report((FIRST, 3.0), (SECOND, 1.0)), "s": arrival_report((SECOND, 4.0))}

    sent = routed_totals(MAP, ("r", "s"), both)

    assert sent is not None
    assert sent.objects.tolist() == [3.0, 5.0]


def test_leaves_that_the_map_does_not_have_are_left_out() -> None:
    sent = routed_totals(MAP, ("r",), {"r": arrival_report((FIRST, 3.0), (1_000, 9.0))})

    assert sent is not None
    assert sent.objects.tolist() == [3.0, 0.0]


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"r": arrival_report()},
        {"r": arrival_report(), "s": arrival_report(version=MAP.version + 1)},
    ],
)
def test_nothing_is_known_while_one_is_silent_or_goes_by_another_map(
    answers: dict[str, ArrivalReport],
) -> None:
    assert routed_totals(MAP, ("r", "s"), answers) is None


def test_arrival_rates_are_unknown_without_intake_owners() -> None:
    assert routed_totals(MAP, (), {}) is None


def test_what_came_since_is_the_difference() -> None:
    before, now = (RoutedTotals(1, ("r",), np.array(each)) for each in ([1.0, 2.0], [4.0, 2.0]))

    came = now.since(before)

    assert came is not None
    assert came.tolist() == [3.0, 0.0]


@pytest.mark.parametrize("before", [None, (2, ("r",)), (1, ("s",)), (1, ("r", "s"))])
def test_what_came_since_another_map_or_by_other_routers_is_not_known(
    before: tuple[int, tuple[str, ...]] | None,
) -> None:
    earlier = before and RoutedTotals(*before, np.zeros(2))

    assert RoutedTotals(1, ("r",), np.ones(2)).since(earlier or None) is None


def test_loads_are_as_if_all_that_came_had_been_done() -> None:
    none = np.zeros(3)
    counted = LeafLoads(
        np.array([10.0, 10.0, 0.0]),
        np.array([30.0, 10.0, 0.0]),
        np.array([1.0, 2.0, 3.0]),
        np.array([4.0, 5.0, 6.0]),
        np.array([12.0, 10.0, 1.0]),
        none,
    )

    loads = with_arrivals(counted, np.array([40.0, 5.0, 7.0]))

    assert loads.objects.tolist() == [40.0, 5.0, 7.0]
    # No evaluator has counted objects of the third: they meet as many as others on average.
    assert loads.met.tolist() == [120.0, 5.0, 14.0]
    assert loads.arrivals.tolist() == [42.0, 5.0, 8.0]
    assert loads.faded is counted.faded
    assert loads.queries is counted.queries


def test_of_nothing_counted_nothing_is_met() -> None:
    loads = with_arrivals(LeafLoads(*[np.zeros(2)] * 6), np.array([3.0, 0.0]))

    assert loads.objects.tolist() == [3.0, 0.0]
    assert loads.met.tolist() == [0.0, 0.0]
