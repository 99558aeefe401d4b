"""Reads slices outside memory from the archive for searches, and caches the last ones.

Of a slice that was read once a summary stays for much longer than the slice itself. So a search
reads those alone that may hold something for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.slices import read_slice
from sirocco.index.store.slice_summary import SliceSummary
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store_condition import Condition
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.transport.archive import Archive

# Searches of one user stay in the same period for a while; a larger cache would take memory that
# the newest objects need.
KEPT_BYTES_MAX = 512 << 20

# Of slices with 20,000 different words, some 30 kB each: two thousand of them.
SUMMARY_BYTES_MAX = 64 << 20


class ArchivedSlices:
    """Reads slices by name, in any thread."""

    def __init__(
        self,
        archive: Archive,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        hashing: TermHashing = WIRE_TERMS,
        summary_bytes_max: int = SUMMARY_BYTES_MAX,
    ) -> None:
        """Reads `archive`; `hashing` numbers the terms of the slices."""
        self._archive = archive
        self._hashing = hashing
        self._kept_bytes_max = kept_bytes_max
        self._kept: OrderedDict[str, SealedSlice] = OrderedDict()
        self._bytes = 0
        self._summary_bytes_max = summary_bytes_max
        self._summaries: OrderedDict[str, SliceSummary] = OrderedDict()
        self._summary_bytes = 0
        self._lock = threading.Lock()

    def may_hold(
        self, name: str, condition: Condition, boxes: NDArray[np.float64] | None = None
    ) -> bool:
        """Whether a slice may hold objects that a search wants, as far as is known.

        Args:
            name: of the slice.
            condition: of the search.
            boxes: f8[b, 4], degrees: where its objects have to be; None: anywhere.
        """
        with self._lock:
            summary = self._summaries.get(name)
            if summary is not None:
                self._summaries.move_to_end(name)
        return summary is None or summary.may_hold(condition, boxes)

    def load(self, name: str) -> SealedSlice:
        """Returns a slice.

        Raises:
            BlobNotFound: it has left the archive as well.
            CorruptSlice: it is damaged.
            Unavailable: the archive cannot be reached.
        """
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        # Two searches may read the same slice: better than one waiting for the other's disk.
        slice_ = read_slice(self._archive.read(name), self._hashing)
        summary = SliceSummary.of(slice_)
        with self._lock:
            self._keep_summary(name, summary)
            if name not in self._kept:
                self._kept[name] = slice_
                self._bytes += slice_.bytes_total
            while self._bytes > self._kept_bytes_max and len(self._kept) > 1:
                _, evicted = self._kept.popitem(last=False)
                self._bytes -= evicted.bytes_total
        return slice_

    def _keep_summary(self, name: str, summary: SliceSummary) -> None:
        if name in self._summaries:
            return
        self._summaries[name] = summary
        self._summary_bytes += summary.bytes_total
        while self._summary_bytes > self._summary_bytes_max:
            _, dropped = self._summaries.popitem(last=False)
            self._summary_bytes -= dropped.bytes_total
