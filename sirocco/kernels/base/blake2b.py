"""Computes BLAKE2b with 8 bytes of output inside kernels, of up to 128 bytes (one block).

Written from RFC 7693; its oracle is `hashlib`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.words import load_u64
from sirocco.kernels.jit.compiled import kernel

__all__ = ["BLOCK_BYTES", "fingerprint_spans"]

BLOCK_BYTES = 128

_IV = np.array(
    [
        *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
        *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
    ],
    np.uint64,
)
# RFC 7693, 2.7; rounds 11 and 12 repeat the first two.
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.int64,
)
# Digest length 8, no key, fan-out and depth 1.
_PARAMETERS = np.uint64(0x01010008)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_R16, _R24, _R32, _R40, _R48, _R63, _R1 = (np.uint64(n) for n in (16, 24, 32, 40, 48, 63, 1))

_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)


@kernel(inline=True)
def _mix(v: Any, a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> None:
    v[a] = v[a] + v[b] + x
    w = v[d] ^ v[a]
    v[d] = (w >> _R32) | (w << _R32)
    v[c] = v[c] + v[d]
    w = v[b] ^ v[c]
    v[b] = (w >> _R24) | (w << _R40)
    v[a] = v[a] + v[b] + y
    w = v[d] ^ v[a]
    v[d] = (w >> _R16) | (w << _R48)
    v[c] = v[c] + v[d]
    w = v[b] ^ v[c]
    v[b] = (w >> _R63) | (w << _R1)


@kernel(types.void(_U1_IN, _I8_IN, types.uint64[::1]))
def fingerprint_spans(data: Any, offsets: Any, out: Any) -> None:
    """Writes the little-endian BLAKE2b, 8 bytes, of each row of a byte column; 1 instead of 0.

    Args:
        data: u1[b].
        offsets: i8[n + 1], ascending; no row has more than `BLOCK_BYTES`.
        out: u8[n], overwritten.
    """
    block = np.zeros(BLOCK_BYTES, np.uint8)
    m = np.zeros(16, np.uint64)
    v = np.zeros(16, np.uint64)
    for row in range(out.shape[0]):
        begin, length = offsets[row], offsets[row + 1] - offsets[row]
        for i in range(BLOCK_BYTES):
            block[i] = data[begin + i] if i < length else np.uint8(0)
        for i in range(16):
            m[i] = load_u64(block, 8 * i)
        for i in range(8):
            v[i] = _IV[i]
            v[i + 8] = _IV[i]
        v[0] ^= _PARAMETERS
        v[12] ^= np.uint64(length)
        v[14] ^= _ALL
        for turn in range(12):
            s = _SIGMA[turn % 10]
            _mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]])
            _mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]])
            _mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]])
            _mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]])
            _mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]])
            _mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]])
            _mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]])
            _mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]])
        found = _IV[0] ^ _PARAMETERS ^ v[0] ^ v[8]
        out[row] = found if found != np.uint64(0) else _R1
