"""Locators of queries: which slot of an object reports it to a query (PS2Stream IV.C).

If a map splits the vocabulary, an object is in several slots, and each of them may hold a query
that it satisfies. The query's locator selects one: see `kernels.standing.locate` for rule and form.
Nothing is stored for a query whose locator follows from its conjunctions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.growable import GrowableArray
from sirocco.index.standing.range_index import RangeIndex
from sirocco.kernels.standing.locate import LOCATOR_HEAD, mark_counted

# Compact the words when more than half of them, and at least this many, are garbage.
GARBAGE_WORDS_MIN = 1 << 13

_WORD = np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One alternative of a locator.

    Attributes:
        key: hash of the term that leads to the slot; 0 for the object's home.
        positive: hashes of terms that the object must have, none for the home.
        negative: hashes of terms that it must not have.
    """

    key: int
    positive: tuple[int, ...]
    negative: tuple[int, ...] = ()


# All objects satisfy it: the home reports if no other alternative decides.
HOME = Alternative(0, ())


def write_locator(alternatives: Iterable[Alternative]) -> bytes:
    """Returns the words of a locator."""
    return write_alternatives((one.key, one.positive, one.negative) for one in alternatives)


def write_alternatives(
    alternatives: Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]],
) -> bytes:
    """Returns the words of a locator; each alternative as (key, positive, negative)."""
    words: list[int] = []
    for key, positive, negative in alternatives:
        words += (len(positive) | len(negative) << 32, key, *positive, *negative)
    return struct.pack(f"<{len(words)}Q", *words)


def read_locator(data: bytes) -> tuple[Alternative, ...]:
    """Returns the alternatives of a valid locator."""
    words = np.frombuffer(data, _WORD).tolist()
    found = []
    at = 0
    while at < len(words):
        first = at + LOCATOR_HEAD
        middle = first + (words[at] & 0xFFFFFFFF)
        end = middle + (words[at] >> 32)
        positive, negative = tuple(words[first:middle]), tuple(words[middle:end])
        found.append(Alternative(words[at + 1], positive, negative))
        at = end
    return tuple(found)


HOME_LOCATOR = write_locator([HOME])


class LocatorTable:
    """The locators of those rows of a range index that have their own."""

    def __init__(self) -> None:
        # By row: start of the locator, after its length; 0 for none of its own.
        self._references = GrowableArray(np.int32, 1)
        self._words = GrowableArray(np.uint64, 1)
        self._end = 1
        self._dead = 0

    @property
    def bytes_total(self) -> int:
        """Memory, bytes."""
        return self._references.bytes_total + self._words.bytes_total

    @property
    def is_empty(self) -> bool:
        """Whether no row ever had a locator of its own."""
        return self._end == 1

    def put(self, rows: NDArray[np.int32], locators: Sequence[bytes] | None) -> None:
        """Stores the locators of new rows; None: none has its own."""
        if self.is_empty and (locators is None or not any(locators)):
            return
        self._references.reserve(int(rows.max(initial=-1)) + 1)
        self._drop(rows)
        if locators is not None:
            self._store(rows, locators)

    def get(self, rows: NDArray[np.int32]) -> list[bytes]:
        """Returns the locators of rows, empty for rows without their own."""
        references, words = self._references.array, self._words.array
        found = []
        for row in rows.tolist():
            at = int(references[row]) if row < len(references) else 0
            found.append(words[at + 1 : at + 1 + int(words[at])].tobytes() if at else b"")
        return found

    def counted(
        self,
        index: RangeIndex,
        object_rows: NDArray[np.int32],
        query_rows: NDArray[np.int32],
        homes: NDArray[np.bool_],
        term_offsets: NDArray[np.int64],
        terms: NDArray[np.uint64],
        leads_here: NDArray[np.bool_],
        own_offsets: NDArray[np.int64],
        own_terms: NDArray[np.uint64],
    ) -> NDArray[np.bool_]:
        """Returns which hits of an index are reported here.

        Args:
            index: index of the table's rows.
            object_rows, query_rows: i4[m], its hits.
            homes: bool[n], whether this is the home of each object.
            term_offsets: i8[n + 1], into `terms`.
            terms: u8[t], hashes of the wire.
            leads_here: bool[t], whether each term leads to this place.
            own_offsets, own_terms: the objects' terms as numbered by the index.
        """
        counted = np.empty(len(object_rows), np.bool_)
        mark_counted(
            object_rows,
            query_rows,
            homes,
            term_offsets,
            terms,
            leads_here,
            own_offsets,
            index.vocabulary.look_up(own_terms),
            self._references.array,
            self._words.array,
            index._rows.words,
            index._rows.terms_words,
            index.vocabulary.wire_of,
            counted,
        )
        return counted

    def _store(self, rows: NDArray[np.int32], locators: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, locators), np.int64, len(locators)) // _WORD.itemsize
        own = np.flatnonzero(lengths)
        if not len(own):
            return
        lengths = lengths[own]
        # Each after its length.
        begins = self._end + np.cumsum(lengths + 1) - lengths - 1
        end = int(begins[-1] + lengths[-1]) + 1
        self._words.reserve(end)
        is_content = np.ones(end - self._end, np.bool_)
        is_content[begins - self._end] = False
        words = self._words.array[self._end : end]
        words[is_content] = np.frombuffer(b"".join(locators), _WORD)
        words[~is_content] = lengths
        self._references.array[rows[own]] = begins
        self._end = end

    def _drop(self, rows: NDArray[np.int32]) -> None:
        """A row keeps its locator until it is reused: objects before its end still match it."""
        references = self._references.array
        former = references[rows]
        self._dead += int((self._words.array[former[former > 0]] + np.uint64(1)).sum())
        references[rows] = 0
        if self._dead > max(GARBAGE_WORDS_MIN, self._end // 2):
            kept = np.flatnonzero(references).astype(np.int32)
            locators = self.get(kept)
            self._end, self._dead = 1, 0
            self._store(kept, locators)
