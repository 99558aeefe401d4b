"""Slots report for an ended version whether the next version continues its list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.protocol.contract.messages import NO_REVISION, Installed
from sirocco.protocol.evaluator.reports.step_records import StepReport
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.support.values import installed_of

POINT = {"point": {"lon": 1, "lat": 2}}
STEPS = {"window": "1h", "step": "1s"}
QUERIES: dict[str, dict[str, Any]] = {
    "range": {"region": {"circle": {**POINT["point"], "radius_m": 1_000}}},
    "tracked": {"kind": "range", "track": "bus"},
    "knn": {**POINT, "k": 2},
    "terms": {**STEPS, "k": 2},
    "ranked": {**POINT, **STEPS, "k": 2, "radius_m": 1_000, "keywords": ["drill"]},
}
LISTS = ("knn", "terms", "ranked")


def installed(kind: str, revision: int, since: int, subscriber: str = "ann") -> Installed:
    members = {"id": "q", "kind": kind, "mode": "continuous", **QUERIES[kind]}
    message = installed_of(0, [(revision, members, subscriber, 0)])
    return replace(message, sinces=np.array([since], np.int64))


def opened(offset: int) -> Slot:
    slot = Slot(0, 3)
    slot.open(offset, offset, 1, 0)
    return slot


def going_on(first: Installed, second: Installed, *, is_taken_over: bool = False) -> list[bool]:
    """Returns what a slot reports of the first version when it receives the second."""
    slot = opened(0)
    slot.take([(0, first)])
    if is_taken_over:
        state = dict(read_state(write_state(slot_state(slot, 0, ()))))
        slot = opened(1)
        restore_slot(slot, state, ())
    reports = [each for each in slot.take([(1, second)]) if isinstance(each, StepReport)]
    return [result.is_continued for each in reports for result in each.results]


@pytest.mark.parametrize("is_taken_over", [False, True])
@pytest.mark.parametrize("after", sorted(QUERIES))
@pytest.mark.parametrize("before", LISTS)
def test_a_list_continues_in_one_of_its_kind(before: str, after: str, is_taken_over: bool) -> None:
    reported = going_on(
        installed(before, 5, NO_REVISION), installed(after, 9, 5), is_taken_over=is_taken_over
    )
    assert reported == [before == after]


@pytest.mark.parametrize("kind", LISTS)
def test_no_list_continues_for_another_subscriber_or_after_a_new_registration(kind: str) -> None:
    first = installed(kind, 5, NO_REVISION)
    assert going_on(first, installed(kind, 9, 5, "bob")) == [False]
    assert going_on(first, installed(kind, 9, NO_REVISION)) == [False]
    # It was removed, registered anew and updated since; the slot received only the last change.
    assert going_on(first, installed(kind, 9, 7)) == [False]
