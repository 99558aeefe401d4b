"""Queries of all kinds at their owner: changes of kind, and history."""

from __future__ import annotations

from typing import Any

import pytest

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_TERMS
from sirocco.model.errors import AlreadyExists
from sirocco.protocol.contract.effects import Outcome
from sirocco.protocol.contract.messages import NO_PAST
from tests.support.registry_log import SLOTS_COUNT, Log, query
from tests.support.values import request_of

EVERYWHERE = set(range(SLOTS_COUNT))
ALL_MS = (1 << 63) - 1


def knn(query_id: str, **more: Any) -> dict[str, Any]:
    point = {"lon": -150.0, "lat": 0.0}
    return {"id": query_id, "kind": "knn", "mode": "continuous", "point": point, "k": 3, **more}


def terms(query_id: str, west: float = -180, east: float = 180) -> dict[str, Any]:
    return query(query_id, west, east) | {"kind": "terms", "k": 3, "step": "1m"}


def kinds_sent(log: Log) -> dict[int, list[int]]:
    return {slot: message.kinds.tolist() for slot, message in log.installs}


def test_r3_an_update_may_change_the_kind_of_a_query() -> None:
    log = Log()
    log.ask(request_of("register", query("a", -170, -110)))
    (home,) = log.installed_ids()
    assert kinds_sent(log) == {home: [KIND_RANGE]}

    log.installs.clear()
    assert log.ask(request_of("update", knn("a"))) == Outcome(1)
    assert kinds_sent(log) == {slot: [KIND_KNN] for slot in EVERYWHERE}

    log.installs.clear()
    assert log.ask(request_of("update", terms("a", -170, -110))) == Outcome(2)
    assert kinds_sent(log) == {slot: [KIND_TERMS] if slot == home else [] for slot in EVERYWHERE}
    for slot, message in log.installs:
        assert message.removed_revisions.tolist() == ([] if slot == home else [2])

    log.installs.clear()
    tracked = query("a", -170, -110, track="vehicle")
    assert log.ask(request_of("update", tracked)) == Outcome(3)
    assert set(kinds_sent(log)) == EVERYWHERE

    assert log.ask(request_of("unregister", "a")) == Outcome(4)
    assert slots_left(log) == set()


def slots_left(log: Log) -> set[int]:
    return set(log.installed_ids())


def test_r3_queries_of_another_kind_are_not_equal() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    for other in (terms("a"), knn("a"), query("a", track="vehicle")):
        assert isinstance(log.ask(request_of("register", other)).error, AlreadyExists)


@pytest.mark.parametrize(
    "members", [query("a"), knn("a"), terms("a")], ids=["range", "knn", "terms"]
)
@pytest.mark.parametrize("past_ms", [0, 5_000, ALL_MS])
def test_how_far_back_to_answer_reaches_the_slots_with_the_registration(
    members: dict[str, Any], past_ms: int
) -> None:
    log = Log()
    log.ask(request_of("register", members, past_ms=past_ms))
    assert {slot for slot, _ in log.installs} == EVERYWHERE
    for _, message in log.installs:
        assert message.past_ms.tolist() == [past_ms]


def test_an_equal_registration_receives_no_history_again() -> None:
    log = Log()
    log.ask(request_of("register", query("a"), past_ms=5_000))
    log.installs.clear()
    assert log.ask(request_of("register", query("a"), past_ms=9_000)) == Outcome(0)
    assert log.ask(request_of("update", query("a"), past_ms=9_000)) == Outcome(0)
    assert log.installs == []


def test_an_update_requests_its_own_history() -> None:
    log = Log()
    log.ask(request_of("register", query("a"), past_ms=5_000))
    log.installs.clear()
    log.ask(request_of("update", query("a", text="x")))
    assert {tuple(message.past_ms.tolist()) for _, message in log.installs} == {(NO_PAST,)}
    log.installs.clear()
    log.ask(request_of("update", query("a", text="y"), past_ms=ALL_MS))
    assert {tuple(message.past_ms.tolist()) for _, message in log.installs} == {(ALL_MS,)}
