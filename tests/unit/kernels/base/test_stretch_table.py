"""The table that doubles in place, compared with a dict."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from sirocco.kernels.base.hash_placement import fixed_secret
from sirocco.kernels.base.stretch_table import (
    FILTER_SHIFT,
    erase,
    filter_bits,
    find,
    find_or_add,
    hash_of,
    home_of,
    new_table_state,
    stretch,
)

BITS_MIN, BITS_MAX = 5, 11
U8 = np.uint64


class Table:
    def __init__(self) -> None:
        self.slots = np.zeros(2 << BITS_MAX + 1, U8)
        self.filter = np.zeros(((1 << BITS_MAX) >> FILTER_SHIFT) + 1, U8)
        self.state = new_table_state(BITS_MIN)

    def home(self, key: int) -> int:
        return home_of(U8(hash_of(U8(key), self.state)), U8(64 - int(self.state[0])), self.state[1])

    def add(self, key: int, value: int) -> None:
        h = U8(hash_of(U8(key), self.state))
        assert find_or_add(self.slots, self.filter, self.state, U8(key), h, U8(value)) >= 0

    def get(self, key: int) -> int | None:
        at = find(self.slots, self.home(key), U8(key))
        return None if at < 0 else int(self.slots[2 * at + 1])

    def passes_filter(self, key: int) -> bool:
        bits = int(filter_bits(U8(hash_of(U8(key), self.state))))
        return int(self.filter[self.home(key) >> FILTER_SHIFT]) & bits == bits


@pytest.mark.parametrize("seed", range(4))
def test_table_equals_dict(seed: int) -> None:
    rng = random.Random(seed)
    table = Table()
    model: dict[Any, Any] = {}
    for step in range(3_000):
        homes = 1 << int(table.state[0])
        if rng.random() < 0.55 and len(model) < homes * 0.6:
            key = rng.getrandbits(64) if rng.random() < 0.5 else rng.randrange(3_000)
            value = rng.randrange(1, 1 << 40)
            if key not in model:
                model[key] = value
            table.add(key, value)
        elif model and rng.random() < 0.6:
            key = rng.choice(list(model))
            erase(
                table.slots, table.filter, table.state, find(table.slots, table.home(key), U8(key))
            )
            del model[key]
        is_stretching = int(table.state[1]) < homes
        is_full = len(model) > homes * 0.4
        if (is_stretching or is_full) and homes < 1 << (BITS_MAX - 1) and rng.random() < 0.3:
            stretch(table.slots, table.filter, table.state, 16)
        assert int(table.state[2]) == len(model), f"seed={seed} step={step}"
        if step % 97 == 0:
            for key, value in model.items():
                assert table.get(key) == value, f"seed={seed} step={step} key={key}"
                assert table.passes_filter(key), f"seed={seed} step={step}"
            for key in range(3_000, 3_050):
                assert table.get(key) is None, f"seed={seed} step={step} key={key}"
    assert int(table.state[0]) > BITS_MIN, "the table never doubled"


def test_erasing_clears_the_filter() -> None:
    table = Table()
    for key in range(12):
        table.add(key, key + 1)
    for key in range(12):
        erase(table.slots, table.filter, table.state, find(table.slots, table.home(key), U8(key)))
    assert not table.filter.any()
    assert not table.slots.any()


def displacement(homes: list[int]) -> float:
    """Returns the mean distance of keys from their homes when they are added in sequence."""
    numbers = np.arange(len(homes))
    sorted_homes = np.sort(np.array(homes))
    return float((np.maximum.accumulate(sorted_homes - numbers) + numbers - sorted_homes).mean())


@pytest.mark.parametrize("terms", [1, 2, 40, 2_000, 4_000])
def test_terms_and_cells_stand_as_far_from_home_as_chance_puts_them(terms: int) -> None:
    # 4,000 keys in 8,192 homes: 0.50 on average for random places.
    cells = range(7 << 26, (7 << 26) + 4_000 // terms)
    rng = random.Random(terms)
    for _ in range(20):
        with fixed_secret(rng.getrandbits(64) | 1, rng.getrandbits(64) | 1):
            state = new_table_state(13)
        homes = [
            int(hash_of(U8(term << 32 | cell), state)) >> 51
            for term in range(terms)
            for cell in cells
        ]
        assert displacement(homes) < 1.0
