"""Hashes words under a secret key, 64 bits: without the key nobody can choose a collision.

Words of at most 128 bytes, without zero bytes, are summed by vector multiply-shift (M.
Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
without primes", STACS 1996): the high half of a_i * x_i modulo 2^128 for each eight bytes x_i, with
a_i of the key. Two words that were chosen without the key have the same hash with a probability of
at most 2^-63. It takes two multiplications where a cipher takes some fifty steps.

Longer words, which only an attack contains, are hashed by SipHash-1-3 (J.-P. Aumasson, D. J.
Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012, section 2, with one round for each
block and three at the end), whose key has one length for all words.

A key is KEY_WORDS words: two of SipHash, then the low and the high word of each a_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.words import load_u64, multiply_fold
from sirocco.kernels.jit.compiled import kernel

__all__ = ["KEY_WORDS", "hash_first", "hash_rest", "keyed_hash_spans"]

_FEW = 16
_MULTIPLIED_BYTES = 8 * _FEW
KEY_WORDS = 2 + 2 * _FEW

_START_0 = np.uint64(0x736F6D6570736575)
_START_1 = np.uint64(0x646F72616E646F6D)
_START_2 = np.uint64(0x6C7967656E657261)
_START_3 = np.uint64(0x7465646279746573)
_END = np.uint64(0xFF)

# By the length of a word up to 8: a mask of those of the first eight bytes that belong to it.
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)

_U1, _U3, _U13, _U16, _U17, _U21 = (np.uint64(n) for n in (1, 3, 13, 16, 17, 21))
_U32, _U43, _U47, _U48, _U51, _U56 = (np.uint64(n) for n in (32, 43, 47, 48, 51, 56))

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)


@kernel(inline=True)
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = ((v1 << _U13) | (v1 >> _U51)) ^ v0
    v0 = (v0 << _U32) | (v0 >> _U32)
    v2 += v3
    v3 = ((v3 << _U16) | (v3 >> _U48)) ^ v2
    v0 += v3
    v3 = ((v3 << _U21) | (v3 >> _U43)) ^ v0
    v2 += v1
    v1 = ((v1 << _U17) | (v1 >> _U47)) ^ v2
    v2 = (v2 << _U32) | (v2 >> _U32)
    return v0, v1, v2, v3


@kernel
def _sip_hash(data: Any, start: Any, length: Any, key: Any) -> Any:
    v0, v1, v2, v3 = key[0] ^ _START_0, key[1] ^ _START_1, key[0] ^ _START_2, key[1] ^ _START_3
    blocks = length >> 3
    for i in range(blocks):
        block = load_u64(data, start + 8 * i)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ block)
        v0 ^= block
    rest = np.uint64(length & 7) << _U3
    mask = (_U1 << rest) - _U1
    block = (load_u64(data, start + 8 * blocks) & mask) | (np.uint64(length) << _U56)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ block)
    v0, v2 = v0 ^ block, v2 ^ _END
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel(inline=True)
def _product(key: Any, i: Any, word: Any) -> Any:
    """Returns the high half of a_i * word modulo 2^128."""
    low = key[2 * i + 2]
    # `multiply_fold` returns high ^ low.
    return (multiply_fold(low, word) ^ (low * word)) + key[2 * i + 3] * word


@kernel(inline=True)
def hash_first(data: Any, start: Any, length: Any, key: Any) -> Any:
    """Returns the hash (u8) of a word of at most eight bytes, without a branch.

    Args:
        data: u1[b], with eight readable bytes from `start` on.
        start: i8, first byte of the word.
        length: i8, at least 1.
        key: u8[KEY_WORDS].
    """
    return _product(key, 0, load_u64(data, start) & _FIRST_BYTES[min(length, 8)])


@kernel
def hash_rest(first: Any, data: Any, start: Any, length: Any, key: Any) -> Any:
    """Returns the hash (u8) of a longer word; `first` is its `hash_first`, the rest as there."""
    if length > _MULTIPLIED_BYTES:
        return _sip_hash(data, start, length, key)
    total = first
    for i in range(1, (length + 7) >> 3):
        mask = _FIRST_BYTES[min(length - 8 * i, 8)]
        total += _product(key, i, load_u64(data, start + 8 * i) & mask)
    return total


@kernel(types.void(_READ_ONLY_BYTES, _READ_ONLY_I8, _READ_ONLY_U8, types.uint64[::1]))
def keyed_hash_spans(data: Any, offsets: Any, key: Any, out: Any) -> None:
    """Writes the hash of each row of a byte column.

    Args:
        data: u1[b], with eight readable bytes after the last row.
        offsets: i8[n + 1], ascending; no row is empty.
        key: u8[KEY_WORDS].
        out: u8[n], overwritten.
    """
    for row in range(out.shape[0]):
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        out[row] = hash_first(data, start, length, key)
        if length > 8:
            out[row] = hash_rest(out[row], data, start, length, key)
