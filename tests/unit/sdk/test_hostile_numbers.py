"""Absurd values for the numbers of the SDK's calls (time limits, counts, pauses).

Each is used as given, or refused with the name of its field and the given value. No call raises a
Python error, and no error mentions another number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from sirocco_client import InvalidArgument, PublishFlow, Retry, query_from_json

from tests.support.fake_cluster import FakeCluster

NO_NUMBERS = [math.nan, True, "1", [], b"1", 1 + 1j, {}]
TOO_MUCH = [-1, -5e-324, -math.inf, math.inf, 1e300, 10**400]
# Such a time limit is over before the call begins.
TOO_SOON = [0, 0.0, -0.0, 5e-324, 1e-9, 0.000_999]

SNAPSHOT = query_from_json({"id": "q", "kind": "range", "mode": "snapshot"}, "s")


def refused(field: str, call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(value)
    assert caught.value.field == field, value
    if isinstance(value, float) and not isinstance(value, bool):
        assert f"{value!r} " in caught.value.message


@pytest.mark.parametrize("value", [*NO_NUMBERS, *TOO_MUCH, *TOO_SOON], ids=repr)
def test_time_limits_of_calls(
    value: Any, client: Any, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    for call in (
        lambda limit: connect(cluster.router, timeout_s=limit),
        lambda limit: client.search(SNAPSHOT, timeout_s=limit),
        lambda limit: client.describe(timeout_s=limit),
        lambda limit: client.map_change(timeout_s=limit),
        lambda limit: client.balance(timeout_s=limit),
        lambda limit: client.await_processed("0.1", timeout_s=limit),
        lambda limit: client.subscribe("s").open(limit),
    ):
        refused("timeout_s", call, value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, *TOO_MUCH], ids=repr)
def test_waits_for_acknowledgements(value: Any, client: Any) -> None:
    publisher = client.publisher()
    publisher.publish({"id": 1, "lon": 1, "lat": 2})
    refused("timeout_s", publisher.flush, value)
    refused("timeout_s", publisher.close, value)
    # Objects accepted before are still sent.
    assert publisher.flush(20.0).acknowledged == 1
    publisher.close(20)
    # Closing again has no effect.
    publisher.close(0)


@pytest.mark.parametrize("value", [None, *NO_NUMBERS, -(10**16), 10**400, 1.5], ids=repr)
def test_moments(value: Any, client: Any) -> None:
    refused("time_ms", client.advance_time, value)


@pytest.mark.parametrize("value", [None, *NO_NUMBERS, *TOO_MUCH], ids=repr)
def test_pauses_and_batches(value: Any) -> None:
    for kind, prefix in ((Retry, "retry."), (PublishFlow, "")):
        for each in fields(kind):
            refused(prefix + each.name, lambda v, k=kind, n=each.name: k(**{n: v}), value)


def test_the_bounds_themselves_are_taken() -> None:
    Retry(attempts=1 << 53, initial_ms=0, longest_ms=0, jitter=0)
    Retry(attempts=1, initial_ms=86_400_000, factor=1, longest_ms=86_400_000.0, jitter=1)
    PublishFlow(batch_objects=1, batch_bytes=1, linger_ms=0, rejections_max=1)
