"""Clients that change few queries for ever: what a slot keeps is bounded by what it holds."""

from __future__ import annotations

from typing import Any

import pytest

from sirocco.protocol.contract.messages import Found, Installed
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.protocol.evaluator.reports.partial_records import founds
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.support.values import installed_of, routed_of

TARGETS = 3
HERE = {"lon": 0.0, "lat": 0.0}
SQUARE = {"rect": {"west": -1.0, "south": -1.0, "east": 1.0, "north": 1.0}}
RANGE: dict[str, Any] = {"kind": "range", "mode": "continuous"}


def opened() -> Slot:
    slot = Slot(0, TARGETS)
    slot.open(0, 0, 1, 0)
    return slot


def changed(slot: Slot, number: int, members: dict[str, Any], subscriber: str = "s") -> Installed:
    """Takes the next version of a query."""
    message = installed_of(0, [(number, members, subscriber, 0)])
    slot.take([(number, message)])
    return message


def test_subscribers_leave_with_their_queries() -> None:
    """Each name stayed for ever, in checkpoints too."""
    slot = opened()
    changed(slot, 0, {**RANGE, "id": "kept", "region": SQUARE}, "first")
    for begin in range(1, 4_000, 100):
        changes = [
            (begin + i, {**RANGE, "id": f"q{i}"}, f"subscriber {begin + i}", 0) for i in range(100)
        ]
        slot.take([(begin, installed_of(0, changes))])
    names = slot.standing.names.subscriber_names
    assert len(names) < 2_100

    found = slot.take([(4_000, routed_of(0, 0, [{"id": 1, **HERE}], [1_000]))])
    records = list(founds(found))
    targets: dict[str, int] = {}
    for target, record in records:
        assert isinstance(record, Found)
        if record.queries is not None and len(record.matches.queries):
            targets |= dict.fromkeys(record.queries.subscribers, target)
    assert targets.keys() == {"first", *(f"subscriber {3_901 + i}" for i in range(100))}
    assert all(target == partition_of(name, TARGETS) for name, target in targets.items())


ENDS: dict[str, dict[str, Any]] = {
    "lifetimes": {**RANGE, "text": "fire"},
    "ends": {**RANGE, "text": "fire", "events": ["ended"]},
    "values": {**RANGE, "region": SQUARE, "track": "v"},
}


@pytest.mark.parametrize("kind", list(ENDS))
def test_former_lifetimes_leave_before_they_would_have_ended(kind: str) -> None:
    """Each version of a query stayed until the end of its lifetime, in a thousand years."""
    slot = opened()
    # Times that are obsolete leave when they are the next ones: another query is before them.
    changed(slot, 0, {**ENDS[kind], "id": "first", "ttl": "1d"})
    for begin in range(1, 10_000, 100):
        changes = [
            (begin + i, {**ENDS[kind], "id": f"q{i}", "ttl": "9000d"}, "s", 0) for i in range(100)
        ]
        slot.take([(begin, installed_of(0, changes))])
    standing, queries = slot.standing, slot.queries
    for index in (standing.ranges, standing.tracked._ranges):
        assert index._lifetimes.bytes_total < 12 * 4_400
    assert len(queries.lifetimes._due) < 300
    assert len(queries.endings._due) < 300
    for index in (standing.ranges, standing.tracked._ranges):
        # The last hundred versions, which an object may still come to.
        assert len(index._lifetimes._young) <= 1


def test_steps_of_former_queries_leave() -> None:
    slot = opened()
    step = {"kind": "terms", "mode": "continuous", "k": 1, "window": "24h"}
    changed(slot, 0, {**step, "id": "first", "step": "1h"})
    for number in range(1, 1_000):
        changed(slot, number, {**step, "id": "q", "step": "24h"})
    assert sum(map(len, slot.standing.steps._heaps)) < 80
