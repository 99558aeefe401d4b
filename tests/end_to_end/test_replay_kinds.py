"""`sirocco replay` with queries of every kind and mode, all services, against the oracle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sirocco.loadgen.lines import object_lines
from sirocco.loadgen.posts import PostsShape, WorldPosts
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.model.text import tokens_of
from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.end_to_end.replayed import ROOT, TIMEOUT_S, agree, finish, replay, start, write_lines
from tests.oracle import answers, arrivals_ms, distance_m, read_members

BUSHFIRES = ROOT.parent / "shared" / "data" / "nsw_rfs_bushfire_updates.jsonl.gz"
SYDNEY = 151.21, -33.87
SEED = 20261121

EVALUATORS = pytest.mark.parametrize("evaluators", [1, 4])

BAD_QUERIES: list[Any] = [
    {"id": "bad-1", "kind": "knn", "mode": "snapshot", "point": {"lon": 0, "lat": 0}, "k": 0},
    {"id": "bad-2", "kind": "knn", "mode": "continuous", "point": {"lon": 181, "lat": 0}, "k": 1},
    {"id": "bad-3", "kind": "terms", "mode": "continuous", "k": 1, "step": "2s", "window": "1s"},
    {"id": "bad-4", "kind": "terms", "mode": "continuous", "k": 1},
    {"id": "bad-5", "kind": "ranked", "mode": "snapshot", "point": {"lon": 0, "lat": 0}, "k": 1}
    | {"radius_m": -1, "keywords": ["bus"]},
    {"id": "bad-6", "kind": "ranked", "mode": "snapshot", "point": {"lon": 0, "lat": 0}, "k": 1}
    | {"radius_m": 1, "keywords": ["bus"], "weights": {"text": 1, "space": 1, "time": 1}},
    {"id": "bad-7", "kind": "range", "mode": "snapshot", "track": "vehicle"},
    {"id": "bad-8", "kind": "range", "mode": "continuous", "colour": "red"},
    {"id": "bad-9", "kind": "range", "mode": "continuous", "track": "text"},
    "{",
]


def _assert_all_find_something(
    objects: list[dict[str, Any]], queries: list[dict[str, Any]]
) -> None:
    """Checks that a good share of the queries of each kind and mode has something to find."""
    received: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for query, answer in answers(objects, queries).items():
        kind = query.rsplit("-", 1)[0]
        count[kind] += 1
        received[kind] += any(
            line.get("objects") or line.get("terms") or "object" in line for line in answer.lines()
        )
    assert len(count) >= 8
    assert all(received[kind] > count[kind] / 3 for kind in count), (received, count)


def _posts(count: int) -> list[dict[str, Any]]:
    """Returns posts of one minute; some without time, late, with string ids, or published again."""
    world = WorldPosts(SEED, PostsShape(posts_per_s=50.0))
    objects = [json.loads(line) for batch in world.batches(count) for line in object_lines(batch)]
    for number, one in enumerate(objects):
        if number % 7 == 3:
            del one["ts"]
        elif number % 11 == 5:
            one["ts"] -= 3_600_000
        if number % 5 == 1:
            one["id"] = f"post {number} é"
        elif number % 13 == 6:
            one["id"] = 2**64 - 1 - number // 100
    return objects


@EVALUATORS
def test_posts(tmp_path: Path, evaluators: int) -> None:
    objects = _posts(3_000)
    queries = random_queries_of_all_kinds(objects, 240, SEED)
    _assert_all_find_something(objects, queries)
    write_lines(tmp_path / "objects", objects)
    write_lines(tmp_path / "queries", queries)
    agree(replay(tmp_path, evaluators), objects, queries, seed=SEED)


def test_vehicles_that_move(tmp_path: Path) -> None:
    objects = moving_vehicles(4_000, SEED)
    # Here alone, many steps pass between some objects.
    queries = random_queries_of_all_kinds(objects, 270, SEED, track="vehicle", steps_max=100)
    _assert_all_find_something(objects, queries)
    write_lines(tmp_path / "objects", objects)
    write_lines(tmp_path / "queries", queries)
    agree(replay(tmp_path, 4, "--mergers", 2, "--routers", 2), objects, queries, seed=SEED)


def test_bad_lines_of_all_kinds(tmp_path: Path) -> None:
    objects = moving_vehicles(500, SEED)
    queries = random_queries_of_all_kinds(objects, 45, SEED, track="vehicle")
    # The first two have no time, and no earlier object gives them an arrival.
    untimed = [{"id": 1, "lon": 0, "lat": 0}, {"id": 2, "ts": None, "lon": 0, "lat": 0}]
    broken = ["nonsense", {"id": -1, "ts": 1, "lon": 0, "lat": 0}]
    object_file = write_lines(
        tmp_path / "objects", [*untimed, *objects[:100], *broken, *objects[100:]]
    )
    repeats = [queries[7], queries[3] | {"k": 51}]
    query_file = write_lines(
        tmp_path / "queries", [*queries[:20], *BAD_QUERIES, *queries[20:], *repeats]
    )
    bad = [(str(object_file), line) for line in (1, 2, 103, 104)]
    bad += [(str(query_file), 21 + number) for number in range(len(BAD_QUERIES))]
    bad.append((str(query_file), len(queries) + len(BAD_QUERIES) + 2))
    done = replay(tmp_path, 2)
    agree(done, objects, queries, bad, seed=SEED)
    assert done.summary["bad_lines"] == len(bad)


def _fires() -> list[dict[str, Any]]:
    """Returns real updates with name and alarm level of the fire, from the begin of the text."""
    objects = read_members(BUSHFIRES)
    for one in objects:
        fire, _, rest = one["text"].partition(". Alert level ")
        one |= {"fire": fire, "alert": rest.partition(".")[0]}
    return objects


@EVALUATORS
def test_real_updates_of_bush_fires_around_sydney(tmp_path: Path, evaluators: int) -> None:
    if not BUSHFIRES.exists():
        pytest.skip(f"{BUSHFIRES} is not there: it belongs to no clone")
    # With one evaluator only the number of slots differs: a part of the data is enough.
    objects = _fires()[: 20_000 if evaluators > 1 else 5_000]
    near = [one for one in objects if distance_m(*SYDNEY, one["lon"], one["lat"]) < 150_000]
    queries = random_queries_of_all_kinds(near, 180, SEED, track="fire")
    _assert_all_find_something(objects, queries)
    write_lines(tmp_path / "objects", objects)
    write_lines(tmp_path / "queries", queries)
    agree(replay(tmp_path, evaluators), objects, queries, seed=SEED)


def _fires_and_vehicles() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns objects and queries: real updates, if available, among moving vehicles."""
    vehicles = moving_vehicles(2_000, SEED)
    if not BUSHFIRES.exists():
        return vehicles, random_queries_of_all_kinds(vehicles, 144, SEED, track="vehicle")
    fires = _fires()[:4_000]
    # Each arrives with a fire, so that the windows of all queries cover about the same time.
    for one, ts in zip(vehicles, arrivals_ms(fires)[1::2], strict=True):
        one["ts"] = ts
    queries = random_queries_of_all_kinds(vehicles, 72, SEED, track="vehicle")
    of_fires = random_queries_of_all_kinds(fires, 72, SEED, track="fire")
    queries += [query | {"id": f"fires-{query['id']}"} for query in of_fires]
    triples = zip(fires[::2], fires[1::2], vehicles, strict=True)
    return [one for triple in triples for one in triple], queries


