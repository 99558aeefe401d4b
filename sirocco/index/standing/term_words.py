"""The words of the terms in a vocabulary, and their wire hashes, by id.

An index numbers terms like its process (`model.term_hashing`). Outside it, in a checkpoint or in
the rule that counts an object in one of several slots, words and wire hashes are used.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.kernels.base.faults import required
from sirocco.kernels.standing.term_words import put_words

__all__ = ["TermWords"]

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# Words are compacted when more than half of their bytes, and at least this many, are garbage.
_GARBAGE_MIN = 1 << 16


class TermWords:
    """Words of the ids in use; ids without a word have the wire hash as their number."""

    __slots__ = ("_begins", "_bytes", "_end", "_garbage", "_lengths", "_wire_of", "unnamed")

    def __init__(self) -> None:
        self._wire_of = GrowableArray(np.uint64, 256)
        # One more than the start of the word; 0: the id is not in use.
        self._begins = GrowableArray(np.int64, 256)
        self._lengths = GrowableArray(np.int32, 256)
        self._bytes = GrowableArray(np.uint8, 4_096)
        self._end = 0
        self._garbage = 0
        self.unnamed = 0

    @property
    def wire_of(self) -> npt.NDArray[np.uint64]:
        """u8[ids], the wire hash of each id; stale after `put`."""
        return self._wire_of.array

    @property
    def bytes_total(self) -> int:
        """Bytes of memory for the words, without the arrays by id."""
        return self._end

    def put(
        self,
        ids: npt.NDArray[np.int32],
        wires: npt.NDArray[np.uint64],
        words: Bytes,
        offsets: Offsets,
        rows: npt.NDArray[np.int32],
    ) -> None:
        """Adds ids that are newly used; ids in use keep their words.

        Args:
            ids: i4[t].
            wires: u8[t], wire hashes.
            words: u1[b], offsets: i8[w + 1].
            rows: i4[t], word of each; -1: unknown.
        """
        if not len(ids):
            return
        room = int(ids.max()) + 1
        for column in (self._wire_of, self._begins, self._lengths):
            column.reserve(room)
        # Each new id has a different word.
        self._bytes.reserve(self._end + len(words))
        self._end, unnamed = put_words(
            ids, wires, words, offsets, rows,
            self._wire_of.array, self._begins.array, self._lengths.array, self._bytes.array,
            self._end,
        )  # fmt: skip
        required(self._end, "put_words: no room")
        self.unnamed += unnamed

    def drop(self, ids: npt.NDArray[np.int32], in_use: Callable[[], npt.NDArray[np.int32]]) -> None:
        """Forgets ids that are no longer used.

        Args:
            ids: i4[t], each once.
            in_use: returns the remaining ids, i4[u]; called at intervals.
        """
        lengths = self._lengths.array[ids]
        self._begins.array[ids] = 0
        self.unnamed -= int((lengths == 0).sum())
        self._garbage += int(lengths.sum())
        if self._garbage > max(_GARBAGE_MIN, self._end // 2):
            left = in_use()
            wires = self._wire_of.array[left]
            words, offsets = self.of(left)
            rows = np.arange(len(left), dtype=np.int32)
            rows[offsets[1:] == offsets[:-1]] = -1
            self._end = self._garbage = self.unnamed = 0
            self._begins.array[left] = 0
            self.put(left, wires, words, offsets, rows)

    def of(self, ids: npt.NDArray[np.integer]) -> tuple[Bytes, Offsets]:
        """Returns (words u1[b], offsets i8[t + 1]) of ids in use, in their order."""
        lengths = self._lengths.array[ids].astype(np.int64)
        begins = self._begins.array[ids] - 1
        ends = np.zeros(len(ids) + 1, np.int64)
        lengths.cumsum(out=ends[1:])
        places = np.arange(ends[-1]) + (begins - ends[:-1]).repeat(lengths)
        return self._bytes.array[places], ends
