"""The cursor that `sirocco subscribe` prints for resuming, so that nothing is printed twice."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sirocco.cli.__main__ import main
from tests.support.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    found.batch_matches = 3
    found.deliver(*(("q", i) for i in range(9)))
    yield found
    found.stop()


def _printed(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[list[int], str]:
    """Returns the printed objects, and the final message."""
    assert main(["subscribe", "s", "--router", cluster.router, "--json", *options]) == 0
    out, err = capsys.readouterr()
    output = err.splitlines(keepends=True)
    assert output[0] == "listening as s: no query of this subscriber\n"
    return [json.loads(line)["object"]["id"] for line in out.splitlines()], "".join(output[1:])


def test_it_continues_after_what_was_printed(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    reported, end = _printed(cluster, capsys, "--from-earliest", "--count", "3")
    assert (reported, end) == ([0, 1, 2], "go on with --cursor 3\n")
    reported, end = _printed(cluster, capsys, "--cursor", "3", "--count", "6")
    assert (reported, end) == ([3, 4, 5, 6, 7, 8], "go on with --cursor 9\n")


def test_during_a_batch_it_continues_with_that_batch(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    reported, end = _printed(cluster, capsys, "--from-earliest", "--count", "5")
    assert (reported, end) == ([0, 1, 2, 3, 4], "go on with --cursor 3\n")


def test_no_cursor_is_printed_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeCluster()
    cluster.stop()
    assert main(["subscribe", "s", "--router", cluster.router, "--timeout", "0.2"]) == 4
    assert "go on with" not in capsys.readouterr().err


def test_matches_are_features_on_request(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--router", cluster.router, "--from-earliest", "--limit", "2")
    assert main(["subscribe", "s", *options, "--format", "geojson"]) == 0
    features = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["id"] for each in features] == [0, 1]
    assert features[0]["geometry"]["type"] == "Point"
    assert features[0]["properties"]["query"] == "q"
    assert main(["subscribe", "s", *options, "--format", "table"]) == 0
    assert capsys.readouterr().out.startswith("q ")
