"""The running services' metrics of lists, steps and searches, as Prometheus reads them."""

from __future__ import annotations

from contextlib import suppress
from urllib.request import urlopen

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sirocco_client import Client, KnnQuery, PartialResult, RangeQuery

from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.router.limits import RouterLimits
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.merger.service import MergerService, _step_lag_s
from sirocco.services.router.service import RouterService
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics
from sirocco.telemetry.metrics.merger import MergerMetrics
from tests.support.list_records import ListVersion, Terms, found_of, terms_spec
from tests.support.merger_cluster import MergerCluster
from tests.support.plain_client import PlainClient, new_session, publish_request, query_message
from tests.support.search_cluster import Searchable
from tests.support.waiting import eventually

EVERYWHERE = RangeQuery(id="all", subscriber="", mode="snapshot")
AROUND = {"rect": {"west": -1.0, "south": -1.0, "east": 1.0, "north": 1.0}}


def shown(cluster: EmbeddedCluster, service: str) -> dict[str, float]:
    """Returns samples of all processes of a service, summed; labels as `name{kind=range}`."""
    samples: dict[str, float] = {}
    for one in cluster.services:
        if one.name != service:
            continue
        with urlopen(f"http://{one.http_address}/metrics", timeout=120.0) as response:
            text = response.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                name = f"{sample.name}{{{labels}}}" if labels else sample.name
                samples[name] = samples.get(name, 0.0) + sample.value
    return samples


def outcomes(metrics: MergerMetrics | EvaluatorMetrics) -> dict[str, float]:
    """Returns outcome → number of searches."""
    (family,) = metrics.searches.collect()
    samples = [each for each in family.samples if each.name.endswith("_total")]
    return {each.labels["outcome"]: each.value for each in samples}


def test_lists_steps_and_searches_are_shown(cluster: EmbeddedCluster, plain: PlainClient) -> None:
    before = shown(cluster, "merger")
    for name, members in {
        "metered-words": {"kind": "terms", "region": AROUND, "k": 3, "step": "100ms"},
        "metered-near": {"kind": "knn", "point": {"lon": 0.0, "lat": 0.0}, "k": 3},
    }.items():
        window = {"window": "1h"} if members["kind"] == "terms" else {}
        plain.register(query_message(name, "meters", **members, **window))
    rows = [{"id": 1, "lon": 0.1, "lat": 0.1, "text": "metered"}]
    (answer, *_) = plain.publish(publish_request(new_session(), 1, rows))
    plain.processed(answer.position_token)

    def lists_are_known() -> bool:
        return shown(cluster, "merger")["sirocco_merger_open_lists"] >= 2

    eventually(lists_are_known)
    near = KnnQuery(id="k", subscriber="", mode="snapshot", lon=0.0, lat=0.0, k=1)
    with Client(cluster.router_address) as client:
        assert len(client.search(near)) == 1
    after = shown(cluster, "merger")
    for name in (
        "open_lists",
        "pending_steps",
        "pending_step_bytes",
        "step_lag_seconds",
        "late_parts",
        "partial_steps",
    ):
        assert after[f"sirocco_merger_{name}"] >= 0, name
    assert after["sirocco_merger_partial_steps"] == 0
    searches = "sirocco_merger_searches_total{kind=knn,outcome=ok}"
    assert after[searches] == before.get(searches, 0.0) + 1
    seconds = "sirocco_merger_search_seconds_count{kind=knn}"
    assert after[seconds] == before.get(seconds, 0.0) + 1
    asked = shown(cluster, "evaluator")
    assert asked["sirocco_evaluator_searches_total{kind=knn,outcome=ok}"] >= 1
    assert asked["sirocco_evaluator_search_seconds_count{kind=knn}"] >= 1
    for query in ("metered-words", "metered-near"):
        plain.unregister(query)


def test_what_ended_is_remembered_for_a_while(
    cluster: EmbeddedCluster, plain: PlainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> float:
        return shown(cluster, "merger")["sirocco_merger_ended_versions"]

    def forget_every(interval_ms: int) -> None:
        for service in cluster.services:
            if isinstance(service, MergerService):
                limits = MergerLimits(forget_interval_ms=interval_ms)
                monkeypatch.setattr(service.machine, "_limits", limits)

    forget_every(1 << 60)
    before = ended()
    near = {"kind": "knn", "point": {"lon": 0.0, "lat": 0.0}, "k": 3}
    for name in ("ending-1", "ending-2"):
        plain.register(query_message(name, "enders", **near))
        plain.unregister(name)
    # Queries removed by the test before may end meanwhile.
    eventually(lambda: ended() >= before + 2)

    # test: a checkpoint of the registry, after which the changes are no longer read.
    for service in cluster.services:
        if isinstance(service, RouterService):
            limits = RouterLimits(checkpoint_interval_ms=0)
            monkeypatch.setattr(service.machine, "_limits", limits)
    forget_every(50)

    # check
    eventually(lambda: ended() == 0)
    assert shown(cluster, "merger")["sirocco_merger_early_versions"] == 0


def test_steps_that_wait_show_how_far_the_slots_have_passed_them() -> None:
    slots = MergerCluster(log=[], slots=2)
    window = slots.machine.windows[0]
    assert _step_lag_s(window) == 0.0
    words = ListVersion("words", terms_spec("words", 2))
    step = Terms(words, 1_000, (("a", 1),))
    slots.log.append(found_of([(0, 0, 1, 1_001)], [(0, 0, step)]))
    slots.log.append(found_of([(0, 1, 2, 8_500)]))
    slots.read(2, np.random.default_rng(0))
    slots.commit()
    assert _step_lag_s(window) == 7.5
    slots.log.append(found_of([(1, 0, 1, 8_000)]))
    slots.read(3, np.random.default_rng(0))
    assert _step_lag_s(window) == 0.0


@pytest.mark.parametrize("allow_partial", [False, True])
def test_searches_without_all_slots_are_counted_as_partial(allow_partial: bool) -> None:
    with Searchable() as small:
        small.evaluators["evaluator-1"].kill()
        with suppress(PartialResult):
            small.client.search(EVERYWHERE, timeout_s=0.5, allow_partial=allow_partial)
        eventually(lambda: small.front._under_way == 0)
        assert outcomes(small.metrics) == {"partial": 1}


def test_questions_about_slots_that_are_elsewhere_are_counted_as_moved() -> None:
    with Searchable() as small:
        small.give(2, "evaluator-1", is_announced=False)
        with suppress(PartialResult):
            small.client.search(EVERYWHERE, timeout_s=0.5)
        counted = [outcomes(one.metrics) for one in small.evaluators.values()]
        assert sum(each.get("moved", 0) for each in counted) >= 1
        assert sum(each.get("ok", 0) for each in counted) >= 1
