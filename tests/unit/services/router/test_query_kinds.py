"""QueryService accepts all kinds of standing queries, returns them, and refuses wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sirocco_api.v1 import query_pb2, query_service_pb2

from sirocco.protocol.contract.messages import NO_PAST
from sirocco.runtime.process.clock import now_ms as clock_ms
from sirocco.services.router.owners import read_request, write_request
from tests.support.plain_client import DEADLINE_S, PlainClient, query_message, refused
from tests.support.values import request_of

POINT = {"lon": 1.0, "lat": 2.0}
AROUND = {"rect": {"west": 0.0, "south": 0.0, "east": 2.0, "north": 2.0}}
KINDS: dict[str, dict[str, Any]] = {
    "range": {"kind": "range", "region": AROUND, "text": "a"},
    "tracked": {"kind": "range", "region": AROUND, "track": "vehicle", "events": ["enter"]},
    "knn": {"kind": "knn", "point": POINT, "k": 3, "text": "a OR b", "where": {"x": 1}},
    "terms": {"kind": "terms", "region": AROUND, "k": 3, "window": "1h", "step": "1m"},
    "ranked": {"kind": "ranked", "point": POINT, "radius_m": 5_000, "k": 3}
    | {
        "window": "1h",
        "keywords": ["a", "b"],
        "weights": {"text": 0.5, "space": 0.25, "time": 0.25},
    },
}


@pytest.mark.parametrize("router", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_registered_shown_and_removed(
    kind: str, router: int, plain: PlainClient
) -> None:
    name, subscriber = f"kind-{kind}-{router}", f"s-{kind}-{router}"
    query = query_message(name, subscriber, **KINDS[kind], ttl="30000d")
    revision = plain.register(query, router)
    assert plain.register(query, 1 - router) == revision
    assert plain.get(name, 1 - router).query == query
    (listed,) = plain.list(router, subscriber=subscriber).registered_queries
    assert (listed.query, listed.revision) == (query, revision)
    assert plain.unregister(name, 1 - router) > revision
    assert refused(lambda: plain.get(name, router))[0] == "NOT_FOUND"


def test_an_update_may_change_the_kind(plain: PlainClient) -> None:
    for router, kind in enumerate(["range", "knn", "tracked", "ranked", "terms", "range"]):
        query = query_message("changing", "s-changing", **KINDS[kind])
        if router == 0:
            plain.register(query)
        else:
            plain.update(query, router % 2)
        assert plain.get("changing").query == query
    plain.unregister("changing")


def put(path: str, value: Any) -> Callable[[query_pb2.Query], Any]:
    *outer, name = path.split(".")

    def spoil(query: query_pb2.Query) -> None:
        message: Any = query
        for part in outer:
            message = getattr(message, part)
        setattr(message, name, value)

    return spoil


BAD = {
    "no k": ("knn", put("knn.k", 0), "k"),
    "huge k": ("knn", put("knn.k", 1 << 40), "k"),
    "knn outside the world": ("knn", put("knn.lat", 90.5), "point.lat"),
    "window of a continuous knn": ("knn", put("window_ms", 5), "window"),
    "terms outside the world": (
        "terms", put("terms.region.rect.east", 181.0), "region.rect.east"
    ),
    "step 0": ("terms", put("terms.step_ms", 0), "step"),
    "a step too short to follow": ("terms", put("terms.step_ms", 99), "step"),
    "the same of a ranked query": ("ranked", put("ranked.step_ms", 1), "step"),
    "step beyond the window": ("terms", put("terms.step_ms", 3_600_001), "step"),
    "negative radius": ("ranked", put("ranked.radius_m", -1.0), "radius_m"),
    "weights that are too much": ("ranked", put("ranked.weights.text", 0.6), "weights"),
    "no keywords": ("ranked", lambda q: q.ranked.ClearField("keywords"), "keywords"),
    "a track that is no attribute": ("tracked", put("range.track", "text"), "track"),
    "events without track": ("tracked", lambda q: q.range.ClearField("track"), "events"),
    "no events of that name": ("tracked", lambda q: q.range.events.append("leave"), "events[1]"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_refused_with_its_field(name: str, plain: PlainClient) -> None:
    kind, spoil, field = BAD[name]
    query = query_message("spoiled", "s", **KINDS[kind])
    spoil(query)
    for call in (plain.register, plain.update):
        status, details = refused(lambda call=call: call(query))
        assert (status, details.code, details.field) == (
            "INVALID_ARGUMENT",
            "INVALID_ARGUMENT",
            field,
        )
    assert refused(lambda: plain.get("spoiled"))[0] == "NOT_FOUND"


@pytest.mark.parametrize("kind", ["terms", "ranked"])
def test_steps_cover_no_more_than_retention(kind: str, plain: PlainClient) -> None:
    query = query_message("too-far", "s", **(KINDS[kind] | {"window": "25h"}))
    without = query_message("too-far", "s", **KINDS[kind])
    without.ClearField("window_ms")
    for each in (query, without):
        for call in (plain.register, plain.update):
            status, details = refused(lambda call=call, each=each: call(each))
            assert (status, details.field) == ("OUT_OF_RANGE", "window")
            assert details.earliest_ms > 0


@pytest.mark.parametrize("kind", ["terms", "ranked"])
def test_steps_of_the_past_are_bounded(kind: str, plain: PlainClient) -> None:
    """A slot takes no objects while it reports them: a begin in 1970 was a million of an hour."""
    members: dict[str, Any] = {**KINDS[kind], "step": "1m", "window": "1h"}
    query = query_message(f"long-ago-{kind}", "s", **members)
    brief = query_message(f"brief-{kind}", "s", **members, ttl="2h")
    stub = plain.queries[0]
    now_ms = clock_ms()
    for start_ms in (now_ms - 60_000 * 10_010, 0, -8_640_000_000_000_000):
        for call in (
            lambda at=start_ms: stub.RegisterQuery(
                query_service_pb2.RegisterQueryRequest(query=query, start_ms=at),
                timeout=DEADLINE_S,
            ),
            lambda at=start_ms: stub.UpdateQuery(
                query_service_pb2.UpdateQueryRequest(query=query, start_ms=at), timeout=DEADLINE_S
            ),
        ):
            status, details = refused(call)
            assert (status, details.field) == ("INVALID_ARGUMENT", "start_ms")
    for each, start_ms in ((query, now_ms - 60_000 * 9_990), (brief, 0)):
        stub.RegisterQuery(
            query_service_pb2.RegisterQueryRequest(query=each, start_ms=start_ms),
            timeout=DEADLINE_S,
        )


@pytest.mark.parametrize("kind", ["range", "knn", "terms", "ranked"])
def test_snapshots_are_not_registered(kind: str, plain: PlainClient) -> None:
    members = {name: value for name, value in KINDS[kind].items() if name != "step"}
    query = query_message("snapshot", "s", **members, mode="snapshot")
    for call in (plain.register, plain.update):
        status, details = refused(lambda call=call: call(query))
        assert (status, details.field) == ("INVALID_ARGUMENT", "mode")
        assert details.message == "a snapshot is asked by search, not registered"
    query.ttl_ms = 5
    assert refused(lambda: plain.register(query))[1].field == "ttl"


def test_the_past_is_never_negative(plain: PlainClient) -> None:
    query = query_message("past", "s-past", **KINDS["range"])
    stub = plain.queries[0]
    bulk = query_service_pb2.RegisterQueriesRequest(queries=[query], past_ms=-1)
    for call in (
        lambda: stub.RegisterQuery(
            query_service_pb2.RegisterQueryRequest(query=query, past_ms=-1), timeout=DEADLINE_S
        ),
        lambda: stub.UpdateQuery(
            query_service_pb2.UpdateQueryRequest(query=query, past_ms=-5), timeout=DEADLINE_S
        ),
        lambda: stub.RegisterQueries(iter([bulk]), timeout=DEADLINE_S),
    ):
        status, details = refused(call)
        assert (status, details.field) == ("INVALID_ARGUMENT", "past_ms")
    request = query_service_pb2.RegisterQueryRequest(query=query, past_ms=(1 << 63) - 1)
    assert stub.RegisterQuery(request, timeout=DEADLINE_S).revision >= 0
    plain.unregister("past")


def test_values_are_not_followed_into_the_past(plain: PlainClient) -> None:
    query, stub = query_message("past-track", "s-past", **KINDS["tracked"]), plain.queries[0]
    plain.register(query)
    for past_ms in (0, 60_000):
        for call in (
            lambda past: stub.RegisterQuery(
                query_service_pb2.RegisterQueryRequest(query=query, past_ms=past),
                timeout=DEADLINE_S,
            ),
            lambda past: stub.UpdateQuery(
                query_service_pb2.UpdateQueryRequest(query=query, past_ms=past), timeout=DEADLINE_S
            ),
        ):
            status, details = refused(lambda call=call, past=past_ms: call(past))
            assert (status, details.field) == ("INVALID_ARGUMENT", "past_ms")
        bulk = query_service_pb2.RegisterQueriesRequest(
            queries=[query, query_message("past-plain", "s-past")], past_ms=past_ms
        )
        (answer,) = stub.RegisterQueries(iter([bulk]), timeout=DEADLINE_S)
        assert [each.error.field for each in answer.results] == ["past_ms", ""]
    plain.unregister("past-track")
    plain.unregister("past-plain")


@pytest.mark.parametrize("past_ms", [NO_PAST, 0, (1 << 63) - 1])
@pytest.mark.parametrize("kind", KINDS)
def test_requests_travel_to_the_owner_unchanged(kind: str, past_ms: int) -> None:
    members = {"id": "q", "mode": "continuous"} | KINDS[kind]
    for action in ("register", "update"):
        request = replace(request_of(action, members, "s", 7), past_ms=past_ms)
        assert read_request(write_request(request)) == request
    removal = request_of("unregister", "q", start_ms=7)
    assert read_request(write_request(removal)) == removal
