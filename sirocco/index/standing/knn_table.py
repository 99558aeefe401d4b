"""The posting table of standing kNN queries."""

from __future__ import annotations

import numpy as np

from sirocco.index.base.growable import GrowableArray
from sirocco.index.standing.limits import LIMITS
from sirocco.index.standing.posting_table import PostingTable
from sirocco.kernels.base.blocks import END, FREE_UNITS
from sirocco.kernels.base.stretch_table import slots_needed
from sirocco.kernels.standing.knn_repack import repack
from sirocco.kernels.standing.pyramid import POSTING_WORDS

__all__ = ["KnnTable"]


class KnnTable(PostingTable):
    """A table whose lists become shorter: new queries are in few cells, later in many.

    While circles shrink, lists of coarse cells, as long as the number of queries, become short
    lists of fine cells. The empty blocks of the long ones would remain, and be most of the memory.
    """

    __slots__ = ("_repacked_min",)

    def __init__(self, expected_queries: int, repacked_min: int = LIMITS.knn_repacked_min) -> None:
        """Creates an empty table; `repacked_min` as in `StandingLimits`."""
        super().__init__(expected_queries)
        self._repacked_min = repacked_min

    def repack(self) -> None:
        """Compacts the lists if a third of their memory is free.

        Takes some 20 ms for 200,000 queries, and only repeats after as much memory was freed.
        """
        end, free = int(self.blocks[END]), int(self.blocks[FREE_UNITS])
        if end < self._repacked_min or 3 * free < end:
            return
        target = GrowableArray(np.int32, POSTING_WORDS * (end - free))
        # The rest was never touched, and takes no memory unless it is read.
        slots = self.slots[: 2 * slots_needed(self.state, 0)]
        repack(slots, self.blocks, self.postings, target.array)
        self._postings = target
