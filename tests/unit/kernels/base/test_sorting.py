"""The cost of distinct values depends on their number, not on how they were chosen."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.kernels.base.sorting import sorted_distinct
from tests.support.cpu_time import cpu_ratio

ROOT = Path(__file__).resolve().parents[4]
SOURCES = ("sirocco", "services", "loadgen", "sdk/sirocco_client", "spark-jobs")

# Buckets of the hash set in `numpy.unique` (libstdc++) for between 2,179 and 4,703 values.
BUCKETS = 4_703
COUNT = 4_600


def keys_of_one_bucket() -> NDArray[np.uint64]:
    """Returns values whose FNV-1a, by which `numpy.unique` places integers, gives one bucket."""
    found: list[NDArray[np.uint64]] = []
    count = begin = 0
    while count < COUNT:
        values = np.arange(begin, begin + (1 << 20), dtype=np.uint64)
        begin += len(values)
        hashes = np.full(len(values), 0xCBF29CE484222325, np.uint64)
        for byte in values.view(np.uint8).reshape(-1, 8).T:
            hashes = (hashes ^ byte) * np.uint64(0x100000001B3)
        found.append(values[hashes % np.uint64(BUCKETS) == 0])
        count += len(found[-1])
    return np.concatenate(found)[:COUNT]


def test_keys_chosen_for_the_hash_of_numpy_cost_no_more_than_others() -> None:
    chosen = keys_of_one_bucket()
    drawn = np.random.default_rng(7).integers(0, 1 << 63, COUNT).astype(np.uint64)
    rows = np.arange(COUNT, dtype=np.int32)

    def put(keys: NDArray[np.uint64]) -> None:
        HandleTable().put(keys, rows)

    # NumPy's set took fifty times as long.
    assert cpu_ratio(lambda: put(chosen), lambda: put(drawn)) < 10


@pytest.mark.parametrize(
    "values",
    [
        np.empty(0, np.uint64),
        np.array([3], np.int32),
        np.array([2**64 - 1, 0, 2**63, 0], np.uint64),
        np.array([[2.5, -1.0], [2.5, 0.0]]),
        np.array([True, True, False]),
        np.random.default_rng(1).integers(0, 50, 1_000),
    ],
)
def test_distinct_values_are_those_of_numpy_ascending(values: NDArray[np.generic]) -> None:
    found = sorted_distinct(values)
    assert found.dtype == values.dtype
    assert found.tolist() == np.unique(values).tolist()


def unkeyed_calls(source: str) -> list[int]:
    """Returns the lines of NumPy calls that put values into its hash table."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != "np":
            continue
        options = {each.arg for each in node.keywords}
        # With places, counts, or whole rows, NumPy sorts.
        sorts = options & {"return_index", "return_inverse", "return_counts", "axis"}
        if (
            (node.func.attr == "unique" and not sorts)
            or node.func.attr in {"union1d", "setxor1d", "unique_values"}
            or (node.func.attr in {"intersect1d", "setdiff1d"} and "assume_unique" not in options)
        ):
            lines.append(node.lineno)
    return lines


def test_no_code_of_ours_counts_on_the_hash_table_of_numpy() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in unkeyed_calls(path.read_text(encoding="utf-8"))
    ]
    assert not found, "use sirocco.kernels.base.sorting.sorted_distinct"


def test_calls_that_would_are_found() -> None:
    assert unkeyed_calls("np.unique(a)\nnp.unique(a, return_counts=True)\nnp.union1d(a, b)") == [
        1,
        3,
    ]
