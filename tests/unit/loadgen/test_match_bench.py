"""The bench core: its figures, its workloads, and its refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sirocco.loadgen.match_bench import run_match_bench
from sirocco.loadgen.match_workload import (
    MatchWorkload,
    WorkloadError,
    load_workload,
    make_workload,
)


def brute_force(work: MatchWorkload) -> int:
    pairs = 0
    queries = [
        set(work.query_terms[a:b].tolist())
        for a, b in zip(work.query_offsets, work.query_offsets[1:], strict=False)
    ]
    for i in range(len(work.lon)):
        west, south, east, north = work.boxes.T
        x, y = work.lon[i], work.lat[i]
        near = np.flatnonzero((west <= x) & (x <= east) & (south <= y) & (y <= north))
        begin, end = work.object_offsets[i : i + 2]
        terms = set(work.object_terms[begin:end].tolist())
        pairs += sum(queries[q] <= terms for q in near)
    return pairs


def write(work: MatchWorkload, directory: Path) -> None:
    np.stack([work.lon, work.lat], 1).astype("<f4").tofile(directory / "obj_xy.f32")
    work.object_offsets.tofile(directory / "obj_off.i64")
    work.object_terms.tofile(directory / "obj_terms.i32")
    work.boxes.astype("<f4").tofile(directory / "q_rect.f32")
    work.query_offsets.tofile(directory / "q_off.i64")
    work.query_terms.tofile(directory / "q_terms.i32")


def test_counts_equal_brute_force_from_files_and_made(tmp_path: Path) -> None:
    work = make_workload(5_000, 2_000, seed=3, side=0.05)
    write(work, tmp_path)
    figures = run_match_bench(tmp_path, 5_000, None, seed=0)
    assert figures["matches"] == brute_force(work)
    assert figures["objects"] == 2_000
    made = run_match_bench(None, 3_000, 1_000, seed=4)
    assert made["matches"] == brute_force(make_workload(3_000, 1_000, seed=4))
    for name in ("inserts_per_s", "objects_per_s", "bytes_per_query", "peak_rss_bytes"):
        value = made[name]
        assert isinstance(value, int | float)
        assert value > 0


def test_prefixes_of_files(tmp_path: Path) -> None:
    work = make_workload(50, 40, seed=1)
    write(work, tmp_path)
    part = load_workload(tmp_path, 20, 10)
    assert (len(part.boxes), len(part.lon)) == (20, 10)
    assert (part.query_terms == work.query_terms[: len(part.query_terms)]).all()


def test_refusals_name_the_file_or_field(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"obj_off\.i64"):
        load_workload(tmp_path, 1, 1)
    write(make_workload(5, 5, seed=1), tmp_path)
    with pytest.raises(WorkloadError, match=r"q_off\.i64: 6 values, 10 wanted"):
        load_workload(tmp_path, 9, None)
    np.array([3, 2], "<i8").tofile(tmp_path / "q_off.i64")
    with pytest.raises(WorkloadError, match="ascend"):
        load_workload(tmp_path, 1, None)
    with pytest.raises(ValueError, match="queries"):
        run_match_bench(None, 0, None, seed=0)
    with pytest.raises(ValueError, match="objects"):
        run_match_bench(None, 1, 0, seed=0)
