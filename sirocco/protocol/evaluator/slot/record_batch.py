"""Joins the objects of several records of a slot's log into one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.model.objects import concat
from sirocco.model.patterns import OrderedTokens
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TermColumns, TextAnalyser
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import Routed
from sirocco.protocol.contract.positions import PART_BITS, position_of
from sirocco.protocol.contract.term_rows import TermParts, take_terms
from sirocco.protocol.evaluator.standing.batch import Batch, Values
from sirocco.protocol.evaluator.standing.tracked_queries import track_key

# Tokens and terms of longer characters may differ; routers send tokens.
_ASCII_MAX = 127

Part = tuple[int, Routed, NDArray[np.intp] | None]
"""A record at its offset, and which of its objects are new; None: all."""


def joined(
    parts: list[Part],
    hashing: TermHashing = WIRE_TERMS,
    analyser: TextAnalyser | None = None,
    *,
    keeps_order: bool = False,
) -> Batch:
    """Returns the objects of several records as one batch, their terms numbered by `hashing`.

    Args:
        parts: the records.
        hashing: numbers terms.
        analyser: that of the thread.
        keeps_order: whether to keep the order of tokens, for phrases.
    """
    objects, events, terms, places, offsets = [], [], [], [], []
    for offset, routed, rows in parts:
        kept = np.arange(len(routed.objects)) if rows is None else rows
        objects.append(routed.objects if rows is None else routed.objects.take(rows))
        events.append(routed.events if rows is None else routed.events.take(rows))
        terms.append(routed.terms if rows is None else take_terms(routed.terms, rows))
        places.append(position_of(offset) + (kept << PART_BITS))
        offsets.append(np.full(len(kept), offset, np.int64))
    together = concat(objects)
    is_copy, followed = _followed(parts)
    homes, via = _places(parts)
    stored: TermColumns | None = None
    tokens: TermColumns | None = None
    in_order: OrderedTokens | None = None
    texts = together.text, together.text_offsets
    if keeps_order and hashing.is_keyed:
        stored, tokens, in_order = hashing.analyse_in_order(*texts, analyser)
    elif hashing.is_keyed or (together.text > _ASCII_MAX).any():
        stored, tokens = hashing.analyse_both(*texts, analyser)
    return Batch(
        objects=together,
        events=EventColumns.concat(events),
        routed_terms=TermParts(terms),
        positions=np.concatenate(places),
        offsets=np.concatenate(offsets),
        is_copy=is_copy,
        followed=followed,
        homes=homes,
        via=via,
        numbered=stored,
        tokens=tokens,
        in_order=in_order,
        hashing=hashing,
        analyser=analyser,
        track_names=_members(parts),
    )


def _members(parts: list[Part]) -> dict[int, str]:
    """Returns the members by whose values objects are followed, by hash."""
    return {track_key(name): name for _, routed, _ in parts for name in routed.track_keys}


def _places(parts: list[Part]) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Returns which objects have their home here, and which of their terms led here."""
    if all(routed.homes is None for _, routed, _ in parts):
        return None, None
    homes, via = [], []
    for _, routed, rows in parts:
        own = np.ones(len(routed.objects), np.bool_) if routed.homes is None else routed.homes
        led = np.ones(len(routed.terms.terms), np.bool_) if routed.via is None else routed.via
        homes.append(own if rows is None else own[rows])
        via.append(led if rows is None else led[take_ragged(routed.terms.offsets, rows)[1]])
    return np.concatenate(homes), np.concatenate(via)


def _followed(parts: list[Part]) -> tuple[NDArray[np.bool_] | None, Values | None]:
    """Returns which objects are copies, and the values for which they are here."""
    if all(routed.tracks is None for _, routed, _ in parts):
        return None, None
    is_copy, found, begin = [], [], 0
    for _, routed, rows in parts:
        count = len(routed.objects)
        own = np.zeros(count, np.bool_) if routed.tracks is None else routed.tracks > 0
        values = _values(routed)
        if rows is not None:
            own, values = own[rows], values.taken(rows, count)
        is_copy.append(own)
        found.append(replace(values, rows=values.rows + begin))
        begin += len(own)
    return np.concatenate(is_copy), Values(
        np.concatenate([each.rows for each in found]),
        np.concatenate([each.keys for each in found]),
        np.concatenate([each.values for each in found]),
    )


def _values(routed: Routed) -> Values:
    """Returns the values of a record's copies, those of one copy in the order of the record."""
    if routed.tracks is None or routed.track_values is None:
        return Values(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.uint64))
    members = np.array([0, *map(track_key, routed.track_keys)], np.uint64)
    rows = np.flatnonzero(routed.tracks)
    first = Values(rows, members[routed.tracks[rows]], routed.track_values[rows])
    further = routed.further
    if further is None:
        return first
    rows = np.concatenate([rows, further.rows])
    order = np.argsort(rows, kind="stable")
    return Values(
        rows[order],
        np.concatenate([first.keys, members[further.tracks]])[order],
        np.concatenate([first.values, further.values])[order],
    )
