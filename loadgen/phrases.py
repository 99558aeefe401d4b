"""Texts from word numbers: draws and joins many short texts without a loop over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import Bytes, Offsets, pack_bytes, take_bytes


class Dictionary:
    """Words by number, prepared for joining with blanks.

    Attributes:
        words: The words as given.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        encoded = [word.encode() for word in words]
        # Each word once with a blank after it and once without, for the end of a text.
        self._data, self._offsets = pack_bytes([*(word + b" " for word in encoded), *encoded])

    @classmethod
    def numbered(cls, count: int, prefix: str = "t") -> Self:
        """Returns the artificial words `t0`, `t1`, …"""
        return cls([f"{prefix}{number}" for number in range(count)])

    def __len__(self) -> int:
        return len(self.words)

    def join(self, words: NDArray[np.int64], ends: Offsets) -> tuple[Bytes, Offsets]:
        """Joins words to texts.

        Args:
            words: i8[w], word numbers of all texts, one text after the other.
            ends: i8[n + 1], where each text begins in `words`.

        Returns:
            A column of n texts: data u1[b] (UTF-8) and offsets i8[n + 1].
        """
        rows = words.copy()
        last = ends[1:][ends[1:] > ends[:-1]] - 1
        rows[last] += len(self.words)
        data, offsets = take_bytes(self._data, self._offsets, rows)
        return data, offsets[ends]


def offsets_of(counts: NDArray[np.int64]) -> Offsets:
    """Returns i8[n + 1]: where each of n rows of the given lengths begins."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


class WeightedDraw:
    """Draws numbers 0 to n - 1 with given weights in constant time each: the alias method.

    Walker, An efficient method for generating discrete random variables with general
    distributions (1977); tables after Vose (1991).

    Args:
        weights: f8[n], not negative, not all zero.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        share = np.asarray(weights, np.float64) * (len(weights) / np.sum(weights))
        keep, other = share.tolist(), list(range(len(share)))
        small = np.flatnonzero(share < 1).tolist()
        large = np.flatnonzero(share >= 1).tolist()
        while small and large:
            low, high = small.pop(), large[-1]
            other[low] = high
            keep[high] -= 1 - keep[low]
            if keep[high] < 1:
                small.append(large.pop())
        for rest in (*small, *large):  # the rest differs from 1 only by rounding
            keep[rest] = 1.0
        self._keep = np.array(keep)
        self._other = np.array(other, np.int64)

    def draw(self, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Returns i8[count]."""
        spots = generator.random(count) * len(self._keep)
        chosen = spots.astype(np.int64)
        spots -= chosen
        return np.where(spots < self._keep[chosen], chosen, self._other[chosen])
