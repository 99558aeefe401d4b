"""A plain Numba matcher to compare with: what a good afternoon gives, and nothing more.

Hash grid of 512 × 512 cells, key (cell, rarest term of the query by a frequency known
beforehand), queries inserted one by one, integer term ids, lists of 32-byte postings that double
when full, objects in groups of 32 whose probes are done stage by stage. No filter, no prefetch
instructions, no life times, no shapes but rectangles, no interning, no removal.
"""

from __future__ import annotations

import numba
import numpy as np

CELLS = 512
GROUP = 32


@numba.njit(cache=True, nogil=True)
def _hash(key, shift):
    return np.int64((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))


@numba.njit(cache=True, nogil=True)
def _cell(v):
    return min(max(np.int64(v * CELLS), 0), CELLS - 1)


@numba.njit(cache=True, nogil=True)
def insert(
    boxes, offsets, terms, frequency, first_row, keys, starts, counts, boxes_of, words_of, free, end
):
    """Inserts queries one by one; returns (keys used, end of the postings)."""
    shift = 64 - np.int64(np.log2(keys.shape[0]))
    used = 0
    for q in range(offsets.shape[0] - 1):
        begin, stop = offsets[q], offsets[q + 1]
        rarest = begin
        for i in range(begin, stop):
            if frequency[terms[i]] < frequency[terms[rarest]]:
                rarest = i
        for cy in range(_cell(boxes[q, 1]), _cell(boxes[q, 3]) + 1):
            for cx in range(_cell(boxes[q, 0]), _cell(boxes[q, 2]) + 1):
                key = (np.uint64(terms[rarest]) << np.uint64(18)) | np.uint64(cy * CELLS + cx)
                key += np.uint64(1)
                at = _hash(key, shift)
                while keys[at] != 0 and keys[at] != key:
                    at = (at + 1) & (keys.shape[0] - 1)
                if keys[at] == 0:
                    keys[at] = key
                    used += 1
                    starts[at] = end
                    end += 1
                elif counts[at] & (counts[at] - 1) == 0:
                    n = counts[at]
                    size = np.int64(np.log2(n))
                    larger = free[size + 1]
                    if larger >= 0:
                        free[size + 1] = words_of[larger, 2]
                    else:
                        larger = end
                        end += 2 * n
                    old = starts[at]
                    boxes_of[larger : larger + n] = boxes_of[old : old + n]
                    words_of[larger : larger + n] = words_of[old : old + n]
                    words_of[old, 2] = free[size]
                    free[size] = old
                    starts[at] = larger
                entry = starts[at] + counts[at]
                counts[at] += 1
                boxes_of[entry] = boxes[q]
                others = 0
                words_of[entry, 0] = -1
                words_of[entry, 1] = -1
                for i in range(begin, stop):
                    if i != rarest:
                        words_of[entry, others] = terms[i]
                        others += 1
                words_of[entry, 2] = first_row + q
    return used, end


@numba.njit(cache=True, nogil=True)
def match(xy, offsets, terms, keys, starts, counts, boxes_of, words_of, out_objects, out_rows):
    """Returns the number of pairs written."""
    shift = 64 - np.int64(np.log2(keys.shape[0]))
    probe_key = np.empty(GROUP * 64, np.uint64)
    probe_at = np.empty(GROUP * 64, np.int64)
    probe_object = np.empty(GROUP * 64, np.int64)
    pairs = 0
    for group in range(0, xy.shape[0], GROUP):
        probes = 0
        for o in range(group, min(group + GROUP, xy.shape[0])):
            cell = np.uint64(_cell(xy[o, 1]) * CELLS + _cell(xy[o, 0]))
            for i in range(offsets[o], offsets[o + 1]):
                key = ((np.uint64(terms[i]) << np.uint64(18)) | cell) + np.uint64(1)
                probe_key[probes] = key
                probe_at[probes] = _hash(key, shift)
                probe_object[probes] = o
                probes += 1
        found = 0
        for p in range(probes):
            at = probe_at[p]
            while keys[at] != 0 and keys[at] != probe_key[p]:
                at = (at + 1) & (keys.shape[0] - 1)
            if keys[at] != 0:
                probe_at[found] = at
                probe_object[found] = probe_object[p]
                found += 1
        for p in range(found):
            at = probe_at[p]
            o = probe_object[p]
            x, y = xy[o, 0], xy[o, 1]
            for entry in range(starts[at], starts[at] + counts[at]):
                if (
                    (x >= boxes_of[entry, 0])
                    & (y >= boxes_of[entry, 1])
                    & (x <= boxes_of[entry, 2])
                    & (y <= boxes_of[entry, 3])
                ):
                    held = 0
                    for k in range(2):
                        term = words_of[entry, k]
                        if term < 0:
                            held += 1
                            continue
                        for i in range(offsets[o], offsets[o + 1]):
                            if terms[i] == term:
                                held += 1
                                break
                    if held == 2:
                        out_objects[pairs] = o
                        out_rows[pairs] = words_of[entry, 2]
                        pairs += 1
    return pairs


class PlainIndex:
    """The arrays of the plain matcher, sized beforehand for `queries` queries."""

    def __init__(self, queries: int, frequency: np.ndarray) -> None:
        slots = 1 << int(np.ceil(np.log2(max(1024, 4 * 2.5 * queries))))  # load ≤ 0.25
        self.keys = np.zeros(slots, np.uint64)
        self.starts = np.zeros(slots, np.int32)
        self.counts = np.zeros(slots, np.int32)
        # 32 bytes a posting in one array: the box and the words are two views of it.
        memory = np.empty((int(5 * queries) + 1024, 8), np.int32)
        self.boxes = memory.view(np.float32)[:, :4]
        self.words = memory[:, 4:]
        self.free = np.full(40, -1, np.int64)
        self.end = 0
        self.rows = 0
        self.frequency = frequency
        self.out_objects = np.empty(1 << 20, np.int32)
        self.out_rows = np.empty(1 << 20, np.int32)

    def insert(self, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Inserts one batch; boxes f4[n, 4], CSR of i4 terms."""
        _, self.end = insert(
            boxes, offsets, terms, self.frequency, self.rows, self.keys, self.starts, self.counts,
            self.boxes, self.words, self.free, self.end,
        )  # fmt: skip
        self.rows += len(boxes)

    def match(self, xy: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> int:
        """Matches one batch; returns the number of pairs."""
        return int(
            match(
                xy,
                offsets,
                terms,
                self.keys,
                self.starts,
                self.counts,
                self.boxes,
                self.words,
                self.out_objects,
                self.out_rows,
            )
        )
