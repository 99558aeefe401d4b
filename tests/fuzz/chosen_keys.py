"""Keys that a client could choose: against former hashes of tables, and against weak hashes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

# The factor of all tables' hashes before positions had a secret, and its inverse mod 2^64.
FACTOR = 0x9E3779B97F4A7C15
INVERSE = pow(FACTOR, -1, 1 << 64)


def _product(numbers: Keys) -> Keys:
    return numbers * np.uint64(INVERSE)


def _numbers(count: int) -> Keys:
    return np.arange(1, count + 1, dtype=np.uint64)


def of_products_with_equal_middle(count: int) -> Keys:
    """Returns keys of one home where the home was (key · FACTOR >> 20) & mask."""
    numbers = _numbers(count)
    low, high = numbers & np.uint64((1 << 20) - 1), numbers >> np.uint64(20)
    return _product(low | (high << np.uint64(52)))


def of_products_with_equal_top(count: int) -> Keys:
    """Returns keys of the last home where the home was the top of key · FACTOR."""
    return _product(np.uint64(((1 << 24) - 1) << 40) | _numbers(count))


def of_folded_products_with_equal_top(count: int) -> Keys:
    """Returns keys of the last home where it was the top of (key ^ key >> 32) · FACTOR."""
    folded = of_products_with_equal_top(count)
    return folded ^ (folded >> np.uint64(32))


def counted(count: int) -> Keys:
    """Returns 1, 2, 3, …"""
    return _numbers(count)


def of_equal_low_bits(count: int) -> Keys:
    """Returns keys of one place where the key was its own hash."""
    return _numbers(count) << np.uint64(40)


def of_equal_high_bits(count: int) -> Keys:
    """Returns keys with equal high bits."""
    return np.uint64(0xFEEDFACE << 32) | _numbers(count)


def in_steps(count: int) -> Keys:
    """Returns an arithmetic progression with a step of many bits."""
    return _numbers(count) * np.uint64(0x0123456789ABCDEF) + np.uint64(77)


def of_bytes_in_the_middle(count: int) -> Keys:
    """Returns keys that differ only in 20 bits in the middle."""
    return _numbers(count) << np.uint64(22)


def of_terms_in_cells(count: int) -> Keys:
    """Each of some terms in each of some cells, as the pyramids of standing queries have them."""
    numbers = _numbers(count)
    return (numbers % np.uint64(97)) << np.uint64(32) | numbers // np.uint64(97)


def of_terms_in_one_cell(count: int) -> Keys:
    """Terms counted in steps of 4,096, in one cell."""
    return _numbers(count) << np.uint64(44) | np.uint64(7 << 26)


FAMILIES: tuple[Callable[[int], Keys], ...] = (
    of_products_with_equal_middle,
    of_products_with_equal_top,
    of_folded_products_with_equal_top,
    counted,
    of_equal_low_bits,
    of_equal_high_bits,
    in_steps,
    of_bytes_in_the_middle,
    of_terms_in_cells,
    of_terms_in_one_cell,
)


def drawn(count: int, seed: int) -> Keys:
    """Returns random keys, each once."""
    keys = np.random.default_rng(seed).integers(1, 2**64, 2 * count, dtype=np.uint64)
    return np.ascontiguousarray(np.unique(keys)[::2][:count])


def crowded_cells(count: int, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns columns and rows of a level's cells, those last by the former hash, for term 0."""
    cells = np.arange(1 << 2 * level, dtype=np.uint64)
    hashes = (np.uint64(level << 26) | cells) * np.uint64(FACTOR)
    last = np.argpartition(hashes, len(hashes) - count)[len(hashes) - count :]
    side = np.uint64((1 << level) - 1)
    return (cells[last] & side).astype(np.int64), (last >> level).astype(np.int64)
