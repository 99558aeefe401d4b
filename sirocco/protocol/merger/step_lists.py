"""The list of a complete step: what a subscriber gets of it, and what it had before."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import ObjectColumns, pack_bytes
from sirocco.model.query import RankedQuery
from sirocco.protocol.contract.columns import NO_EVENTS, NO_ROW, ListColumns
from sirocco.protocol.contract.messages import NEVER_MS, NO_OBJECTS
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.query_specs import read_spec
from sirocco.protocol.contract.record_sizes import APPENDED_BYTES_MAX, FIXED_BYTES
from sirocco.protocol.merger.list_batch import ENTRY_BYTES, ListBatch, bytes_of_objects
from sirocco.protocol.merger.pending_steps import Step
from sirocco.protocol.search.ranked_merge import best, joined
from sirocco.protocol.search.term_merge import added, most_frequent

_NO_BYTES = np.empty(0, np.uint8)
NO_IDS = np.empty(0, np.uint64)
_NO_OFFSETS = np.zeros(1, np.int64)


@dataclass(slots=True, kw_only=True)
class Version:
    """State of a version of a query, without its steps.

    Attributes:
        complete_ms: its newest complete step.
        end_ms: steps from there on do not belong to it: a slot at that time had ended it.
        sent: u8[3, n], ids, sessions and numbers of the ranked list that was sent last.
        names: u8[n], `_fingerprints` of its objects; None: not known.
        query, revision: the query and its version, as long as one subscriber has it; 0: not known.
        dropped_by: revision of the change that ended it, if no version continues it; else 0.
    """

    complete_ms: int = NO_TIME_MS
    end_ms: int = NEVER_MS
    sent: NDArray[np.uint64] = field(default_factory=lambda: np.empty((3, 0), np.uint64))
    names: NDArray[np.uint64] | None = None
    query: int = 0
    revision: int = 0
    dropped_by: int = 0


def _fingerprints(objects: ObjectColumns) -> NDArray[np.uint64]:
    """u8[n], a value that distinguishes string ids with the same number; 0 for numbers."""
    found = np.zeros(len(objects), np.uint64)
    names, bounds = objects.names.tobytes(), objects.name_offsets.tolist()
    for row, (begin, end) in enumerate(pairwise(bounds)):
        if begin < end:
            digest = hashlib.blake2b(names[begin:end], digest_size=8).digest()
            found[row] = int.from_bytes(digest, "little")
    return found


def list_of(
    step: Step,
    at_ms: int,
    version: Version,
    bytes_max: int,
    *,
    is_partial: bool,
    is_required: bool,
) -> ListBatch | None:
    """Returns the list of a step; None when nothing changed, unless it is sent in any case."""
    assert step.names.specs is not None
    spec = read_spec(step.names.specs[0])
    if spec.ranked is None:
        sent_key: ListBatch | None = _terms_list(step, at_ms, spec.k)
    else:
        sent_key = _ranked_list(
            step, at_ms, spec.ranked, version, bytes_max, is_required=is_partial or is_required
        )
    if sent_key is None or not is_partial:
        return sent_key
    return replace(sent_key, lists=replace(sent_key.lists, partial=np.ones(1, np.bool_)))


def _ranked_list(
    step: Step,
    at_ms: int,
    query: RankedQuery,
    version: Version,
    bytes_max: int,
    *,
    is_required: bool,
) -> ListBatch | None:
    found = joined(step.ranked)
    rows, scores = best(query, at_ms, found)
    objects, events = found.objects.take(rows), found.events.take(rows)
    # Ids have priority: a list whose ids do not fit a record is cut, and marked as partial.
    room = _room(step) - ENTRY_BYTES * len(rows)
    fits = int(np.searchsorted(objects.name_offsets[1:], room, side="right"))
    is_cut = fits < len(rows)
    if is_cut:
        rows, scores = rows[:fits], scores[:fits]
        objects, events = objects.slice(0, fits), events.slice(0, fits)
    sent_key = np.stack([objects.ids, events.sessions, events.numbers])
    fingerprints = _fingerprints(objects)
    # Subscribers see ids: two publications of one object are the same to them. Sending nothing
    # means that the list is unchanged, which is not known of a partial one.
    is_same = np.array_equal(sent_key[0], version.sent[0])
    if version.names is not None:
        # Different string ids may have the same number.
        is_same &= np.array_equal(fingerprints, version.names)
    if is_same and not is_required:
        return None
    known = set(zip(*version.sent[1:].tolist(), strict=True))
    is_new = np.array(
        [key not in known for key in zip(*sent_key[1:].tolist(), strict=True)], np.bool_
    )
    version.sent, version.names = sent_key, fingerprints
    sizes = np.where(is_new, bytes_of_objects(objects), 0)
    # Objects that do not fit a record after those before them are left out.
    is_new &= np.cumsum(sizes) <= min(bytes_max, room - int(objects.name_offsets[-1]))
    new = np.flatnonzero(is_new)
    object_rows = np.full(len(rows), NO_ROW, np.uint32)
    object_rows[new] = np.arange(len(new))
    names = objects.names, objects.name_offsets
    lists = _one_list(at_ms, scores, names, sent_key[0], sent_key[1], sent_key[2], object_rows)
    return _marked(ListBatch(objects.take(new), events.take(new), step.names, lists), is_cut=is_cut)


def _room(step: Step) -> int:
    """Returns how many bytes the entries of a step's list may take beside the query's names."""
    names = step.names
    specs = sum(len(text.encode()) for text in names.specs or ())
    subscribers = sum(len(name.encode()) for name in names.subscribers)
    return APPENDED_BYTES_MAX - specs - subscribers - len(names.ids) - FIXED_BYTES


def _marked(sent_key: ListBatch, *, is_cut: bool) -> ListBatch:
    """Marks a list as partial if it is cut."""
    if not is_cut:
        return sent_key
    return replace(sent_key, lists=replace(sent_key.lists, partial=np.ones(1, np.bool_)))


def _terms_list(step: Step, at_ms: int, k: int) -> ListBatch:
    pairs = most_frequent(added(step.terms), k)
    terms, offsets = pack_bytes([term for term, _ in pairs])
    ends = offsets + ENTRY_BYTES * np.arange(len(offsets))
    count = int(np.searchsorted(ends, _room(step), side="right")) - 1
    nothing = np.zeros(count, np.uint64)
    lists = _one_list(
        at_ms,
        np.array([number for _, number in pairs[:count]], np.float64),
        (terms[: offsets[count]], offsets[: count + 1]),
        nothing,
        nothing,
        nothing,
        np.full(count, NO_ROW, np.uint32),
    )
    sent_key = ListBatch(NO_OBJECTS, NO_EVENTS, step.names, lists)
    return _marked(sent_key, is_cut=count < len(pairs))


def _one_list(
    at_ms: int,
    values: NDArray[np.float64],
    names: tuple[NDArray[np.uint8], NDArray[np.int64]],
    ids: NDArray[np.uint64],
    sessions: NDArray[np.uint64],
    numbers: NDArray[np.uint64],
    objects: NDArray[np.uint32],
) -> ListColumns:
    return ListColumns(
        queries=np.zeros(1, np.uint32),
        at_ms=np.array([at_ms], np.int64),
        entry_offsets=np.array([0, len(values)], np.int64),
        values=values,
        names=names[0],
        name_offsets=names[1],
        ids=ids,
        sessions=sessions,
        numbers=numbers,
        objects=objects,
        removed_offsets=np.zeros(2, np.int64),
        removed_ids=NO_IDS,
        removed_names=_NO_BYTES,
        removed_name_offsets=_NO_OFFSETS,
    )
