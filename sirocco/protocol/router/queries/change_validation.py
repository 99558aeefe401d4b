"""Which changes of a registry partition are in force: the log decides, in the order of offsets.

A change is conditional on the revision (the offset of the record before it), so that what a zombie
appends is void wherever it lands. Whoever reads behind compaction does not see all that was there:
what a change replaces may be missing. Then the owner guesses, until the log shows what was appended
since its ownership began; of what it cannot know it doubts, and tells nobody before it knows.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.router.queries.compaction_gaps import Doubt, Missing
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.registry_repair import Restating


@dataclass(slots=True)
class Judging:
    """What the owner of a registry partition knows of which changes are in force.

    Attributes:
        epoch: of the ownership.
        begin: where the reading began.
        live: the queries, as of the changes judged before.
        restating: is told of each record whether it says the truth.
        epoch_seen: the greatest of any record; greater than `epoch`: another owns this now.
        voids: changes that were void.
    """

    epoch: int
    begin: int
    live: LiveQueries
    restating: Restating
    epoch_seen: int = 0
    voids: int = 0
    _missing: Missing = field(default_factory=Missing)
    # Queries of which it is not known which version is in force, until that is read.
    _doubts: dict[int, Doubt] = field(default_factory=dict)
    # Where queries were removed, while something is missing.
    _gone: dict[int, int] = field(default_factory=dict)
    # Queries of which compaction may have taken versions before they were read here: these may
    # stand in any slot.
    _surprising: set[int] = field(default_factory=set)

    @property
    def is_announced(self) -> bool:
        """Whether the log has shown this ownership: all before have read less, or know of it."""
        return self.epoch_seen == self.epoch

    @property
    def is_guessing(self) -> bool:
        """Whether something is missing whose outcome has yet to be read."""
        return bool(self._missing)

    @property
    def in_doubt(self) -> Container[int]:
        """The queries of which it is not known which version is in force."""
        return self._doubts.keys()

    def take_surprising(self) -> list[int]:
        """Returns, once, the judged queries of which any slot may hold an earlier version."""
        surprising = list(self._surprising)
        self._surprising.clear()
        return surprising

    def miss(self, begin: int, end: int) -> None:
        """The records from `begin` to before `end` were not in the log when it was read."""
        if begin < end and self.epoch_seen < self.epoch:
            self._missing.note(begin, end)

    def judge(self, changes: list[tuple[int, Change]], offset: int) -> list[tuple[int, Change]]:
        """Judges the next changes.

        Args:
            changes: (offset, change) in order.
            offset: of the record that would be the next one.

        Returns:
            What has come in force and slots have to be told of: of what stands its revision, of
            what is removed where that was said; and the change.
        """
        revisions = self._revisions(changes)
        told: list[tuple[int, Change]] = []
        for at, change in changes:
            self.miss(offset, at)
            offset = at + 1
            # A router that stood still may append what its client has long had done, and undone,
            # by its successor: the revision alone would not tell.
            is_late = change.epoch < self.epoch_seen
            self.epoch_seen = max(self.epoch_seen, change.epoch)
            if self._missing and self.epoch_seen >= self.epoch:
                told += self._end_guessing()
            if change.is_probe:
                continue
            current, revision = revisions[change.handle], _revision_of(at, change)
            if is_late or not self._fits(change, revision, current):
                self._void(change)
                continue
            revisions[change.handle] = revision
            self.restating.hear_valid(at, change)
            told += self._believe(at, change, current)
        return told

    def _revisions(self, changes: list[tuple[int, Change]]) -> dict[int, int]:
        """What is believed to be in force of each query, before the first of its changes.

        Several changes of one query in one batch: each is judged by the revision that the one
        before it left behind.
        """
        handles = np.array([change.handle for _, change in changes], np.uint64)
        rows = self.live.rows.get(handles)
        known = np.where(rows >= 0, self.live.revisions[rows], NO_REVISION)
        revisions: dict[int, int] = dict(zip(handles.tolist(), known.tolist(), strict=True))
        for handle in self._doubts.keys() & revisions.keys():
            revisions[handle] = self._doubts[handle].revision
        return revisions

    def _fits(self, change: Change, revision: int, current: int) -> bool:
        """Whether a change replaces what is in force, as far as can be known.

        Where compaction has taken records before they were read here, what they said is not known.
        They were replaced by what it left: the newest record of a query, which tells the truth.
        """
        handle, expected = change.handle, change.expected_revision
        if expected == current:
            return True
        if not self._missing:
            return False
        doubt = self._doubts.get(handle)
        if doubt is not None and expected in doubt.possible:
            doubt.possible.add(current)
            return True
        is_gone = current == NO_REVISION
        places = self._gone if is_gone else self.restating.places
        place = places.get(handle, current)
        if expected != NO_REVISION:
            # A version that came behind the one known here.
            return expected > place and self._missing.holds(expected)
        if not self._missing.reaches_behind(place):
            return False
        # The removal of what is known here may be missing; or whoever appended this did not know.
        doubt = self._doubts.setdefault(handle, Doubt(current))
        # Of what was read here it is to be read as well, unless compaction passed meanwhile.
        was_read = place >= self.begin
        doubt.possible.add(revision if was_read else current)
        return not was_read

    def _void(self, change: Change) -> None:
        self.voids += 1
        self.restating.hear_void(change)

    def _believe(self, offset: int, change: Change, current: int) -> list[tuple[int, Change]]:
        """What is to be told of a change in force; nothing while that is in doubt, or known."""
        handle, revision = change.handle, _revision_of(offset, change)
        if self._missing and change.query is None:
            self._gone[handle] = offset
        told = (offset if change.query is None else revision, change)
        if handle in self._doubts:
            self._doubts[handle].believe(revision, told)
            return []
        is_known = current == revision != NO_REVISION
        if change.is_restated and (is_known or not self._missing):
            return []
        if self._missing:
            self._surprising.add(handle)
        return [told]

    def _end_guessing(self) -> list[tuple[int, Change]]:
        """What came of the doubts; nothing will come to light any more.

        Compaction does not come near what was appended since this ownership began, and nothing of
        it replaces what is missing.
        """
        self._missing.forget()
        self._gone.clear()
        told = [doubt.told for doubt in self._doubts.values() if doubt.told is not None]
        self._doubts.clear()
        # Of what is in force as it was nobody was told anything else.
        told = [(at, each) for at, each in told if at != self.live.revision(each.handle)]
        self._surprising.update(change.handle for _, change in told)
        return told


def _revision_of(offset: int, change: Change) -> int:
    """What is in force behind a change that is valid."""
    if change.query is None:
        return NO_REVISION
    return change.expected_revision if change.is_restated else offset
