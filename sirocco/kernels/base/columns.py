"""Gathers rows of ragged columns, and distinct values in order of appearance."""

from __future__ import annotations

import numba.types as nt
import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.jit.compiled import kernel

_BYTES = nt.Array(nt.u1, 1, "C", readonly=True)
_LONGS = nt.Array(nt.i8, 1, "C", readonly=True)
_INTS = nt.Array(nt.i4, 1, "C", readonly=True)


@kernel(nt.void(_BYTES, _LONGS, _LONGS, nt.i8[::1], nt.u1[::1]))
def gather_bytes(
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copies pieces of `data` one after the other.

    Args:
        data: u1[b], the source.
        begins: i8[n], where each piece begins in `data`.
        lengths: i8[n], bytes.
        offsets: i8[n + 1], where each piece begins in `out`; computed by the caller.
        out: u1[offsets[n]], overwritten.
    """
    for i in range(len(begins)):
        source = begins[i]
        target = offsets[i]
        for j in range(lengths[i]):
            out[target + j] = data[source + j]


@kernel(nt.i8(_INTS, nt.i4[::1], nt.i4[::1], nt.i4[::1]))
def distinct(
    values: NDArray[np.int32],
    scratch: NDArray[np.int32],
    found: NDArray[np.int32],
    places: NDArray[np.int32],
) -> int:
    """Numbers the distinct values in order of first appearance.

    Args:
        values: i4[m], each in [0, len(scratch)).
        scratch: i4[capacity], all 0; left all 0 again.
        found: i4[m], overwritten: the distinct values in its first k places.
        places: i4[m], overwritten: the place of each value in `found`.

    Returns:
        k, the number of distinct values.
    """
    count = 0
    for i in range(len(values)):
        value = values[i]
        place = scratch[value]
        if place == 0:
            found[count] = value
            count += 1
            place = count
            scratch[value] = place
        places[i] = place - 1
    for i in range(count):
        scratch[found[i]] = 0
    return count
