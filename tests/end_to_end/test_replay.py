"""`sirocco replay`: files in, lines out, against the brute-force oracle.

As a process where it starts others, ends wrongly or reports what it took; else in this one.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from sirocco.loadgen.clusters import ClusteredShape, ClusteredWorkload
from sirocco.loadgen.lines import object_lines
from sirocco.loadgen.posts import PostsShape, WorldPosts
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.transport.redis_map_store import RedisMapStore
from tests.end_to_end.random_queries import random_queries
from tests.end_to_end.replayed import run_here
from tests.oracle import matches, read_members

ROOT = Path(__file__).resolve().parents[2]
BUSHFIRES = ROOT.parent / "shared" / "data" / "nsw_rfs_bushfire_updates.jsonl.gz"
SEED = 20261121
TIMEOUT_S = 600


@dataclass(frozen=True)
class Replayed:
    """The results of a replay."""

    status: int
    summary: dict[str, Any]
    stderr: str
    found: Counter[tuple[str, int | str]]
    errors: list[dict[str, Any]]
    steps: Counter[tuple[str, int]]


class Files:
    """The files of one replay."""

    def __init__(self, directory: Path) -> None:
        self.objects = directory / "objects.jsonl"
        self.queries = directory / "queries.jsonl"
        self.results = directory / "results.jsonl"

    def write(self, objects: Sequence[object], queries: Sequence[object]) -> None:
        for path, lines in ((self.objects, objects), (self.queries, queries)):
            text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
            path.write_text("".join(f"{line}\n" for line in text))

    def start(self, *options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sirocco.cli", "replay", *self._arguments(options)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The directory of the files of a replay's processes.
            env={**os.environ, "TMPDIR": str(self.results.parent)},
        )

    def finish(self, process: subprocess.Popen[str]) -> Replayed:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        return self._replayed(process.returncode, out, err)

    def replay(self, *options: object) -> Replayed:
        return self.finish(self.start(*options))

    def replay_here(self, *options: object) -> Replayed:
        return self._replayed(*run_here(*self._arguments(options)))

    def _arguments(self, options: Sequence[object]) -> list[str]:
        files = ("--objects", self.objects, "--queries", self.queries, "--results", self.results)
        return [str(each) for each in (*files, *options)]

    def _replayed(self, status: int, out: str, err: str) -> Replayed:
        lines = read_members(self.results) if self.results.exists() else []
        found = Counter((one["query"], one["object"]) for one in lines if "object" in one)
        steps = Counter((one["query"], one["at"]) for one in lines if "at" in one)
        summary = json.loads(out.splitlines()[-1]) if out else {}
        errors = [one for one in lines if "error" in one]
        return Replayed(status, summary, err, found, errors, steps)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def _posts(count: int) -> list[dict[str, Any]]:
    world = WorldPosts(SEED, PostsShape(posts_per_s=50.0))
    return [json.loads(line) for batch in world.batches(count) for line in object_lines(batch)]


def _agree(done: Replayed, wanted: Counter[tuple[str, int | str]]) -> None:
    assert done.status in (0, 3), done.stderr
    missing, extra = wanted - done.found, done.found - wanted
    received = f"seed {SEED}: {missing.total()} missing, {extra.total()} too many; "
    assert done.found == wanted, received + str([*missing, *extra][:5]) + done.stderr
    assert wanted.total() >= 50
    assert done.summary["notifications"] == wanted.total()


def test_posts_with_queries_of_all_shapes(files: Files) -> None:
    objects = _posts(3_000)
    queries = random_queries(objects, 300, SEED)
    files.write(objects, queries)
    done = files.replay("--evaluators", 2, "--slots", 16, "--leaves", 40)
    _agree(done, matches(objects, queries))
    assert done.status == 0
    assert done.summary["objects"] == 3_000
    assert done.summary["queries"] == 300
    assert set(done.summary["latency_ms"]) == {"p50", "p95", "p99", "max"}
    assert set(done.summary["cpu_seconds"]) >= {"router", "evaluator", "merger", "coordinator"}
    assert done.summary["peak_memory_bytes"] > 1 << 20
    assert done.summary["seconds"] > 0


@pytest.mark.parametrize("scheme", ["qt-tree", "uniform-grid"])
def test_clustered_workload(files: Files, scheme: str) -> None:
    shape = ClusteredShape(clusters=20, vocabulary=300, side=0.02)
    workload = ClusteredWorkload(SEED, shape)
    objects = [json.loads(x) for batch in workload.objects(20_000) for x in object_lines(batch)]
    queries = list(workload.queries(400))
    files.write(objects, queries)
    done = files.replay_here("--scheme", scheme, "--routers", 2, "--mergers", 2)
    _agree(done, matches(objects, queries))


def test_arrivals_that_follow_the_data(files: Files) -> None:
    objects = _posts(2_000)
    for number, one in enumerate(objects):
        if number % 7 == 3:
            del one["ts"]
        elif number % 11 == 5:
            one["ts"] -= 3_600_000
    queries = random_queries(objects, 200, SEED)
    for number, query in enumerate(queries):
        query["ttl"] = ("1ms", "7s", "20s", "1h")[number % 4]
    untimed = {"id": 9, "lon": 0, "lat": 0}
    files.write([untimed, *objects], queries)
    done = files.replay_here("--arrival", "event")
    _agree(done, matches(objects, queries, event_arrivals=True))
    assert done.status == 3
    assert [(one["line"], one["error"].split(":")[0]) for one in done.errors] == [(1, "ts")]


def test_ids_are_returned_as_they_came(files: Files) -> None:
    objects = _posts(600)
    for number, one in enumerate(objects):
        if number % 3 == 0:
            one["id"] = f"post {number} é"
        elif number % 3 == 1:
            one["id"] = 2**64 - 1 - number // 2  # some are published twice
    queries = random_queries(objects, 100, SEED)
    files.write(objects, queries)
    files.objects.write_bytes(gzip.compress(files.objects.read_bytes()))
    _agree(files.replay_here(), matches(objects, queries))


def test_bad_lines_are_reported_and_the_rest_continues(files: Files) -> None:
    objects: list[Any] = _posts(500)
    queries: list[Any] = random_queries(objects, 60, SEED)
    wanted = matches(objects, queries)
    objects[100:100] = ["{broken", '{"id": 1, "lon": 181, "lat": 0}', "", '{"id": -4}']
    queries += [
        queries[0],
        queries[0] | {"ttl": "1h"},
        {"id": "k", "kind": "knn", "mode": "continuous", "point": {"lon": 0, "lat": 0}, "k": 0},
        queries[1] | {"id": "s", "mode": "snapshot", "ttl": "1h"},
        {"id": "t", "kind": "range", "mode": "continuous", "text": "fire AND"},
    ]
    files.write(objects, queries)
    done = files.replay_here()
    _agree(done, wanted)
    assert done.status == 3
    assert done.summary["bad_lines"] == 7
    received = {(one["file"], one["line"]): one["error"] for one in done.errors}
    assert set(received) == {
        *((str(files.objects), line) for line in (101, 102, 104)),
        *((str(files.queries), line) for line in (62, 63, 64, 65)),
    }
    assert received[str(files.objects), 102].startswith("lon: ")
    assert received[str(files.queries), 62].startswith("id: ")
    assert received[str(files.queries), 63].startswith("k: ")
    assert received[str(files.queries), 64].startswith("ttl: ")
    assert received[str(files.queries), 65].startswith("text: ")
    for (file, line), error in received.items():
        assert f"{file}:{line}: {error}" in done.stderr


def test_files_without_a_good_line(files: Files) -> None:
    files.write(["nonsense"], [])
    done = files.replay_here()
    assert done.status == 3, done.stderr
    assert done.summary["objects"] == 0
    assert len(done.errors) == 1


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--sample", "/no/such/file"], 2),
        (["--kafka", "127.0.0.1:9"], 2),
        (["--kafka", "127.0.0.1:9", "--redis", "redis://127.0.0.1:9/0"], 4),
        (["--evaluators", "0"], 2),
        (["--scheme", "guesswork"], 2),
    ],
)
def test_wrong_use(files: Files, options: list[str], status: int) -> None:
    files.write(_posts(1), [])
    done = files.replay(*options)
    assert done.status == status
    assert done.stderr.splitlines()[-1].startswith("sirocco")


def test_real_updates_of_bush_fires(files: Files) -> None:
    if not BUSHFIRES.exists():
        pytest.skip(f"{BUSHFIRES} is not there: it belongs to no clone")
    objects = read_members(BUSHFIRES)
    queries = random_queries(objects, 60, SEED, lifetimes=True)
    files.write(objects, queries)
    done = files.replay_here("--arrival", "event", "--evaluators", 2)
    _agree(done, matches(objects, queries, event_arrivals=True))


def test_objects_of_far_years_are_refused_and_the_rest_is_as_without_them(files: Files) -> None:
    objects = _posts(400)
    queries: list[dict[str, Any]] = random_queries(objects, 100, SEED)
    queries.append({"id": "t", "kind": "terms", "mode": "continuous", "k": 3, "step": "1s"})
    queries.append({**queries[-1], "id": "u", "step": "20ms"})
    files.write(objects, queries)
    wanted = files.replay_here("--arrival", "event")
    now_ms = round(time.time() * 1_000)
    far = [
        {**objects[0], "id": "far", "ts": ts} for ts in (253_402_300_799_000, now_ms + 7_200_000)
    ]
    # Two months, which are 250 million steps of the second query.
    late = {**objects[0], "id": "late", "ts": objects[200]["ts"] + 5_184_000_000}
    files.write([far[0], *objects[:200], far[1], late, *objects[200:]], queries)

    done = files.replay_here("--arrival", "event", "--arrival-skew-max", "1h")

    assert [one["line"] for one in done.errors] == [1, 202, 203]
    assert {one["error"].split(":")[0] for one in done.errors} == {"ts"}
    assert (done.status, done.summary["bad_lines"], done.summary["objects"]) == (3, 3, 400)
    assert done.steps == wanted.steps
    assert done.found == wanted.found


@pytest.mark.kafka
def test_the_same_on_kafka(
    files: Files, kafka_server: KafkaServer, redis_server: RedisServer
) -> None:
    objects = _posts(3_000)
    queries = random_queries(objects, 300, SEED)
    files.write(objects, queries)
    before = _left_on(kafka_server, redis_server)
    done = files.replay(
        *("--kafka", kafka_server.address, "--redis", redis_server.url, "--evaluators", 2)
    )
    _agree(done, matches(objects, queries))
    assert done.status == 0
    assert not list(files.results.parent.glob("sirocco-replay-*"))
    assert "could not be removed" not in done.stderr
    assert _left_on(kafka_server, redis_server) == before


def _left_on(kafka: KafkaServer, redis: RedisServer) -> tuple[set[str], set[str]]:
    """Returns the broker's topics and the lasting keys in Redis; leases expire by themselves."""
    topics = AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=120.0).topics
    store = RedisMapStore(redis.url)
    client = store._client
    lasting = {key for key in client.scan_iter(match="replay-*") if client.ttl(key) == -1}
    store.close()
    return {topic for topic in topics if not topic.startswith("__")}, lasting


