"""An open-addressing table from 64-bit handles to dense rows, for batches of handles.

Linear probing on a power-of-two table; the key is its own hash, since handles are hashes. Rows are
stored plus one, so that 0 means a free place. Deletion closes the hole by moving later entries of
the run back (no tombstones: a table that sees many changes stays as fast as a fresh one).
"""

from __future__ import annotations

import numba.types as nt
import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.compiled import kernel

_HASHES = nt.Array(nt.u8, 1, "C", readonly=True)
_ROWS = nt.Array(nt.i4, 1, "C", readonly=True)


@kernel(inline=True)
def _home(key: np.uint64, mask: np.uint64) -> np.uint64:
    # A session number or a handle may be any 64 bits: the multiplication spreads those that are
    # not hashes (a client that counts its sessions from 1).
    return ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask


@kernel(nt.void(nt.u8[::1], nt.i4[::1], _HASHES, _ROWS))
def put(
    keys: NDArray[np.uint64],
    rows: NDArray[np.int32],
    new_keys: NDArray[np.uint64],
    new_rows: NDArray[np.int32],
) -> None:
    """Enters (key, row) pairs; a key that is there gets the new row. Room is the caller's duty."""
    mask = np.uint64(len(keys) - 1)
    for i in range(len(new_keys)):
        key = new_keys[i]
        place = _home(key, mask)
        while rows[place] != 0 and keys[place] != key:
            place = (place + np.uint64(1)) & mask
        keys[place] = key
        rows[place] = new_rows[i] + 1


@kernel(
    nt.void(
        nt.Array(nt.u8, 1, "C", readonly=True),
        nt.Array(nt.i4, 1, "C", readonly=True),
        _HASHES,
        nt.i4[::1],
    )
)
def get(
    keys: NDArray[np.uint64],
    rows: NDArray[np.int32],
    wanted: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> None:
    """Writes the row of each wanted key, -1 where there is none."""
    mask = np.uint64(len(keys) - 1)
    for i in range(len(wanted)):
        key = wanted[i]
        place = _home(key, mask)
        while rows[place] != 0 and keys[place] != key:
            place = (place + np.uint64(1)) & mask
        out[i] = rows[place] - 1


@kernel(nt.i8(nt.u8[::1], nt.i4[::1], _HASHES))
def drop(keys: NDArray[np.uint64], rows: NDArray[np.int32], unwanted: NDArray[np.uint64]) -> int:
    """Removes keys; returns how many were there."""
    mask = np.uint64(len(keys) - 1)
    one = np.uint64(1)
    dropped = 0
    for i in range(len(unwanted)):
        key = unwanted[i]
        place = _home(key, mask)
        while rows[place] != 0 and keys[place] != key:
            place = (place + one) & mask
        if rows[place] == 0:
            continue
        dropped += 1
        hole = place
        probe = (hole + one) & mask
        while rows[probe] != 0:
            home = _home(keys[probe], mask)
            # The entry may move back if its home is not cyclically within (hole, probe].
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                keys[hole] = keys[probe]
                rows[hole] = rows[probe]
                hole = probe
            probe = (probe + one) & mask
        rows[hole] = 0
    return dropped
