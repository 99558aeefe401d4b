"""The list of a terms query's step: counts of slots added up, the most frequent terms first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import pack_bytes
from sirocco.protocol.contract.messages import Found


@dataclass(frozen=True, slots=True, eq=False)
class TermCounts:
    """Terms and how many objects hold each; t rows.

    Attributes:
        terms: u1[b], UTF-8.
        offsets: i8[t + 1]
        counts: u8[t]
    """

    terms: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, found: Found, row: int) -> TermCounts:
        """Returns a copy of a step of a record."""
        steps = found.steps
        assert steps is not None
        begin, end = steps.entry_offsets[row : row + 2].tolist()
        offsets = steps.term_offsets[begin : end + 1]
        return cls(
            steps.terms[offsets[0] : offsets[-1]].copy(),
            offsets - offsets[0],
            steps.counts[begin:end].copy(),
        )


def added(parts: Sequence[TermCounts]) -> TermCounts:
    """Adds up the counts of slots."""
    if len(parts) == 1:
        return parts[0]
    counts: dict[bytes, int] = {}
    for part in parts:
        data, bounds = part.terms.tobytes(), part.offsets.tolist()
        for (begin, end), count in zip(pairwise(bounds), part.counts.tolist(), strict=True):
            term = data[begin:end]
            counts[term] = counts.get(term, 0) + count
    terms, offsets = pack_bytes(list(counts))
    most = np.iinfo(np.uint64).max
    return TermCounts(
        terms, offsets, np.array([min(count, most) for count in counts.values()], np.uint64)
    )


def most_frequent(found: TermCounts, k: int) -> list[tuple[bytes, int]]:
    """Returns the k terms of the greatest counts; of equal ones the first by code point.

    UTF-8 sorts as code points do.
    """
    rows = np.arange(len(found))
    if len(found) > k:
        least = np.partition(found.counts, len(found) - k)[len(found) - k]
        rows = np.flatnonzero(found.counts >= least)
    data, offsets = found.terms.tobytes(), found.offsets
    terms = [data[offsets[row] : offsets[row + 1]] for row in rows.tolist()]
    pairs = zip(terms, found.counts[rows].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:k]
