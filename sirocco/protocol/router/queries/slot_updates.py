"""Forwards changes of queries to slots: those that the new version meets, and those it has left.

Slots are sent the version in force after all that was read; versions in between are skipped. A slot
that may hold one of them, or the one before, is sent its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sirocco.model.query import digest_of_query, fingerprint_of
from sirocco.protocol.contract.effects import Effect
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.contract.query_words import may_read_otherwise
from sirocco.protocol.router.queries.end_requests import End
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.protocol.router.queries.keyword_summary import KeywordSummary
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.query_placement import Placed, Routings, Stage, place_new

# Query → the slots that may hold an earlier version of it.
Former = dict[int, set[int]]


@dataclass(frozen=True, slots=True)
class SlotUpdates:
    """The state with which the changes of one batch are forwarded.

    Attributes:
        live: the queries; updated with all that is forwarded.
        stage: the maps by which they are placed.
        routings: those maps.
        staged: offset of the last `Prepare` or `Retire`; -1 where none was read.
        keyword_summary: updated as well; None where everything is stored.
    """

    live: LiveQueries
    stage: Stage
    routings: Routings
    staged: int
    keyword_summary: KeywordSummary | None

    def forward(
        self, valid: list[tuple[int, Change]], surprising: list[int], installs: Installs
    ) -> list[Effect]:
        """Returns the records to append for some changes, those for slots first.

        Args:
            valid: what is in force, as `ChangeValidation.validate` returns it.
            surprising: the queries of which any slot may hold an earlier version.
            installs: collects what is sent to slots.
        """
        # Of several changes of one query only the last one is sent.
        newest = {change.handle: (offset, change) for offset, change in valid}
        kept = [(o, c) for o, c in newest.values() if c.query is not None]
        gone = [(o, c) for o, c in newest.values() if c.query is None]
        former = self._former_slots(list(newest))
        for handle in surprising:
            former[handle] = self._everywhere()
        self._add_passed(former, valid, newest)
        kept_effects: list[Effect] = []
        if kept:
            kept_effects = self._keep(kept, former, installs)
        if gone:
            for offset, change in gone:
                installs.remove(former[change.handle], change, offset)
            self._drop([change.handle for _, change in gone])
        return installs.effects() + kept_effects

    def send_ends(self, ends: list[End], installs: Installs) -> list[Effect]:
        """Sends the ended queries to every slot, which reports them when it has read the record.

        All that a query will report, in any slot, comes before those reports.
        """
        return installs.ends(ends, sorted(self._everywhere())) if ends else []

    def _everywhere(self) -> set[int]:
        return set(range(self.stage.newest(self.routings).slots))

    def _former_slots(self, handles: list[int]) -> Former:
        """Returns the slots that may hold the known versions."""
        former: Former = {}
        rows = self.live.rows_of(np.array(handles, np.uint64)).tolist()
        for handle, row in zip(handles, rows, strict=True):
            former[handle] = set(self.live.slots(row)) if row >= 0 else set()
            if row >= 0 and not self.live.is_placed[row]:
                # A predecessor may have copied it already, by a definition that is not known here.
                former[handle] = self._everywhere()
        return former

    def _add_passed(
        self,
        former: Former,
        valid: list[tuple[int, Change]],
        newest: dict[int, tuple[int, Change]],
    ) -> None:
        """Adds the slots of versions that are skipped here.

        A predecessor that read in smaller batches may have sent them to slots before it ended.
        """
        passed = [
            change
            for offset, change in valid
            if change.query is not None and newest[change.handle][0] != offset
        ]
        if passed:
            slots = place_new(passed, self.stage, self.routings).slots
            for change, each in zip(passed, slots, strict=True):
                former[change.handle].update(each)

    def _keep(
        self, kept: list[tuple[int, Change]], former: Former, installs: Installs
    ) -> list[Effect]:
        """Forwards and notes new or changed queries."""
        changes = [change for _, change in kept]
        placed = place_new(changes, self.stage, self.routings)
        handles = np.array([change.handle for change in changes], np.uint64)
        for (offset, change), new in zip(kept, placed.slots, strict=True):
            # In slots that the new version does not reach, the old one ends.
            installs.remove(former[change.handle].difference(new), change, offset)
        installs.install(kept, placed.rows, placed.slots)
        if self.keyword_summary:
            self.keyword_summary.drop(handles[self.live.rows_of(handles) >= 0])
        self._enter(kept, placed)
        # Of a missing version only the republished record is read, and a version in doubt is sent
        # late. If the map changed in between it may be in other slots, and may have left some: it
        # is copied like others.
        lost = [revision < self.staged for revision, _ in kept]
        newest = self.stage.newest(self.routings)
        if any(lost):
            self.live.lose(handles[lost], tuple(range(newest.slots)))
        if self.keyword_summary is None:
            return []
        return self.keyword_summary.put(handles, changes, placed.rows, newest)

    def _enter(self, kept: list[tuple[int, Change]], placed: Placed) -> None:
        self.live.put(
            np.array([change.handle for _, change in kept], np.uint64),
            [revision for revision, _ in kept],
            [_digest_of(change) for _, change in kept],
            placed.rows.expires_ms,
            placed.slots,
            placed.wanted,
            [fingerprint_of(c.query.id) for _, c in kept if c.query is not None],
            placed.leaves,
        )

    def _drop(self, gone: list[int]) -> None:
        handles = np.array(gone, np.uint64)
        present = handles[self.live.rows_of(handles) >= 0]
        if self.keyword_summary:
            self.keyword_summary.drop(present)
        self.live.drop(present)


def _digest_of(change: Change) -> int:
    """Returns the digest of a query; that of its record may be of an earlier analysis."""
    if change.query is None or not may_read_otherwise(change.query):
        return change.digest
    return digest_of_query(change.query, change.subscriber)
