"""The posting table of standing kNN queries."""

from __future__ import annotations

import numpy as np

from sirocco.index.base.growable import GrowableArray
from sirocco.index.standing.posting_table import PostingTable
from sirocco.kernels.base.blocks import END, FREE_UNITS
from sirocco.kernels.base.stretch_table import slots_needed
from sirocco.kernels.standing.knn_repack import repack
from sirocco.kernels.standing.pyramid import POSTING_WORDS

__all__ = ["KnnTable"]

# 2 MB of postings: below it nothing is worth moving.
_REPACKED_MIN = 1 << 16


class KnnTable(PostingTable):
    """Posting lists that were long once: new queries stand in few cells, later in many.

    While circles shrink, lists of coarse cells, as long as there are queries, become short ones
    of fine cells. Blocks of the long ones would stay behind, empty, and be most of the memory.
    """

    __slots__ = ()

    def repack(self) -> None:
        """Moves the lists together where a third of their memory is free.

        Takes some 20 ms for 200,000 queries, and comes again only after as much was left over.
        """
        end, free = int(self.blocks[END]), int(self.blocks[FREE_UNITS])
        if end < _REPACKED_MIN or 3 * free < end:
            return
        target = GrowableArray(np.int32, POSTING_WORDS * (end - free))
        # What lies behind was never touched, and takes no memory as long as nobody looks.
        slots = self.slots[: 2 * slots_needed(self.state, 0)]
        repack(slots, self.blocks, self.postings, target.array)
        self._postings = target
