"""Two-byte numbers for the terms that standing queries of a slot count individually.

All other terms share the numbers of buckets (`kernels.store.sliding_term_counts`). Each sealed
slice keeps the number of every entry of its vocabulary; terms that no query counts any more lose
theirs when numbers run out.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice, address_of
from sirocco.index.store.store import StoreView
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.store.slice_table import N_TERMS
from sirocco.kernels.store.sliding_term_counts import (
    BUCKETS,
    CODES_MAX,
    bucket_terms,
    mark_terms,
    put_codes,
)

__all__ = ["Coded", "TermCodes"]

_NAME = "term_codes"
# Numbers are reclaimed together: each time all slices are numbered again, some ms.
_FREED_MIN = CODES_MAX // 16
_ROOM = 1 << 9


@dataclass(slots=True, eq=False)
class _SliceCodes:
    """The numbers of a slice's vocabulary (u2[v]), and the state of the numbering that they
    include."""

    owner: TermCodes
    codes: NDArray[np.uint16]
    epoch: int = -1
    known: int = 0

    @property
    def bytes_total(self) -> int:
        """Bytes of memory."""
        return self.codes.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """The numbers of a table of sealed slices.

    Attributes:
        table: the table; this object does not keep the slices alive.
        addresses: i8[s], addresses of the numbers.
        terms_total: terms of all objects.
        epoch, known: see `_SliceCodes`.
        parts: the arrays at the addresses.
    """

    table: weakref.ref[NDArray[np.int64]]
    addresses: NDArray[np.int64]
    terms_total: int
    epoch: int
    known: int
    parts: list[_SliceCodes]


class TermCodes:
    """Numbers for terms of one slot. One thread at a time.

    Attributes:
        secret: secret for the distribution of terms to buckets and places (see
            `kernels.base.hash_placement`).
    """

    def __init__(self, codes_max: int = CODES_MAX) -> None:
        """Creates an empty numbering.

        Args:
            codes_max: total of numbers, including those of buckets.
        """
        self._codes_max = codes_max
        self.secret = secret()
        # By number, without those of buckets.
        self._hashes = np.zeros(_ROOM, np.uint64)
        self._users = np.zeros(_ROOM, np.int32)
        self._end = 0
        self._free: list[int] = []
        # Numbers in order of assignment since the last reclaim.
        self._assigned = np.zeros(_ROOM, np.uint16)
        self._known = 0
        self._epoch = 0
        self._coded: Coded | None = None
        self.table_hashes = np.zeros(4 * _ROOM, np.uint64)
        self.table_codes = np.zeros(4 * _ROOM, np.uint16)
        # For each number, the bucket of its term.
        self._buckets = np.zeros(_ROOM, np.uint16)
        self._tallies = np.zeros(BUCKETS + _ROOM, np.int32)

    @property
    def bytes_total(self) -> int:
        """Memory in bytes, without that of slices."""
        arrays = (
            self._hashes, self._users, self._assigned, self.table_hashes, self.table_codes,
            self._buckets, self._tallies,
        )  # fmt: skip
        return sum(each.nbytes for each in arrays)

    @property
    def buckets(self) -> NDArray[np.uint16]:
        """u2[n], the bucket of each term with a number."""
        return self._buckets[: self._end]

    @property
    def tallies(self) -> NDArray[np.int32]:
        """i4[BUCKETS + n], zeros; the caller must zero them again."""
        return self._tallies[: BUCKETS + self._end]

    def hashes(self, codes: NDArray[np.uint16]) -> NDArray[np.uint64]:
        """Returns the terms of numbers, u8[m]."""
        return self._hashes[codes.astype(np.int64) - BUCKETS]

    def coded(self, view: StoreView) -> Coded:
        """Numbers the terms of a view's sealed slices that have no numbers yet."""
        last = self._coded
        if (
            last is not None
            and last.table() is view.table
            and (last.epoch, last.known) == (self._epoch, self._known)
        ):
            return last
        parts = [self._codes_of(slice_) for slice_ in view.sealed]
        self._coded = Coded(
            weakref.ref(view.table),
            np.array([address_of(each.codes) for each in parts], np.int64),
            int(view.table[:, N_TERMS].sum()),
            self._epoch,
            self._known,
            parts,
        )
        return self._coded

    def _codes_of(self, slice_: SealedSlice) -> _SliceCodes:
        found: _SliceCodes | None = slice_.derived.get(_NAME)
        if found is None or found.owner is not self:
            found = _SliceCodes(self, np.empty(len(slice_.vocabulary), np.uint16))
            slice_.derived[_NAME] = found
        if found.epoch != self._epoch:
            bucket_terms(slice_.vocabulary, *self.secret, found.codes)
            found.epoch, found.known = self._epoch, 0
        if found.known < self._known:
            assigned = self._assigned[found.known : self._known]
            mark_terms(slice_.vocabulary, self.hashes(assigned), assigned, found.codes)
            found.known = self._known
        return found

    def use(self, hashes: NDArray[np.uint64], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Assigns numbers to terms that a query counts individually from now on.

        Args:
            hashes: u8[m], distinct.
            codes: i8[m], their numbers; −1 entries are overwritten.

        Returns:
            bool[m], which have a number now; for the others there was no room.
        """
        has_code = codes >= 0
        np.add.at(self._users, codes[has_code] - BUCKETS, 1)
        new = np.flatnonzero(~has_code)
        if len(new):
            numbers = self._numbers(len(new))
            new = new[: len(numbers)]
            codes[new] = numbers
            self._assign(hashes[new], numbers)
        return codes >= 0

    def release(self, codes: NDArray[np.uint16]) -> None:
        """Releases terms that a query no longer counts."""
        np.subtract.at(self._users, codes.astype(np.int64) - BUCKETS, 1)

    def _numbers(self, count: int) -> NDArray[np.int64]:
        """Returns free numbers, at most `count`."""
        if len(self._free) + self._codes_max - BUCKETS - self._end < count:
            self._reclaim()
        reused, self._free = self._free[:count], self._free[count:]
        end = min(self._end + count - len(reused), self._codes_max - BUCKETS)
        numbers = np.array([*reused, *range(self._end, end)], np.int64)
        self._reserve(end)
        self._end = max(self._end, end)
        return BUCKETS + numbers

    def _assign(self, hashes: NDArray[np.uint64], numbers: NDArray[np.int64]) -> None:
        self._hashes[numbers - BUCKETS] = hashes
        self._buckets[numbers - BUCKETS] = self.bucket_of(hashes)
        self._users[numbers - BUCKETS] = 1
        assigned = numbers.astype(np.uint16)
        self._assigned[self._known : self._known + len(assigned)] = assigned
        self._known += len(assigned)
        self._put(hashes, assigned)

    def _reclaim(self) -> None:
        """Reclaims the numbers of terms that no query counts, if there are many."""
        is_free = self._users[: self._end] == 0
        if np.count_nonzero(is_free) < min(_FREED_MIN, self._codes_max // 16):
            return
        self._free = np.flatnonzero(is_free).tolist()
        kept = np.flatnonzero(~is_free)
        self._epoch += 1
        self._known = len(kept)
        self._assigned[: len(kept)] = BUCKETS + kept
        self.table_codes[:] = 0
        self._put(self._hashes[kept], self._assigned[: len(kept)])

    def _reserve(self, end: int) -> None:
        room = len(self._hashes)
        if end <= room:
            return
        while room < end:
            room *= 2
        for name in ("_hashes", "_users", "_assigned", "_buckets"):
            setattr(self, name, _longer(getattr(self, name), room))
        self._tallies = np.zeros(BUCKETS + room, np.int32)
        self.table_hashes = np.zeros(4 * room, np.uint64)
        self.table_codes = np.zeros(4 * room, np.uint16)
        assigned = self._assigned[: self._known]
        self._put(self.hashes(assigned), assigned)

    def bucket_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint16]:
        """Returns the buckets of terms."""
        buckets = np.empty(len(hashes), np.uint16)
        bucket_terms(hashes, *self.secret, buckets)
        return buckets

    def _put(self, hashes: NDArray[np.uint64], numbers: NDArray[np.uint16]) -> None:
        done = put_codes(hashes, numbers, self.table_hashes, self.table_codes, *self.secret)
        required(done, "put_codes: no room")


def _longer(column: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(length, column.dtype)
    longer[: len(column)] = column
    return longer
