"""Sinks at work: expired cursors, broken streams, refusals, throttles over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from sirocco_api.v1 import errors_pb2

from sirocco.services.connector.sinks.errors import SinkStopped
from sirocco.services.connector.sinks.rows import Place
from sirocco.services.connector.sinks.state import Saved
from tests.support.fake_cluster import Failure, FakeCluster, ReceivePlan
from tests.support.running_sinks import deliver, running
from tests.support.waiting import until


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster()
    yield made
    made.stop()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("*.part"))
    return [orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def section(folder: Path, **members: object) -> dict[str, object]:
    return {"kind": "file", "folder": str(folder), "start": "earliest", **members}


def run_until(cluster: FakeCluster, folder: Path, count: int, **members: object) -> list[Any]:
    async def work() -> None:
        async with running(cluster.router, section(folder, **members)):
            await until(lambda: len(rows_of(folder)) >= count)

    asyncio.run(work())
    return rows_of(folder)


def test_a_stream_that_breaks_loses_and_doubles_nothing(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.receive_plans.extend(ReceivePlan(matches) for matches in (0, 3, 10, 0, 1, 25))
    deliver(cluster, 100)
    rows = run_until(cluster, tmp_path, 100)
    assert [int(row["object"]["id"]) for row in rows] == list(range(1, 101))


def test_a_new_sink_keeps_its_place_before_the_first_notification(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """What arrives between its first end and its next start is not lost."""
    deliver(cluster, 10)

    async def begin() -> None:
        async with running(cluster.router, section(tmp_path, start="now")) as found:
            await until(lambda: found.value("sink_active", name="alerts"))

    asyncio.run(begin())
    deliver(cluster, 10, 10)
    rows = run_until(cluster, tmp_path, 10, start="now")
    assert [int(row["object"]["id"]) for row in rows] == list(range(11, 21))


def test_an_expired_cursor_is_counted_and_the_sink_goes_on(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    deliver(cluster, 60)
    (tmp_path / "alerts.state").write_bytes(Saved(Place("7")).to_bytes())
    cluster.earliest = 50

    async def work() -> None:
        async with running(cluster.router, section(tmp_path)) as found:
            labels = {"name": "alerts", "reason": "expired"}
            name = "sirocco_connector_sink_dropped_total"
            # An alert looks for the increase.
            assert found.registry.get_sample_value(name, labels) == 0
            await until(lambda: len(rows_of(tmp_path)) >= 10)
            assert found.registry.get_sample_value(name, labels) == 1

    asyncio.run(work())
    assert [int(row["object"]["id"]) for row in rows_of(tmp_path)] == list(range(51, 61))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("subscriber", "subscriber: not yours$"),
        ("open.cursor", "not yours; the state is of another subscriber or cluster: give the sink"),
    ],
)
def test_a_cluster_that_refuses_ends_the_sink(
    cluster: FakeCluster, tmp_path: Path, field: str, message: str
) -> None:
    error = errors_pb2.Error(code="PERMISSION_DENIED", message="not yours", field=field)
    failure = Failure(grpc.StatusCode.PERMISSION_DENIED, error)
    cluster.receive_plans.append(ReceivePlan(0, failure))

    async def work() -> None:
        async with running(cluster.router, section(tmp_path)) as found:
            await until(found.task.done)

    with pytest.raises(SinkStopped, match=message) as caught:
        asyncio.run(work())
    assert caught.value.reason == "refused"


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":9}', b"[]", b'{"version":1,"skip":"x"}'])
def test_a_damaged_state_is_not_taken_for_none(
    cluster: FakeCluster, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "alerts.state").write_bytes(data)

    async def work() -> None:
        async with running(cluster.router, section(tmp_path)) as found:
            await until(found.task.done)

    with pytest.raises(SinkStopped, match=r"alerts\.state"):
        asyncio.run(work())
    assert (tmp_path / "alerts.state").read_bytes() == data


def test_digests_count_exactly_over_restarts(cluster: FakeCluster, tmp_path: Path) -> None:
    throttle = {"count": 2, "period": "2s"}
    deliver(cluster, 50)
    # Three queries pass two each; the rest waits for the end of the period.
    run_until(cluster, tmp_path, 6, throttle=throttle)

    async def go_on() -> None:
        async with running(cluster.router, section(tmp_path, throttle=throttle)) as found:
            deliver(cluster, 50, 50)

            def counted() -> int:
                rows = rows_of(tmp_path)
                passed = sum("object" in row for row in rows)
                return passed + sum(row.get("count", 0) for row in rows)

            await until(lambda: counted() >= 100)
            assert found.value("sink_dropped_total", name="alerts", reason="throttled") > 0
            # No digest comes twice.
            assert counted() == 100

    asyncio.run(go_on())
    digests = [row for row in rows_of(tmp_path) if row.get("event") == "digest"]
    assert {row["query"] for row in digests} == {"q0", "q1", "q2"}
    assert len({row["id"] for row in digests}) == len(digests)
