"""One owned slot: its position, its queries, and the matching of what its log brings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.compile import take_queries
from sirocco.index.export import export_queries
from sirocco.index.query_rows import QueryRows
from sirocco.index.query_table import NamedQueries, QueryTable
from sirocco.index.ragged import take_ragged
from sirocco.index.range_index import RangeIndex
from sirocco.model.objects import concat
from sirocco.model.text import TermColumns
from sirocco.protocol.effects import State
from sirocco.protocol.found import Report, partition_of
from sirocco.protocol.intake import take_terms
from sirocco.protocol.messages import NO_EVENTS, NO_OBJECTS, EventColumns, Installed, Routed
from sirocco.protocol.positions import NO_TIME_MS, PART_BITS, Reached, position_of

_NO_HITS = np.empty(0, np.int32)


class Slot:
    """State of one slot; everything in it is a function of the slot's log.

    Attributes:
        number: of the slot.
        offset: next offset of its log.
        reached: how far each intake partition has been taken.
        index: the matching index.
        table: names, revisions and filters of the index's rows.
    """

    def __init__(self, number: int, partials_partitions: int) -> None:
        self.number = number
        self.offset = 0
        self.reached = Reached()
        self.index = RangeIndex()
        self.table = QueryTable()
        self.saved_offset = 0
        self.saved_ms = 0
        self.changes_since_saved = 0
        self._floors: dict[int, int] = {}
        # Removed queries whose removal may still be overtaken by a repeat of their registration.
        self._removed: dict[int, tuple[int, int]] = {}
        self._sent = np.zeros(partials_partitions, np.int64)
        self._targets = np.empty(0, np.int32)
        self._intake_partitions = 0

    def open(self, offset: int, state: State | None, intake_partitions: int, now_ms: int) -> None:
        """Goes on from a checkpoint, or from the beginning of the log."""
        self.offset = self.saved_offset = offset
        self.saved_ms = now_ms
        self._intake_partitions = intake_partitions
        # A checkpoint was preceded by marks to every target, so they stand here or further.
        self._sent[:] = position_of(offset)
        if state is not None:
            self._restore(state)

    def take(self, records: list[tuple[int, Routed | Installed]]) -> Report:
        """Takes the next records of the slot's log and matches their objects."""
        parts: list[tuple[int, Routed, NDArray[np.intp] | None]] = []
        for offset, message in records:
            if isinstance(message, Installed):
                self._install(offset, message)
            else:
                fresh_from = self.reached.accept(message.intervals)
                if len(message.objects):
                    is_fresh = message.positions >= fresh_from[message.interval_rows]
                    if is_fresh.all():
                        parts.append((offset, message, None))
                    elif is_fresh.any():
                        parts.append((offset, message, np.flatnonzero(is_fresh)))
            self.offset = offset + 1
        report = self._match(parts) if parts else self.report()
        self._reclaim()
        return report

    def report(self) -> Report:
        """A report without objects: how far the slot has come."""
        return Report(
            self.number,
            position_of(self.offset),
            self.reached.time_ms(self._intake_partitions),
            self._sent,
            self._targets,
            self.table,
            NO_OBJECTS,
            NO_EVENTS,
            np.empty(0, np.int64),
            _NO_HITS,
            _NO_HITS,
            0,
        )

    def expire(self) -> None:
        """Drops the queries whose lifetime ended before the slot's time."""
        rows = self.index.expire(self.reached.time_ms(self._intake_partitions))
        live = rows[self.table.revisions[rows] >= 0]
        self._end(live, self.offset, gone=True)
        self._reclaim()

    def _match(self, parts: list[tuple[int, Routed, NDArray[np.intp] | None]]) -> Report:
        objects, events, terms, places, offsets = [], [], [], [], []
        for offset, routed, rows in parts:
            kept = np.arange(len(routed.objects)) if rows is None else rows
            objects.append(routed.objects if rows is None else routed.objects.take(rows))
            events.append(routed.events if rows is None else routed.events.take(rows))
            terms.append(routed.terms if rows is None else take_terms(routed.terms, rows))
            places.append(position_of(offset) + (kept << PART_BITS))
            offsets.append(np.full(len(kept), offset, np.int64))
        batch, batch_events = concat(objects), EventColumns.concat(events)
        batch_terms = concat_terms(terms)
        hits = self.index.match(
            batch.lon,
            batch.lat,
            batch_terms.offsets,
            batch_terms.terms,
            batch_events.arrivals_ms,
            np.concatenate(offsets),
        )
        report = self.report()
        report.objects, report.events = batch, batch_events
        report.positions = np.concatenate(places)
        report.objects_total = len(batch)
        report.object_rows, report.query_rows = self._filtered(
            report, hits.object_rows, hits.query_rows
        )
        return report

    def _filtered(
        self, report: Report, object_rows: NDArray[np.int32], query_rows: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Applies the attribute filters of those queries that have one."""
        if not self.table.filters:
            return object_rows, query_rows
        filters = self.table.filters
        attributes, offsets = report.objects.attributes, report.objects.attribute_offsets
        keep = np.ones(len(query_rows), np.bool_)
        parsed: dict[int, dict[str, object]] = {}
        for i in np.flatnonzero(np.isin(query_rows, list(filters))).tolist():
            row = int(object_rows[i])
            if row not in parsed:
                parsed[row] = _members(attributes[offsets[row] : offsets[row + 1]].tobytes())
            keep[i] = filters[int(query_rows[i])].matches(parsed[row])
        return object_rows[keep], query_rows[keep]

    def _install(self, offset: int, message: Installed) -> None:
        partition = message.registry_partition
        known_floor = self._floors.get(partition, 0)
        self.changes_since_saved += len(message.revisions) + len(message.removed)
        if len(message.revisions):
            self._install_queries(offset, message, known_floor)
        if len(message.removed):
            self._remove_queries(offset, message)
        if message.floor > known_floor:
            self._floors[partition] = message.floor
            stale = [
                handle
                for handle, (source, revision) in self._removed.items()
                if source == partition and revision < message.floor
            ]
            for handle in stale:
                del self._removed[handle]

    def _install_queries(self, offset: int, message: Installed, floor: int) -> None:
        names = message.names
        old = self.table.rows.get(names.handles)
        # Below the floor everything was here before: what comes again is a repeat, and may be of a
        # query that has been removed since.
        is_new = message.revisions >= floor
        is_new &= (old < 0) | (message.revisions > self.table.revisions[old])
        if self._removed:
            removed = [self._removed.get(h, (0, -1))[1] for h in names.handles.tolist()]
            is_new &= message.revisions > np.array(removed)
        if not is_new.any():
            return
        replaced = old[is_new & (old >= 0)]
        if len(replaced):
            self._end(replaced, offset, gone=False)
        self._enter(message, np.flatnonzero(is_new), offset)

    def _enter(self, message: Installed, chosen: NDArray[np.intp], offset: int) -> None:
        is_whole = len(chosen) == len(message.revisions)
        queries = message.rows if is_whole else take_queries(message.rows, chosen)
        names = named(message, chosen)
        rows = self.index.insert(queries, offset)
        filters = None if message.filters is None else [message.filters[i] for i in chosen]
        self.table.put(rows, names, message.names.subscribers, message.revisions[chosen], filters)
        self._add_targets()

    def _remove_queries(self, offset: int, message: Installed) -> None:
        rows = self.table.rows.get(message.removed)
        is_due = (rows >= 0) & (message.removed_revisions > self.table.revisions[rows])
        self._end(rows[is_due], offset, gone=True)
        partition = message.registry_partition
        for handle, revision in zip(
            message.removed.tolist(), message.removed_revisions.tolist(), strict=True
        ):
            # The greatest counts: an older removal that is repeated must not let older versions in.
            known = self._removed.get(handle, (partition, revision))
            self._removed[handle] = max(known, (partition, revision))

    def _end(self, rows: NDArray[np.int32], offset: int, *, gone: bool) -> None:
        if len(rows):
            self.index.remove(rows, offset)
            self.table.forget(rows, gone=gone)

    def _reclaim(self) -> None:
        # All that is reclaimed ended at or before the slot's offset: no object can meet it.
        if self.index.reclaim(self.offset) == 0:
            self.table.tidy()

    def state(self, now_ms: int) -> State:
        """The whole state as columns, for a checkpoint."""
        self.saved_offset, self.saved_ms, self.changes_since_saved = self.offset, now_ms, 0
        rows = np.sort(self.table.live())
        queries = export_queries(self.index, rows)
        names = self.table.names(rows)
        filters = [self.table.filters.get(row) for row in rows.tolist()]
        texts = [b"" if f is None else orjson.dumps(f.canonical()) for f in filters]
        sources = sorted(self.reached.positions.keys() | self.reached.times_ms.keys())
        return {
            "sources": np.array(sources, np.int64),
            "positions": np.array([self.reached.positions.get(s, 0) for s in sources], np.int64),
            "times_ms": np.array(
                [self.reached.times_ms.get(s, NO_TIME_MS) for s in sources], np.int64
            ),
            "floors": np.array(sorted(self._floors.items()), np.int64).reshape(-1, 2),
            "removed": np.array(list(self._removed), np.uint64),
            "removed_by": np.array(list(self._removed.values()), np.int64).reshape(-1, 2),
            "revisions": self.table.revisions[rows],
            "handles": names.handles,
            "ids": names.ids,
            "id_offsets": names.id_offsets,
            "subscribers": names.subscribers,
            **_packed("subscriber_names", [n.encode() for n in self.table.subscriber_names]),
            **_packed("filters", texts),
            **{f"query.{name}": getattr(queries, name) for name in QueryRows.__slots__},
        }

    def _restore(self, state: State) -> None:
        sources = state["sources"].tolist()
        self.reached.positions = dict(zip(sources, state["positions"].tolist(), strict=True))
        self.reached.times_ms = {
            source: time_ms
            for source, time_ms in zip(sources, state["times_ms"].tolist(), strict=True)
            if time_ms != NO_TIME_MS
        }
        self._floors = {int(k): int(v) for k, v in state["floors"]}
        self._removed = {
            handle: (int(source), int(revision))
            for handle, (source, revision) in zip(
                state["removed"].tolist(), state["removed_by"], strict=True
            )
        }
        queries = QueryRows(**{name: state[f"query.{name}"] for name in QueryRows.__slots__})
        filters = [text.decode() for text in _unpacked("filters", state)]
        rows = self.index.insert(queries, self.offset)
        self.table.put(
            rows,
            NamedQueries(state["handles"], state["ids"], state["id_offsets"], state["subscribers"]),
            tuple(text.decode() for text in _unpacked("subscriber_names", state)),
            state["revisions"],
            filters if any(filters) else None,
        )
        self._add_targets()

    def _add_targets(self) -> None:
        targets = [
            partition_of(name, len(self._sent))
            for name in self.table.subscriber_names[len(self._targets) :]
        ]
        self._targets = np.concatenate([self._targets, np.array(targets, np.int32)])


def _members(attributes: bytes) -> dict[str, Any]:
    # The front has checked them; what a broken writer put on the topic since has no attributes.
    try:
        members = orjson.loads(attributes) if attributes else {}
    except orjson.JSONDecodeError:
        return {}
    return members if isinstance(members, dict) else {}


def named(message: Installed, chosen: NDArray[np.intp]) -> NamedQueries:
    """The names of some of the queries of a message."""
    names = message.names
    offsets, places = take_ragged(names.id_offsets, chosen)
    return NamedQueries(
        names.handles[chosen],
        names.ids[places],
        offsets,
        names.subscriber_rows[chosen].astype(np.int32),
    )


def concat_terms(parts: list[TermColumns]) -> TermColumns:
    """Joins the terms of objects, one part behind the other."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0, *(part.offsets[-1] for part in parts[:-1])])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=True)]
    return TermColumns(
        np.concatenate([part.terms for part in parts]),
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def _packed(name: str, texts: list[bytes]) -> dict[str, NDArray[Any]]:
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return {name: np.frombuffer(b"".join(texts), np.uint8), f"{name}_offsets": offsets}


def _unpacked(name: str, state: State) -> list[bytes]:
    data = state[name].tobytes()
    return [data[begin:end] for begin, end in pairwise(state[f"{name}_offsets"].tolist())]
