"""Stored objects row by row: source and content of slices and of archived files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.model.objects import ObjectColumns, concat
from sirocco.model.term_hashing import TermHashing
from sirocco.model.text import TextAnalyser

__all__ = ["StoredRows"]

# Rows whose texts are analysed together: for more, the system would have to provide new memory.
ANALYSED_ROWS = 2_048

_OBJECT_PREFIX = "object."


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoredRows:
    """n objects with all data that a slot keeps.

    Attributes:
        objects: n rows.
        sessions: u8[n], publishing session.
        numbers: u8[n], number within the session.
        arrivals_ms: i8[n], epoch ms.
        seqs: i8[n], number within the slot, in log order.
        lengths: i4[n], tokens of the text with repeats.
        term_offsets: i8[n + 1] into `terms`.
        terms: u8[t], numbers of terms, ascending and distinct within an object.
        counts: u2[t], occurrences of each term in the object's text, at least 1.
    """

    objects: ObjectColumns
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    arrivals_ms: NDArray[np.int64]
    seqs: NDArray[np.int64]
    lengths: NDArray[np.int32]
    term_offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]
    counts: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.sessions)

    def take(self, rows: NDArray[np.integer]) -> StoredRows:
        """Returns some of the rows, in the given order."""
        term_offsets, places = take_ragged(self.term_offsets, rows)
        return StoredRows(
            objects=self.objects.take(np.asarray(rows, np.int64)),
            sessions=self.sessions[rows],
            numbers=self.numbers[rows],
            arrivals_ms=self.arrivals_ms[rows],
            seqs=self.seqs[rows],
            lengths=self.lengths[rows],
            term_offsets=term_offsets,
            terms=self.terms[places],
            counts=self.counts[places],
        )

    def with_terms(self, hashing: TermHashing, analysed_rows: int = ANALYSED_ROWS) -> StoredRows:
        """Returns the rows with the terms of their texts, numbered by `hashing`."""
        objects, analyser = self.objects, TextAnalyser()
        found = []
        for begin in range(0, max(1, len(self)), analysed_rows):
            own = objects.text_offsets[begin : begin + analysed_rows + 1]
            text = objects.text[own[0] : own[-1]]
            found.append(hashing.analyse(text, own - own[0], analyser))
        sizes = np.concatenate([np.diff(part.offsets) for part in found])
        return replace(
            self,
            lengths=np.concatenate([part.lengths for part in found]),
            term_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
            terms=np.concatenate([part.terms for part in found]),
            counts=np.concatenate([part.counts for part in found]),
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns all columns by name, for a file; those of the objects begin with `object.`."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "objects"}
        objects = {
            _OBJECT_PREFIX + f.name: getattr(self.objects, f.name) for f in fields(ObjectColumns)
        }
        return own | objects

    @classmethod
    def from_columns(cls, columns: Mapping[str, NDArray[Any]]) -> StoredRows:
        """Creates rows from the result of `columns`."""
        objects = ObjectColumns(
            **{f.name: columns[_OBJECT_PREFIX + f.name] for f in fields(ObjectColumns)}
        )
        own = {f.name: columns[f.name] for f in fields(cls) if f.name != "objects"}
        return cls(objects=objects, **own)

    @classmethod
    def concat(cls, parts: Sequence[StoredRows]) -> StoredRows:
        """Joins rows, one part after another; at least one part."""
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.terms) for part in parts[:-1])])
        offsets = [part.term_offsets[1:] + s for part, s in zip(parts, shifts, strict=True)]
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("sessions", "numbers", "arrivals_ms", "seqs", "lengths", "terms", "counts")
        }
        return cls(
            objects=concat([part.objects for part in parts]),
            term_offsets=np.concatenate([np.zeros(1, np.int64), *offsets]),
            **joined,
        )
