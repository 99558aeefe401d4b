"""The sets of a track index: for each tracked value the queries that contain it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.index.base.handle_table import HandleTable
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.stays import Stays
from sirocco.kernels.base.blocks import END, new_block_state
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.standing.track_sets import (
    COUNT_MASK,
    EMPTY_SET,
    ENTRIES,
    ENTRY_WORDS,
    HELD,
    LAST,
    OWN_SET,
    PROGRESS_WORDS,
)

__all__ = ["ValueSets"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# Sets and units of blocks for which it is not worthwhile to give memory back.
_SPARSE_MIN = 4_096


class ValueSets:
    """Finds the set of a value, creates missing ones, and drops empty ones.

    A value is identified by `handles_of`: for one key, different values have different handles. If
    values of two keys share a handle, the set holds rows of both, and each row has its key.

    Attributes:
        blocks: i8[34], of the entries; progress: i8[5] (see `kernels.standing.track_sets`).
        stays: of the entries that have some.
    """

    __slots__ = (
        "_charges",
        "_entries",
        "_former",
        "_free",
        "_handles",
        "_names",
        "_used",
        "_words",
        "blocks",
        "progress",
        "stays",
    )

    def __init__(self) -> None:
        self._names = HandleTable()
        self._handles = GrowableArray(np.uint64, 256)
        # The value's hash in earlier versions, 0 if unknown.
        self._former = GrowableArray(np.uint64, 256)
        self._words = GrowableArray(np.int64, 256)
        self._charges = GrowableArray(np.int64, 256)
        self._free: list[npt.NDArray[np.int32]] = []
        self._used = 0
        self.blocks = new_block_state()
        self._entries = GrowableArray(np.int32, 1024)
        self.progress = np.zeros(PROGRESS_WORDS, np.int64)
        self.stays = Stays()

    def __len__(self) -> int:
        """Returns the number of sets; none is empty between batches."""
        return len(self._names)

    @staticmethod
    def handles_of(
        keys: npt.NDArray[np.uint64], values: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint64]:
        """Returns u8[n], the handles of values; its own inverse."""
        return values ^ (keys * _GOLDEN)

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """i8[sets]; stale after `find_or_make`."""
        return self._words.array

    @property
    def charges(self) -> npt.NDArray[np.int64]:
        """i8[sets], bytes counted for each set, 0 for an empty one; stale likewise."""
        return self._charges.array

    @property
    def held_bytes(self) -> int:
        """Bytes counted for all sets."""
        return int(self.progress[HELD])

    @property
    def words_in_use(self) -> npt.NDArray[np.int64]:
        """i8[s], those of created sets, in memory order; stale likewise."""
        return self._words.array[: self._used]

    @property
    def entries(self) -> npt.NDArray[np.int32]:
        """i4[3 · entries]; stale after `reserve`."""
        return self._entries.array

    @property
    def entries_count(self) -> int:
        """Entries in all sets."""
        return int(self.progress[ENTRIES])

    @property
    def bytes_total(self) -> int:
        """Bytes of memory in use."""
        entries = 4 * ENTRY_WORDS * int(self.blocks[END])
        return self._names.bytes_total + 32 * self._used + entries + self.stays.bytes_total

    def find_or_make(
        self, handles: npt.NDArray[np.uint64], is_needed: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int32]:
        """Returns i4[n], the set of each handle; −1 if there is none and none is needed."""
        sets = self._names.get(handles)
        fresh = sorted_distinct(handles[is_needed & (sets < 0)])
        if len(fresh) == 0:
            return sets
        self._names.put(fresh, self._take(fresh))
        return self._names.get(handles)

    def note(self, sets: npt.NDArray[np.int32], former_values: npt.NDArray[np.uint64]) -> None:
        """Stores the hashes of earlier versions for the values of sets (i4[n], -1 for none)."""
        is_set = sets >= 0
        self._former.array[sets[is_set]] = former_values[is_set]

    def rename(self, handle: int, new_handle: int) -> None:
        """Moves the set of a handle, if any, to another handle."""
        before, after = np.array([[handle], [new_handle]], np.uint64)
        sets = self._names.get(before)
        if sets[0] >= 0 and self._names.get(after)[0] < 0:
            self._names.drop(before)
            self._names.put(after, sets)
            self._handles.array[sets] = after

    def _take(self, handles: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        wanted = len(handles)
        parts: list[npt.NDArray[np.int32]] = []
        while self._free and wanted > 0:
            last = self._free.pop()
            parts.append(last[:wanted])
            if len(last) > wanted:
                self._free.append(last[wanted:])
            wanted -= len(parts[-1])
        parts.append(np.arange(self._used, self._used + wanted, dtype=np.int32))
        self._used += wanted
        sets = np.concatenate(parts)
        self._handles.reserve(self._used)
        self._words.reserve(self._used)
        self._former.reserve(self._used)
        self._charges.reserve(self._used)
        self._former.array[sets] = 0
        self._handles.array[sets] = handles
        self._words.array[sets] = EMPTY_SET
        return sets

    def counts(self, sets: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Returns i8[s], entries of each set."""
        return self.words[sets] & COUNT_MASK

    def reserve(self, entries: int) -> None:
        """Makes room for sets with `entries` entries in all, wherever they grow."""
        # A growing set leaves blocks behind. Together they are as long as its new block, which is
        # less than twice as long as the set.
        self._entries.reserve(ENTRY_WORDS * (int(self.blocks[END]) + 4 * entries + 1))

    def drop_empty(self, sets: npt.NDArray[np.int32]) -> None:
        """Removes the empty ones of some sets (i4[s], each once)."""
        empty = sets[self.counts(sets) == 0]
        if len(empty):
            self._names.drop(self._handles.array[empty])
            self._free.append(empty)

    @property
    def is_sparse(self) -> bool:
        """Whether most of the memory is unused: the caller then takes `compacted`."""
        units, entries = int(self.blocks[END]), self.entries_count
        return (
            self._used > 4 * len(self) + _SPARSE_MIN
            or units > 8 * entries + _SPARSE_MIN
            or self.stays.end > 4 * len(self.stays) + _SPARSE_MIN
        )

    def compacted(self) -> ValueSets:
        """Returns the same sets, none of them empty, in as little memory as they need."""
        found = ValueSets()
        found.progress[:] = self.progress
        sets = self.all()
        handles = self._handles.array[sets]
        fresh = found._take(handles)
        found._names.put(handles, fresh)
        found._former.array[fresh] = self._former.array[sets]
        found._charges.array[fresh] = self._charges.array[sets]
        places, counts = self._places(sets)
        # The exponent of n - 1 is the least c with 2^c >= n.
        classes = np.frexp((counts - 1).astype(np.float64))[1].astype(np.int64)
        ends = np.cumsum(1 << classes)
        firsts = ends - (1 << classes)
        found.blocks[END] = int(ends[-1]) if len(ends) else 0
        found.reserve(0)
        found._words.array[fresh] = (firsts << 32) | (classes << 26) | counts
        entries = self._table()[places]
        has_stay = np.flatnonzero(entries[:, 2] < NOT_KNOWN)
        if len(has_stay):
            found.stays = self.stays.kept(_stays_of(entries[has_stay, 2]))
            found.stays.table[: len(has_stay), OWN_SET] = np.repeat(fresh, counts)[has_stay]
            entries[has_stay, 2] = -2 - np.arange(len(has_stay), dtype=np.int32)
        found._table()[found._places(fresh)[0]] = entries
        return found

    def all(self) -> npt.NDArray[np.int32]:
        """Returns i4[s], all sets."""
        return self._names.items()[1]

    def handles_in(self, sets: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
        """Returns u8[s], the handle of each set."""
        handles: npt.NDArray[np.uint64] = self._handles.array[sets]
        return handles

    def renumber(self, number_of: npt.NDArray[np.int32]) -> None:
        """Renumbers the objects of entries: `number_of[n]` replaces n."""
        places, _ = self._places(self.all())
        numbers = self._table()[:, 2]
        known = places[numbers[places] >= 0]
        numbers[known] = number_of[numbers[known]]
        self.stays.renumber(number_of)

    def _table(self) -> npt.NDArray[np.int32]:
        """i4[entries, 3], a view."""
        room = len(self.entries) // ENTRY_WORDS
        return self.entries[: room * ENTRY_WORDS].reshape(-1, ENTRY_WORDS)

    def _places(
        self, sets: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns i8[m], the places of the sets' entries, and i8[s], the entries of each."""
        words = self.words[sets]
        counts = words & COUNT_MASK
        ends = np.cumsum(counts)
        places = np.arange(counts.sum()) + np.repeat((words >> 32) - (ends - counts), counts)
        return places, counts

    def members(
        self,
    ) -> tuple[
        npt.NDArray[np.uint64],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.uint64],
        npt.NDArray[np.int64],
    ]:
        """Returns the columns of all entries.

        These are handle u8[m]; row, generation, object i4[m]; former u8[m]; and i8[m], the stay or
        -1 where there is none.
        """
        sets = self.all()
        places, counts = self._places(sets)
        own = self._table()[places]
        handles = np.repeat(self._handles.array[sets], counts)
        former = np.repeat(self._former.array[sets], counts)
        numbers, stays = own[:, 2].copy(), np.full(len(own), -1, np.int64)
        has_stay = np.flatnonzero(numbers < NOT_KNOWN)
        if len(has_stay):
            stays[has_stay] = _stays_of(numbers[has_stay])
            numbers[has_stay] = self.stays.table[stays[has_stay], LAST]
        return handles, own[:, 0].copy(), own[:, 1].copy(), numbers, former, stays


def _stays_of(words: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns the stays that the third words of entries name."""
    return -2 - words.astype(np.int64)
