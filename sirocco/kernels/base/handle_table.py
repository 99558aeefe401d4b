"""An open-addressing table from 64-bit handles to dense rows, for batches of handles.

Linear probing on a power-of-two table; a secret decides the place of a handle (`hash_placement`).
Rows are stored plus one, so that 0 means a free place. Deletion closes the hole by moving later
entries of the run back (no tombstones: after many changes a table is as fast as a new one). No
search is longer than the table: in a full one, a missing handle is not found and gets no place.
"""

from __future__ import annotations

from typing import Any

import numba.types as nt
import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.jit.compiled import kernel

_HASHES = nt.Array(nt.u8, 1, "C", readonly=True)
_ROWS = nt.Array(nt.i4, 1, "C", readonly=True)


@kernel(inline=True)
def _find(keys: Any, rows: Any, key: Any, first: Any, second: Any) -> Any:
    """Returns the place of a key, or the free place for it; −1: not there, and no room."""
    mask = np.uint64(rows.shape[0] - 1)
    place = mix(key, first, second) & mask
    for _ in range(rows.shape[0]):
        if rows[place] == 0 or keys[place] == key:
            return np.int64(place)
        place = (place + np.uint64(1)) & mask
    return np.int64(-1)


@kernel(nt.i8(nt.u8[::1], nt.i4[::1], _HASHES, _ROWS, nt.u8, nt.u8))
def put(
    keys: NDArray[np.uint64],
    rows: NDArray[np.int32],
    new_keys: NDArray[np.uint64],
    new_rows: NDArray[np.int32],
    first: np.uint64,
    second: np.uint64,
) -> int:
    """Adds (key, row) pairs; a key that is there gets the new row.

    Args:
        keys, rows: u8[p], i4[p], p a power of two, the table.
        new_keys, new_rows: u8[n], i4[n], not negative.
        first, second: the table's secret.

    Returns:
        The number of new keys; −1 if the table is full: keys before the first without room are in.
    """
    fresh = 0
    for i in range(len(new_keys)):
        place = _find(keys, rows, new_keys[i], first, second)
        if place < 0:
            return -1
        fresh += rows[place] == 0
        keys[place] = new_keys[i]
        rows[place] = new_rows[i] + 1
    return fresh


@kernel(nt.void(_HASHES, _ROWS, _HASHES, nt.i4[::1], nt.u8, nt.u8))
def get(
    keys: NDArray[np.uint64],
    rows: NDArray[np.int32],
    wanted: NDArray[np.uint64],
    out: NDArray[np.int32],
    first: np.uint64,
    second: np.uint64,
) -> None:
    """Writes the row of each wanted key, -1 where there is none."""
    for i in range(len(wanted)):
        place = _find(keys, rows, wanted[i], first, second)
        out[i] = rows[place] - 1 if place >= 0 else -1


@kernel(nt.i8(nt.u8[::1], nt.i4[::1], _HASHES, nt.u8, nt.u8))
def drop(
    keys: NDArray[np.uint64],
    rows: NDArray[np.int32],
    unwanted: NDArray[np.uint64],
    first: np.uint64,
    second: np.uint64,
) -> int:
    """Removes keys; returns how many were there."""
    mask = np.uint64(len(keys) - 1)
    one = np.uint64(1)
    dropped = 0
    for i in range(len(unwanted)):
        place = _find(keys, rows, unwanted[i], first, second)
        if place < 0 or rows[place] == 0:
            continue
        dropped += 1
        hole = np.uint64(place)
        probe = (hole + one) & mask
        for _ in range(len(rows) - 1):
            if rows[probe] == 0:
                break
            home = mix(keys[probe], first, second) & mask
            # The entry may move back if its home is not cyclically within (hole, probe].
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                keys[hole] = keys[probe]
                rows[hole] = rows[probe]
                hole = probe
            probe = (probe + one) & mask
        rows[hole] = 0
    return dropped
