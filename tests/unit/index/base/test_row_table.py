"""The table of rows against a dictionary."""

import numpy as np
import pytest

from sirocco.index.base.row_table import RowTable


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_agree_with_a_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Small ranges of handles collide and recur; large ones are hashes.
    known = rng.integers(0, 2**64 if seed % 2 else 300, size=500, dtype=np.uint64)
    column = np.zeros(100_000, np.uint64)
    table = RowTable()
    oracle: dict[int, int] = {}
    next_row = 0
    for _ in range(200):
        chosen = rng.choice(known, size=rng.integers(1, 40))
        if rng.random() < 0.6:
            # A row is assigned again: its handle is in the column before the row is added, and
            # stays.
            rows = np.arange(next_row, next_row + len(chosen), dtype=np.int32)
            next_row += len(chosen)
            column[rows] = chosen
            table.put(column, rows)
            oracle.update(zip(chosen.tolist(), rows.tolist(), strict=True))
        else:
            table.drop(column, chosen)
            for handle in chosen.tolist():
                oracle.pop(handle, None)
        expected = [oracle.get(handle, -1) for handle in known.tolist()]
        assert table.get(column, known).tolist() == expected, f"seed {seed}"
        assert len(table) == len(oracle), f"seed {seed}"
    assert sorted(table.rows().tolist()) == sorted(oracle.values()), f"seed {seed}"


def test_an_entry_takes_half_of_what_keys_of_its_own_would() -> None:
    column = np.random.default_rng(7).integers(0, 2**64, size=100_000, dtype=np.uint64)
    table = RowTable()
    table.put(column, np.arange(100_000, dtype=np.int32))
    assert table.bytes_total <= 13 * 100_000
