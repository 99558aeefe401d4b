"""The standing queries of a slot, of all kinds: they enter, end, and match batches of objects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from sirocco.index.base.compile import with_numbers
from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_TRACKED
from sirocco.index.base.query_rows import NEVER_MS, QueryRows
from sirocco.index.base.ragged import take_ragged
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.delayed_starts import DelayedStarts
from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.locators import HOME_LOCATOR, LocatorTable
from sirocco.index.standing.query_table import NamedQueries, QueryTable, Subscribers
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.text.text_terms import both_terms, with_patterns
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.track_index import ENTERS, EXITS, INSIDE, Members, TrackIndex
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.index.store.store_condition import Condition, compile_condition
from sirocco.model.access import tenant_of
from sirocco.model.attributes import Filter, members_of
from sirocco.model.objects import ObjectColumns
from sirocco.model.patterns import NearPatterns, OrderedTokens, pattern_rows
from sirocco.model.query import ENDED, KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TermColumns, TextAnalyser
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import AT_ONCE_MS, NO_PAST, NOT_COPIED, Installed
from sirocco.protocol.contract.query_definitions import query_of
from sirocco.protocol.contract.query_specs import definition_of_spec, versioned_spec
from sirocco.protocol.contract.term_rows import TermParts, take_terms
from sirocco.protocol.contract.track_values import identities_of
from sirocco.protocol.evaluator.standing.query_families import Family, Names, SlotQueries
from sirocco.protocol.evaluator.standing.step_schedule import StepIndex, StepKind, StepQuery

Rows = NDArray[np.int32]

# Numbers of families. Kinds that are evaluated alike share one.
RANGE, KNN, STEPS, TRACKED = range(4)

# The kind of those families that have only one.
_KINDS = {RANGE: KIND_RANGE, KNN: KIND_KNN, TRACKED: KIND_TRACKED}


# Events of tracked queries as the index numbers them; `MatchColumns` uses the same numbers.
_EVENTS = {"enter": ENTERS, "inside": INSIDE, "exit": EXITS}


def track_key(member: str) -> int:
    """Returns a hash of a member by whose values objects are followed."""
    return int.from_bytes(hashlib.blake2b(member.encode(), digest_size=8).digest(), "little") | 1


def former_track_key(member: str) -> int:
    """Returns the hash of a member in checkpoints, as older versions compute it."""
    return xxhash.xxh3_64_intdigest(member.encode()) | 1


def family_of(kind: int) -> int:
    """Returns the family of a kind (`index.base.kinds`)."""
    return {KIND_RANGE: RANGE, KIND_KNN: KNN, KIND_TRACKED: TRACKED}.get(kind, STEPS)


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


@dataclass(frozen=True, slots=True)
class Hits:
    """Pairs of objects and queries.

    Attributes:
        names: what `query_rows` are rows of.
        object_rows: i4[m], ascending.
        query_rows: i4[m].
        changes, distances_m: as in `MatchColumns`.
    """

    names: Names
    object_rows: Rows
    query_rows: Rows
    changes: NDArray[np.uint8] | None = None
    distances_m: NDArray[np.float64] | None = None

    def at(self, rows: NDArray[np.intp]) -> Hits:
        """The same hits where the objects are these rows of a larger batch."""
        return replace(self, object_rows=rows[self.object_rows].astype(np.int32))


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
        return np.full(len(rows), _KINDS[family], np.uint8)

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
            self.locators.put(rows, _locators(message, chosen))
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
            names = _named_revisions(names, revisions)
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
        parsed = [spec_query(spec) for spec in names.specs or ()]
        keys, events = [], []
        for query in parsed:
            assert isinstance(query, RangeQuery)
            assert query.track is not None
            keys.append(track_key(query.track))
            wanted = [_EVENTS[event] for event in query.events if event != ENDED]
            events.append(sum(1 << event for event in wanted))
        return self.tracked.insert(
            queries,
            np.array(keys, np.uint64),
            np.array(events, np.uint8),
            offset,
            _tenants_of(names),
        )

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
            return self._joined(self._match(batch, own, rows))
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
        return self._joined(parts)

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
        return Hits(table, hits.object_rows, hits.query_rows, None, hits.distances_m)

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
        return Hits(table, hits.object_rows, hits.query_rows, hits.events)

    # --- values that are inside queries

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
        left = left.where(self.tracked.reports(left.query_rows, EXITS))
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

    def _joined(self, parts: list[tuple[int, Hits]]) -> Hits:
        """Joins hits of several families, ordered by object."""
        present = [(family, hits) for family, hits in parts if len(hits.object_rows)]
        if not present:
            none = np.empty(0, np.int32)
            return Hits(self.plain_names, none, none)
        if [family for family, _ in present] == [RANGE]:
            return present[0][1]
        object_rows = np.concatenate([hits.object_rows for _, hits in present])
        query_rows = np.concatenate(
            [self.names.rows_of(family, hits.query_rows) for family, hits in present]
        )
        order = np.argsort(object_rows, kind="stable")
        changes = _filled([h.changes for _, h in present], [h for _, h in present], np.uint8)
        distances_m = _filled(
            [h.distances_m for _, h in present], [h for _, h in present], np.float64
        )
        return Hits(
            self.names,
            object_rows[order],
            query_rows[order],
            None if changes is None else changes[order],
            None if distances_m is None else distances_m[order],
        )


def _filled(columns: list[Any], hits: list[Hits], dtype: Any) -> NDArray[Any] | None:
    """Joins columns, with zeros for those that are missing; None when all are."""
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            np.zeros(len(each.object_rows), dtype) if column is None else column
            for column, each in zip(columns, hits, strict=True)
        ]
    )


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


def conditions_of(
    queries: QueryRows, filters: list[str] | None, hashing: TermHashing
) -> list[Condition]:
    """Returns the conditions of queries for searches; their lifetimes are steps, not arrivals."""
    queries = with_numbers(queries, hashing)
    lasting = replace(queries, expires_ms=np.full(len(queries), NEVER_MS, np.int64))
    wheres = filters_of(filters, len(queries))
    return [compile_condition(lasting, where, row, hashing) for row, where in enumerate(wheres)]


def _locators(message: Installed, chosen: NDArray[np.intp]) -> list[bytes] | None:
    """Returns the locators of range queries of a message; None if all follow from the queries."""
    found = locators_of(message.rows, message.locators, message.past_ms != NO_PAST)
    return None if found is None else [found[row] for row in chosen.tolist()]


def locators_of(
    queries: QueryRows, locators: Sequence[bytes] | None, with_past: NDArray[np.bool_]
) -> list[bytes] | None:
    """Returns the locators of range queries; None if all follow from the queries.

    Args:
        queries: n of them.
        locators: their own, empty for none; None for none at all.
        with_past: bool[n], which ask for the past.
    """
    is_home = with_past | _have_patterns(queries)
    if locators is None and not is_home.any():
        return None
    # Stored objects of a query are found at their home: later ones must be found there too. And no
    # object is routed by a phrase.
    own = locators or (b"",) * len(queries)
    return [
        each or (HOME_LOCATOR if is_at_home else b"")
        for each, is_at_home in zip(own, is_home.tolist(), strict=True)
    ]


def _have_patterns(queries: QueryRows) -> NDArray[np.bool_]:
    """Returns bool[n], which queries name phrases or beginnings of words."""
    found = np.zeros(len(queries), np.bool_)
    rows = pattern_rows(queries.words, queries.word_offsets)
    if not len(rows):
        return found
    for offsets, words in (
        (queries.pos_offsets, queries.pos_word_rows),
        (queries.neg_offsets, queries.neg_word_rows),
    ):
        ends = offsets[queries.conj_offsets]
        owners = np.repeat(np.arange(len(queries)), np.diff(ends))
        found[owners[np.isin(words, rows)]] = True
    return found


def filters_of(texts: list[str] | None, count: int) -> list[Filter | None]:
    """Returns the filters of queries, from their JSON."""
    if texts is None:
        return [None] * count
    return [Filter.parse(orjson.loads(text)) if text else None for text in texts]


def _named_revisions(names: NamedQueries, revisions: NDArray[np.int64]) -> NamedQueries:
    """Returns the names with specs as mergers get them, which distinguish versions."""
    pairs = zip(names.specs or (), revisions.tolist(), strict=True)
    return replace(names, specs=tuple(versioned_spec(spec, revision) for spec, revision in pairs))


def _tenants_of(names: NamedQueries) -> NDArray[np.uint64]:
    """Returns u8[q], a hash of the tenant of each query; 0 for the operator's."""
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    tenants = [tenant_of(ids[begin:end].decode()) for begin, end in pairwise(bounds)]
    hashes = [xxhash.xxh3_64_intdigest(name.encode()) | 1 if name else 0 for name in tenants]
    return np.array(hashes, np.uint64)


def spec_query(spec: str) -> Query:
    """Returns the query of a spec, as received or as sent to mergers."""
    return query_of(definition_of_spec(spec))


def knn_of(spec: str) -> KnnQuery:
    """Returns the knn query of a spec."""
    query = spec_query(spec)
    assert isinstance(query, KnnQuery)
    return query


def step_kind(spec: str) -> StepKind:
    """Returns the terms or ranked query of a spec."""
    query = spec_query(spec)
    assert isinstance(query, TermsQuery | RankedQuery)
    return query
