"""Objects of one section of a slot's log, as its queries are matched against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.text.text_terms import both_terms, with_patterns
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.model.attributes import members_of
from sirocco.model.objects import ObjectColumns
from sirocco.model.patterns import NearPatterns, OrderedTokens
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TermColumns, TextAnalyser
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.term_rows import TermParts, take_terms


@dataclass(frozen=True, slots=True)
class Values:
    """The values for which the copies of a batch are here; v of them, those of one copy together.

    Attributes:
        rows: i8[v], ascending, of the copies.
        keys: u8[v], a hash of the member.
        values: u8[v], hash of the value.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.uint64]

    def taken(self, rows: NDArray[np.intp], count: int) -> Values:
        """Returns those of some of `count` rows, each taken once, by their places among these."""
        places = np.full(count, -1, np.int64)
        places[rows] = np.arange(len(rows))
        own = places[self.rows]
        kept = np.flatnonzero(own >= 0)
        kept = kept[np.argsort(own[kept], kind="stable")]
        return Values(own[kept], self.keys[kept], self.values[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Objects of one section of the log.

    Attributes:
        objects, events: n rows.
        routed_terms: n rows, from the routers: hashes of the wire.
        numbered: n rows, terms as this process numbers them; None where they are those of the wire.
        tokens: n rows, likewise; None with `numbered`.
        in_order: n rows, the same tokens as they follow one another; None: not kept.
        hashing: numbers them; analyser: that of the thread, for what texts are searched for later.
        positions: i8[n], in the slot.
        offsets: i8[n], of their records.
        is_copy: bool[n], which are here because of values; None when there are no copies.
        followed: these values; None when there are no copies.
        track_names: of their members, by hash.
        homes: bool[n], which objects have their home here; None: all but copies.
        via: bool[t], which of their terms led here; None with `homes`.
    """

    objects: ObjectColumns
    events: EventColumns
    routed_terms: TermParts
    positions: NDArray[np.int64]
    offsets: NDArray[np.int64]
    is_copy: NDArray[np.bool_] | None = None
    followed: Values | None = None
    homes: NDArray[np.bool_] | None = None
    via: NDArray[np.bool_] | None = None
    numbered: TermColumns | None = None
    tokens: TermColumns | None = None
    in_order: OrderedTokens | None = None
    hashing: TermHashing = WIRE_TERMS
    analyser: TextAnalyser | None = None
    track_names: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def terms(self) -> TermColumns:
        """The hashes of the wire."""
        return self.routed_terms.joined

    @property
    def own_terms(self) -> TermColumns:
        """The terms as this process numbers them."""
        return self.terms if self.numbered is None else self.numbered

    def terms_for(self, vocabulary: Vocabulary, near: NearPatterns | None = None) -> TermColumns:
        """What the queries of an index may name: tokens, and patterns where there are some.

        Patterns that no query names at the places of the objects may be left out, if these are
        given.
        """
        found = self.terms if self.tokens is None else self.tokens
        if self.hashing.is_keyed and vocabulary.has_wire_terms:
            # Queries without words are met by the hashes of the wire.
            found = both_terms(found, self.terms)
        if vocabulary.patterns is not None and len(vocabulary.patterns):
            texts = self.objects.text, self.objects.text_offsets
            patterns = self.hashing.patterns(
                *texts, vocabulary.patterns, self.analyser, in_order=self.in_order, near=near
            )
            found = with_patterns(found, *patterns)
        return found

    @property
    def columns(
        self,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
        """Sessions, numbers, arrivals."""
        return self.events.sessions, self.events.numbers, self.events.arrivals_ms

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Returns some of the objects, in the given order."""
        return Batch(
            objects=self.objects.take(rows),
            events=self.events.take(rows),
            routed_terms=TermParts([take_terms(self.terms, rows)]),
            positions=self.positions[rows],
            offsets=self.offsets[rows],
            is_copy=None if self.is_copy is None else self.is_copy[rows],
            followed=None if self.followed is None else self.followed.taken(rows, len(self)),
            homes=None if self.homes is None else self.homes[rows],
            via=None if self.via is None else self.via[take_ragged(self.terms.offsets, rows)[1]],
            numbered=None if self.numbered is None else take_terms(self.numbered, rows),
            tokens=None if self.tokens is None else take_terms(self.tokens, rows),
            in_order=None if self.in_order is None else self.in_order.take(rows),
            hashing=self.hashing,
            analyser=self.analyser,
            track_names=self.track_names,
        )

    def own(self) -> tuple[Batch, NDArray[np.intp]]:
        """Returns the objects with their home here, which are stored, and their rows."""
        if self.homes is None:
            return self.present()
        is_own = self.homes
        if self.is_copy is not None:
            is_own = is_own & ~self.is_copy
        return self._where(is_own)

    def present(self) -> tuple[Batch, NDArray[np.intp]]:
        """Returns the objects that are not copies, and their rows."""
        if self.is_copy is None:
            return self, np.arange(len(self))
        return self._where(~self.is_copy)

    def _where(self, is_wanted: NDArray[np.bool_]) -> tuple[Batch, NDArray[np.intp]]:
        rows = np.flatnonzero(is_wanted)
        return (self, rows) if len(rows) == len(self) else (self.take(rows), rows)


class Attributes:
    """The attributes of a batch, parsed on first use."""

    def __init__(self, objects: ObjectColumns) -> None:
        self._data, self._offsets = objects.attributes, objects.attribute_offsets
        self._parsed: dict[int, dict[str, Any]] = {}

    def of(self, row: int) -> dict[str, Any]:
        """Returns the attributes of an object."""
        found = self._parsed.get(row)
        if found is None:
            begin, end = self._offsets[row], self._offsets[row + 1]
            found = self._parsed[row] = members_of(self._data[begin:end].tobytes())
        return found


def stored_rows(batch: Batch, terms: TermColumns) -> StoredRows:
    """Returns the objects of a batch as a store has them, with their terms as they are matched."""
    sessions, numbers, arrivals_ms = batch.columns
    return StoredRows(
        objects=batch.objects,
        sessions=sessions,
        numbers=numbers,
        arrivals_ms=arrivals_ms,
        seqs=np.zeros(len(batch), np.int64),
        lengths=terms.lengths,
        term_offsets=terms.offsets,
        terms=terms.terms,
        counts=terms.counts,
    )
