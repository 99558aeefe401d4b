"""The past of many new queries, which a slot searches some at a time."""

from __future__ import annotations

from typing import Any

from sirocco.protocol.contract.messages import Found, Installed, Routed
from sirocco.protocol.contract.positions import NO_TIME_MS, position_of
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.reports.partial_records import Reports, founds
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.support.values import installed_of, routed_of

QUERIES = 40


def opened() -> Slot:
    """Returns a slot with a thousand objects."""
    slot = Slot(0, 1)
    slot.open(0, 0, 1, 0)
    for number in range(4):
        slot.take([(number, routed_of(0, number, objects(number), [10 + number] * 250))])
    return slot


def objects(number: int) -> list[dict[str, Any]]:
    rows = range(number * 250, number * 250 + 250)
    return [{"id": row, "lon": row / 1_000, "lat": 0.0, "text": f"w{row % 7}"} for row in rows]


def asked() -> Installed:
    """Returns many new queries that ask for the past, one of them removed at once."""
    near: dict[str, Any] = {"kind": "knn", "point": {"lon": 0.3, "lat": 0.0}, "k": 3}
    kinds = [near, {"kind": "range", "text": "w3"}, {"kind": "range", "text": "w8"}]
    members = [
        (number, {"id": f"q{number}", "mode": "continuous"} | kinds[number % 3], "s", 20)
        for number in range(QUERIES)
    ]
    return installed_of(0, members, [("q1", QUERIES)], past_ms=1_000)


def content_of(reports: Reports) -> list[tuple[Any, ...]]:
    records: list[Found] = [record for _, record in founds(reports, RecordLimits())]
    return [
        (one.intervals.begins.tolist(), one.intervals.ends.tolist(), one.matches.queries.tolist())
        for one in records
    ]


def test_a_turn_searches_the_past_of_some_queries_and_the_log_is_the_same() -> None:
    whole, pieces = opened(), opened()
    told_ms = pieces.reported_ms
    later = routed_of(0, 4, objects(9), [30] * 250)
    records: list[tuple[int, Routed | Installed]] = [(4, asked()), (5, later)]
    at_once = content_of(whole.take(list(records)))
    turns = [pieces.take(list(records), 20)]
    while pieces.is_stepping:
        # No object is taken, and no mark is past what was reported.
        assert pieces.offset == 5
        assert pieces.report().end == position_of(4)
        assert pieces.report().time_ms == told_ms
        turns.append(pieces.continue_steps())
    turns.append(pieces.take(records[1:], 20))
    assert len(turns) > QUERIES / 3
    assert [each for turn in turns for each in content_of(turn)] == at_once
    assert sum(len(queries) for _, _, queries in at_once) > 2_000
    assert pieces.reported_ms == whole.reported_ms != NO_TIME_MS
