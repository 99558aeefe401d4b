"""An open-addressing table from 64-bit handles to rows whose handles are stored in a column.

As `handle_table`, but keys are read from the column: 4 bytes a place instead of 12, for one more
access to memory. So a row's handle must be in the column for as long as the row is in the table.
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
def _find(places: Any, handles: Any, key: Any, first: Any, second: Any) -> Any:
    """Returns the place of a handle, or the free place for it; −1: not there, and no room."""
    mask = np.uint64(places.shape[0] - 1)
    place = mix(key, first, second) & mask
    for _ in range(places.shape[0]):
        row = places[place] - 1
        # Another thread may have entered rows beyond the column that this one has.
        if row < 0 or (row < handles.shape[0] and handles[row] == key):
            return np.int64(place)
        place = (place + np.uint64(1)) & mask
    return np.int64(-1)


@kernel(nt.i8(nt.i4[::1], _HASHES, _ROWS, nt.u8, nt.u8))
def put(
    places: NDArray[np.int32],
    handles: NDArray[np.uint64],
    rows: NDArray[np.int32],
    first: np.uint64,
    second: np.uint64,
) -> int:
    """Adds rows; a row whose handle is there replaces the previous row.

    Args:
        places: i4[p], p a power of two: rows + 1, 0 where free.
        handles: u8, by row.
        rows: i4[n], not negative.
        first, second: the table's secret.

    Returns:
        The number of new handles; −1 if the table is full: handles before the first without room
        are in.
    """
    fresh = 0
    for i in range(len(rows)):
        place = _find(places, handles, handles[rows[i]], first, second)
        if place < 0:
            return -1
        fresh += places[place] == 0
        places[place] = rows[i] + 1
    return fresh


@kernel(nt.void(_ROWS, _HASHES, _HASHES, nt.i4[::1], nt.u8, nt.u8))
def get(
    places: NDArray[np.int32],
    handles: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    out: NDArray[np.int32],
    first: np.uint64,
    second: np.uint64,
) -> None:
    """Writes the row of each wanted handle, -1 where there is none."""
    for i in range(len(wanted)):
        place = _find(places, handles, wanted[i], first, second)
        row = places[place] - 1 if place >= 0 else -1
        out[i] = row if row < handles.shape[0] else -1


@kernel(nt.i8(nt.i4[::1], _HASHES, _HASHES, nt.u8, nt.u8))
def drop(
    places: NDArray[np.int32],
    handles: NDArray[np.uint64],
    unwanted: NDArray[np.uint64],
    first: np.uint64,
    second: np.uint64,
) -> int:
    """Removes handles; returns how many were there."""
    mask = np.uint64(len(places) - 1)
    one = np.uint64(1)
    dropped = 0
    for i in range(len(unwanted)):
        place = _find(places, handles, unwanted[i], first, second)
        if place < 0 or places[place] == 0:
            continue
        dropped += 1
        hole = np.uint64(place)
        probe = (hole + one) & mask
        for _ in range(len(places) - 1):
            if places[probe] == 0:
                break
            home = mix(handles[places[probe] - 1], first, second) & mask
            # The entry may move back if its home is not cyclically within (hole, probe].
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                places[hole] = places[probe]
                hole = probe
            probe = (probe + one) & mask
        places[hole] = 0
    return dropped
