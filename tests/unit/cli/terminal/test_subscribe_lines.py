"""Lines of `sirocco subscribe`: those of OUT, with more members."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sirocco_client import (
    Delivery,
    KnnChange,
    Notification,
    Object,
    RankedChange,
    TermsStep,
    TrackedNotification,
)

from sirocco.cli import subscribe
from sirocco.cli.terminal.terminal import json_line

ONE = Object(17, 1.5, 2.5, "coffee", attributes={"vehicle": "v1"})

LINES: list[tuple[Delivery, dict[str, Any], str]] = [
    (
        Notification("q1", ONE, "0.7", (3, 4), 1_000),
        {"query": "q1", "object": ONE.members(), "arrival_ms": 1_000, "publication": [3, 4]},
        "coffee",
    ),
    (
        TrackedNotification(
            query="q2",
            object=ONE,
            cursor="0.7",
            event=(3, 4),
            arrival_ms=1_000,
            change="exit",
            track="v1",
        ),
        {
            "query": "q2",
            "object": ONE.members(),
            "event": "exit",
            "track": "v1",
            "arrival_ms": 1_000,
            "publication": [3, 4],
        },
        "exit v1",
    ),
    (
        KnnChange("q3", (ONE,), ("é",), ((17, 12.125), (23, 80.4)), "0.7"),
        {
            "query": "q3",
            "added": [17],
            "removed": ["é"],
            "objects": [17, 23],
            "distance_m": [12.125, 80.4],
        },
        "17 12.125 m",
    ),
    (
        TermsStep("q4", 1_405_123_200_000, (("light", 120), ("東", 77)), "0.7"),
        {"query": "q4", "terms": [["light", 120], ["東", 77]], "at": 1_405_123_200_000},
        "light 120  東 77",
    ),
    (
        RankedChange(query="q5", at_ms=500, entries=((17, 0.91),), new=(ONE,), cursor="0.7"),
        {"query": "q5", "objects": [17], "score": [0.91], "at": 500},
        "17 0.91",
    ),
]


@pytest.mark.parametrize(("delivery", "members", "words"), LINES)
def test_each_kind_has_its_line(delivery: Delivery, members: dict[str, Any], words: str) -> None:
    assert json.loads(json_line(subscribe._json_members(delivery))) == members | {"cursor": "0.7"}
    line = subscribe._line(delivery)
    assert line.startswith(delivery.query)
    assert words in line
