"""The table of rows against a dictionary."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.index.base.row_table import RowTable
from sirocco.kernels.base import row_table as kernels


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


def test_a_reader_finds_entries_while_the_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.arange(1, 401, dtype=np.uint64)
    table, known = RowTable(), np.arange(40, dtype=np.int32)
    table.put(column, known)
    put, seen = kernels.put, []

    def looked_at(*columns: np.ndarray) -> int:
        # As from another thread: adding releases the interpreter lock.
        seen.append(table.get(column, column[:40]).tolist())
        return put(*columns)

    monkeypatch.setattr(kernels, "put", looked_at)
    table.put(column, np.arange(40, 400, dtype=np.int32))
    assert seen == [known.tolist()] * 2
    assert table.get(column, column).tolist() == list(range(400))


def test_a_reader_looks_again_while_entries_move(monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.arange(1, 41, dtype=np.uint64)
    table = RowTable()
    table.put(column, np.arange(40, dtype=np.int32))
    drop, get, looked = kernels.drop, kernels.get, threading.Event()

    def watched_get(*columns: np.ndarray) -> None:
        get(*columns)
        looked.set()

    with ThreadPoolExecutor(1) as other:
        seen: list[Future[NDArray[np.int32]]] = []

        def looked_at(places: np.ndarray, *others: np.ndarray) -> int:
            # Entries being moved are in neither place.
            moved = places.copy()
            places[:] = 0
            seen.append(other.submit(table.get, column, column[1:]))
            assert looked.wait(600)
            places[:] = moved
            return drop(places, *others)

        monkeypatch.setattr(kernels, "get", watched_get)
        monkeypatch.setattr(kernels, "drop", looked_at)
        table.drop(column, column[:1])
        assert seen[0].result(600).tolist() == list(range(1, 40))


def test_a_reader_with_a_former_column_finds_what_that_has() -> None:
    """Rows beyond it are not read: what is there in memory could be any handle."""
    column = np.arange(1, 201, dtype=np.uint64)
    table = RowTable()
    table.put(column, np.arange(200, dtype=np.int32))
    former = column[:150]
    assert table.get(former, column).tolist() == [*range(150), *[-1] * 50]
