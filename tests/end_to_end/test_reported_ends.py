"""The reported end of queries, by the clock, on a whole cluster."""

from __future__ import annotations

import threading
import time
from typing import Any

from sirocco_client import Client, Ended, Subscription, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

TIMEOUT_S = 300.0
AREA = {"rect": {"west": 0, "south": 0, "east": 5, "north": 5}}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "range", "region": AREA},
    "tracked": {"kind": "range", "region": AREA, "track": "bus"},
    "knn": {"kind": "knn", "point": {"lon": 1, "lat": 1}, "k": 2},
    "terms": {"kind": "terms", "k": 2, "window": "1h", "step": "1s"},
    "ranked": {"kind": "ranked", "point": {"lon": 1, "lat": 1}, "radius_m": 9_000, "k": 2}
    | {"keywords": ["red"], "window": "1h", "step": "1s"},
}


def received(subscription: Subscription, notifications: list[Any]) -> None:
    for batch in subscription.batches():
        notifications += list(batch)


def test_each_query_reports_its_end_once_and_nothing_after_it() -> None:
    settings = ClusterSettings(cluster="ended", slots=4, leaves=4)
    arrived: list[Any] = []
    with (
        EmbeddedCluster(settings, evaluators=2) as cluster,
        Client(cluster.router_address) as client,
    ):
        subscription = client.subscribe("s")
        subscription.open()
        threading.Thread(target=received, args=(subscription, arrived), daemon=True).start()
        for name, members in KINDS.items():
            events = ["enter", "exit", "ended"] if name == "tracked" else ["ended"]
            query = members | {"mode": "continuous", "events": events}
            client.register(query_from_json(query | {"id": f"{name}-removed"}, "s"))
            client.register(query_from_json(query | {"id": f"{name}-ttl", "ttl": "3s"}, "s"))
        with client.publisher() as publisher:
            publisher.publish({"id": 1, "lon": 1, "lat": 1, "text": "red bus", "bus": 7})
            publisher.flush()
        # An update is not an end.
        update = KINDS["knn"] | {"id": "knn-removed", "mode": "continuous", "events": ["ended"]}
        client.update(query_from_json(update | {"k": 3}, "s"))
        for name in KINDS:
            client.unregister(f"{name}-removed")
        deadline_s = time.monotonic() + TIMEOUT_S
        while sum(isinstance(each, Ended) for each in list(arrived)) < 2 * len(KINDS):
            assert time.monotonic() < deadline_s, arrived
            time.sleep(0.1)
        # The registry's later clean-up records must not report an end again.
        time.sleep(4.0)
        subscription.close()
    reasons = {each.query: each.reason for each in arrived if isinstance(each, Ended)}
    assert reasons == {
        f"{name}-{reason}": reason for name in KINDS for reason in ("ttl", "removed")
    }
    for name in reasons:
        own = [each for each in arrived if each.query == name]
        assert [isinstance(each, Ended) for each in own] == [False] * (len(own) - 1) + [True], own
    for reason in ("ttl", "removed"):
        own = [each for each in arrived if each.query == f"tracked-{reason}"]
        assert [each.change for each in own[:-1]] == ["enter", "exit"]
