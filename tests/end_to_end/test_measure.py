"""Measurements under load give consistent figures."""

from __future__ import annotations

from sirocco_client import Client

from sirocco.loadgen.measure import Load, measure
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster


def test_latency_under_a_steady_load() -> None:
    with (
        EmbeddedCluster(ClusterSettings(cluster="measured", slots=4, leaves=4)) as cluster,
        Client(cluster.router_address) as client,
    ):
        figures = measure(client, Load(objects_per_s=4_000, seconds=2.0, queries=20_000))
    # A slow machine falls behind the load, and none gets ahead of it.
    assert 0 < figures["objects_per_s"] < 6_000
    assert 0 < figures["acknowledged_ms"]["p50"] <= figures["acknowledged_ms"]["p99"]
    assert 0 < figures["notified_ms"]["p50"] <= figures["notified_ms"]["max"]
    assert figures["notifications"] > 0


def test_a_second_measurement_receives_nothing_for_queries_of_the_first() -> None:
    load = Load(objects_per_s=1_000, seconds=0.5, queries=2_000)
    with (
        EmbeddedCluster(ClusterSettings(cluster="again", slots=4, leaves=4)) as cluster,
        Client(cluster.router_address) as client,
    ):
        first, second = (measure(client, load)["notifications"] for _ in range(2))
    assert 0 < first == second
