"""Merging of sorted lists."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.kernels.store.slice_merge import merge_keys, merge_vocabularies


def parts_of(rng: np.random.Generator, span: int) -> tuple[list[np.ndarray], np.ndarray]:
    sizes = rng.choice([0, 1, 7, 300], rng.integers(2, 6))
    parts = [np.sort(rng.integers(0, span, size)).astype(np.uint64) for size in sizes]
    return parts, np.cumsum([0, *sizes])


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("span", [1, 5, 2**48])
def test_merged_keys_are_a_stable_sort(seed: int, span: int) -> None:
    rng = np.random.default_rng(seed)
    parts, bounds = parts_of(rng, span)
    keys = np.concatenate(parts)
    places = np.empty(len(keys), np.uint32)
    merge_keys(keys, bounds, places)
    want = np.empty(len(keys), np.int64)
    want[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    assert places.tolist() == want.tolist(), f"seed={seed}"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("span", [5, 2**63])
def test_merged_vocabulary_is_the_union(seed: int, span: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [np.unique(part) for part in parts_of(rng, span)[0]]
    parts.append(np.array([0, 2**64 - 1], np.uint64))
    bounds = np.cumsum([0, *map(len, parts)])
    hashes = np.concatenate(parts)
    merged, numbers = np.empty_like(hashes), np.empty(len(hashes), np.uint32)
    count = merge_vocabularies(hashes, bounds, merged, numbers)
    assert merged[:count].tolist() == np.unique(hashes).tolist(), f"seed={seed}"
    assert merged[numbers].tolist() == hashes.tolist()
