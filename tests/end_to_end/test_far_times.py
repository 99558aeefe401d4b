"""Objects of a far future, and a time advanced too far: both are refused, the rest continues."""

from __future__ import annotations

import time

import pytest
from sirocco_client import Client, InvalidArgument, TermsStep, query_from_json
from sirocco_client.errors import Rejected

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.test_start_times import Receiver, ids_of

TIMEOUT_S = 300.0
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS

SETTINGS = ClusterSettings(
    cluster="far",
    slots=4,
    leaves=4,
    event_time=True,
    intake_partitions=1,
    arrival_skew_max_ms=HOUR_MS,
    retention_ms=None,
)
WORDS = {"id": "words", "kind": "terms", "mode": "continuous", "k": 3, "window": "1s", "step": "1s"}
BRIEF = {"id": "brief", "kind": "range", "mode": "continuous", "ttl": "1h"}


def test_one_object_of_a_far_year_stops_no_stream() -> None:
    now_ms = round(time.time() * 1_000)
    near = [
        {"id": number, "lon": 1.0, "lat": 1.0, "ts": now_ms + 100 * number, "text": "word"}
        for number in range(50)
    ]
    far = [
        {**near[0], "id": 1_000 + i, "ts": now_ms + ahead_ms}
        for i, ahead_ms in enumerate((2 * HOUR_MS, 24 * HOUR_MS, 100 * YEAR_MS))
    ]
    # An object slightly in the future is not refused.
    ahead = {**near[0], "id": 99, "ts": now_ms + HOUR_MS // 120, "text": "ahead"}
    with (
        EmbeddedCluster(SETTINGS, evaluators=2) as cluster,
        Client(cluster.router_address) as client,
    ):
        for query in (WORDS, BRIEF):
            client.register(query_from_json(query, "s"), start_ms=now_ms)
        receiver = Receiver(client)
        refused: list[Rejected] = []
        with client.publisher(on_rejected=refused.append) as publisher:
            for batch in (near[:25], far, near[25:], [ahead]):
                publisher.publish_many(batch)
                token = publisher.flush().position_token
        with pytest.raises(InvalidArgument) as too_far:
            client.advance_time(now_ms + YEAR_MS)
        assert too_far.value.field == "time_ms"

        received = receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S))

    assert [each.error.field for each in refused] == ["ts"] * 3
    assert sorted(ids_of(received)) == [*range(50), 99]
    # Every step is reported, even an empty one.
    steps = [each for each in received if isinstance(each, TermsStep)]
    assert [(each.at_ms - now_ms) // 1_000 for each in steps] == list(range(1, 30))
    assert {bool(each.terms) for each in steps[:4]} == {True}
    assert not any(each.terms for each in steps[6:])


def test_a_gap_of_years_in_a_file_counts_every_step() -> None:
    """Checks a gap without a bound, as in a replay."""
    settings = ClusterSettings(
        cluster="gap", slots=4, leaves=4, event_time=True, intake_partitions=1, retention_ms=None
    )
    start_ms, gap_ms = 1_000_000_000_000, 2 * YEAR_MS
    with EmbeddedCluster(settings) as cluster, Client(cluster.router_address) as client:
        query = {**WORDS, "step": "7d", "window": "7d"}
        client.register(query_from_json(query, "s"), start_ms=start_ms)
        receiver = Receiver(client)
        with client.publisher() as publisher:
            one = {"lon": 1.0, "lat": 1.0, "text": "word"}
            publisher.publish({**one, "id": 1, "ts": start_ms})
            publisher.publish({**one, "id": 2, "ts": start_ms + gap_ms})
            token = publisher.flush().position_token
        received = receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S))
    steps = [each for each in received if isinstance(each, TermsStep)]
    wanted = (gap_ms - 1) // (7 * 24 * HOUR_MS)
    assert [(each.at_ms - start_ms) // (7 * 24 * HOUR_MS) for each in steps] == [
        *range(1, wanted + 1)
    ]
    assert all(not each.terms for each in steps)
