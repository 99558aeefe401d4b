"""All combinations of query members, in each kind and mode: `sirocco replay` and the oracle.

Invalid ones are refused by name; all others are answered, on a stream small enough to follow by
hand. `tests/unit/services/router/changes/test_query_combinations` defines which members belong
together.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.end_to_end.replayed import agree, replay, write_lines
from tests.oracle import answers

POINT = {"lon": 1.0, "lat": 2.0}
RECT = {"rect": {"west": 0, "south": 0, "east": 3, "north": 3}}
CIRCLE = {"circle": {**POINT, "radius_m": 200_000}}
REQUIRED: dict[str, dict[str, Any]] = {
    "range": {},
    "knn": {"point": POINT, "k": 3},
    "terms": {"k": 3},
    "ranked": {"point": POINT, "radius_m": 300_000, "k": 3, "keywords": ["red", "bus"]},
}
WHERE = {"where": {"size": {"gte": 2}}}
TTL = {"ttl": "30s"}
WINDOW = {"window": "20s"}
TEXT = {"text": "red OR bus"}
EVENTS = ("enter", "inside", "exit", "ended")
ENDED = {"events": ["ended"]}
OPTIONAL: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("range", "continuous"): [WHERE, TTL, WINDOW, TEXT],
    ("range", "snapshot"): [WHERE, WINDOW, TEXT],
    ("knn", "continuous"): [WHERE, TTL, TEXT, ENDED],
    ("knn", "snapshot"): [WHERE, WINDOW, TEXT],
    ("terms", "continuous"): [WHERE, TTL, WINDOW, TEXT, ENDED],
    ("terms", "snapshot"): [WHERE, WINDOW, TEXT],
}
RANKED: list[dict[str, Any]] = [
    WHERE,
    WINDOW,
    {"weights": {"text": 0.5, "space": 0.25, "time": 0.25}},
    {"half_life": "5s"},
]
OPTIONAL["ranked", "continuous"] = [*RANKED, TTL, {"step": "5s"}, ENDED]
OPTIONAL["ranked", "snapshot"] = RANKED
# Members that do not exist in some kinds and modes, and the required members of each.
STRANGE: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("range", "continuous"): [
        *({"point": POINT}, {"k": 3}, {"step": "5s"}, {"radius_m": 1}, {"keywords": ["a"]}),
        *({"events": ["enter"]}, {"weights": {}}, {"half_life": "1s"}),
    ],
    ("range", "snapshot"): [TTL, {"track": "line"}, {"events": ["exit"]}, ENDED, {"step": "5s"}],
    ("knn", "continuous"): [WINDOW, {"region": RECT}, {"track": "line"}, {"step": "5s"}],
    ("knn", "snapshot"): [TTL, ENDED, {"region": RECT}, {"keywords": ["a"]}, {"half_life": "1s"}],
    ("terms", "continuous"): [{"point": POINT}, {"track": "line"}, {"step": "0s"}],
    ("terms", "snapshot"): [TTL, {"step": "5s"}, {"point": POINT}, {"weights": {}}],
    ("ranked", "continuous"): [{"region": RECT}, TEXT, {"track": "line"}, {"step": "0s"}],
    ("ranked", "snapshot"): [TTL, {"step": "5s"}, {"region": RECT}, TEXT],
}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "range": [{}, {"region": RECT}, {"region": CIRCLE}],
    "terms": [{}, {"region": RECT}, {"region": CIRCLE}],
}


def stream() -> list[dict[str, Any]]:
    """Returns 120 objects of a minute, of six lines in and out; some lack line, size or text."""
    objects: list[dict[str, Any]] = []
    texts = ["red bus", "blue bus", "red tram", "", "old red tram stop", "bus"]
    for number in range(120):
        one: dict[str, Any] = {
            "id": f"n-{number}" if number % 9 == 0 else number,
            "ts": 1_000_000 + 500 * number,
            "lon": (number * 7 % 50) / 10 - 1,
            "lat": (number * 11 % 40) / 10,
        }
        if text := texts[number % len(texts)]:
            one["text"] = text
        if number % 5:
            one["line"] = [1, "1", True, "a", 2.5, "b"][number * 5 % 6]
        if number % 4:
            one["size"] = number % 4
        objects.append(one)
    return objects


def subsets(members: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields all subsets of some members."""
    for size in range(len(members) + 1):
        for chosen in itertools.combinations(members, size):
            yield {name: value for each in chosen for name, value in each.items()}


def tracks() -> Iterator[dict[str, Any]]:
    """Yields no track, track alone, and track with all subsets of events."""
    yield {}
    yield ENDED
    yield {"track": "line"}
    for size in range(1, len(EVENTS) + 1):
        for events in itertools.combinations(EVENTS, size):
            yield {"track": "line", "events": list(events)}


def combinations(kind: str, mode: str) -> Iterator[dict[str, Any]]:
    """Yields all queries of a kind and mode, without their ids."""
    base: dict[str, Any] = {"kind": kind, "mode": mode} | REQUIRED[kind]
    if (kind, mode) == ("terms", "continuous"):
        base["step"] = "5s"
    followed = list(tracks()) if (kind, mode) == ("range", "continuous") else [{}]
    parts = itertools.product(SHAPES.get(kind, [{}]), followed, subsets(OPTIONAL[kind, mode]))
    for shape, track, members in parts:
        yield base | shape | track | members


def test_each_combination_is_answered_as_the_oracle_does_or_refused(tmp_path: Path) -> None:
    # init
    objects, queries, strange = stream(), list[dict[str, Any]](), list[dict[str, Any]]()
    for kind, mode in OPTIONAL:
        queries += [
            {"id": f"{kind}-{mode}-{number}"} | members
            for number, members in enumerate(combinations(kind, mode))
        ]
        good = {"kind": kind, "mode": mode} | REQUIRED[kind]
        strange += [
            {"id": f"{kind}-{mode}-bad-{i}"} | good | more
            for i, more in enumerate(STRANGE[kind, mode])
        ]
        strange += [
            {"id": f"{kind}-{mode}-no-{name}"} | {n: v for n, v in good.items() if n != name}
            for name in REQUIRED[kind]
        ]
    write_lines(tmp_path / "objects", objects)
    file = write_lines(tmp_path / "queries", [*queries, *strange])
    bad = [(str(file), len(queries) + number + 1) for number in range(len(strange))]

    # test
    done = replay(tmp_path, 2)

    # check
    agree(done, objects, queries, bad, seed=0)
    says = Counter(
        name.rsplit("-", 1)[0] for name, each in answers(objects, queries).items() if each.lines()
    )
    wanted = Counter(query["id"].rsplit("-", 1)[0] for query in queries)
    # For hardly any of a kind there is nothing to report.
    assert all(says[name] > 0.8 * count for name, count in wanted.items()), (says, wanted)
