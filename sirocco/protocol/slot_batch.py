"""What several records of a slot's log hold of objects, as one batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.index.ragged import take_ragged
from sirocco.model.objects import concat
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TextAnalyser
from sirocco.protocol.columns import EventColumns
from sirocco.protocol.messages import Routed
from sirocco.protocol.positions import PART_BITS, position_of
from sirocco.protocol.standing import Batch, track_key
from sirocco.protocol.term_rows import concat_terms, take_terms

Part = tuple[int, Routed, NDArray[np.intp] | None]
"""A record at its offset, and which of its objects are new; None: all."""


def joined(
    parts: list[Part], hashing: TermHashing = WIRE_TERMS, analyser: TextAnalyser | None = None
) -> Batch:
    """The objects of several records as one batch, their terms as `hashing` numbers them."""
    objects, events, terms, places, offsets = [], [], [], [], []
    for offset, routed, rows in parts:
        kept = np.arange(len(routed.objects)) if rows is None else rows
        objects.append(routed.objects if rows is None else routed.objects.take(rows))
        events.append(routed.events if rows is None else routed.events.take(rows))
        terms.append(routed.terms if rows is None else take_terms(routed.terms, rows))
        places.append(position_of(offset) + (kept << PART_BITS))
        offsets.append(np.full(len(kept), offset, np.int64))
    followed = None
    if any(routed.tracks is not None for _, routed, _ in parts):
        followed = [_followed(routed, rows) for _, routed, rows in parts]
    together = concat(objects)
    return Batch(
        together,
        EventColumns.concat(events),
        concat_terms(terms),
        np.concatenate(places),
        np.concatenate(offsets),
        None if followed is None else np.concatenate([keys for keys, _ in followed]),
        None if followed is None else np.concatenate([values for _, values in followed]),
        *_places(parts),
        hashing.analyse(together.text, together.text_offsets, analyser)
        if hashing.is_keyed
        else None,
        {} if followed is None else _members(parts),
    )


def _members(parts: list[Part]) -> dict[int, str]:
    """The members by whose values objects are followed, by hash."""
    return {track_key(name): name for _, routed, _ in parts for name in routed.track_keys}


def _places(parts: list[Part]) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Which objects are at home here, and which of their terms led here."""
    if all(routed.homes is None for _, routed, _ in parts):
        return None, None
    homes, via = [], []
    for _, routed, rows in parts:
        own = np.ones(len(routed.objects), np.bool_) if routed.homes is None else routed.homes
        led = np.ones(len(routed.terms.terms), np.bool_) if routed.via is None else routed.via
        homes.append(own if rows is None else own[rows])
        via.append(led if rows is None else led[take_ragged(routed.terms.offsets, rows)[1]])
    return np.concatenate(homes), np.concatenate(via)


def _followed(
    routed: Routed, rows: NDArray[np.intp] | None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """For whose value of what objects are here; zeros for the slot's own."""
    count = len(routed.objects)
    if routed.tracks is None or routed.track_values is None:
        keys = values = np.zeros(count, np.uint64)
    else:
        members = np.array([0, *map(track_key, routed.track_keys)], np.uint64)
        keys, values = members[routed.tracks], routed.track_values
    return (keys, values) if rows is None else (keys[rows], values[rows])
