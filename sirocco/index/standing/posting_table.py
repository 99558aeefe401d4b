"""The posting lists of a range index, and the table that finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.kernels.base.blocks import END, FREE_UNITS, new_block_state
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.stretch_table import FILTER_SHIFT, new_table_state, slots_needed, stretch
from sirocco.kernels.standing.pyramid import POSTING_WORDS
from sirocco.kernels.standing.range_post import post, unpost

__all__ = ["PostingTable"]

_BITS_MIN = 8
# A doubling moves at least this many homes with each insertion: about 0.1 ms.
_STRETCH_HOMES = 16_384
# Keys per home at which a doubling begins. Most probes end in the filter, so that a fuller table
# costs little time (two thirds instead of a half: 3 %), and slots are much of the memory: right
# after a doubling there are three homes per key.
_LOAD_NUMERATOR, _LOAD_DENOMINATOR = 2, 3


class PostingTable:
    """Owns slots, filter and postings; see `kernels.standing.pyramid` for their words.

    The views `slots`, `filter_words`, `postings` and `posting_boxes` are stale after `post`.
    """

    __slots__ = ("_filter", "_postings", "_slots", "blocks", "state")

    def __init__(self, expected_queries: int) -> None:
        """Creates an empty table with room for the keys of `expected_queries`."""
        bits = _BITS_MIN
        # About 1.5 keys per query, at most half full.
        while 1 << bits < 3 * expected_queries:
            bits += 1
        self.state = new_table_state(bits)
        self.blocks = new_block_state()
        self._slots = GrowableArray(np.uint64, 2 << bits)
        self._filter = GrowableArray(np.uint64, (1 << bits >> FILTER_SHIFT) + 1)
        self._postings = GrowableArray(np.int32, POSTING_WORDS * 1024)

    @property
    def slots(self) -> npt.NDArray[np.uint64]:
        """u8[2 · s], pairs (key, list)."""
        return self._slots.array

    @property
    def filter_words(self) -> npt.NDArray[np.uint64]:
        """u8[w], the filter of keys."""
        return self._filter.array

    @property
    def postings(self) -> npt.NDArray[np.int32]:
        """i4[8 · p], the postings."""
        return self._postings.array

    @property
    def posting_boxes(self) -> npt.NDArray[Any]:
        """f4[8 · p], the same memory."""
        return self._postings.array.view(np.float32)

    @property
    def keys(self) -> int:
        """Keys in the table."""
        return int(self.state[2])

    @property
    def postings_in_blocks(self) -> int:
        """Capacity of the blocks of all lists, in postings."""
        return int(self.blocks[END] - self.blocks[FREE_UNITS])

    @property
    def bytes_total(self) -> int:
        """Bytes of memory in use."""
        homes = 1 << int(self.state[0])
        if self.state[1] < homes:
            homes *= 2
        return 16 * homes + (8 * homes >> FILTER_SHIFT) + 32 * int(self.blocks[END])

    def _make_room(self, keys_more: int) -> None:
        """Keeps the load in bounds; doubles the table step by step, before it is full."""
        while True:
            # Longer than the touched part: the place of a key depends on all others.
            self._slots.reserve(2 * slots_needed(self.state, keys_more))
            homes = 1 << int(self.state[0])
            keys = int(self.state[2]) + keys_more
            is_stretching = self.state[1] < homes
            if keys * _LOAD_DENOMINATOR <= homes * _LOAD_NUMERATOR and not is_stretching:
                return
            self._filter.reserve((2 * homes >> FILTER_SHIFT) + 1)
            step = max(_STRETCH_HOMES, 16 * (-(-4 * keys_more // 16)))
            is_done = stretch(self.slots, self.filter_words, self.state, step)
            required(is_done, "stretch: no room")
            # Above 0.75, runs of collisions become long: finish at once.
            if not is_done and keys * 100 <= homes * 75:
                return

    def post(
        self,
        templates: npt.NDArray[np.int32],
        keys: npt.NDArray[np.uint64],
        owners: npt.NDArray[np.int32],
    ) -> None:
        """Adds postings.

        Args:
            templates: i4[8 · m], complete postings.
            keys: u8[k], owners: i4[k], template of each key.
        """
        self._make_room(len(keys))
        begin = 0
        while begin < len(keys):
            self._postings.reserve((int(self.blocks[END]) + 2 * len(keys)) * POSTING_WORDS)
            done = post(
                self.slots,
                self.filter_words,
                self.state,
                self.blocks,
                self.postings,
                templates,
                keys,
                owners,
                begin,
                len(keys),
            )
            if done < len(keys):
                self._slots.reserve(2 * slots_needed(self.state, len(keys) - done))
                self._postings.reserve(len(self._postings.array) * 5 // 4)
            begin = done

    def unpost(self, keys: npt.NDArray[np.uint64], row_state: npt.NDArray[np.uint8]) -> None:
        """Removes the postings of free rows from the lists of `keys` (u8[k])."""
        done = unpost(
            self.slots,
            self.filter_words,
            self.state,
            self.blocks,
            self.postings,
            row_state,
            np.sort(keys),
        )
        required(done, "unpost: a key without a list")
