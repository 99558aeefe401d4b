"""A plain Numba matcher for comparison: the result of a good afternoon, and no more.

Hash grid of 512 × 512 cells, key (cell, rarest term of the query by a frequency known
beforehand), queries inserted one by one, integer term ids, lists of 32-byte postings that double
when full, objects in groups of 32 whose probes are done stage by stage. No filter, prefetch
instructions, lifetimes, shapes other than rectangles, interning or removal.

A ratio to it is meaningful only if it is reasonably fast. It has:

- linear probing, multiplicative hash by its high bits, load about 0.25 or less (0.15 at 1 M
  queries);
- the first loads of all probes of a group have no branch on their results, so that their cache
misses
  overlap;
- keys of 8 bytes in an array of their own, since four of five probes end there; start and count of
a
  list in one further word: one miss, not two;
- contiguous arrays, and unsigned slot numbers, for which Numba adds no test for negative values.

Compared batch by batch in one run (100 k and 1 M queries): the overlapping loads and the single
word gain a fifth at 1 M, the unsigned numbers 5 %; key and word in one slot of 16 bytes
gain 4 % at 1 M and lose 14 % at 100 k.
"""

from __future__ import annotations

import numba
import numpy as np

CELLS = 512
GROUP = 32


@numba.njit(cache=True, nogil=True)
def _hash(key, shift):
    return (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)


@numba.njit(cache=True, nogil=True)
def _cell(v):
    return min(max(np.int64(v * CELLS), 0), CELLS - 1)


@numba.njit(cache=True, nogil=True)
def _key(term, cell):
    return ((np.uint64(term) << np.uint64(18)) | np.uint64(cell)) + np.uint64(1)


@numba.njit(cache=True, nogil=True)
def insert(boxes, offsets, terms, frequency, first_row, keys, values, entries, words, free, end):
    """Inserts queries one by one; returns the end of the postings."""
    last = np.uint64(keys.shape[0] - 1)
    shift = 64 - np.int64(np.log2(keys.shape[0]))
    for q in range(offsets.shape[0] - 1):
        begin, stop = offsets[q], offsets[q + 1]
        rarest = begin
        for i in range(begin, stop):
            if frequency[terms[i]] < frequency[terms[rarest]]:
                rarest = i
        for cy in range(_cell(boxes[q, 1]), _cell(boxes[q, 3]) + 1):
            for cx in range(_cell(boxes[q, 0]), _cell(boxes[q, 2]) + 1):
                key = _key(terms[rarest], cy * CELLS + cx)
                at = _hash(key, shift)
                while keys[at] != 0 and keys[at] != key:
                    at = (at + np.uint64(1)) & last
                start = np.int64(values[at] >> np.uint64(32))
                n = np.int64(values[at] & np.uint64(0xFFFFFFFF))
                if n == 0:
                    keys[at] = key
                    start = end
                    end += 1
                elif n & (n - 1) == 0:
                    size = np.int64(np.log2(n))
                    larger = free[size + 1]
                    if larger >= 0:
                        free[size + 1] = words[larger, 6]
                    else:
                        larger = end
                        end += 2 * n
                    words[larger : larger + n] = words[start : start + n]
                    words[start, 6] = free[size]
                    free[size] = start
                    start = larger
                values[at] = (np.uint64(start) << np.uint64(32)) | np.uint64(n + 1)
                entry = start + n
                for i in range(4):
                    entries[entry, i] = boxes[q, i]
                others = 4
                words[entry, 4] = -1
                words[entry, 5] = -1
                for i in range(begin, stop):
                    if i != rarest:
                        words[entry, others] = terms[i]
                        others += 1
                words[entry, 6] = first_row + q
    return end


@numba.njit(cache=True, nogil=True)
def match(xy, offsets, terms, keys, values, entries, words, out_objects, out_rows):
    """Returns the number of pairs written."""
    last = np.uint64(keys.shape[0] - 1)
    shift = 64 - np.int64(np.log2(keys.shape[0]))
    probe_key = np.empty(GROUP * 64, np.uint64)
    probe_at = np.empty(GROUP * 64, np.uint64)
    probe_object = np.empty(GROUP * 64, np.int64)
    probe_found = np.empty(GROUP * 64, np.uint64)
    pairs = 0
    for group in range(0, xy.shape[0], GROUP):
        probes = 0
        for o in range(group, min(group + GROUP, xy.shape[0])):
            cell = _cell(xy[o, 1]) * CELLS + _cell(xy[o, 0])
            for i in range(offsets[o], offsets[o + 1]):
                key = _key(terms[i], cell)
                at = _hash(key, shift)
                probe_key[probes] = key
                probe_at[probes] = at
                probe_object[probes] = o
                # No branch depends on the loaded value: the loads of all probes are in flight.
                probe_found[probes] = keys[at]
                probes += 1
        found = 0
        for p in range(probes):
            if probe_found[p] != 0:
                at = probe_at[p]
                while keys[at] != 0 and keys[at] != probe_key[p]:
                    at = (at + np.uint64(1)) & last
                if keys[at] != 0:
                    value = values[at]
                    probe_found[found] = value
                    probe_object[found] = probe_object[p]
                    found += 1
        for p in range(found):
            start = np.int64(probe_found[p] >> np.uint64(32))
            o = probe_object[p]
            x, y = xy[o, 0], xy[o, 1]
            for entry in range(start, start + np.int64(probe_found[p] & np.uint64(0xFFFFFFFF))):
                if (
                    (x >= entries[entry, 0])
                    & (y >= entries[entry, 1])
                    & (x <= entries[entry, 2])
                    & (y <= entries[entry, 3])
                ):
                    held = 0
                    for k in range(4, 6):
                        term = words[entry, k]
                        if term < 0:
                            held += 1
                            continue
                        for i in range(offsets[o], offsets[o + 1]):
                            if terms[i] == term:
                                held += 1
                                break
                    if held == 2:
                        out_objects[pairs] = o
                        out_rows[pairs] = words[entry, 6]
                        pairs += 1
    return pairs


class PlainIndex:
    """The arrays of the plain matcher, sized in advance for `queries` queries."""

    def __init__(self, queries: int, frequency: np.ndarray) -> None:
        slots = 1 << int(
            np.ceil(np.log2(max(1024, 4 * 2.5 * queries)))
        )  # keys: 2.65 a query at 100 k, 2.5 at 1 M
        # The value of a key is start << 32 | count of its list.
        self.keys = np.zeros(slots, np.uint64)
        self.values = np.zeros(slots, np.uint64)
        # 32 bytes a posting: the box as four f4 and four words of i4 in the same memory.
        self.words = np.empty((int(5 * queries) + 1024, 8), np.int32)
        self.entries = self.words.view(np.float32)
        self.free = np.full(40, -1, np.int64)
        self.end = 0
        self.rows = 0
        self.frequency = frequency
        self.out_objects = np.empty(1 << 20, np.int32)
        self.out_rows = np.empty(1 << 20, np.int32)

    def insert(self, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Inserts one batch; boxes f4[n, 4], CSR of i4 terms."""
        self.end = insert(
            boxes, offsets, terms, self.frequency, self.rows, self.keys, self.values, self.entries,
            self.words, self.free, self.end,
        )  # fmt: skip
        self.rows += len(boxes)

    def match(self, xy: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> int:
        """Matches one batch; returns the number of pairs."""
        pairs = match(
            xy, offsets, terms, self.keys, self.values, self.entries, self.words,
            self.out_objects, self.out_rows,
        )  # fmt: skip
        return int(pairs)