@pytest.mark.kafka
@EVALUATORS
def test_an_evaluator_dies_during_a_replay_on_kafka(
    tmp_path: Path, evaluators: int, kafka_server: KafkaServer, redis_server: RedisServer
) -> None:
    # init: its slots return elsewhere, or in a new process if there is no other evaluator, with the
    # past objects and all lists.
    objects, queries = _fires_and_vehicles()
    _assert_all_find_something(objects, queries)
    write_lines(tmp_path / "objects", objects)
    write_lines(tmp_path / "queries", queries)
    servers = ("--kafka", kafka_server.address, "--redis", redis_server.url)
    process = start(tmp_path, evaluators, *servers, "--rate", 1_000)

    # test: half of the objects are in the past by then.
    try:
        half = len(objects) // 2
        later = {one["id"] for one in objects[half:]} - {one["id"] for one in objects[:half]}
        _await_objects(tmp_path / "results", process, later)
        (pid_file,) = tmp_path.glob("sirocco-replay-*/evaluator-0.pid")
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        done = finish(tmp_path, process)
    finally:
        process.kill()

    # check
    agree(done, objects, queries, seed=SEED)


def _await_objects(path: Path, process: subprocess.Popen[str], awaited: set[int | str]) -> None:
    """Waits until a match of one of these objects was reported."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        # The last line may be incomplete.
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        if any(json.loads(line).get("object") in awaited for line in lines):
            return
        if process.poll() is not None:
            pytest.fail(f"ended before it began:\n{process.communicate()[1]}")
        assert time.monotonic() < deadline, "no answer"
        time.sleep(0.05)


def test_snapshots_of_nothing_answer_nothing(tmp_path: Path) -> None:
    write_lines(tmp_path / "objects", [])
    write_lines(
        tmp_path / "queries", [{"id": "q", "kind": "range", "mode": "snapshot", "window": "1h"}]
    )
    done = replay(tmp_path, 1)
    assert done.status == 0, done.stderr
    assert done.lines == [{"query": "q", "objects": []}]


def test_steps_by_the_clock_come_until_the_last_object(tmp_path: Path) -> None:
    world = WorldPosts(SEED, PostsShape(posts_per_s=50.0))
    posts = [json.loads(line) for batch in world.batches(1_500) for line in object_lines(batch)]
    write_lines(tmp_path / "objects", posts)
    query = {"id": "q", "kind": "terms", "mode": "continuous", "k": 3, "step": "200ms"}
    write_lines(tmp_path / "queries", [query | {"window": "1h"}])
    # The later option takes effect.
    done = replay(tmp_path, 1, "--arrival", "wall", "--rate", "500")
    assert done.status == 0, done.stderr
    times_ms = [line["at"] for line in done.lines]
    assert np.diff(times_ms).tolist() == [200] * (len(times_ms) - 1)
    # Three seconds of objects, from the registration on.
    assert 14 <= len(times_ms) <= 40
    # The last steps hold most of the published objects.
    held = Counter(term for post in posts for term in set(tokens_of(post["text"])))
    top = max(held.values())
    assert done.lines[-1]["terms"][0][1] >= 0.8 * top


def test_integers_beyond_64_bits_are_refused_and_large_floats_followed(tmp_path: Path) -> None:
    places = [(0.0, 89014103211118510720), (0.0, 8.9e19), (5.0, 8.9e19), (5.0, -1e19), (0.0, -1e19)]
    objects = [
        {"id": number, "ts": 1_000 + number, "lon": lon, "lat": 0.0, "imsi": value}
        for number, (lon, value) in enumerate(places)
    ]
    write_lines(tmp_path / "objects", objects)
    query = {"id": "q", "kind": "range", "mode": "continuous", "track": "imsi"}
    region = {"rect": {"west": -1, "south": -1, "east": 1, "north": 1}}
    write_lines(tmp_path / "queries", [query | {"region": region}])
    done = replay(tmp_path, 1)
    assert done.status == 3
    assert "attributes.imsi: is an integer beyond 64 bits" in done.stderr
    received = sorted((line["object"], line["event"]) for line in done.lines if "event" in line)
    assert received == [(1, "enter"), (2, "exit"), (4, "enter")]
