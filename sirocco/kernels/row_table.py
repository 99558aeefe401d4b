"""An open-addressing table from 64-bit handles to rows whose handles stand in a column.

As `handle_table`, but the keys are those of the column: 4 bytes a place instead of 12, for one more
look at memory. So the handle of a row must stand in the column for as long as the row is in the
table.
"""

from __future__ import annotations

import numba.types as nt
import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.compiled import kernel
from sirocco.kernels.handle_table import _home

_HASHES = nt.Array(nt.u8, 1, "C", readonly=True)
_ROWS = nt.Array(nt.i4, 1, "C", readonly=True)


@kernel(nt.i8(nt.i4[::1], _HASHES, _ROWS))
def put(places: NDArray[np.int32], handles: NDArray[np.uint64], rows: NDArray[np.int32]) -> int:
    """Enters rows; one whose handle is there takes the place of the row before.

    Args:
        places: i4[p], p a power of two: rows + 1, 0 where free; room is the caller's duty.
        handles: u8, by row.
        rows: i4[n], not negative.

    Returns:
        How many handles are new.
    """
    mask = np.uint64(len(places) - 1)
    fresh = 0
    for i in range(len(rows)):
        key = handles[rows[i]]
        place = _home(key, mask)
        while places[place] != 0 and handles[places[place] - 1] != key:
            place = (place + np.uint64(1)) & mask
        if places[place] == 0:
            fresh += 1
        places[place] = rows[i] + 1
    return fresh


@kernel(nt.void(_ROWS, _HASHES, _HASHES, nt.i4[::1]))
def get(
    places: NDArray[np.int32],
    handles: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> None:
    """Writes the row of each wanted handle, -1 where there is none."""
    mask = np.uint64(len(places) - 1)
    for i in range(len(wanted)):
        place = _home(wanted[i], mask)
        while places[place] != 0 and handles[places[place] - 1] != wanted[i]:
            place = (place + np.uint64(1)) & mask
        out[i] = places[place] - 1


@kernel(nt.i8(nt.i4[::1], _HASHES, _HASHES))
def drop(
    places: NDArray[np.int32], handles: NDArray[np.uint64], unwanted: NDArray[np.uint64]
) -> int:
    """Removes handles; returns how many were there."""
    mask = np.uint64(len(places) - 1)
    one = np.uint64(1)
    dropped = 0
    for i in range(len(unwanted)):
        hole = _home(unwanted[i], mask)
        while places[hole] != 0 and handles[places[hole] - 1] != unwanted[i]:
            hole = (hole + one) & mask
        if places[hole] == 0:
            continue
        dropped += 1
        probe = (hole + one) & mask
        while places[probe] != 0:
            home = _home(handles[places[probe] - 1], mask)
            # The entry may move back if its home is not cyclically within (hole, probe].
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                places[hole] = places[probe]
                hole = probe
            probe = (probe + one) & mask
        places[hole] = 0
    return dropped
