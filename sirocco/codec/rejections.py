"""Refused objects as the wire has them, for all of a request at once.

A client may send 16,384 objects that are all wrong. A message for each of them costs a router 90 ms
of the loop in which it answers everybody; their bytes cost 6 ms, and are read in one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1.publish_service_pb2 import PublishResponse, Rejection

from sirocco.codec.errors import write_error
from sirocco.model.errors import SiroccoError

# Numbers are below 2^63. All are written so long, which readers of the wire take as well: what
# surrounds a number is then the same for all objects that are wrong in the same way.
_SEPTETS = 9
_MORE = 0x80

# A number that is written as long by everybody.
_LONG_NUMBER = 1 << 7 * _SEPTETS - 1


def pack_rejections(first_number: int, refused: Sequence[tuple[int, SiroccoError]]) -> bytes:
    """Returns the `rejections` of a `PublishResponse`, for `MergeFromString`.

    Args:
        first_number: of the request's first object.
        refused: row and error of each refused object; equal ones are best the same error.
    """
    rows = np.array([row for row, _ in refused], np.uint64)
    numbers = _varints(rows + np.uint64(first_number))
    around: dict[int, tuple[bytes, bytes]] = {}
    parts: list[bytes] = []
    for at, (_, error) in zip(range(0, len(numbers), _SEPTETS), refused, strict=True):
        known = around.get(id(error))
        if known is None:
            known = around[id(error)] = _around(error)
        parts += known[0], numbers[at : at + _SEPTETS], known[1]
    return b"".join(parts)


def _around(error: SiroccoError) -> tuple[bytes, bytes]:
    """What comes before the number of an object that is refused so, and what after it."""
    one = Rejection(number=_LONG_NUMBER, error=write_error(error))
    number = _varints(np.array([_LONG_NUMBER], np.uint64))
    before, _, after = PublishResponse(rejections=[one]).SerializeToString().partition(number)
    return before, after


def _varints(numbers: NDArray[np.uint64]) -> bytes:
    """Numbers below 2^63, each as `_SEPTETS` bytes: seven bits each, and whether more follow."""
    shifts = np.arange(0, 7 * _SEPTETS, 7, dtype=np.uint64)
    septets = (numbers[:, None] >> shifts).astype(np.uint8) | np.uint8(_MORE)
    septets[:, -1] &= _MORE - 1
    return septets.tobytes()
