"""Sums of counts by term, compared with a dictionary."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from sirocco.index.store.term_sums import add_counts
from tests.support.seeds import drawn_seed


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_sums_are_those_of_a_dictionary(dtype: type[np.int64] | type[np.uint64]) -> None:
    for _ in range(100):
        seed = drawn_seed()
        rng = np.random.default_rng(seed)
        wanted: dict[int, int] = {}
        parts = []
        for _ in range(int(rng.integers(1, 5))):
            hashes = rng.choice(np.arange(60, dtype=np.uint64) << np.uint64(58), 60, replace=False)
            hashes = np.unique(hashes[: rng.integers(0, 40)])
            if rng.random() < 0.3:
                hashes = rng.permutation(hashes)
            counts = rng.integers(1, 9, len(hashes)).astype(dtype)
            parts.append((hashes, counts))
            for term, count in zip(hashes.tolist(), counts.tolist(), strict=True):
                wanted[term] = wanted.get(term, 0) + count
        hashes, counts = add_counts(cast(Any, parts))
        assert dict(zip(hashes.tolist(), counts.tolist(), strict=True)) == wanted, f"seed {seed}"
        assert len(hashes) == len(wanted)
        assert counts.dtype == dtype
        if len(parts) > 1:
            assert (hashes[1:] > hashes[:-1]).all(), f"seed {seed}"


def test_nothing_adds_up_to_nothing() -> None:
    none = np.empty(0, np.uint64), np.empty(0, np.int64)
    for parts in ([none], [none, none]):
        hashes, counts = add_counts(cast(Any, parts))
        assert len(hashes) == len(counts) == 0
