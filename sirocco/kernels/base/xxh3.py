"""Computes xxh3-64 (seed 0, default secret) inside kernels, for every input length.

Written from the published specification of XXH3 (Y. Collet, doc/xxhash_spec.md, version 0.2.0).
Terms and ids are sent as this hash, so it has to be exact: its oracle is the `xxhash` package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.words import load_u64, multiply_fold
from sirocco.kernels.jit.compiled import kernel

__all__ = ["hash_1_to_3", "hash_4_to_8", "hash_span", "hash_spans"]

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
        "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
        "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)


def _secret_word(position: int) -> np.uint64:
    return np.uint64(int.from_bytes(_SECRET[position : position + 8].tobytes(), "little"))


_PRIME32_1 = np.uint64(0x9E3779B1)
_PRIME32_2 = np.uint64(0x85EBCA77)
_PRIME32_3 = np.uint64(0xC2B2AE3D)
_PRIME64_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME64_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME64_3 = np.uint64(0x165667B19E3779F9)
_PRIME64_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME64_5 = np.uint64(0x27D4EB2F165667C5)
_PRIME_MX1 = np.uint64(0x165667919E3779F9)
_PRIME_MX2 = np.uint64(0x9FB21C651E98DF25)

# The secret's words as the short inputs combine them.
_FLIP_0 = _secret_word(56) ^ _secret_word(64)
_FLIP_1_3 = (_secret_word(0) & np.uint64(0xFFFF_FFFF)) ^ (_secret_word(0) >> np.uint64(32))
_FLIP_4_8 = _secret_word(8) ^ _secret_word(16)
_FLIP_9_16_LOW = _secret_word(24) ^ _secret_word(32)
_FLIP_9_16_HIGH = _secret_word(40) ^ _secret_word(48)

_LOW_32 = np.uint64(0xFFFF_FFFF)
_LOW_8 = np.uint64(0xFF)
_U1, _U8, _U15, _U16, _U24 = (np.uint64(n) for n in (1, 8, 15, 16, 24))
_U28, _U29, _U32, _U33, _U35, _U37 = (np.uint64(n) for n in (28, 29, 32, 33, 35, 37))
_U40, _U47, _U49, _U63 = (np.uint64(n) for n in (40, 47, 49, 63))
_SWAP_8 = np.uint64(0x00FF00FF00FF00FF)
_SWAP_16 = np.uint64(0x0000FFFF0000FFFF)

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)


@kernel(inline=True)
def _avalanche_64(h: Any) -> Any:
    h = (h ^ (h >> _U33)) * _PRIME64_2
    h = (h ^ (h >> _U29)) * _PRIME64_3
    return h ^ (h >> _U32)


@kernel(inline=True)
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> _U37)) * _PRIME_MX1
    return h ^ (h >> _U32)


@kernel(inline=True)
def _swap_bytes(x: Any) -> Any:
    x = ((x >> _U8) & _SWAP_8) | ((x & _SWAP_8) << _U8)
    x = ((x >> _U16) & _SWAP_16) | ((x & _SWAP_16) << _U16)
    return (x >> _U32) | (x << _U32)


@kernel(inline=True)
def _mix_16(data: Any, position: Any, secret_position: Any) -> Any:
    return multiply_fold(
        load_u64(data, position) ^ load_u64(_SECRET, secret_position),
        load_u64(data, position + 8) ^ load_u64(_SECRET, secret_position + 8),
    )


@kernel
def _hash_17_240(data: Any, start: Any, length: Any) -> Any:
    end = start + length
    total = np.uint64(length) * _PRIME64_1
    if length <= 128:
        for pair in range((length - 1) // 32, -1, -1):
            total += _mix_16(data, start + 16 * pair, 32 * pair)
            total += _mix_16(data, end - 16 * (pair + 1), 32 * pair + 16)
        return _avalanche(total)
    for i in range(8):
        total += _mix_16(data, start + 16 * i, 16 * i)
    total = _avalanche(total)
    for i in range(8, length // 16):
        total += _mix_16(data, start + 16 * i, 16 * (i - 8) + 3)
    total += _mix_16(data, end - 16, 136 - 17)
    return _avalanche(total)


@kernel
def _accumulate(lanes: Any, data: Any, position: Any, secret_position: Any) -> Any:
    for i in range(8):
        value = load_u64(data, position + 8 * i)
        key = value ^ load_u64(_SECRET, secret_position + 8 * i)
        lanes[i ^ 1] += value
        lanes[i] += (key & _LOW_32) * (key >> _U32)


@kernel
def _hash_241_up(data: Any, start: Any, length: Any) -> Any:
    lanes = np.empty(8, np.uint64)
    lanes[0], lanes[1], lanes[2], lanes[3] = _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3
    lanes[4], lanes[5], lanes[6], lanes[7] = _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1
    # Blocks of 16 stripes of 64 bytes; the last stripe overlaps the one before.
    stripes = (length - 1) // 64
    for stripe in range(stripes):
        _accumulate(lanes, data, start + 64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15 and 64 * (stripe + 1) < length:
            for i in range(8):
                lane = lanes[i]
                lane ^= (lane >> _U47) ^ load_u64(_SECRET, 128 + 8 * i)
                lanes[i] = lane * _PRIME32_1
    _accumulate(lanes, data, start + length - 64, 128 - 7)
    total = np.uint64(length) * _PRIME64_1
    for i in range(4):
        total += multiply_fold(
            lanes[2 * i] ^ load_u64(_SECRET, 11 + 16 * i),
            lanes[2 * i + 1] ^ load_u64(_SECRET, 19 + 16 * i),
        )
    return _avalanche(total)


@kernel(inline=True)
def hash_1_to_3(word: Any, length: Any) -> Any:
    """Returns the hash (u8) of the first `length` bytes of a word, length (u8) in 1 to 3."""
    first = word & _LOW_8
    middle = (word >> (_U8 * (length >> _U1))) & _LOW_8
    last = (word >> ((_U8 * length - _U8) & _U63)) & _LOW_8
    key = (first << _U16) | (middle << _U24) | last | (length << _U8)
    return _avalanche_64(key ^ _FLIP_1_3)


@kernel(inline=True)
def hash_4_to_8(word: Any, length: Any) -> Any:
    """Returns the hash (u8) of the first `length` bytes of a word, length (u8) in 4 to 8.

    For other lengths the result is meaningless, but the call is safe.
    """
    last = (word >> ((_U8 * length - _U32) & _U63)) & _LOW_32
    h = (last + ((word & _LOW_32) << _U32)) ^ _FLIP_4_8
    h ^= ((h << _U49) | (h >> _U15)) ^ ((h << _U24) | (h >> _U40))
    h *= _PRIME_MX2
    h ^= (h >> _U35) + length
    h *= _PRIME_MX2
    return h ^ (h >> _U28)


@kernel(inline=True)
def hash_span(data: Any, start: Any, length: Any) -> Any:
    """Returns the xxh3-64 hash of data[start : start + length].

    Args:
        data: u1[b], with eight readable bytes from `start` on, even for a shorter span.
        start: i8, first byte of the span.
        length: i8, at least 0.

    Returns:
        u8.
    """
    if length <= 8:
        if length == 0:
            return _avalanche_64(_FLIP_0)
        word = load_u64(data, start)
        if length < 4:
            return hash_1_to_3(word, np.uint64(length))
        return hash_4_to_8(word, np.uint64(length))
    if length <= 16:
        low = load_u64(data, start) ^ _FLIP_9_16_LOW
        high = load_u64(data, start + length - 8) ^ _FLIP_9_16_HIGH
        total = np.uint64(length) + _swap_bytes(low) + high + multiply_fold(low, high)
        return _avalanche(total)
    if length <= 240:
        return _hash_17_240(data, start, length)
    return _hash_241_up(data, start, length)


@kernel(types.void(_READ_ONLY_BYTES, _READ_ONLY_I8, types.uint64[::1]))
def hash_spans(data: Any, offsets: Any, out: Any) -> None:
    """Writes the xxh3-64 hash of each row of a byte column.

    Args:
        data: u1[b], with eight readable bytes after the last row.
        offsets: i8[n + 1], ascending.
        out: u8[n], overwritten.
    """
    for row in range(out.shape[0]):
        out[row] = hash_span(data, offsets[row], offsets[row + 1] - offsets[row])
