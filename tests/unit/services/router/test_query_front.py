"""QueryService on a running cluster: typed refusals, conflicts, lists, from any router."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import query_pb2, query_service_pb2

from sirocco.runtime.process.clock import now_ms
from tests.support.plain_client import (
    DEADLINE_S,
    PlainClient,
    new_session,
    publish_request,
    query_message,
    refused,
)
from tests.support.waiting import eventually

AROUND_ONE = {"rect": {"west": 0.0, "south": 0.0, "east": 2.0, "north": 2.0}}


def spoiled(spoil: Callable[[query_pb2.Query], Any]) -> query_pb2.Query:
    query = query_message("spoiled", "s", region=AROUND_ONE, text="coffee")
    spoil(query)
    return query


def set_(path: str, value: Any) -> Callable[[query_pb2.Query], Any]:
    *outer, name = path.split(".")

    def spoil(query: query_pb2.Query) -> None:
        message: Any = query
        for part in outer:
            message = getattr(message, part)
        setattr(message, name, value)

    return spoil


BAD_QUERIES = {
    "no id": (set_("id", ""), "id"),
    "long id": (set_("id", "x" * 300), "id"),
    "no subscriber": (set_("subscriber", ""), "subscriber"),
    "no kind": (lambda q: q.ClearField("range"), "kind"),
    "unknown mode": (set_("mode", 77), "mode"),
    "no mode": (set_("mode", 0), "mode"),
    "snapshot": (set_("mode", query_pb2.QUERY_MODE_SNAPSHOT), "mode"),
    "malformed expression": (set_("range.text", "(coffee AND"), "text"),
    "only negations": (set_("range.text", "NOT coffee"), "text"),
    "no term": (set_("range.text", "!!!"), "text"),
    "too deep": (set_("range.text", "(" * 500 + "x" + ")" * 500), "text"),
    "longitude out of range": (set_("range.region.rect.west", -180.5), "region.rect.west"),
    "latitude is no number": (set_("range.region.rect.north", float("nan")), "region.rect.north"),
    "negative radius": (
        lambda q: q.range.region.circle.CopyFrom(query_pb2.Circle(lon=1, lat=1, radius_m=-1)),
        "region.circle.radius_m",
    ),
    "odd polygon": (
        lambda q: q.range.region.polygon.rings.add().coordinates.extend([1, 2, 3]),
        "region.polygon[0]",
    ),
    "flat polygon": (
        lambda q: q.range.region.polygon.rings.add().coordinates.extend([1, 2, 3, 4]),
        "region.polygon[0]",
    ),
    "negative ttl": (set_("ttl_ms", -5), "ttl"),
    "no ttl at all": (set_("ttl_ms", 0), "ttl"),
    "where is no JSON": (set_("where", "{"), "where"),
    "where compares unknown": (set_("where", '{"a": {"near": 3}}'), "where.a.near"),
}


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_a_bad_query_is_refused_with_its_field_and_leaves_nothing(
    name: str, plain: PlainClient
) -> None:
    spoil, field = BAD_QUERIES[name]
    query = spoiled(spoil)
    for call in (plain.register, plain.update):
        status, details = refused(lambda call=call: call(query))
        assert (status, details.code) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
        assert details.field == field
        assert details.message
        assert details.retry_after_ms == 0
    assert refused(lambda: plain.get("spoiled"))[0] == "NOT_FOUND"


def test_an_id_that_is_no_utf8_is_refused(plain: PlainClient) -> None:
    raw = query_service_pb2.RegisterQueryRequest(
        query=query_message("abcd", "s")
    ).SerializeToString()
    # The generated stubs cannot send it; other clients can.
    assert b"abcd" in raw
    channel = plain._channels[0]
    call = channel.unary_unary("/sirocco.v1.QueryService/RegisterQuery")
    with pytest.raises(grpc.RpcError):
        call(raw.replace(b"abcd", b"\xff\xfe\xff\xfe"), timeout=DEADLINE_S)
    assert plain.register(query_message("utf8-after", "s-utf8")) >= 0


@pytest.mark.parametrize("router", [0, 1])
def test_registering_again_is_idempotent_if_equal_and_a_conflict_if_not(
    router: int, plain: PlainClient
) -> None:
    name = f"again-{router}"
    revision = plain.register(query_message(name, "s-again", text="a AND b"), router)
    for other in (0, 1):
        assert plain.register(query_message(name, "s-again", text="b a"), other) == revision
        for unequal in (
            query_message(name, "s-again", text="a"),
            query_message(name, "t", text="a b"),
        ):
            status, details = refused(lambda q=unequal, r=other: plain.register(q, r))
            assert (status, details.code) == ("ALREADY_EXISTS", "ALREADY_EXISTS")
            assert details.field == "id"


@pytest.mark.parametrize("router", [0, 1])
def test_what_is_not_registered_is_not_found_from_any_router(
    router: int, plain: PlainClient
) -> None:
    # Some of each partition of the registry, so that both routers ask each other.
    for i in range(6):
        name = f"missing-{i}"
        for call in (
            lambda n=name: plain.get(n, router),
            lambda n=name: plain.unregister(n, router),
            lambda n=name: plain.update(query_message(n, "s"), router),
        ):
            status, details = refused(call)
            assert (status, details.code, details.field) == ("NOT_FOUND", "NOT_FOUND", "id")


def test_an_empty_id_is_refused(plain: PlainClient) -> None:
    for call in (plain.get, plain.unregister):
        assert refused(lambda call=call: call(""))[1].field == "id"


@pytest.mark.parametrize("router", [0, 1])
def test_get_shows_the_newest_version(router: int, plain: PlainClient) -> None:
    name = f"get-{router}"
    first = query_message(
        name, "s-get", region=AROUND_ONE, text="a AND NOT b", where={"x": 3}, ttl="30000d"
    )
    revision = plain.register(first, router, start_ms=5_000)
    stored = plain.get(name, 1 - router)
    assert (stored.revision, stored.start_ms) == (revision, 5_000)
    assert stored.query == first
    second = query_message(name, "s-get", text="c")
    newer = plain.update(second, 1 - router)
    assert newer > revision
    stored = plain.get(name, router)
    assert (stored.revision, stored.query) == (newer, second)
    assert plain.unregister(name, router) > newer
    assert refused(lambda: plain.get(name, router))[0] == "NOT_FOUND"


@pytest.mark.parametrize("router", [0, 1])
@pytest.mark.parametrize("page_size", [1, 3, 7, 100])
def test_pages_of_a_list_hold_each_live_query_once(
    page_size: int, router: int, plain: PlainClient
) -> None:
    subscriber = f"list-{page_size}-{router}"
    names = {f"{subscriber}-{i}" for i in range(12)}
    for name in sorted(names):
        plain.register(query_message(name, subscriber), router)
    plain.update(query_message(f"{subscriber}-3", subscriber, text="new"), router)
    plain.register(query_message(f"{subscriber}-other", "s-list"), router)
    found, token, pages = [], "", 0
    while True:
        page = plain.list(router, page_size=page_size, page_token=token, subscriber=subscriber)
        assert len(page.registered_queries) <= page_size
        found += [each.query.id for each in page.registered_queries]
        pages += 1
        token = page.next_page_token
        if not token:
            break
    assert len(found) == len(set(found))
    assert set(found) == names
    assert pages <= 12 // page_size + 2


def test_a_list_of_large_queries_comes_in_pages_that_a_message_holds(
    plain: PlainClient,
) -> None:
    # 8.6 MB; the SDK asks for this many at once.
    angles = [math.tau * vertex / 9_000 for vertex in range(9_000)]
    ring = [[1 + math.cos(angle), 1 + math.sin(angle)] for angle in angles]
    names = [f"large-{i}" for i in range(60)]
    for name in names:
        plain.register(query_message(name, "s-large", region={"polygon": [ring]}))
    found, token = [], ""
    while True:
        page = plain.list(page_size=1_000, page_token=token, subscriber="s-large")
        assert page.registered_queries
        found += [each.query.id for each in page.registered_queries]
        token = page.next_page_token
        if not token:
            break
    for name in names:
        plain.unregister(name)
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("token", ["x", "1", "9.0", "0.-1", "-1.0", "0.1.2", "0.x"])
def test_a_page_token_that_no_list_gave_is_refused(token: str, plain: PlainClient) -> None:
    status, details = refused(lambda: plain.list(page_token=token))
    assert (status, details.field) == ("INVALID_ARGUMENT", "page_token")


def test_a_negative_page_size_is_refused(plain: PlainClient) -> None:
    assert refused(lambda: plain.list(page_size=-1))[1].field == "page_size"


def test_of_many_removals_each_has_its_own_answer(plain: PlainClient) -> None:
    """Most go in columns; empty, long and repeated ids beside them."""
    names = [f"gone-{n}" for n in range(12)] + ["gone-é", "x" * 129]
    queries = [query_message(name, "s-gone", text="a") for name in names]
    registered = query_service_pb2.RegisterQueriesRequest(queries=queries)
    (answer,) = plain.queries[0].RegisterQueries(iter([registered]), timeout=DEADLINE_S)
    known = {name: result.revision for name, result in zip(names, answer.results, strict=True)}
    ids = ["", *names, "gone-none", "gone-3"]
    removed = query_service_pb2.UnregisterQueriesRequest(ids=ids)
    # Two calls: requests of one stream are decided side by side.
    (first,) = plain.queries[1].UnregisterQueries(iter([removed]), timeout=DEADLINE_S)
    (again,) = plain.queries[1].UnregisterQueries(iter([removed]), timeout=DEADLINE_S)
    codes = {name: result.error.code for name, result in zip(ids, first.results, strict=True)}
    assert codes == {
        **dict.fromkeys(names, ""),
        "": "INVALID_ARGUMENT",
        "gone-none": "NOT_FOUND",
        "gone-3": "NOT_FOUND",
    }
    assert first.results[0].error.field == "id"
    revisions = {name: result.revision for name, result in zip(ids, first.results, strict=True)}
    assert all(revisions[name] > known[name] for name in names if name != "gone-3")
    assert {result.error.code for result in again.results[1:]} == {"NOT_FOUND"}


def test_of_many_registrations_each_has_its_own_answer(plain: PlainClient) -> None:
    request = query_service_pb2.RegisterQueriesRequest(
        queries=[
            query_message("bulk-0", "s-bulk"),
            spoiled(set_("range.text", "(")),
            query_message("bulk-1", "s-bulk", text="a"),
            query_message("bulk-1", "s-bulk", text="b"),
            query_message("bulk-2", "s-bulk"),
        ]
    )
    answers = list(plain.queries[0].RegisterQueries(iter([request] * 2), timeout=DEADLINE_S))
    assert len(answers) == 2
    for answer in answers:
        codes = [result.error.code for result in answer.results]
        assert codes == ["", "INVALID_ARGUMENT", "", "ALREADY_EXISTS", ""]
        assert answer.results[1].error.field == "text"
        assert answer.results[3].error.field == "id"
    revisions = [[result.revision for result in answer.results] for answer in answers]
    assert revisions[0] == revisions[1]


def test_a_query_whose_lifetime_is_over_is_gone_for_all_calls_at_once(
    plain: PlainClient,
) -> None:
    name, subscriber = "brief", "s-brief"
    query = query_message(name, subscriber, ttl="300ms")
    first = plain.register(query)
    over_ms = now_ms() + query.ttl_ms
    eventually(lambda: now_ms() >= over_ms)
    for router in (0, 1):
        assert not plain.list(router, subscriber=subscriber).registered_queries
        for call in (
            lambda router=router: plain.get(name, router),
            lambda router=router: plain.update(query, router),
            lambda router=router: plain.unregister(name, router),
        ):
            assert refused(call)[0] == "NOT_FOUND"
    # The id is free, also for another query of another subscriber.
    other = query_message(name, "s-other", text="a")
    assert plain.register(other) > first
    assert plain.get(name).query == other
    plain.unregister(name)


def test_a_later_begin_does_not_hide_a_registered_query(plain: PlainClient) -> None:
    name, later_ms = "standing", now_ms() + (1 << 40)
    revision = plain.register(query_message(name, "s-standing", ttl="1d"))
    for other in (query_message(name, "s-standing"), query_message(name, "t", ttl="1d")):
        status, _ = refused(lambda other=other: plain.register(other, start_ms=later_ms))
        assert status == "ALREADY_EXISTS"
    assert plain.get(name).revision == revision
    plain.unregister(name)


def test_of_many_updates_and_removals_each_has_its_own_answer(plain: PlainClient) -> None:
    stub, names = plain.queries[0], [f"many-{i}" for i in range(300)]
    queries = [query_message(name, "s-many") for name in names]
    register = query_service_pb2.RegisterQueriesRequest(queries=queries)
    (registered,) = stub.RegisterQueries(iter([register]), timeout=DEADLINE_S)
    others = [query_message(name, "s-many", text="a") for name in (*names, "many-missing")]
    update = query_service_pb2.UpdateQueriesRequest(queries=[*others, spoiled(set_("where", "{"))])
    (updated,) = stub.UpdateQueries(iter([update]), timeout=DEADLINE_S)
    assert [r.error.code for r in updated.results] == [""] * 300 + ["NOT_FOUND", "INVALID_ARGUMENT"]
    assert [r.error.field for r in updated.results][-2:] == ["id", "where"]
    for new, old in zip(updated.results, registered.results, strict=False):
        assert new.revision > old.revision
    assert plain.get("many-7").query.range.text == "a"
    removal = query_service_pb2.UnregisterQueriesRequest(ids=[*names, "many-missing", "", names[0]])
    (removed,) = stub.UnregisterQueries(iter([removal]), timeout=DEADLINE_S)
    codes = [result.error.code for result in removed.results]
    assert codes == [""] * 300 + ["NOT_FOUND", "INVALID_ARGUMENT", "NOT_FOUND"]
    assert not plain.list(subscriber="s-many").registered_queries


def test_too_many_registrations_in_a_request_are_refused(plain: PlainClient) -> None:
    query = query_message("bulk", "s")
    request = query_service_pb2.RegisterQueriesRequest(queries=[query] * 10_001)
    status, details = refused(
        lambda: plain.queries[0].RegisterQueries(iter([request]), timeout=DEADLINE_S)
    )
    assert (status, details.field) == ("INVALID_ARGUMENT", "queries")


OVERSIZED: dict[str, Callable[[PlainClient, str], Any]] = {
    "RegisterQuery": lambda s, text: s.register(spoiled(set_("where", text))),
    "RegisterQueries": lambda s, text: s.queries[0].RegisterQueries(
        iter([query_service_pb2.RegisterQueriesRequest(queries=[spoiled(set_("where", text))])]),
        timeout=DEADLINE_S,
    ),
    "GetQuery": lambda s, text: s.get(text),
    "AwaitProcessed": lambda s, text: s.processed(text),
}


@pytest.mark.parametrize("method", OVERSIZED)
def test_a_message_over_the_limit_is_refused_in_words(method: str, plain: PlainClient) -> None:
    status, details = refused(lambda: OVERSIZED[method](plain, "x" * (9 << 20)))
    assert (status, details.code) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert f"Service/{method}" in details.message


def test_objects_after_the_answer_meet_the_new_state(plain: PlainClient) -> None:
    one = {"lon": 1.0, "lat": 1.0, "text": "red"}
    session, wanted = new_session(), []

    def publish(number: int) -> str:
        request = publish_request(session, number, [{"id": 700 + number, **one}])
        (answer,) = plain.publish(request)
        token: str = answer.position_token
        return token

    publish(1)
    plain.register(query_message("turn", "s-turn", region=AROUND_ONE, text="red"), 0)
    publish(2)
    wanted.append(702)
    plain.update(query_message("turn", "s-turn", region=AROUND_ONE, text="blue"), 1)
    publish(3)
    plain.update(query_message("turn", "s-turn", text="red"), 0)
    publish(4)
    wanted.append(704)
    plain.unregister("turn", 1)
    cursors = plain.processed(publish(5))
    assert plain.found("s-turn", cursors) == [("turn", number) for number in wanted]
