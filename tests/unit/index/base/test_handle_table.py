"""The table of handles against a dictionary."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.kernels.base import handle_table as kernels


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_agree_with_a_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Small ranges of handles collide and recur; large ones are hashes.
    handles = rng.integers(0, 2**64 if seed % 2 else 300, size=500, dtype=np.uint64)
    table = HandleTable()
    oracle: dict[int, int] = {}
    for _ in range(200):
        chosen = rng.choice(handles, size=rng.integers(1, 40))
        if rng.random() < 0.6:
            rows = rng.integers(0, 10_000, size=len(chosen)).astype(np.int32)
            table.put(chosen, rows)
            oracle.update(zip(chosen.tolist(), rows.tolist(), strict=True))
        else:
            table.drop(chosen)
            for handle in chosen.tolist():
                oracle.pop(handle, None)
        expected = [oracle.get(handle, -1) for handle in handles.tolist()]
        assert table.get(handles).tolist() == expected, f"seed {seed}"
        assert len(table) == len(oracle), f"seed {seed}"
    keys, rows = table.items()
    assert dict(zip(keys.tolist(), rows.tolist(), strict=True)) == oracle, f"seed {seed}"


def test_a_reader_finds_entries_while_the_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = HandleTable()
    known = np.arange(1, 41, dtype=np.uint64)
    table.put(known, known.astype(np.int32))
    put, seen = kernels.put, []

    def looked_at(*columns: np.ndarray) -> int:
        # As from another thread: adding releases the interpreter lock.
        seen.append(table.get(known).tolist())
        return put(*columns)

    monkeypatch.setattr(kernels, "put", looked_at)
    more = np.arange(41, 400, dtype=np.uint64)
    table.put(more, more.astype(np.int32))
    assert seen == [known.tolist()] * 2
    assert table.get(more).tolist() == more.tolist()


def test_a_reader_looks_again_while_entries_move(monkeypatch: pytest.MonkeyPatch) -> None:
    table = HandleTable()
    known = np.arange(1, 41, dtype=np.uint64)
    table.put(known, known.astype(np.int32))
    drop, get, looked = kernels.drop, kernels.get, threading.Event()

    def watched_get(*columns: np.ndarray) -> None:
        get(*columns)
        looked.set()

    with ThreadPoolExecutor(1) as other:
        seen: list[Future[NDArray[np.int32]]] = []

        def looked_at(keys: np.ndarray, rows: np.ndarray, *others: np.ndarray) -> int:
            # Entries being moved are in neither place.
            moved = rows.copy()
            rows[:] = 0
            seen.append(other.submit(table.get, known[1:]))
            assert looked.wait(600)
            rows[:] = moved
            return drop(keys, rows, *others)

        monkeypatch.setattr(kernels, "get", watched_get)
        monkeypatch.setattr(kernels, "drop", looked_at)
        table.drop(known[:1])
        assert seen[0].result(600).tolist() == known[1:].tolist()
