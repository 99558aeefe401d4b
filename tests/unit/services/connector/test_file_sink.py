"""The sink into files: rows, rotation, forms, recovery after a crash between any two steps."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.running_sinks import deliver, running
from tests.support.waiting import until


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster()
    yield made
    made.stop()


def section(folder: Path, **members: object) -> dict[str, object]:
    return {"kind": "file", "folder": str(folder), "start": "earliest", **members}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of all files, finished or not, in their order."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".part", ".ndjson", ".gz"):
            data = path.read_bytes()
            if path.suffix == ".gz" or data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            found += [orjson.loads(line) for line in data.splitlines()]
        elif path.suffix == ".parquet":
            found += [orjson.loads(text) for text in pq.read_table(path)["data"].to_pylist()]
    return found


def objects_of(folder: Path) -> list[int]:
    return [int(row["object"]["id"]) for row in lines_of(folder)]


def run(cluster: FakeCluster, folder: Path, count: int, **members: object) -> None:
    """Runs a sink until its files have so many rows."""

    async def work() -> None:
        async with running(cluster.router, section(folder, **members)) as found:
            await until(lambda: found.value("records_total", side="sink", name="alerts") >= count)

    asyncio.run(work())


@pytest.mark.parametrize(
    "members", [{}, {"gzip": True}, {"files": "parquet"}, {"format": "cloudevents"}]
)
def test_every_notification_is_in_one_file(
    cluster: FakeCluster, tmp_path: Path, members: dict[str, object]
) -> None:
    deliver(cluster, 500)
    run(cluster, tmp_path, 500, file_bytes=4096, **members)
    deliver(cluster, 100, 500)
    run(cluster, tmp_path, 100, file_bytes=4096, **members)
    rows = lines_of(tmp_path)
    inner = [row["data"] if "specversion" in row else row for row in rows]
    assert [int(row["object"]["id"]) for row in inner] == list(range(1, 601))
    assert len({row["id"] for row in rows}) == 600
    finished = [
        path for path in tmp_path.iterdir() if path.suffix in (".ndjson", ".gz", ".parquet")
    ]
    assert finished, sorted(path.name for path in tmp_path.iterdir())


def test_a_row_says_what_the_gateway_says(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 1)
    run(cluster, tmp_path, 1)
    assert lines_of(tmp_path) == [
        {
            "id": "1-0",
            "query": "q0",
            "object": {"id": "1", "lon": 1.5, "lat": 2.5, "text": "tëxt 1", "a": 1},
        }
    ]


async def until_all(cluster: FakeCluster, folder: Path, count: int, **members: object) -> None:
    """Runs a sink until it has recovered and has all rows."""

    def has_all() -> bool:
        try:
            return len(objects_of(folder)) >= count
        except FileNotFoundError:
            # It was renamed meanwhile.
            return False

    async with running(cluster.router, section(folder, **members)) as found:
        await until(lambda: found.value("sink_active", name="alerts") and has_all())


def tear(folder: Path) -> None:
    """Drops half of what is in the part and not in the state, as a power failure may."""
    state = folder / "alerts.state"
    for part in folder.glob("*.part"):
        target = orjson.loads(state.read_bytes())["target"] if state.exists() else {}
        named = int(part.stem.rpartition("-")[2])
        if named < target.get("number", 0):
            continue
        kept = target.get("bytes", 0)
        with part.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.truncate(kept + (size - kept) // 2)


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts the steps of file systems, and ends the process before or after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fatal = -1
        for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "unlink")):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            self._pass()
            result = real(*args)
            self._pass()
            return result

        return step

    def _pass(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            raise Crash


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    deliver(cluster, 40)
    steps = Steps(monkeypatch)
    members = {"files": form, "file_bytes": 1024}
    tried = 0
    while True:
        folder = tmp_path / str(tried)
        steps.count, steps.fatal = 0, tried + 1

        async def until_the_crash(folder: Path = folder) -> bool:
            async with running(cluster.router, section(folder, **members)) as found:
                await until(
                    lambda: (
                        found.task.done()
                        or found.value("records_total", side="sink", name="alerts") >= 40
                    )
                )
                return found.task.done()

        try:
            crashed = asyncio.run(until_the_crash())
        except Crash:
            crashed = True
        steps.fatal = -1
        if not crashed and steps.count < tried + 1:
            break
        tear(folder)
        asyncio.run(until_all(cluster, folder, 40, **members))
        assert objects_of(folder) == list(range(1, 41)), f"after a crash in step {tried + 1}"
        tried += 1
    assert tried >= 20
