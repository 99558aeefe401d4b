"""Decides which changes of a registry partition are in force, in the order of offsets.

A change is conditional on the revision (the offset of the record before it), so an append of a
zombie is void at any offset. An owner that reads a compacted log may miss records: also the one
that a change replaces. Then it guesses until the log shows what was appended since its ownership
began. It treats queries as in doubt if it cannot know, and sends nothing of them before it knows.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.router.queries.compaction_gaps import CompactionGaps, Doubt
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.registry_repair import RegistryRepair


@dataclass(slots=True, kw_only=True)
class ChangeValidation:
    """Which changes are in force, as the owner of a registry partition knows it.

    Attributes:
        epoch: of the ownership.
        begin: the first offset that was read.
        live: the queries, after the changes validated before.
        repair: notes for each record whether it holds what is in force.
        epoch_seen: the greatest of any record; if greater than `epoch`, a later owner exists.
        voids: number of void changes.
    """

    epoch: int
    begin: int
    live: LiveQueries
    repair: RegistryRepair
    epoch_seen: int = 0
    voids: int = 0
    _gaps: CompactionGaps = field(default_factory=CompactionGaps)
    # Queries whose version in force is unknown until a later record shows it.
    _doubts: dict[int, Doubt] = field(default_factory=dict)
    # Query → offset of its removal, while records are missing.
    _removals: dict[int, int] = field(default_factory=dict)
    # Queries of which compaction may have removed versions before they were read: any slot may hold
    # those.
    _unplaced_versions: set[int] = field(default_factory=set)

    @property
    def is_announced(self) -> bool:
        """Whether the log has shown this ownership: former owners have read less, or know of it."""
        return self.epoch_seen == self.epoch

    @property
    def has_gaps(self) -> bool:
        """Whether records are missing whose outcome has yet to be read."""
        return bool(self._gaps)

    @property
    def in_doubt(self) -> Container[int]:
        """The queries whose version in force is unknown."""
        return self._doubts.keys()

    def take_unplaced_versions(self) -> list[int]:
        """Returns, once, the validated queries of which any slot may hold an earlier version."""
        unplaced = list(self._unplaced_versions)
        self._unplaced_versions.clear()
        return unplaced

    def are_certain(self, epochs: NDArray[np.int64]) -> bool:
        """Whether changes of these epochs are in force if they replace what is, beyond doubt."""
        return (
            self.is_announced
            and not self._gaps
            and not self._doubts
            and bool((epochs == self.epoch).all())
        )

    def note_gap(self, begin: int, end: int) -> None:
        """Notes that the records [begin, end) were not in the log when it was read."""
        if begin < end and self.epoch_seen < self.epoch:
            self._gaps.note(begin, end)

    def validate(self, changes: list[tuple[int, Change]], offset: int) -> list[tuple[int, Change]]:
        """Validates the next changes.

        Args:
            changes: (offset, change) in order.
            offset: of the record that would be the next one.

        Returns:
            The changes newly in force, to be sent to slots: each with its revision, or for a
            removal with the offset of its record.
        """
        revisions = self._revisions(changes)
        in_force: list[tuple[int, Change]] = []
        for at, change in changes:
            self.note_gap(offset, at)
            offset = at + 1
            # A suspended router may append a change that its successor has already made and undone
            # for the client: the revision alone would not show that.
            is_late = change.epoch < self.epoch_seen
            self.epoch_seen = max(self.epoch_seen, change.epoch)
            if self._gaps and self.epoch_seen >= self.epoch:
                in_force += self._close_gaps()
            if change.is_probe:
                continue
            current, revision = revisions[change.handle], _revision_of(at, change)
            if is_late or not self._fits(change, revision, current):
                self._void(change)
                continue
            revisions[change.handle] = revision
            self.repair.note_valid(at, change)
            in_force += self._accept(at, change, current)
        return in_force

    def _revisions(self, changes: list[tuple[int, Change]]) -> dict[int, int]:
        """Returns the revision believed in force of each query, before the first of its changes.

        Of several changes of one query in one batch, each is validated against the revision that
        the one before it left.
        """
        handles = np.array([change.handle for _, change in changes], np.uint64)
        rows = self.live.rows_of(handles)
        known = np.where(rows >= 0, self.live.revisions[rows], NO_REVISION)
        revisions: dict[int, int] = dict(zip(handles.tolist(), known.tolist(), strict=True))
        for handle in self._doubts.keys() & revisions.keys():
            revisions[handle] = self._doubts[handle].revision
        return revisions

    def _fits(self, change: Change, revision: int, current: int) -> bool:
        """Whether a change replaces the version in force, as far as can be known.

        The content of records that compaction removed before they were read is unknown. The newest
        record of each query remains, which replaced them and holds the truth.
        """
        handle, expected = change.handle, change.expected_revision
        if expected == current:
            return True
        if not self._gaps:
            return False
        doubt = self._doubts.get(handle)
        if doubt is not None and expected in doubt.possible:
            doubt.keep()
            return True
        is_removed = current == NO_REVISION
        places = self._removals if is_removed else self.repair.places
        place = places.get(handle, current)
        if expected != NO_REVISION:
            # A missing version that came after the one known here.
            return expected > place and self._gaps.holds(expected)
        if not self._gaps.has_after(place):
            return False
        # The removal of the known version may be missing, or the appender did not know of it.
        doubt = self._doubts.setdefault(handle, Doubt(current))
        # A removal of what was read here will be read as well, unless compaction ran meanwhile.
        was_read = place >= self.begin
        if was_read:
            doubt.possible[revision] = [(revision, change)]
        else:
            doubt.keep()
        return not was_read

    def _void(self, change: Change) -> None:
        self.voids += 1
        self.repair.note_void(change)

    def _accept(self, offset: int, change: Change, current: int) -> list[tuple[int, Change]]:
        """Returns what to send of a change in force; nothing if it is in doubt or already known."""
        handle, revision = change.handle, _revision_of(offset, change)
        if self._gaps and change.query is None:
            self._removals[handle] = offset
        in_force = (offset if change.query is None else revision, change)
        if handle in self._doubts:
            self._doubts[handle].accept(revision, in_force)
            return []
        is_known = current == revision != NO_REVISION
        if change.is_republished and (is_known or not self._gaps):
            return []
        if self._gaps:
            self._unplaced_versions.add(handle)
        return [in_force]

    def _close_gaps(self) -> list[tuple[int, Change]]:
        """Resolves the doubts; no more missing records can matter.

        Compaction spares what was appended since this ownership began, and none of it replaces a
        missing record.
        """
        self._gaps.forget()
        self._removals.clear()
        in_force = [each for doubt in self._doubts.values() for each in doubt.in_force]
        self._doubts.clear()
        # Of queries whose version in force is still the known one, slots were sent nothing else.
        in_force = [(at, each) for at, each in in_force if at != self.live.revision(each.handle)]
        self._unplaced_versions.update(change.handle for _, change in in_force)
        return in_force


def _revision_of(offset: int, change: Change) -> int:
    """Returns the revision in force after a valid change."""
    if change.query is None:
        return NO_REVISION
    return change.expected_revision if change.is_republished else offset
