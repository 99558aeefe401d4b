"""Which steps of a search are taken beside the loop that serves all clients of a merger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sirocco.model.query import parse_query
from sirocco.protocol.search.gather_events import Begin, PartArrived
from sirocco.protocol.search.limits import LIMITS
from sirocco.protocol.search.messages import Part
from sirocco.services.merger.search_run import SearchRun
from tests.support.values import columns_of

NEAREST = parse_query(
    {"id": "q", "kind": "knn", "mode": "snapshot", "point": {"lon": 1, "lat": 2}, "k": 900}
)


def part_of(count: int, text: str, *, is_last: bool = True) -> PartArrived:
    objects = [{"id": number, "lon": 1, "lat": 2, "text": text} for number in range(count)]
    return PartArrived(1, Part(objects=columns_of(objects), is_last=is_last))


@pytest.mark.parametrize(
    ("count", "text", "is_large"),
    [(1_500, "", False), (2_001, "", True), (10, "x" * 60_000, False), (20, "x" * 60_000, True)],
)
def test_answers_of_many_or_large_objects_are_added_up_beside_the_loop(
    count: int, text: str, is_large: bool
) -> None:
    """Of 900 objects of 65 KB each answer was copied there, a quarter of a second each time."""
    search: Any = SimpleNamespace(query=NEAREST, now_ms=0, begin_ms=0, end_ms=1_000)
    plan: Any = SimpleNamespace(query=NEAREST, has_rest=False)
    asking: Any = SimpleNamespace(limits=LIMITS)
    run = SearchRun(search, plan, asking, lambda _: None)
    # What adds nothing up is not large.
    assert not run.is_large(Begin())
    assert not run.is_large(part_of(count // 2, text, is_last=False))
    assert run.is_large(part_of(count - count // 2, text)) is is_large
