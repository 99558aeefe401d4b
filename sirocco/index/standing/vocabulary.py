"""The terms used by the queries of one slot: number ⇄ dense id, uses and frequencies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sirocco.index.base.compile import numbers_or
from sirocco.index.base.growable import GrowableArray
from sirocco.index.standing.term_words import TermWords
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.base.stretch_table import new_table_state
from sirocco.kernels.standing.term_ids import (
    NEXT_ID,
    UNKNOWN,
    acquire_ids,
    count_seen,
    look_up_ids,
    release_ids,
)
from sirocco.kernels.standing.term_table import (
    BUCKET_TERMS,
    BUCKET_WORDS,
    buckets_needed,
    stretch_terms,
)
from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.patterns import pattern_rows
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["Vocabulary"]

_NO_WORDS = np.empty(0, np.uint8)
_NO_OFFSETS = np.zeros(1, np.int64)
_NO_ROWS = np.empty(0, np.int32)

_RESERVED_IDS = 2
_BITS_MIN = 5
# One insertion call moves at least this many buckets of a doubling: about 50 µs of work.
_STRETCH_BUCKETS = 1_024
# Share of used places at which a doubling begins, in tenths: above it more and more look-ups
# continue in the next bucket, which is slow; below it the table leaves the second-level cache.
_LOAD_TENTHS = 6
# Share at which a doubling is completed at once, before runs of full buckets become long.
_LOAD_TENTHS_MAX = 8
# Counts are halved after this many sampled objects: frequencies follow a drifting stream, and the
# counters cannot overflow.
_SEEN_OBJECTS_MAX = 1 << 24
# With fewer sampled objects, the queries themselves are a better guess of frequencies.
_SEEN_OBJECTS_MIN = 4_096
# So many patterns may be known before those without a query are looked for.
_PATTERNS_MIN = 1_024


class Vocabulary:
    """Interns terms by their numbers (`model.term_hashing`).

    Ids are dense and small; ids without uses are reused. An object's term that no query uses has id
    1 (`term_ids.UNKNOWN`).

    Attributes:
        patterns: phrases, beginnings and folded words in use; None as long as there have been none.
        levels: u2[ids], bit l set: the term may have postings at pyramid level l.
    """

    __slots__ = (
        "_free_ids",
        "_hash_of",
        "_hashing",
        "_id_state",
        "_levels",
        "_patterns_max",
        "_seen",
        "_seen_objects",
        "_table",
        "_uses",
        "_values",
        "_words",
        "patterns",
        "words",
    )

    def __init__(self, hashing: TermHashing = WIRE_TERMS) -> None:
        """Creates an empty vocabulary; `hashing` numbers the terms of queries and objects."""
        self._hashing = hashing
        self.words = TermWords()
        self.patterns: QueryPatterns | None = None
        self._table = new_table_state(_BITS_MIN)
        self._words = GrowableArray(np.uint64, BUCKET_WORDS << _BITS_MIN)
        self._values = self._words.array.view(np.int32)
        self._id_state = np.array([0, _RESERVED_IDS], np.int64)
        self._free_ids = GrowableArray(np.int32, 256)
        self._hash_of = GrowableArray(np.uint64, 256)
        self._uses = GrowableArray(np.int32, 256)
        self._levels = GrowableArray(np.uint16, 256)
        self._seen = GrowableArray(np.int32, 256)
        self._seen_objects = 0

    def __len__(self) -> int:
        """Returns the number of terms in use."""
        return int(self._table[2])

    @property
    def is_keyed(self) -> bool:
        """Whether the terms' numbers differ from those on the wire."""
        return self._hashing.is_keyed

    @property
    def has_wire_terms(self) -> bool:
        """Whether some terms in use have wire numbers because their words are unknown."""
        return not self.is_keyed or self.words.unnamed > 0

    @property
    def wire_of(self) -> npt.NDArray[np.uint64]:
        """u8[ids], wire hash of each id; stale after `acquire`."""
        return self.words.wire_of if self.is_keyed else self._hash_of.array

    @property
    def levels(self) -> npt.NDArray[np.uint16]:
        """Level masks of all ids; stale after `acquire`."""
        return self._levels.array

    @property
    def uses(self) -> npt.NDArray[np.int32]:
        """i4[ids], uses of each id by queries; stale after `acquire`."""
        return self._uses.array

    @property
    def frequencies(self) -> npt.NDArray[np.int32]:
        """i4[ids], present estimate of relative term frequencies among objects."""
        if self._seen_objects >= _SEEN_OBJECTS_MIN:
            return self._seen.array
        return self._uses.array

    @property
    def bytes_total(self) -> int:
        """Bytes of memory of the tables."""
        ids = int(self._id_state[NEXT_ID])
        named = ids * 20 + self.words.bytes_total if self.is_keyed else 0
        named += 0 if self.patterns is None else self.patterns.bytes_total
        return (
            ids * 22
            + named
            + 8 * BUCKET_WORDS * ((2 if self._is_stretching else 1) << int(self._table[0]))
        )

    @property
    def _is_stretching(self) -> bool:
        return bool(self._table[1] < 1 << int(self._table[0]))

    def _make_room(self, terms: int) -> None:
        """Keeps the load in bounds; doubles the table step by step, before it is full."""
        while True:
            # Longer than the touched part: the place of a term depends on all others.
            self._reserve(buckets_needed(self._table, terms))
            places = BUCKET_TERMS << int(self._table[0])
            keys = int(self._table[2]) + terms
            if 10 * keys <= _LOAD_TENTHS * places and not self._is_stretching:
                return
            step = max(_STRETCH_BUCKETS, 2 * terms)
            done = stretch_terms(self._words.array, self._values, self._table, step)
            required(done, "stretch_terms: no room")
            if self._is_stretching and 10 * keys <= _LOAD_TENTHS_MAX * places:
                return

    def _reserve(self, buckets: int) -> None:
        if BUCKET_WORDS * buckets <= len(self._words.array):
            return
        del self._values  # the array can only move without a view of it
        self._words.reserve(BUCKET_WORDS * buckets)
        self._values = self._words.array.view(np.int32)

    def acquire(
        self,
        wires: npt.NDArray[np.uint64],
        words: npt.NDArray[np.uint8] = _NO_WORDS,
        word_offsets: npt.NDArray[np.int64] = _NO_OFFSETS,
        word_rows: npt.NDArray[np.int32] = _NO_ROWS,
    ) -> npt.NDArray[np.int32]:
        """Returns the ids of newly used terms; counts one use of each.

        Args:
            wires: u8[t], wire hashes.
            words: u1[b], word_offsets: i8[w + 1], distinct words.
            word_rows: i4[t], word of each term; -1, or empty for all: unknown. Such a term has its
                wire hash as its number.

        Returns:
            i4[t].
        """
        terms = len(wires)
        if not terms:
            return np.empty(0, np.int32)
        if len(word_rows) != terms:
            word_rows = np.full(terms, -1, np.int32)
        hashes = wires
        if self.is_keyed:
            numbers = self._hashing.numbers_of_rows(words, word_offsets)
            hashes = numbers_or(wires, numbers, word_rows)
        self._add_patterns(words, word_offsets)
        self._make_room(terms)
        ids = int(self._id_state[NEXT_ID]) + terms
        for array in (self._free_ids, self._hash_of, self._uses, self._levels, self._seen):
            array.reserve(ids)
        out = np.empty(terms, np.int32)
        done = acquire_ids(
            self._words.array,
            self._values,
            self._table,
            self._id_state,
            self._free_ids.array,
            self._hash_of.array,
            self._uses.array,
            hashes,
            0,
            out,
        )
        required(done - terms, "acquire_ids: no room")
        if self.is_keyed:
            self.words.put(out, wires, words, word_offsets, word_rows)
        return out

    def _add_patterns(self, words: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        rows = pattern_rows(words, offsets)
        if not len(rows):
            return
        if self.patterns is None:
            self.patterns = QueryPatterns(self._hashing.numbers)
            self._patterns_max = _PATTERNS_MIN
        if len(self.patterns) >= self._patterns_max:
            # Patterns that no query has any more leave together.
            known = self.patterns.known
            used = self.look_up(np.array(list(known.values()), np.uint64)) != UNKNOWN
            wanted = {
                number for number, is_used in zip(known.values(), used, strict=True) if is_used
            }
            self.patterns.keep(wanted.__contains__)
            self._patterns_max = max(_PATTERNS_MIN, 2 * len(self.patterns))
        found = [words[offsets[row] : offsets[row + 1]].tobytes().decode() for row in rows.tolist()]
        self.patterns.add(found)

    def release(self, ids: npt.NDArray[np.int32]) -> None:
        """Releases one use of each id; `ids` i4[t] from `acquire`."""
        done = release_ids(
            self._words.array,
            self._values,
            self._table,
            self._id_state,
            self._free_ids.array,
            self._hash_of.array,
            self._uses.array,
            self._levels.array,
            self._seen.array,
            ids,
        )
        required(done, "release_ids: a term that nobody uses")
        if self.is_keyed:
            uses = self._uses.array
            unused = sorted_distinct(ids[uses[ids] == 0])
            if len(unused):
                self.words.drop(unused, lambda: np.flatnonzero(uses).astype(np.int32))

    def look_up(
        self, hashes: npt.NDArray[np.uint64], out: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """Returns the ids of an object batch's terms, 1 if no query uses the term.

        Args:
            hashes: u8[t], the numbers of the terms.
            out: i4[≥ t], the output; None: a new array.
        """
        if out is None:
            out = np.empty(len(hashes), np.int32)
        look_up_ids(self._words.array, self._values, self._table, hashes, out)
        return out[: len(hashes)]

    def observe(self, ids: npt.NDArray[np.int32], begin: int, end: int, objects: int) -> None:
        """Counts the terms of a sample of `objects` objects: `ids[begin:end]`."""
        if self._seen_objects >= _SEEN_OBJECTS_MAX:
            self._seen.array[:] >>= 1
            self._seen_objects //= 2
        count_seen(self._seen.array, ids, begin, end)
        self._seen_objects += objects

    def seed_frequencies(
        self, hashes: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64], objects: int
    ) -> None:
        """Adds known counts of terms among `objects` objects; terms not in use are ignored.

        Args:
            hashes: u8[t], distinct.
            counts: i8[t].
            objects: size of the counted sample.
        """
        ids = self.look_up(hashes)
        room = np.iinfo(np.int32).max // 2
        self._seen.array[ids] += np.minimum(counts, room).astype(np.int32)
        self._seen_objects += min(objects, _SEEN_OBJECTS_MAX)
