"""Measures how the Spark jobs grow with the number of objects.

    python scripts/bench_spark.py [--sizes 1000000 3000000 10000000] [--jobs build_map …]

For each size an archive is made as evaluators leave it (slices of 131,072 posts over 16 slots;
world-wide posts of `loadgen`, a million drawn, then drawn again at other places), and each job
runs as a process of its own. Prints one JSON object a line: job, objects, seconds with the start
of Spark and Python, and CPU time and peak memory of all its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sirocco.codec.slices import write_slice
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.sealing import seal
from sirocco.loadgen.posts import PostsShape, WorldPosts
from sirocco.model.objects import ObjectColumns, concat
from sirocco.model.text import TermColumns, analyse_batch
from sirocco.protocol.evaluator.slot.archived_slices import slice_name

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261121
START_MS = 1_405_123_200_000
SLOTS = 16
SLICE_ROWS = 131_072
DRAWN = 1 << 20
QUERIES = 10_000
JOBS = ("build_map", "workload_statistics", "compact", "backfill", "report")


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--keep", type=Path, help="directory for the archives, kept and used again")
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        posts: Posts | None = None
        queries = directory / "queries.jsonl"
        for size in options.sizes:
            archive = directory / str(size)
            if not archive.is_dir():
                posts = posts or Posts()
                begun = time.monotonic()
                made = archive.with_name(f".{size}")
                shutil.rmtree(made, ignore_errors=True)
                posts.write_archive(made, size)
                write_queries(queries, posts)
                made.rename(archive)
                print(f"archive of {size}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
            for job in options.jobs:
                row = measure(job, archive, queries, directory)
                print(json.dumps({"job": job, "objects": size, **row}), flush=True)
    finally:
        if options.keep is None:
            shutil.rmtree(directory)
    return 0


class Posts:
    """A million posts, of which archives of any size are made."""

    def __init__(self) -> None:
        shape = PostsShape(posts_per_s=2_000.0)
        self.objects: ObjectColumns = concat(
            list(WorldPosts(SEED, shape, start_ms=START_MS).batches(DRAWN))
        )
        self.terms: TermColumns = analyse_batch(self.objects.text, self.objects.text_offsets)

    def write_archive(self, root: Path, size: int) -> None:
        """Writes the slices of so many objects."""
        rng = np.random.default_rng(SEED)
        seqs = np.zeros(SLOTS, np.int64)
        done = 0
        while done < size:
            slot = (done // SLICE_ROWS) % SLOTS
            rows = min(SLICE_ROWS, size - done)
            path = root / slice_name(slot, (int(seqs[slot]), int(seqs[slot]) + rows - 1))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(write_slice(seal(self._stored(rng, done, rows, int(seqs[slot])))))
            seqs[slot] += rows
            done += rows

    def _stored(
        self, rng: np.random.Generator, first: int, rows: int, first_seq: int
    ) -> StoredRows:
        drawn = rng.choice(DRAWN, rows, replace=False)
        objects = self.objects.take(drawn)
        numbers = np.arange(first + 1, first + rows + 1, dtype=np.uint64)
        arrivals = START_MS + np.arange(first, first + rows, dtype=np.int64) // 2
        lon = np.clip(objects.lon + rng.normal(0, 0.05, rows), -180, 180)
        lat = np.clip(objects.lat + rng.normal(0, 0.05, rows), -90, 90)
        whole = StoredRows(
            objects=replace(objects, ids=numbers, lon=lon, lat=lat, ts=arrivals),
            sessions=np.ones(rows, np.uint64),
            numbers=numbers,
            arrivals_ms=arrivals,
            seqs=np.arange(first_seq, first_seq + rows, dtype=np.int64),
            lengths=self.terms.lengths[drawn],
            **_taken(self.terms, drawn),
        )
        return whole


def _taken(terms: TermColumns, rows: np.ndarray) -> dict[str, Any]:
    lengths = np.diff(terms.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    at = np.arange(offsets[-1]) + np.repeat(terms.offsets[rows] - offsets[:-1], lengths)
    return {"term_offsets": offsets, "terms": terms.terms[at], "counts": terms.counts[at]}


def write_queries(path: Path, posts: Posts) -> None:
    """Writes standing queries of small regions and one or two words, after posts (SSTD 7.1)."""
    rng = np.random.default_rng(SEED + 1)
    lines = []
    for number, row in enumerate(rng.choice(DRAWN, QUERIES, replace=False).tolist()):
        one = posts.objects.row(row)
        words = one.text.split()[: 1 + number % 2] or ["nothing"]
        side = 0.5
        rect = {"west": max(one.lon - side, -180.0), "south": max(one.lat - side, -90.0)}
        rect |= {"east": min(one.lon + side, 180.0), "north": min(one.lat + side, 90.0)}
        text = " AND ".join(word for word in words if word.isalnum()) or "nothing"
        query = {"id": f"q{number}", "kind": "range", "mode": "continuous"}
        lines.append(json.dumps({**query, "region": {"rect": rect}, "text": text.lower()}))
    path.write_text("\n".join(lines) + "\n")


def measure(job: str, archive: Path, queries: Path, directory: Path) -> dict[str, Any]:
    """Runs a job; returns its figures."""
    out = directory / f"out-{job}-{archive.name}"
    for stale in (out, out.with_name(f"{out.name}.json")):
        shutil.rmtree(stale) if stale.is_dir() else stale.unlink(missing_ok=True)
    source = ["--archive", archive] if job in ("compact", "backfill") else [
        "--objects", f"archive:{archive}",
    ]  # fmt: skip
    asked = [sys.executable, ROOT / "spark-jobs" / f"{job}.py", *source, "--out", out]
    if job != "compact":
        asked += ["--queries", queries]
    begun = time.monotonic()
    with subprocess.Popen(
        list(map(str, asked)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        watch = Watch(run.pid)
        stdout, stderr = run.communicate()
    watch.stop()
    seconds = time.monotonic() - begun
    if run.returncode:
        raise SystemExit(stderr[-2000:])
    phases = [line.partition(": ")[2] for line in stderr.splitlines() if line.startswith(job)]
    summary = json.loads(stdout.splitlines()[-1])
    described = {
        name: summary[name] for name in ("found", "cells", "compacted_slices") if name in summary
    }
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(watch.cpu_seconds, 1),
        "peak_mb": round(watch.peak_bytes / 1e6),
        **described,
        "phases": [line for line in phases if re.search(r": \d+\.\d s$", line)],
    }


class Watch:
    """Memory and CPU time of a process and all below it, looked at each second.

    Attributes:
        peak_bytes: The greatest sum of memory, pages that forks share counted in parts.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._ticks: dict[int, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends watching."""
        self._done.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all that were seen; what a process used in its last second is missing."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._done.wait(1.0):
            self.peak_bytes = max(self.peak_bytes, self._look(self._pid))

    def _look(self, pid: int) -> int:
        """Notes a process and those below it; returns their memory in bytes."""
        total = 0
        try:
            # Behind the name, which may hold anything, user and system time are 12th and 13th.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self._ticks[pid] = int(fields[11]) + int(fields[12])
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total = int(line.split()[1]) * 1024
            for task in Path(f"/proc/{pid}/task").iterdir():
                children = (task / "children").read_text().split()
                total += sum(self._look(int(child)) for child in children)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
        return total


if __name__ == "__main__":
    sys.exit(main())
