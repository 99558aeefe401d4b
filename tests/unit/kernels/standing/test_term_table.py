"""The vocabulary's table, compared with a dict: crowded, changing, doubling, colliding."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sirocco.kernels.base.stretch_table import home_of, new_table_state
from sirocco.kernels.standing.term_ids import look_up_ids
from sirocco.kernels.standing.term_table import (
    BUCKET_TERMS,
    BUCKET_WORDS,
    add_term,
    erase_term,
    find_term,
    hash_of_term,
    stretch_terms,
)

BITS_MIN, BITS_MAX = 3, 8
U8 = np.uint64


class Table:
    def __init__(self) -> None:
        self.words = np.zeros(BUCKET_WORDS << BITS_MAX + 1, U8)
        self.values = self.words.view(np.int32)
        self.state = new_table_state(BITS_MIN)

    def home(self, key: int) -> int:
        h = U8(hash_of_term(U8(key), self.state))
        return int(home_of(h, U8(64 - int(self.state[0])), self.state[1]))

    def place(self, key: int) -> int:
        return int(find_term(self.words, self.values, self.home(key), U8(key)))

    def add(self, key: int, value: int) -> None:
        assert add_term(self.words, self.values, self.state, U8(key), value) == 0

    def erase(self, key: int) -> None:
        erase_term(self.words, self.values, self.state, self.place(key))

    def ids(self, keys: list[int]) -> list[int]:
        out = np.empty(len(keys), np.int32)
        look_up_ids(self.words, self.values, self.state, np.array(keys, U8), out)
        return out.tolist()

    def marks(self) -> int:
        return int(np.count_nonzero(self.values[15::16]))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_table_equals_dict(load: float, seed: int) -> None:
    rng = random.Random(seed)
    table = Table()
    model: dict[Any, Any] = {}
    for step in range(4_000):
        reported = f"seed={seed} load={load} step={step}"
        buckets = 1 << int(table.state[0])
        is_full = len(model) >= load * BUCKET_TERMS * buckets
        if rng.random() < 0.6 and not is_full:
            key = rng.getrandbits(64) if rng.random() < 0.5 else rng.randrange(2_000)
            if key not in model:
                model[key] = rng.randrange(1, 1 << 31)
                table.add(key, model[key])
        elif model and rng.random() < 0.6:
            key = rng.choice(list(model))
            table.erase(key)
            del model[key]
        is_stretching = int(table.state[1]) < buckets
        if (is_stretching or is_full) and buckets < 1 << (BITS_MAX - 1) and rng.random() < 0.05:
            stretch_terms(table.words, table.values, table.state, 4)
        assert int(table.state[2]) == len(model), reported
        if step % 97 == 0:
            asked = [*model, *range(0, 3_000, 7), 1 << 40]
            want = [model.get(key, 0) + 1 for key in asked]
            ids = np.array(want, np.int64).astype(np.int32).tolist()
            assert table.ids(asked) == ids, reported
            # One by one takes a hundred times as long: another eleventh of them each time.
            some = asked[step % 11 :: 11]
            assert all((table.place(key) >= 0) == (key in model) for key in some), reported
    assert int(table.state[0]) == BITS_MAX - 1, f"seed={seed} load={load}: never doubled"


def test_terms_that_strayed_come_back_and_leave_no_marks() -> None:
    table = Table()
    crowd = [key for key in range(4_000) if table.home(key) == 2][: 3 * BUCKET_TERMS + 1]
    others = [key for key in range(4_000) if table.home(key) == 3][:BUCKET_TERMS]
    for value, key in enumerate([*others, *crowd], 1):
        table.add(key, value)
    assert table.marks() == 4
    assert table.ids([*others, *crowd]) == list(range(2, len(others) + len(crowd) + 2))
    for key in others:
        table.erase(key)
    for left in range(len(crowd), 0, -1):
        assert min(table.ids(crowd[-left:])) > 1
        table.erase(crowd[-left])
    assert not table.words.any(), "an empty table is all zeros again"


def test_a_wire_hash_of_zero_is_a_term_like_others() -> None:
    table = Table()
    assert table.ids([0]) == [1]
    full = [key for key in range(1, 400) if table.home(key) == table.home(0)][: BUCKET_TERMS + 1]
    for value, key in enumerate([*full, 0], 1):
        table.add(key, value)
    assert table.ids([0]) == [BUCKET_TERMS + 3]
    table.erase(0)
    assert table.ids([0]) == [1]