@pytest.mark.kafka
def test_services_die_during_a_replay(
    files: Files, kafka_server: KafkaServer, redis_server: RedisServer
) -> None:
    # init
    objects = _posts(15_000)
    queries = random_queries(objects, 150, SEED)
    files.write(objects, queries)
    process = files.start(
        *("--kafka", kafka_server.address, "--redis", redis_server.url),
        *("--evaluators", 2, "--rate", 1_500),
    )

    # test: one after the other, once the one before is back; each is one of three.
    try:
        _await_results(files.results, process)
        for victim in ("evaluator-0", "router-0", "merger-0", "coordinator-0"):
            (pid_file,) = files.results.parent.glob(f"sirocco-replay-*/{victim}.pid")
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGKILL)
            _await_restart(pid_file, pid, process)
        done = files.finish(process)
    finally:
        process.kill()

    # check
    _agree(done, matches(objects, queries))
    assert done.status == 0


def _await_results(path: Path, process: subprocess.Popen[str]) -> None:
    """Waits until the first notifications arrive."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (path.exists() and path.stat().st_size):
        if process.poll() is not None:
            pytest.fail(f"ended before it began:\n{process.communicate()[1]}")
        assert time.monotonic() < deadline, "no notification"
        time.sleep(0.02)


def _await_restart(pid_file: Path, pid: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (pid_file.read_text() if pid_file.exists() else "").strip() in ("", str(pid)):
        if process.poll() is not None:
            pytest.fail(f"ended although a service was missing:\n{process.communicate()[1]}")
        assert time.monotonic() < deadline, "was not restarted"
        time.sleep(0.02)
