"""Notifications that say where the words stand that matched, from a cluster to all its clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest
from sirocco_client import (
    AlreadyExists,
    Client,
    Highlight,
    InvalidArgument,
    KnnChange,
    KnnQuery,
    Notification,
    Object,
    Polygon,
    RangeQuery,
    RankedChange,
    RankedQuery,
    Rectangle,
    TrackedNotification,
)

from sirocco.cli.__main__ import main
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings

HERE = Rectangle(0.0, 0.0, 10.0, 10.0)
TEXT = "Ein Großbrand: fire, big\u00a0FIRE in Zürich 火事 👍🏽 nobody"


@pytest.fixture(scope="module")
def router() -> Iterator[str]:
    settings = ClusterSettings(cluster="highlights", slots=4, leaves=4)
    with EmbeddedCluster(settings) as cluster:
        yield cluster.router_address


@pytest.fixture
def client(router: str) -> Iterator[Client]:
    with Client(router) as client:
        yield client


def received(client: Client, subscriber: str, count: int) -> list[Notification]:
    with client.subscribe(subscriber, from_earliest=True) as subscription:
        found = list(islice(subscription, count))
    assert all(isinstance(one, Notification) for one in found)
    return sorted(found, key=lambda one: (one.query, one.arrival_ms))  # type: ignore[arg-type, union-attr, return-value]


def publish(client: Client, *objects: Object) -> None:
    with client.publisher() as publisher:
        for one in objects:
            publisher.publish(one)


def test_words_are_shown_to_those_who_ask(client: Client) -> None:
    one = "words"
    shape = Polygon((((0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0)),))
    queries = [
        RangeQuery(id="a", subscriber=one, text='"big fire"', highlight=True),
        RangeQuery(id="b", subscriber=one, text="fire", region=shape, highlight=True),
        RangeQuery(id="c", subscriber=one, text="zurich NOT wien", fold=True, highlight=True),
        RangeQuery(id="d", subscriber=one, text="火事 OR nob*", where={"n": 1}, highlight=True),
        RangeQuery(id="e", subscriber=one, text="fire", region=HERE),
        RangeQuery(id="f", subscriber=one, text="👍", region=HERE, ttl="1h", highlight=True),
    ]
    for query in queries:
        client.register(query)
    publish(client, Object(id=1, lon=1.0, lat=1.0, text=TEXT, attributes={"n": 1}))
    found = received(client, one, len(queries))
    shown = {each.query: [TEXT[h.start : h.end] for h in each.highlights] for each in found}
    assert shown == {
        "a": ["big\u00a0FIRE"],
        "b": ["fire", "FIRE"],
        "c": ["Zürich"],
        "d": ["火事", "nobody"],
        "e": [],
        "f": ["👍"],
    }
    assert found[2].highlights == (Highlight("zurich", TEXT.index("Zür"), TEXT.index("Zür") + 6),)
    assert client.get("a").query.highlight  # type: ignore[union-attr]


def test_queries_in_bulk_and_new_versions(client: Client) -> None:
    one = "bulk"
    queries = [
        RangeQuery(id=f"bulk{i}", subscriber=one, text="smoke", region=HERE, highlight=i % 2 == 0)
        for i in range(20)
    ]
    assert all(each.error is None for each in client.register_many(queries))
    with pytest.raises(AlreadyExists):
        client.register(RangeQuery(id="bulk0", subscriber=one, text="smoke", region=HERE))
    client.update(RangeQuery(id="bulk0", subscriber=one, text="smoke", region=HERE))
    client.update(RangeQuery(id="bulk1", subscriber=one, text="smo*", highlight=True))
    publish(client, Object(id=2, lon=1.0, lat=1.0, text="much smoke"))
    shown = {each.query: each.highlights for each in received(client, one, 20)}
    assert shown["bulk0"] == shown["bulk3"] == ()
    assert shown["bulk1"] == (Highlight("smo*", 5, 10),)
    assert shown["bulk2"] == (Highlight("smoke", 5, 10),)


def test_followed_values_and_the_past(client: Client) -> None:
    one = "followed"
    publish(client, Object(id=3, lon=1.0, lat=1.0, text="old ember"))
    client.register(RangeQuery(id="past", subscriber=one, text="ember", highlight=True), past="all")
    tracked = RangeQuery(
        id="track", subscriber=one, region=HERE, text="ember", track="car", highlight=True
    )
    client.register(tracked)
    publish(
        client,
        Object(id=4, lon=1.0, lat=1.0, text="new ember", attributes={"car": "x"}),
        Object(id=5, lon=1.0, lat=1.0, text="cold", attributes={"car": "x"}),
    )
    found = received(client, one, 4)
    assert [(each.query, each.change, each.highlights) for each in found] == [
        ("past", "match", (Highlight("ember", 4, 9),)),
        ("past", "match", (Highlight("ember", 4, 9),)),
        ("track", "enter", (Highlight("ember", 4, 9),)),
        ("track", "exit", ()),
    ]
    assert isinstance(found[2], TrackedNotification)


def test_the_tool_and_the_gateway_show_them(
    client: Client, router: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, places = "shown", [{"term": "tornado", "start": 2, "end": 9}]
    client.register(RangeQuery(id="shown", subscriber=one, text="tornado", highlight=True))
    publish(client, Object(id=6, lon=1.0, lat=1.0, text="A TORNADO"))
    arguments = ["subscribe", one, "--from-earliest", "--count", "1", "--json"]
    assert main([*arguments, "--router", router]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert line["highlights"] == places
    gateway = Gateway(GatewaySettings(routers=router))
    gateway.start()
    try:
        with httpx.Client(base_url=f"http://{gateway.address}", timeout=120.0) as http:
            answer = http.get("/v1/queries/shown").json()
            assert answer["query"]["highlight"] is True
            path = f"/v1/subscribers/{one}/notifications?from_earliest=true"
            with http.stream("GET", path) as events:
                data = next(each for each in events.iter_lines() if each.startswith("data: "))
            assert json.loads(data.removeprefix("data: "))["highlights"] == places
    finally:
        gateway.stop()


def test_lists_show_the_words_of_what_enters_them(
    client: Client, router: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = "lists"
    here: dict[str, Any] = {"lon": 5.0, "lat": 5.0}
    near = KnnQuery(
        id="near",
        subscriber=one,
        k=3,
        text='"big wolf" OR wo*',
        where={"n": 1},
        highlight=True,
        **here,
    )
    best = RankedQuery(
        id="best",
        subscriber=one,
        radius_m=5_000.0,
        k=2,
        keywords=("wolf", "Pass"),
        window="1h",
        step="100ms",
        highlight=True,
        **here,
    )
    silent = KnnQuery(id="silent", subscriber=one, k=2, text="wolf", **here)
    for query in (near, best, silent):
        client.register(query)
    assert client.get("near").query.highlight  # type: ignore[union-attr]
    assert client.get("best").query.highlight  # type: ignore[union-attr]
    texts = {"far": "wolf on a pass", "mid": "a big WOLF", "close": "wood"}
    for number, (name, text) in enumerate(texts.items()):
        place = here | {"lon": 5.01 - 0.002 * number}
        publish(client, Object(id=name, text=text, attributes={"n": 1}, **place))
    shown: dict[tuple[str, int | str], list[str]] = {}
    received_count = 0
    with client.subscribe(one, from_earliest=True) as subscription:
        for change in subscription:
            assert isinstance(change, KnnChange | RankedChange)
            new = change.added if isinstance(change, KnnChange) else change.new
            assert len(change.highlights) in (0, len(new))
            received_count += 1
            for entered, places in zip(new, change.highlights, strict=False):
                words = [entered.text[each.start : each.end] for each in places]
                shown[change.query, entered.id] = words
                assert bool(words) == (change.query != "silent")
            if len(shown.keys() - {("silent", "far"), ("silent", "mid")}) == 5:
                break
    assert {key: words for key, words in shown.items() if words} == {
        ("near", "far"): ["wolf"],
        ("near", "mid"): ["big WOLF", "WOLF"],
        ("near", "close"): ["wood"],
        ("best", "far"): ["wolf", "pass"],
        ("best", "mid"): ["WOLF"],
    }
    arguments = ["subscribe", one, "--from-earliest", "--count", str(received_count), "--json"]
    assert main([*arguments, "--router", router]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [place for line in lines for place in line.get("highlights", ())]
    assert {"object": "far", "term": "pass", "start": 10, "end": 14} in found
    assert ("mid", 2, 10) in [(each["object"], each["start"], each["end"]) for each in found]


@pytest.mark.parametrize(
    "query",
    [
        RangeQuery(id="wrong", subscriber="s", region=HERE, highlight=True),
        RangeQuery(id="wrong", subscriber="s", text="a", highlight=1),  # type: ignore[arg-type]
        KnnQuery(id="wrong", subscriber="s", lon=0.0, lat=0.0, k=1, highlight=True),
    ],
)
def test_what_cannot_be_shown_is_refused(client: Client, query: RangeQuery | KnnQuery) -> None:
    with pytest.raises(InvalidArgument) as refused:
        client.register(query)
    assert refused.value.field == "highlight"
