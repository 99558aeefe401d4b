"""The standing queries of a slot, of all kinds: they enter, end, and match batches of objects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.delayed_starts import DelayedStarts
from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.locators import LocatorTable
from sirocco.index.standing.query_table import (
    NO_REVISION,
    NamedQueries,
    QueryTable,
    Subscribers,
)
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.track_index import EXITS, TrackIndex
from sirocco.index.standing.track.track_pairs import Members, StayEvents
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.messages import AT_ONCE_MS, NOT_COPIED, Installed
from sirocco.protocol.contract.term_rows import take_terms
from sirocco.protocol.contract.track_values import identities_of
from sirocco.protocol.evaluator.standing.batch import Attributes, Batch, stored_rows
from sirocco.protocol.evaluator.standing.definitions import (
    conditions_of,
    knn_of,
    named_revisions,
    step_kind,
)
from sirocco.protocol.evaluator.standing.hits import Hits, joined_hits, ordered_events
from sirocco.protocol.evaluator.standing.knn_radii import KnnRadii
from sirocco.protocol.evaluator.standing.query_families import (
    FAMILY_KINDS,
    KNN,
    RANGE,
    STEPS,
    TRACKED,
    Family,
    Rows,
    SlotQueries,
    family_of,
)
from sirocco.protocol.evaluator.standing.query_locators import installed_locators
from sirocco.protocol.evaluator.standing.step_schedule import StepIndex, StepQuery
from sirocco.protocol.evaluator.standing.tracked_queries import tracked_columns


class StandingQueries:
    """All standing queries of a slot.

    Attributes:
        hashing: numbers the terms of queries and objects.
        families: by number.
        names: all tables as one.
    """

    def __init__(self, hashing: TermHashing = WIRE_TERMS, limits: StandingLimits = LIMITS) -> None:
        """Creates an empty one; `hashing` numbers the terms of queries and objects."""
        subscribers = Subscribers()
        self.hashing = hashing
        self.ranges = RangeIndex(hashing=hashing)
        self.knn = KnnIndex(hashing=hashing, limits=limits)
        self.steps = StepIndex(hashing)
        self.tracked = TrackIndex(hashing=hashing, limits=limits)
        self.locators = LocatorTable()
        # Queries whose lifetimes begin at a given time; steps count by arrivals anyway.
        self.waiting = {
            RANGE: DelayedStarts(self.ranges),
            KNN: DelayedStarts(self.knn),
            TRACKED: DelayedStarts(self.tracked),
        }
        indexes = (self.ranges, self.knn, self.steps, self.tracked)
        self.families = tuple(
            Family(index, subscribers, limits.ids_garbage_bytes_min) for index in indexes
        )
        self.names = SlotQueries(tuple(f.table for f in self.families), subscribers)
        # Events of queries that wait, since they were taken last.
        self._stay_events: list[StayEvents] = []
        # Rows of knn queries whose lists have changed, since they were asked for last.
        self._entered: list[Rows] = []

    def __len__(self) -> int:
        return sum(len(family.table) for family in self.families)

    @property
    def has_patterns(self) -> bool:
        """Whether continuous queries name phrases or beginnings, for which texts are searched."""
        patterns = self.ranges.vocabulary.patterns
        return patterns is not None and len(patterns) > 0

    @property
    def plain_names(self) -> QueryTable:
        """The names of plain range queries."""
        return self.families[RANGE].table

    @property
    def bytes_total(self) -> int:
        """Memory of indexes and names, bytes."""
        indexes = sum(i.bytes_total for i in (self.ranges, self.knn, self.steps, self.tracked))
        tables = sum(family.table.bytes_total for family in self.families)
        return indexes + tables + self.locators.bytes_total

    def kinds_of(self, family: int, rows: Rows) -> NDArray[np.uint8]:
        """Returns the kind of each of some queries of a family."""
        if family == STEPS:
            return np.array([self.steps.kind_of(row) for row in rows.tolist()], np.uint8)
        return np.full(len(rows), FAMILY_KINDS[family], np.uint8)

    # --- changes

    def enter(
        self,
        kind: int,
        queries: QueryRows,
        names: NamedQueries,
        message: Installed,
        chosen: NDArray[np.intp],
        filters: list[str] | None,
        offset: int,
    ) -> Rows:
        """Adds queries of one kind, rows `chosen` of the message; returns their rows."""
        family = family_of(kind)
        if family == RANGE:
            rows = self.ranges.insert(queries, offset)
            self.locators.put(rows, installed_locators(message, chosen))
        elif family == KNN:
            rows = self._enter_knn(queries, names.specs or (), offset)
        elif family == TRACKED:
            rows = self._enter_tracked(queries, names, offset)
        else:
            rows = self.steps.insert(
                [step_kind(spec) for spec in names.specs or ()],
                names.handles,
                conditions_of(queries, filters, self.hashing),
                message.starts_ms[chosen],
                message.past_ms[chosen],
                message.slot_counts[chosen],
                # The slot that reports for the query stays the same.
                message.homes[chosen] & (message.copied_at == NOT_COPIED),
            )
        table = self.families[family].table
        revisions = message.revisions[chosen]
        if family in {KNN, STEPS}:
            names = named_revisions(names, revisions)
        table.put(rows, names, message.names.subscribers, revisions, filters)
        if message.begins_ms is not None and family in self.waiting:
            begins_ms = message.begins_ms[chosen]
            waits = begins_ms != AT_ONCE_MS
            self.waiting[family].add(rows[waits], begins_ms[waits])
        return rows

    def _enter_knn(self, queries: QueryRows, specs: tuple[str, ...], offset: int) -> Rows:
        parsed = [knn_of(spec) for spec in specs]
        points = np.array([(query.lon, query.lat) for query in parsed]).reshape(-1, 2)
        counts = np.array([query.k for query in parsed], np.int32)
        return self.knn.insert(queries, points, counts, offset)

    def _enter_tracked(self, queries: QueryRows, names: NamedQueries, offset: int) -> Rows:
        keys, events, tenants, waits = tracked_columns(names)
        return self.tracked.insert(queries, keys, events, offset, tenants, waits)

    def share(self, message: Installed, found: list[tuple[int, Rows]]) -> None:
        """Marks that queries of a message that are here already are now in more slots."""
        for family, rows in found:
            if family == STEPS:
                is_shared = (rows >= 0) & (message.slot_counts > 1)
                self.steps.share(rows[is_shared])

    def resume(self, kind: int, rows: Rows, time_ms: int) -> None:
        """Makes queries that were only in other slots continue here at a time."""
        if family_of(kind) == STEPS:
            self.steps.forward(rows, time_ms)

    def end(self, family: int, rows: Rows, offset: int) -> list[int]:
        """Ends queries of a family; returns rows of `names` of which mergers keep state."""
        if not len(rows):
            return []
        self.families[family].end(rows, offset, are_removed=True)
        if family in {RANGE, TRACKED}:
            return []
        # Every slot that holds it reports this: its home may have changed.
        ended: list[int] = self.names.rows_of(family, rows).tolist()
        return ended

    def expire(self, time_ms: int, offset: int) -> list[tuple[int, int]]:
        """Ends range queries whose lifetime ended before the time; returns (handle, revision).

        Those of which mergers keep state end when the registry ends them, at a position of the log.
        """
        # Those with tracked values end at a position of the log, where it is reported.
        self.tracked.expire(time_ms)
        return self.families[RANGE].expire(time_ms, offset)

    def reclaim(self, time_ms: int, offset: int) -> None:
        """Frees what no object can meet any more, and moves begun queries to the others."""
        for family in self.families:
            family.reclaim(offset)
        for waiting in self.waiting.values():
            if len(waiting):
                waiting.forget_started(time_ms, offset)

    # --- objects

    def match(self, batch: Batch, own: Batch, rows: NDArray[np.intp]) -> Hits:
        """Finds the hits of a batch for all queries.

        Args:
            batch: all objects.
            own: those with their home here.
            rows: of these within the batch.
        """
        if not any(self.waiting.values()):
            return joined_hits(self._match(batch, own, rows), self.names)
        # Objects for which the same queries have begun are taken together. Their number identifies
        # these: of two objects the later has all that the earlier has.
        arrivals_ms = batch.events.arrivals_ms
        begun = sum(each.begun(arrivals_ms) for each in self.waiting.values())
        cuts = [0, *(np.flatnonzero(np.diff(begun)) + 1).tolist(), len(batch)]
        parts: list[tuple[int, Hits]] = []
        for begin, end in pairwise(cuts):
            places = np.arange(begin, end)
            piece = batch if len(places) == len(batch) else batch.take(places)
            with ExitStack() as hidden:
                for waiting in self.waiting.values():
                    hidden.enter_context(waiting.hidden(int(arrivals_ms[begin])))
                matches = self._match(piece, *piece.own())
            parts += [(family, hits.at(places)) for family, hits in matches]
        return joined_hits(parts, self.names)

    def _match(self, batch: Batch, own: Batch, rows: NDArray[np.intp]) -> list[tuple[int, Hits]]:
        """Returns the hits of each family."""
        parts: list[tuple[int, Hits]] = []
        present, places = (own, rows) if batch.homes is None else batch.present()
        attributes = Attributes(present.objects)
        if len(present):
            # Also when the last query has ended meanwhile: objects before its end still meet it.
            hits = self._match_ranges(present, attributes)
            parts.append((RANGE, hits if present is batch else hits.at(places)))
        if len(own):
            attributes = attributes if own is present else Attributes(own.objects)
            hits = self._match_knn(own, attributes)
            parts.append((KNN, hits if own is batch else hits.at(rows)))
        if len(present) < len(batch):
            copies = np.setdiff1d(np.arange(len(batch)), places, assume_unique=True)
            parts.append((TRACKED, self._match_tracked(batch.take(copies)).at(copies)))
        return parts

    def knn_point(self, row: int) -> tuple[float, float, int]:
        """Returns longitude, latitude and k of a knn query."""
        query = knn_of(self.families[KNN].table.specs[row])
        return query.lon, query.lat, query.k

    def take_due(self, time_ms: int, at_most: int) -> list[tuple[int, int, StepQuery]]:
        """The next steps before a time: (row of `names`, at, query); see `StepIndex.take_due`."""
        due = self.steps.take_due(time_ms, at_most)
        rows = self.names.rows_of(STEPS, np.array([entry.row for _, entry in due], np.int32))
        return [(row, at_ms, entry) for row, (at_ms, entry) in zip(rows.tolist(), due, strict=True)]

    def _match_ranges(self, batch: Batch, attributes: Attributes) -> Hits:
        near = self.ranges.near_patterns(batch.objects.lon, batch.objects.lat)
        terms = batch.terms_for(self.ranges.vocabulary, near)
        hits = self.ranges.match(
            batch.objects.lon,
            batch.objects.lat,
            terms.offsets,
            terms.terms,
            batch.events.arrivals_ms,
            batch.offsets,
        )
        object_rows, query_rows = hits.object_rows, hits.query_rows
        if batch.homes is not None and batch.via is not None:
            keep = self.locators.counted(
                self.ranges,
                object_rows,
                query_rows,
                batch.homes,
                batch.terms.offsets,
                batch.terms.terms,
                batch.via,
                terms.offsets,
                terms.terms,
            )
            object_rows, query_rows = object_rows[keep], query_rows[keep]
        filters = self.plain_names.filters
        if filters:
            keep = np.ones(len(query_rows), np.bool_)
            for i in np.flatnonzero(np.isin(query_rows, list(filters))).tolist():
                members = attributes.of(int(object_rows[i]))
                keep[i] = filters[int(query_rows[i])].matches(members)
            object_rows, query_rows = object_rows[keep], query_rows[keep]
        return Hits(self.plain_names, object_rows, query_rows)

    def _match_knn(self, batch: Batch, attributes: Attributes) -> Hits:
        table = self.families[KNN].table
        accepts: Callable[[int, int], bool] | None = None
        if table.filters:
            filters = table.filters

            def accepts(object_row: int, query_row: int) -> bool:
                return filters[query_row].matches(attributes.of(object_row))

        terms = batch.terms_for(self.knn.vocabulary)
        hits = self.knn.match(
            batch.objects.lon,
            batch.objects.lat,
            terms.offsets,
            terms.terms,
            batch.events.arrivals_ms,
            batch.offsets,
            batch.objects.ids,
            batch.events.sessions,
            batch.events.numbers,
            accepts,
        )
        if len(hits):
            self._entered.append(hits.query_rows)
        are_candidates = np.ones(len(hits), np.bool_)
        return Hits(
            table, hits.object_rows, hits.query_rows, None, hits.distances_m, are_candidates
        )

    def _match_tracked(self, copies: Batch) -> Hits:
        table = self.families[TRACKED].table
        filters, attributes = table.filters, Attributes(copies.objects)
        followed = copies.followed
        assert followed is not None
        terms = copies.terms_for(self.tracked.vocabulary)
        hits = self.tracked.match(
            copies.objects.lon,
            copies.objects.lat,
            terms.offsets,
            terms.terms,
            copies.events.arrivals_ms,
            copies.offsets,
            followed.rows,
            followed.keys,
            identities_of(
                attributes, followed.rows, followed.keys, copies.track_names, followed.values
            ),
            lambda object_row, query_row: filters[query_row].matches(attributes.of(object_row)),
            followed.values,
            lambda rows: stored_rows(copies.take(rows), take_terms(terms, rows)),
        )
        if hits.stay_events is not None:
            self._stay_events.append(hits.stay_events)
        return Hits(table, hits.object_rows, hits.query_rows, hits.events)

    # --- radii of knn queries

    def take_radii(self) -> KnnRadii | None:
        """Returns what other slots should know after objects were matched; None for nothing."""
        entered, self._entered = self._entered, []
        if not entered:
            return None
        rows, bounds_mm = self.knn.take_shrunk(np.concatenate(entered))
        table = self.families[KNN].table
        revisions = table.revisions[rows]
        is_live = revisions != NO_REVISION
        if not is_live.any():
            return None
        return KnnRadii(table.handle_rows(rows[is_live]), revisions[is_live], bounds_mm[is_live])

    def draw_in(self, radii: KnnRadii) -> None:
        """Takes radii of another slot, for the same versions of queries."""
        table = self.families[KNN].table
        if not len(table):
            return
        rows = table.find(radii.handles)
        # Of a row that is not here, -1, any revision may do.
        rows[table.revisions[rows] != radii.revisions] = -1
        self.knn.draw_in(rows, radii.bounds_mm)

    # --- values that are inside queries

    def take_stay_events(self) -> tuple[StoredRows, Hits] | None:
        """Takes the events of queries that wait, of the batch that was matched last, in order.

        They are reported at one position, after all objects of the batch.
        """
        events, self._stay_events = self._stay_events, []
        return ordered_events(StayEvents.concat(events), self._tracked_table) if events else None

    def take_waited(self, time_ms: int) -> tuple[StoredRows, Hits] | None:
        """Returns which values were inside or outside for long enough before a time."""
        due = self.tracked.take_due(time_ms)
        return None if due is None else ordered_events(due, self._tracked_table)

    @property
    def _tracked_table(self) -> QueryTable:
        return self.families[TRACKED].table

    def are_tracked(self, handles: NDArray[np.uint64]) -> bool:
        """Whether any of some queries is here and has tracked values."""
        table = self.families[TRACKED].table
        return bool(len(table)) and bool((table.find(handles) >= 0).any())

    def move_members(
        self,
        members: Members,
        new_rows: Rows,
        begins_ms: NDArray[np.int64],
        offset: int,
    ) -> Members:
        """Moves values from inside queries to the queries that continue these.

        Args:
            members: taken out of the replaced queries.
            new_rows: i4[m], row of the query that continues each; -1 where it ends.
            begins_ms: i8[m], when that begins.
            offset: of the change.

        Returns:
            Those which are not inside the new ones, by where they were last, as far as known.
        """
        is_known = members.numbers != NOT_KNOWN
        stays = (new_rows >= 0) & ~is_known
        is_asked = (new_rows >= 0) & is_known
        if is_asked.any():
            asked = replace(members, query_rows=new_rows).where(is_asked)
            stays[is_asked] = self.tracked.satisfied(
                asked, begins_ms[is_asked], offset, self._accepting
            )
        self.tracked.put_members(replace(members.where(stays), query_rows=new_rows[stays]))
        return members.where(~stays & is_known)

    def _accepting(self, found: StoredRows) -> Callable[[int, int], bool]:
        """Returns a check whether a row of `found` passes the filter of a row of queries."""
        filters, attributes = self.families[TRACKED].table.filters, Attributes(found.objects)
        return lambda one, query: filters[query].matches(attributes.of(one))

    def exits(self, left: Members) -> tuple[StoredRows, Hits] | None:
        """Returns the exits of values that are no longer inside, with their last objects.

        None where no query asks for them.
        """
        left = left.where(self.tracked.reports(left.query_rows, EXITS) & left.have_entered)
        if not len(left):
            return None
        table = self.families[TRACKED].table
        # Each object is listed once, however many queries it leaves.
        numbers, first, rows = np.unique(left.numbers, return_index=True, return_inverse=True)
        found = self.tracked.objects(numbers)
        # The order must not depend on rows and object numbers: a successor has others.
        least = left.values[first]
        np.minimum.at(least, rows, left.values)
        order = np.lexsort((found.numbers, found.sessions, least))
        rows = np.argsort(order)[rows]
        hit_order = np.lexsort((table.handle_rows(left.query_rows), rows))
        changes = np.full(len(left), EXITS, np.uint8)
        hits = Hits(table, rows[hit_order].astype(np.int32), left.query_rows[hit_order], changes)
        return found.take(order), hits
