"""Columns of objects in lists, with the values that order them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import pack_bytes


@dataclass(frozen=True, slots=True)
class Entries:
    """Objects with the values that order them; e rows.

    Attributes:
        distances_m: f8[e]
        ids, sessions, numbers: u8[e]
        names: object[e], UTF-8 of string ids, None for numbers.
    """

    distances_m: NDArray[np.float64]
    ids: NDArray[np.uint64]
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    names: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Entries:
        """Returns some of them, in the given order."""
        return Entries(
            self.distances_m[rows],
            self.ids[rows],
            self.sessions[rows],
            self.numbers[rows],
            self.names[rows],
        )

    def put(self, places: NDArray[np.integer], entries: Entries) -> None:
        """Overwrites rows."""
        self.distances_m[places] = entries.distances_m
        self.ids[places] = entries.ids
        self.sessions[places] = entries.sessions
        self.numbers[places] = entries.numbers
        self.names[places] = entries.names

    def resized(self, length: int) -> Entries:
        """Returns a longer copy."""
        grown = Entries.empty(length)
        grown.put(np.arange(len(self)), self)
        return grown

    @classmethod
    def empty(cls, length: int) -> Entries:
        """Returns so many rows, still without values."""
        return cls(
            np.zeros(length),
            np.zeros(length, np.uint64),
            np.zeros(length, np.uint64),
            np.zeros(length, np.uint64),
            np.full(length, None, np.object_),
        )

    @classmethod
    def concat(cls, parts: Sequence[Entries]) -> Entries:
        """Joins them, one part after the other."""
        return cls(
            np.concatenate([part.distances_m for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.sessions for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.names for part in parts]),
        )


def names_of(
    names: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.integer]
) -> NDArray[np.object_]:
    """object[r], the string ids of some objects as bytes, None where an object has a number."""
    taken = np.full(len(rows), None, np.object_)
    if len(names):
        data, bounds = names.tobytes(), offsets.tolist()
        for i, row in enumerate(rows.tolist()):
            taken[i] = data[bounds[row] : bounds[row + 1]] or None
    return taken


def pack_names(names: NDArray[np.object_]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the names as a column and its offsets."""
    named = names.tolist()
    if not any(named):
        return np.empty(0, np.uint8), np.zeros(len(named) + 1, np.int64)
    return pack_bytes([name or b"" for name in named])


def unpack_names(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.object_]:
    """The inverse of `pack_names`."""
    return names_of(data, offsets, np.arange(len(offsets) - 1))
