"""The results of a bulk change as one piece of bytes: thousands of messages, mostly a revision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Field `results` of the responses, length-delimited, and field `revision` of a result, a varint.
_RESULTS_TAG = 1 << 3 | 2
_REVISION_TAG = 1 << 3

# The least values of two bytes and more.
_STEPS = np.int64(1) << np.arange(7, 63, 7, dtype=np.int64)


def write_results(revisions: NDArray[np.int64]) -> bytes:
    """Returns the field `results` of a response without errors.

    Args:
        revisions: i8[n], not negative.
    """
    widths = np.searchsorted(_STEPS, revisions, "right") + 1
    # A zero is left out.
    lengths = np.where(revisions > 0, 1 + widths, 0)
    table = np.empty((len(revisions), 3 + int(widths.max(initial=1))), np.uint8)
    table[:, 0], table[:, 1], table[:, 2] = _RESULTS_TAG, lengths, _REVISION_TAG
    places = np.arange(table.shape[1])
    digits = places[3:] - 3
    table[:, 3:] = revisions[:, None] >> 7 * digits & 0x7F
    table[:, 3:] |= np.where(digits < widths[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return table[places < 2 + lengths[:, None]].tobytes()
