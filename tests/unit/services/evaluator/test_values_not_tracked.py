"""Operators learn that tracked values find no room, however many there are."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from sirocco.index.standing.limits import StandingLimits
from sirocco.protocol.contract.messages import Routed
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.objects.track_copies import followed
from sirocco.services.evaluator.track_room import TrackRoom
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics
from tests.support.values import installed_of, routed_of

QUERY = {"id": "q", "kind": "range", "mode": "continuous", "track": "bus"}


def copies(turn: int, count: int) -> Routed:
    first = turn * count
    objects = [{"id": i, "lon": 0.0, "lat": 0.0, "bus": i} for i in range(first, first + count)]
    routed = routed_of(0, turn, objects, [1_000] * count, begin=None if turn else 0)
    found = followed(routed.objects, {"bus"}, 1)
    assert found is not None
    return found.mark(routed, np.arange(count), 0)


def test_what_finds_no_room_is_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    registry = CollectorRegistry()
    room = TrackRoom(EvaluatorMetrics(registry))
    slot = Slot(3, 2, standing_limits=StandingLimits(tracked_bytes_max=2_000))
    slot.open(0, 0, 1, 0)
    slot.take([(0, installed_of(0, [(1, QUERY, "s", 0)]))])

    def refused() -> float | None:
        return registry.get_sample_value(
            "sirocco_evaluator_untracked_objects_total", {"reason": "value"}
        )

    room.look([slot], 0.0)
    assert not caplog.records
    for turn in range(3):
        slot.take([(1 + turn, copies(turn, 100))])
        room.look([slot], 10.0 * turn)
    entered = slot.standing.tracked.tracked_values
    assert 0 < entered < 10
    assert refused() == 300 - entered
    assert registry.get_sample_value("sirocco_evaluator_tracked_bytes") == (
        slot.standing.tracked.held_bytes
    )
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    # The rest follows a minute later, and nothing twice.
    room.look([slot], 61.0)
    assert len(caplog.records) == 2
    room.look([slot], 200.0)
    assert len(caplog.records) == 2
    assert refused() == 300 - entered
