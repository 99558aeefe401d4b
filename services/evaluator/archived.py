"""Reads slices outside memory from the archive for searches, and caches the last ones."""

from __future__ import annotations

import threading
from collections import OrderedDict

from sirocco.codec.slices import read_slice
from sirocco.index.store.slices import SealedSlice
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.transport.archive import Archive

# Searches of one user stay in the same period for a while; a larger cache would take memory that
# the newest objects need.
KEPT_BYTES_MAX = 512 << 20


class ArchivedSlices:
    """Reads slices by name, in any thread."""

    def __init__(
        self,
        archive: Archive,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        hashing: TermHashing = WIRE_TERMS,
    ) -> None:
        """Reads `archive`; `hashing` numbers the terms of the slices."""
        self._archive = archive
        self._hashing = hashing
        self._kept_bytes_max = kept_bytes_max
        self._kept: OrderedDict[str, SealedSlice] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

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
        with self._lock:
            if name not in self._kept:
                self._kept[name] = slice_
                self._bytes += slice_.bytes_total
            while self._bytes > self._kept_bytes_max and len(self._kept) > 1:
                _, evicted = self._kept.popitem(last=False)
                self._bytes -= evicted.bytes_total
        return slice_
