"""Throughput of the real pipeline: `sirocco replay` on a workload's objects and queries."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.schemes.loads import all_pairs
from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.workloads import Workload
from sirocco.loadgen.lines import object_lines, texts_of
from sirocco.model.text import term_hash, tokens_of

ROOT = Path(__file__).resolve().parents[2]

# A replay of some ten thousand objects takes seconds; one that hangs must not delay the rest.
REPLAY_S_MAX = 120

# Registration and warm-up take seconds; this many more objects keep their share small.
TIMES = 5
QUERIES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One replay, everything in one process on the memory log.

    Attributes:
        objects_per_s: Objects a second, until the last notification is held.
        registered_per_s: Queries registered a second.
        notifications: How many were received.
        expected: How many there should be.
        wrong: Pairs of an object and a query that are missing, doubled, or wrong.
        cpu_us: CPU time of each service for each object, microseconds.
        error: Why there are no figures; empty if there are.
    """

    objects_per_s: float
    registered_per_s: float
    notifications: int
    expected: int
    wrong: int
    cpu_us: dict[str, float]
    error: str = ""


class ReplayFiles:
    """The files of one workload; the map is built from its sample.

    Args:
        directory: Of the files.
        workload: Its held-out objects, several times over, and some of its held-out queries.
    """

    def __init__(self, directory: Path, workload: Workload) -> None:
        self._directory = directory
        queries = workload.queries.take(np.arange(min(len(workload.queries), QUERIES_MAX)))
        # Object x queries + query, ascending: repeated objects are equal, with later ids.
        once, width = all_pairs(workload.objects, queries), len(workload.objects) * len(queries)
        self._expected = np.concatenate([once + again * width for again in range(TIMES)])
        self._objects = TIMES * len(workload.objects)
        self._queries = len(queries)
        _write(directory / "sample.jsonl", workload.sample)
        _write(directory / "objects.jsonl", workload.objects.repeated(TIMES))
        # Held-out queries have the words of held-out objects.
        words = term_names(workload.objects)
        with (directory / "queries.jsonl").open("wb") as out:
            for line in query_lines(queries, words):
                out.write(line + b"\n")

    def replay(self, scheme: str, leaves: int, slots: int) -> Replay:
        """Runs one replay in a process of its own."""
        path = self._directory
        command = [
            *(sys.executable, "-m", "sirocco.cli", "replay", "--scheme", scheme),
            *("--leaves", str(leaves), "--slots", str(slots)),
            *("--objects", str(path / "objects.jsonl"), "--queries", str(path / "queries.jsonl")),
            *("--sample", str(path / "sample.jsonl"), "--results", str(path / "results.jsonl")),
        ]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=REPLAY_S_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            return self._failed(f"no end within {REPLAY_S_MAX} s")
        lines = done.stdout.strip().splitlines()
        if done.returncode != 0 or not lines:
            output = done.stderr.strip().splitlines()
            return self._failed(f"status {done.returncode}: {output[-1] if output else ''}")
        summary = json.loads(lines[-1])
        found = reported_pairs(path / "results.jsonl", self._queries)
        return Replay(
            objects_per_s=summary["objects_per_s"],
            registered_per_s=self._queries / max(summary["registration_seconds"], 1e-9),
            notifications=summary["notifications"],
            expected=len(self._expected),
            wrong=differing(found, self._expected),
            cpu_us={
                name: round(1e6 * seconds / self._objects, 2)
                for name, seconds in summary["cpu_seconds"].items()
            },
        )

    def _failed(self, reason: str) -> Replay:
        return Replay(
            objects_per_s=0.0,
            registered_per_s=0.0,
            notifications=0,
            expected=len(self._expected),
            wrong=0,
            cpu_us={},
            error=reason,
        )


def reported_pairs(results: Path, queries: int) -> NDArray[np.int64]:
    """Returns the pairs of a file of results, ascending i8: object x queries + query."""
    with results.open("rb") as lines:
        reported = (orjson.loads(line) for line in lines)
        # Ids of objects count from 1, those of queries are q0, q1, and so on.
        pairs = ((one["object"] - 1) * queries + int(one["query"][1:]) for one in reported)
        return np.sort(np.fromiter(pairs, np.int64))


def differing(found: NDArray[np.int64], expected: NDArray[np.int64]) -> int:
    """Returns how many of the found pairs are unexpected, repeated, or missing.

    Args:
        found: i8[n], ascending.
        expected: i8[m], ascending, distinct.
    """
    distinct = np.unique(found)
    common = len(np.intersect1d(distinct, expected, assume_unique=True))
    return len(found) - common + len(expected) - common


def term_names(stream: Stream) -> dict[int, str]:
    """Returns the term of each hash that occurs."""
    texts = texts_of(stream.columns.text, stream.columns.text_offsets)
    # Words repeat: each is analysed once.
    words = {word for text in texts for word in text.split()}
    return {term_hash(term): term for word in words for term in tokens_of(word)}


def query_lines(queries: Queries, names: dict[int, str]) -> list[bytes]:
    """Returns the queries as lines of JSON."""
    lines = []
    for number in range(len(queries)):
        west, south, east, north = queries.boxes[number].tolist()
        rect = {"west": west, "south": south, "east": east, "north": north}
        members = {"id": f"q{number}", "kind": "range", "mode": "continuous"}
        first, last = queries.conj_offsets[[number, number + 1]].tolist()
        alternatives = [
            " AND ".join(names[int(term)] for term in _terms(queries, conjunction))
            for conjunction in range(first, last)
        ]
        if any(alternatives):
            members["text"] = " OR ".join(f"({one})" for one in alternatives)
        lines.append(orjson.dumps({**members, "region": {"rect": rect}}))
    return lines


def _terms(queries: Queries, conjunction: int) -> NDArray[np.uint64]:
    first, last = queries.term_offsets[[conjunction, conjunction + 1]]
    return queries.terms[first:last]


def _write(path: Path, stream: Stream) -> None:
    with path.open("wb") as out:
        for line in object_lines(stream.columns):
            out.write(line + b"\n")
