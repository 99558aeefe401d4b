"""Takes changes of the registry into the queries of a slot: they enter, are replaced, and end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import take_queries, with_numbers, without_text
from sirocco.index.base.kinds import KIND_RANGE, KIND_TRACKED
from sirocco.index.base.ragged import take_ragged
from sirocco.index.standing.limits import StandingLimits
from sirocco.index.standing.query_table import NamedQueries
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.track_pairs import Members
from sirocco.index.store.store_condition import compile_condition
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.term_hashing import TermHashing
from sirocco.protocol.contract.messages import (
    AT_ONCE_MS,
    NO_PAST,
    NO_REVISION,
    NOT_COPIED,
    Installed,
)
from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
)
from sirocco.protocol.contract.query_definitions import query_of
from sirocco.protocol.contract.query_words import (
    Definitions,
    analysed_from,
    with_definitions,
    with_words,
)
from sirocco.protocol.evaluator.reports.history_answers import (
    HistoryRequest,
)
from sirocco.protocol.evaluator.slot.copy_offsets import CopyOffsets
from sirocco.protocol.evaluator.slot.removed_queries import UNKNOWN, RemovedQueries
from sirocco.protocol.evaluator.standing.definitions import filters_of
from sirocco.protocol.evaluator.standing.lifetimes import Lifetimes
from sirocco.protocol.evaluator.standing.query_ends import QueryEnd, QueryEndings
from sirocco.protocol.evaluator.standing.query_families import TRACKED, family_of
from sirocco.protocol.evaluator.standing.standing_queries import StandingQueries


@dataclass(slots=True)
class Changed:
    """Results of an install that must be reported at its position.

    Attributes:
        history_requests: new queries that ask for the past.
        ended: rows of `StandingQueries.names`, queries of which mergers keep state; with each the
            offset of the change that ended it, and whether that continues it.
        partition: of the registry, where the changes come from.
        time_ms: the time of the slot before them.
        exits: values that were inside a query which has ended, or whose region moved away.
        reported_ends: ended queries whose end is to be reported.
    """

    history_requests: list[HistoryRequest] = field(default_factory=list)
    ended: list[tuple[int, int, bool]] = field(default_factory=list)
    partition: int = 0
    time_ms: int = NO_TIME_MS
    exits: list[Members] = field(default_factory=list)
    reported_ends: list[QueryEnd] = field(default_factory=list)

    @property
    def has_reports(self) -> bool:
        """Whether there may be anything to report."""
        return bool(self.history_requests or self.ended or self.exits or self.reported_ends)


class QueryChanges:
    """The queries of a slot, as the changes in its log leave them.

    Attributes:
        standing: the queries.
        lifetimes: ends of queries with tracked values.
        endings: the ends that are to be reported.
        floors: registry partition → below which offset every change was here before.
        removed: queries of which an older registration may still be repeated.
        copied: by family: up to which offset of the registry its queries were copied here.
        unsaved: how many changes came since the last checkpoint.
        definitions: of queries that an earlier analysis may have read otherwise; None: not needed.
        has_former_texts: a router of an earlier version has sent queries since the slot was loaded:
            it needs the definitions once more when it is loaded again.
    """

    def __init__(self, hashing: TermHashing, limits: StandingLimits) -> None:
        """Creates an empty one; `hashing` numbers the terms of queries."""
        self.hashing = hashing
        self.standing = StandingQueries(hashing, limits)
        self.lifetimes = Lifetimes()
        self.endings = QueryEndings()
        self.floors: dict[int, int] = {}
        self.removed = RemovedQueries()
        self.copied = [CopyOffsets() for _ in self.standing.families]
        self.unsaved = 0
        self.definitions: Definitions | None = None
        self.has_former_texts = False

    def install(self, offset: int, message: Installed, time_ms: int) -> Changed:
        """Takes the changes of a record of the slot's log, at its offset and the slot's time."""
        partition = message.registry_partition
        known_floor = self.floors.get(partition, 0)
        self.unsaved += len(message.revisions) + len(message.removed)
        changed = Changed(partition=partition, time_ms=time_ms)
        if len(message.revisions):
            if not message.rows.has_words:
                message = self._analysed_anew(message)
            self._install_queries(offset, message, known_floor, changed)
        if len(message.removed):
            self._remove_queries(offset, message, changed)
        changed.reported_ends = self.endings.registry_ends(message, known_floor)
        if message.floor > known_floor:
            self.floors[partition] = message.floor
            self.endings.forget(partition, message.floor)
            self.removed.forget_below(partition, message.floor)
        return changed

    def _analysed_anew(self, message: Installed) -> Installed:
        """Returns queries of an earlier version with the texts of their definitions."""
        self.has_former_texts = True
        names, rows = message.names, message.rows
        rows = analysed_from(rows, names.handles, message.revisions, self.definitions or {})
        own = {row: query_of(spec) for row, spec in enumerate(names.specs or ()) if spec}
        return replace(message, rows=with_definitions(rows, own))

    def _install_queries(
        self, offset: int, message: Installed, floor: int, changed: Changed
    ) -> None:
        handles = message.names.handles
        found, revisions = self.standing.names.find(handles)
        is_copied = message.copied_at != NOT_COPIED
        if is_copied:
            # Queries that are here already are shared with other slots from now on.
            self.standing.share(message, found)
            is_new = self._is_new_copy(message, floor, revisions)
            for family, rows in found:
                is_here = (rows >= 0) & (message.revisions == revisions)
                self.copied[family].renew(rows[is_here], message.copied_at)
        else:
            is_new = self._is_new(message, floor, revisions)
        if not is_new.any():
            return
        replacements = _ReplacedQueries.none()
        for family, rows in found:
            is_replaced = is_new & (rows >= 0)
            replaced = rows[is_replaced]
            by = np.flatnonzero(is_replaced)
            is_continued = self._are_continued(message, by, family, replaced)
            if family == TRACKED:
                for handle in handles[is_replaced].tolist():
                    self.lifetimes.drop(handle)
                members = self.standing.tracked.take_members(replaced)
                replacements = _ReplacedQueries(replaced, by, is_continued, members)
            ended = self.standing.end(family, replaced, offset)
            revisions_by = message.revisions[by].tolist()
            changed.ended += zip(ended, revisions_by, is_continued.tolist(), strict=False)
        chosen = np.flatnonzero(is_new)
        self.endings.enter(message, chosen.tolist())
        if self.removed:
            self.removed.forget_expired(handles[chosen])
        if message.specs is None and not (message.past_ms != NO_PAST).any():
            self._enter(message, chosen, KIND_RANGE, offset)
            changed.exits += replacements.exits(self.standing, {}, message, offset)
            return
        new_rows: dict[int, int] = {}
        for kind in sorted_distinct(message.kinds[chosen]).tolist():
            some = chosen[message.kinds[chosen] == kind]
            rows = self._enter(message, some, kind, offset)
            if kind == KIND_TRACKED:
                new_rows = dict(zip(some.tolist(), rows.tolist(), strict=True))
            if is_copied:
                # The slot that has the past objects has reported them.
                self.standing.resume(kind, rows, changed.time_ms)
                continue
            with_past = message.past_ms[some] != NO_PAST
            changed.history_requests += [
                self._history_request(kind, row, message, i)
                for row, i in zip(rows[with_past].tolist(), some[with_past].tolist(), strict=True)
            ]
        changed.exits += replacements.exits(self.standing, new_rows, message, offset)

    def _are_continued(
        self,
        message: Installed,
        changed: NDArray[np.intp],
        family: int,
        rows: NDArray[np.int32],
    ) -> NDArray[np.bool_]:
        """Returns bool[k], whether reports of queries stay valid for their new versions.

        Args:
            message: the new versions.
            changed: i8[k], which of them.
            family: of the old ones.
            rows: i4[k], theirs; before they end.
        """
        table = self.standing.families[family].table
        if message.sinces is None or not len(rows):
            return np.zeros(len(rows), np.bool_)
        sinces = message.sinces[changed]
        names = np.array(message.names.subscribers, np.object_)
        before = np.array(table.subscriber_names, np.object_)[table.subscriber_rows(rows)]
        is_same = names[message.names.subscriber_rows[changed]] == before
        # Terms and ranked queries share a family, but one does not continue the other.
        is_same &= message.kinds[changed] == self.standing.kinds_of(family, rows)
        is_continued: NDArray[np.bool_] = (
            (sinces != NO_REVISION) & (sinces <= table.revisions[rows]) & is_same
        )
        return is_continued

    def _is_new(
        self, message: Installed, floor: int, revisions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        # Below the floor every change was here before: it is a repeat, perhaps of a query that has
        # been removed since.
        is_new = (message.revisions >= floor) & (message.revisions > revisions)
        if self.removed:
            is_new &= message.revisions > self.removed.find(message.names.handles)[1]
        return np.asarray(is_new)

    def _is_new_copy(
        self, message: Installed, floor: int, revisions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        # Copied queries may be older than the floor. So the copy is compared by how far the sender
        # had read the registry. If that is less than this slot was sent, also if it has forgotten
        # the change since, then a suspended router sent the copy late.
        if message.copied_at < floor:
            return np.zeros(len(revisions), np.bool_)
        is_new = message.revisions > revisions
        if self.removed:
            sources, removed = self.removed.find(message.names.handles)
            is_new &= removed < np.where(sources == UNKNOWN, message.revisions, message.copied_at)
        return np.asarray(is_new)

    def _enter(
        self, message: Installed, chosen: NDArray[np.intp], kind: int, offset: int
    ) -> NDArray[np.int32]:
        is_whole = len(chosen) == len(message.revisions)
        queries = message.rows if is_whole else take_queries(message.rows, chosen)
        if self.hashing.is_keyed and not queries.has_words:
            queries = with_words(queries, [_spec(message, i) for i in chosen.tolist()])
        filters = None if message.filters is None else [message.filters[i] for i in chosen]
        rows = self.standing.enter(
            kind, queries, named(message, chosen, kind), message, chosen, filters, offset
        )
        self.copied[family_of(kind)].enter(rows, message.copied_at)
        if kind == KIND_TRACKED:
            self.follow_lifetimes(rows, queries.expires_ms)
        return rows

    def follow_lifetimes(self, rows: NDArray[np.int32], expires_ms: NDArray[np.int64]) -> None:
        """Notes when queries with tracked values end."""
        table = self.standing.families[TRACKED].table
        known = zip(
            table.handle_rows(rows).tolist(),
            table.revisions[rows].tolist(),
            expires_ms.tolist(),
            strict=True,
        )
        for handle, revision, end_ms in known:
            self.lifetimes.put(handle, revision, end_ms)

    def _history_request(self, kind: int, row: int, message: Installed, i: int) -> HistoryRequest:
        where = filters_of(None if message.filters is None else [message.filters[i]], 1)[0]
        with_past = with_words(take_queries(message.rows, np.array([i])), [_spec(message, i)])
        start_ms, past_ms = int(message.starts_ms[i]), int(message.past_ms[i])
        if self.hashing.is_keyed and not with_past.has_words:
            # The store is searched by words alone here, and these are not known.
            condition = compile_condition(without_text(with_past), where)
            return HistoryRequest(kind, row, condition, start_ms, past_ms, with_past)
        condition = compile_condition(
            with_numbers(with_past, self.hashing), where, hashing=self.hashing
        )
        return HistoryRequest(kind, row, condition, start_ms, past_ms)

    def _remove_queries(self, offset: int, message: Installed, changed: Changed) -> None:
        handles, revisions = message.removed, message.removed_revisions
        found, _ = self.standing.names.find(handles)
        is_late = np.zeros(len(handles), np.bool_)
        for family, rows in found:
            table = self.standing.families[family].table
            if message.copied_at != NOT_COPIED:
                # The copy was for a later map; a suspended router sent the removal late.
                is_late |= (rows >= 0) & (self.copied[family].of(rows) > message.copied_at)
            is_due = (rows >= 0) & (revisions > table.revisions[rows]) & ~is_late
            self.endings.leave(handles[is_due].tolist())
            if family == TRACKED:
                for handle in handles[is_due].tolist():
                    self.lifetimes.drop(handle)
                if len(left := self.taken(rows[is_due])):
                    changed.exits.append(left)
            ended = self.standing.end(family, rows[is_due], offset)
            changed.ended += [
                (row, by, False) for row, by in zip(ended, revisions[is_due].tolist(), strict=False)
            ]
        is_due = ~is_late
        self.removed.put(handles[is_due], message.registry_partition, revisions[is_due])

    def taken(self, rows: NDArray[np.int32]) -> Members:
        """Takes values out of queries that end, as far as it is known where they were."""
        members = self.standing.tracked.take_members(rows)
        return members.where(members.numbers != NOT_KNOWN)

    def note_expired(self, expired: list[tuple[int, int]]) -> None:
        """Notes queries, (handle, revision), of which older versions may still be repeated."""
        if expired:
            handles = np.array([handle for handle, _ in expired], np.uint64)
            revisions = np.array([revision for _, revision in expired], np.int64)
            self.removed.put_expired(handles, revisions)

    def moves_values(self, message: Installed) -> bool:
        """Whether values may be inside queries that a message changes or removes."""
        standing = self.standing
        return standing.are_tracked(message.names.handles) or standing.are_tracked(message.removed)


@dataclass(frozen=True, slots=True)
class _ReplacedQueries:
    """Queries with tracked values that are replaced; k rows.

    Attributes:
        rows: i4[k], theirs.
        changed: i8[k], row of each in the message.
        is_continued: bool[k], whether the new version continues this one, for the same subscriber.
        members: the values that were inside.
    """

    rows: NDArray[np.int32]
    changed: NDArray[np.intp]
    is_continued: NDArray[np.bool_]
    members: Members

    @classmethod
    def none(cls) -> _ReplacedQueries:
        rows = np.empty(0, np.int32)
        nobody = Members(rows, np.empty(0, np.uint64), rows)
        return cls(rows, np.empty(0, np.intp), np.empty(0, np.bool_), nobody)

    def exits(
        self, standing: StandingQueries, new_rows: dict[int, int], message: Installed, offset: int
    ) -> list[Members]:
        """Moves the values to the new versions; returns those that are no longer inside.

        Args:
            standing: the queries of the slot, the new versions among them.
            new_rows: row of the message → that of the query, of those with tracked values.
            message: the changes.
            offset: of the message.
        """
        if not len(self.members):
            return []
        index = standing.tracked
        news = np.array([new_rows.get(row, -1) for row in self.changed.tolist()], np.int32)
        is_same = index.keys_of(news) == index.keys_of(self.rows)
        news = np.where(self.is_continued & is_same & (news >= 0), news, np.int32(-1))
        begins_ms = np.full(len(news), AT_ONCE_MS, np.int64)
        if message.begins_ms is not None:
            begins_ms = message.begins_ms[self.changed]
        order = np.argsort(self.rows)
        own = order[np.searchsorted(self.rows[order], self.members.query_rows)]
        left = standing.move_members(self.members, news[own], begins_ms[own], offset)
        return [left] if len(left) else []


def _spec(message: Installed, row: int) -> str:
    """Returns the definition of a query; empty for a plain range query."""
    return "" if message.names.specs is None else message.names.specs[row]


def named(message: Installed, chosen: NDArray[np.intp], kind: int) -> NamedQueries:
    """Returns the names of some of the queries of a message, all of a kind."""
    names = message.names
    offsets, places = take_ragged(names.id_offsets, chosen)
    specs = None
    if names.specs is not None:
        # Of range queries only those have one whose words are to be shown.
        specs = tuple(names.specs[row] for row in chosen.tolist())
        specs = specs if kind != KIND_RANGE or any(specs) else None
    return NamedQueries(
        names.handles[chosen],
        names.ids[places],
        offsets,
        names.subscriber_rows[chosen].astype(np.int32),
        specs,
    )
