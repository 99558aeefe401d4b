"""`sirocco publish`: good lines arrive, bad lines are reported, and the count is always printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import errors_pb2

from sirocco.cli.__main__ import main
from tests.support.fake_cluster import Failure, FakeCluster, PublishPlan


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.stop()


def good(number: int) -> str:
    return json.dumps({"id": number, "lon": 1.5, "lat": 2.5, "text": "fire"})


def publish(cluster: FakeCluster, path: Path, lines: list[str], *options: str) -> int:
    path.write_text("\n".join(lines) + "\n")
    return main(["publish", "--router", cluster.router, *options, str(path)])


def test_batches_without_a_good_line_are_passed_over(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = ['{"id": 5}'] * 2_500
    lines = [*map(good, range(1_500)), *bad, *map(good, range(1_500, 3_000))]
    assert publish(cluster, tmp_path / "o", lines) == 3
    assert cluster.ids == list(range(3_000))
    out, err = capsys.readouterr()
    assert out.startswith("3,000 objects acknowledged")
    output = err.splitlines()
    assert output[0] == f"{tmp_path}/o:1501: lon: is missing"
    assert output[10:] == [f"{tmp_path}/o: 2,490 more lines: lon: is missing"]


def test_nothing_good_at_all_is_counted_as_none(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(cluster, tmp_path / "o", ["{", "[]", '{"id": 1}'], "--json") == 3
    out, err = capsys.readouterr()
    assert json.loads(out) | {"seconds": 0} == {
        "objects": 0, "bad_lines": 3, "seconds": 0, "position_token": "",
    }  # fmt: skip
    assert err.count("\n") == 3
    assert not cluster.publish_requests


def test_a_last_line_that_is_cut_is_bad_and_one_without_an_end_is_good(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, status in ((good(1) + "\n" + good(2), 0), (good(3) + "\n" + good(4)[:-9], 3)):
        done = subprocess.run(
            [sys.executable, "-m", "sirocco.cli", "publish", "--router", cluster.router],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status
        assert ("-:2: object: is no JSON" in done.stderr) == (status == 3)
    assert cluster.ids == [1, 2, 3]


def test_errors_are_in_the_order_of_lines_wherever_they_are_found(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reject(number: int | str) -> errors_pb2.Error | None:
        is_odd = isinstance(number, int) and number % 2 == 1
        return errors_pb2.Error(code="INVALID_ARGUMENT", message=f"{number}") if is_odd else None

    cluster.reject = reject
    lines: list[str] = []
    for number in range(40):
        lines += [good(number), f'{{"id": {number}, "lon": {200 + number}, "lat": 1}}']
    assert publish(cluster, tmp_path / "o", lines, "--rate", "200") == 3
    out, err = capsys.readouterr()
    output = [int(line.split(":")[1]) for line in err.splitlines()]
    assert output == sorted(output)
    assert len(output) == 60
    assert out.startswith("20 objects acknowledged")


def test_the_count_is_printed_when_the_cluster_gives_up(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = Failure(grpc.StatusCode.PERMISSION_DENIED)
    cluster.publish_plans.append(PublishPlan(requests=2, answered=1, failure=refusal))
    assert publish(cluster, tmp_path / "o", list(map(good, range(5_000))), "--json") == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["objects"] == 1_000
    assert "objects are unacknowledged, numbers 1001 to" in err


def test_the_count_is_printed_after_an_interrupt(cluster: FakeCluster) -> None:
    command = [sys.executable, "-m", "sirocco.cli", "publish", "--router", cluster.router]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, "--json"], stderr=subprocess.PIPE, text=True, **pipes) as run:
        assert run.stdin is not None
        run.stdin.write(good(1) + "\n" + good(2) + "\n")
        run.stdin.flush()
        cluster.await_that(lambda: len(cluster.log) == 2, 60.0)
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(120.0) == 130
        assert run.stdout is not None
        assert json.loads(run.stdout.read())["objects"] == 2


def test_a_missing_file_is_reported_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", "--router", "127.0.0.1:9", str(tmp_path / "none")]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "No such file" in err


def test_tables_and_geojson_are_published(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ["nr,Longitude,y,title", "1,1.5,2,fire", "2,x,2,fire", *["3,,2,"] * 12, "4,1,2,"]
    assert publish(cluster, tmp_path / "o.csv", table, "--map", "id=nr,text=title") == 3
    assert cluster.ids == [1, 4]
    output = capsys.readouterr().err.splitlines()
    assert output[0] == f"{tmp_path}/o.csv:3: lon: 'x' is no number"
    assert output[-1] == f"{tmp_path}/o.csv: 2 more lines: lon: is missing"
    point = '{"type": "Feature", "id": %d, "geometry": {"type": "Point", "coordinates": [1, 2]}}'
    assert publish(cluster, tmp_path / "o", [point % 7, point % 8]) == 0
    assert cluster.ids == [1, 4, 7, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "header: has no column for id"),
        (("--map", "id=number"), "map: there is no column 'number'; there are nr, x, y"),
        (("--map", "number"), "map: 'number' is none of lon="),
        (("--format", "parquet"), "file: cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_as_a_whole(
    cluster: FakeCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    assert publish(cluster, tmp_path / "o.csv", ["nr,x,y", "1,2,3"], *options) == 2
    assert message in capsys.readouterr().err
