"""The newest objects of tracked values: they show where a value was last inside a query.

Objects are numbered in order of arrival; entries of `ValueSets` refer to them. Unreferenced objects
are removed when they are more than half.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.limits import LIMITS
from sirocco.kernels.base.sorting import sorted_distinct

__all__ = ["NOT_KNOWN", "LastObjects"]

# The number of an object that was not kept: an earlier version had no room for it.
NOT_KNOWN = -1

# Bytes of objects that may be unreferenced: for fewer, a check is not worthwhile.
_GARBAGE_BYTES_MIN = 4 << 20

# Bytes of an object besides its texts: 16 columns, and its share of the chunks' growth.
OBJECT_BYTES = 128
# A text is kept with the numbers and counts of its terms, about twice its length.
TEXT_FACTOR = 3


def weights_of(rows: StoredRows) -> npt.NDArray[np.int64]:
    """Returns i8[n], about the bytes of each object, the same in every process."""
    objects = rows.objects
    weights = np.full(len(rows), OBJECT_BYTES, np.int64)
    weights += np.diff(objects.name_offsets) + np.diff(objects.attribute_offsets)
    weights += TEXT_FACTOR * np.diff(objects.text_offsets)
    return weights


class LastObjects:
    """Objects by number, in chunks in order of arrival."""

    __slots__ = ("_chunks", "_ends", "_garbage_min", "_kept", "_kept_weight", "_weight", "_weights")

    def __init__(self, garbage_min: int = LIMITS.track_objects_garbage_min) -> None:
        self._garbage_min = garbage_min
        self._chunks: list[StoredRows] = []
        self._ends: list[int] = []
        self._kept = 0
        self._weights = GrowableArray(np.int64, 256)
        self._weight = self._kept_weight = 0

    def __len__(self) -> int:
        """Number of kept objects, referenced or not."""
        return self._ends[-1] if self._ends else 0

    @property
    def bytes_total(self) -> int:
        """Bytes of memory in use."""
        return sum(
            chunk.objects.bytes_total + 48 * len(chunk) + 10 * len(chunk.terms)
            for chunk in self._chunks
        )

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """i8[numbers], `weights_of` each object; stale after `add` and `keep`."""
        return self._weights.array

    def is_crowded(self, references: int, row_bytes: npt.NDArray[np.int64]) -> bool:
        """Whether most objects may be unreferenced: the caller then calls `keep`.

        Args:
            references: how many entries name objects, at most.
            row_bytes: together at least the weights of all objects that entries name.
        """
        if len(self) > 2 * min(self._kept, references) + self._garbage_min:
            return True
        if self._weight <= _GARBAGE_BYTES_MIN:
            return False
        referenced = min(self._kept_weight, int(row_bytes.sum()))
        return self._weight > 2 * referenced + _GARBAGE_BYTES_MIN

    def add(self, objects: StoredRows) -> int:
        """Keeps objects; returns the number of the first, the others follow."""
        first = len(self)
        self._weights.reserve(first + len(objects))
        added = weights_of(objects)
        self._weights.array[first : first + len(objects)] = added
        self._weight += int(added.sum())
        self._chunks.append(objects)
        self._ends.append(first + len(objects))
        # Each is more than twice as long as the next, so that many small batches make few chunks.
        while len(self._chunks) > 1 and len(self._chunks[-2]) <= 2 * len(self._chunks[-1]):
            last, end = self._chunks.pop(), self._ends.pop()
            self._chunks[-1], self._ends[-1] = StoredRows.concat([self._chunks[-1], last]), end
        return first

    def take(self, numbers: npt.NDArray[np.integer]) -> StoredRows:
        """Returns objects by number, one row each; at least one."""
        distinct, places = np.unique(numbers, return_inverse=True)
        bounds = np.searchsorted(distinct, [0, *self._ends]).tolist()
        begins = [0, *self._ends[:-1]]
        parts = [
            chunk.take(distinct[bounds[i] : bounds[i + 1]] - begins[i])
            for i, chunk in enumerate(self._chunks)
            if bounds[i] < bounds[i + 1]
        ]
        joined = parts[0] if len(parts) == 1 else StoredRows.concat(parts)
        return joined.take(places)

    def keep(self, named: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Forgets all other objects.

        Args:
            named: i4[m], their numbers, possibly repeated.

        Returns:
            i4[n], the new number of each object by its old one.
        """
        distinct = sorted_distinct(named[named != NOT_KNOWN])
        number_of = np.full(len(self), NOT_KNOWN, np.int32)
        number_of[distinct] = np.arange(len(distinct), dtype=np.int32)
        kept = self.take(distinct) if len(distinct) else None
        self._chunks = [] if kept is None else [kept]
        self._ends = [] if kept is None else [len(kept)]
        self._kept = len(distinct)
        weights = self._weights.array[distinct]
        self._weights = GrowableArray(np.int64, max(256, len(distinct)))
        self._weights.array[: len(distinct)] = weights
        self._weight = self._kept_weight = int(weights.sum())
        return number_of
