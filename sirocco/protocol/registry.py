"""The registry: the half of a router's back that owns queries (rule R3).

The compacted topic `registry` is the source of truth: the newest record of a query id is the query.
A change is one append, conditional on the revision (the offset of the record before it), so that
what a zombie appends is void wherever it lands. The owner of a registry partition decides in offset
order, forwards to the slots that the region meets, and answers when every slot has it.

A change that the owner sees to be pointless (equal or unequal registration, unknown id) is not
appended. But an owner that has just begun, or that stood still and has been replaced, sees an old
state: so it appends a probe, a record that changes nothing, and judges when the log shows it. One
that waits for an append of the same query waits its turn.

What is void may be the newest record of its query, the one that compaction keeps. So the owner says
again what is in force (docs/adr/0005): the newest record of a query tells the truth, or will soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import Unavailable
from sirocco.model.query import query_handle
from sirocco.protocol.compacted import Doubt, Missing
from sirocco.protocol.effects import Answer, Append, Effect, Outcome, State, Wish
from sirocco.protocol.installs import Installs
from sirocco.protocol.live_queries import LiveQueries
from sirocco.protocol.locating import Locators
from sirocco.protocol.messages import NO_PAST, NO_REVISION, REGISTRY, Change, Prepare, Retire
from sirocco.protocol.placement import Routings, Stage, place_new
from sirocco.protocol.summarising import Summarising
from sirocco.protocol.wishes import (
    Asked,
    Pending,
    Request,
    digest_of,
    is_same,
    objection,
    queue,
    settle,
)
from sirocco.schemes.routing import RoutingArrays

# The handle of probes: that of no query. Compaction keeps one of each ownership at most (`key_of`).
PROBE_HANDLE = 0
DEPOSED = "the owner of this part of the registry has changed; try again"

# Probes of one ownership are numbered in so many bits below its epoch.
PROBE_BITS = 24


Read = tuple[int, Change | Prepare | Retire]


@dataclass(slots=True)
class Registry:
    """One owned registry partition: decides, forwards, answers.

    Attributes:
        partition: the Kafka partition.
        offset: next offset to read.
        floor: offset of the last checkpoint: changes below it are in their slots.
        epoch: of the ownership.
        epoch_seen: the greatest of any record; greater than `epoch`: another owns this now.
        live: the queries.
        voids: changes that were void.
        unsaid: live queries whose newest record is void, until what is in force is said again.
        places: where the definitions of queries stand that have been said again; those of all
            others stand at their revision.
        locators: where the objects of queries are reported, as far as maps by keyword need it.
        routing: of the map in force, by which keys are chosen; None while there is none.
        stage: the maps by which queries stand.
        summarising: says which objects the queries need; None where everything is stored.
    """

    partition: int
    offset: int
    floor: int
    epoch: int
    epoch_seen: int = 0
    live: LiveQueries = field(default_factory=LiveQueries)
    voids: int = 0
    unsaid: dict[int, None] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    locators: Locators = field(default_factory=Locators)
    routing: RoutingArrays | None = None
    stage: Stage = field(default_factory=Stage)
    summarising: Summarising | None = None
    _missing: Missing = field(default_factory=Missing)
    # Queries of which it is not known which version is in force, until that is read.
    _doubts: dict[int, Doubt] = field(default_factory=dict)
    # Where queries were removed, while something is missing.
    _gone: dict[int, int] = field(default_factory=dict)
    # Queries of which compaction may have taken versions before they were read here.
    _surprising: set[int] = field(default_factory=set)
    # Offset of the last record of a change of the map that was read.
    _staged: int = -1
    # Where the reading began.
    _begin: int = field(init=False)
    _pending: dict[int, Pending] = field(default_factory=dict)
    # Probe → the queries whose wishes it decides.
    _probed: dict[int, list[int]] = field(default_factory=dict)
    _probes: int = 0
    _is_announcing: bool = False
    # Records that wait for a map to be read from `control`.
    _held: list[Read] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin = self.offset

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        return {
            "epoch": np.array([self.epoch_seen], np.int64),
            "unsaid": np.array(list(self.unsaid), np.uint64),
            "said_again": np.array(list(self.places), np.uint64),
            "places": np.array(list(self.places.values()), np.int64),
            **self.stage.state(),
            **self.locators.state(),
            **self.live.state(),
            **(self.summarising.state() if self.summarising else {}),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        self.epoch_seen = int(state["epoch"][0])
        self.stage.restore(state)
        if "unsaid" in state:
            self.unsaid = dict.fromkeys(state["unsaid"].tolist())
            said_again = state["said_again"].tolist()
            self.places = dict(zip(said_again, state["places"].tolist(), strict=True))
        self.locators.restore(state)
        self.live.restore(state)
        if self.summarising:
            self.summarising.restore(state)

    def place(self, handle: int) -> int:
        """The offset of the definition of a live query; `NO_REVISION` when there is none."""
        place = self.places.get(handle)
        return self.live.revision(handle) if place is None else place

    def wish(self, token: int, wishes: tuple[Wish, ...]) -> list[Effect]:
        """Takes the wishes of a client; each is decided at once or appended."""
        if self.epoch_seen > self.epoch:
            return [Answer(token, (Outcome(NO_REVISION, Unavailable(DEPOSED)),) * len(wishes))]
        request = Request(token, [None] * len(wishes), len(wishes))
        return self._consider([(request, row, wish) for row, wish in enumerate(wishes)])

    def read(self, records: Sequence[Read], routings: Routings) -> list[Effect]:
        """Takes the next records of the partition: (offset, record) in order.

        Those that need a map which is not known yet wait; no records go on with what waits.
        """
        self._held += records
        effects: list[Effect] = []
        while self._held:
            self.stage.base = self.stage.base or min(routings, default=0)
            if not self.stage.is_known(routings):
                break
            offset, first = self._held[0]
            if isinstance(first, Change):
                changes = [each for each in takewhile(_is_change, self._held) if _is_change(each)]
                del self._held[: len(changes)]
                effects += self._read(changes, routings)
                continue
            self._note_missing(self.offset, offset)
            self._staged = offset
            if isinstance(first, Prepare):
                if self.stage.prepare(first.version):
                    self.live.unplace()
            elif self.stage.retire(first.version, first.at_ms):
                self.live.has_surplus = True
            self.offset = offset + 1
            del self._held[0]
        return effects

    @property
    def is_deposed(self) -> bool:
        """Whether another owns this partition now, by what it appended."""
        return self.epoch_seen > self.epoch

    @property
    def is_announced(self) -> bool:
        """Whether the log has shown this ownership: all before have read less, or know of it."""
        return self.epoch_seen == self.epoch

    @property
    def is_held_up(self) -> bool:
        """Whether records wait for a map."""
        return bool(self._held)

    @property
    def is_guessing(self) -> bool:
        """Whether compaction may have taken what this owner has yet to read the outcome of.

        The state is not the true one of its offset then: a version that was replaced by a missing
        one may be in it.
        """
        return bool(self._missing)

    def _read(self, changes: list[tuple[int, Change]], routings: Routings) -> list[Effect]:
        valid = self._valid(changes)
        for _, change in valid:
            self.locators.learn(change, self.stage.newest(routings))
        self.offset = changes[-1][0] + 1
        effects = self._forward(valid, routings)
        effects += self._deny([*valid, *changes])
        valid_offsets = {offset for offset, _ in valid}
        for offset, change in changes:
            effects += self._resolve(offset, change, offset in valid_offsets)
        # Deposed without knowing: what is still appended here would be void.
        return effects + self.abandon() if self.epoch_seen > self.epoch else effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Appends the removal of the queries whose lifetime has ended."""
        effects: list[Effect] = []
        for handle in self.live.expired(now_ms):
            if handle in self._pending:
                continue
            revision = self.live.revision(handle)
            change = Change(handle, None, "", now_ms, revision, 0, self.epoch)
            effects.append(Append(REGISTRY, self.partition, change))
        return effects

    def summarise(self, now_ms: int) -> list[Effect]:
        """Says what all live queries need, when it is due, and a predecessor can add nothing."""
        summarising = self.summarising
        if summarising is None or self.is_deposed or not summarising.is_due:
            return []
        return summarising.next() if self.is_announced else self.announce(now_ms)

    def announce(self, now_ms: int) -> list[Effect]:
        """Appends a record of this ownership, once, if the log has shown none."""
        if self._is_announcing or self.epoch_seen >= self.epoch:
            return []
        self._is_announcing = True
        return [Append(REGISTRY, self.partition, self._probe(now_ms))]

    def restate(self, offset: int, change: Change) -> list[Effect]:
        """Says again what is in force of a query whose newest record is void.

        Args:
            offset: where the definition in force stands.
            change: what is there.
        """
        handle = change.handle
        is_due = handle in self.unsaid and self.place(handle) == offset
        if not is_due or handle in self._doubts or handle in self._pending or self.is_deposed:
            return []
        del self.unsaid[handle]
        revision = self.live.revision(handle)
        again = replace(change, expected_revision=revision, epoch=self.epoch, is_restated=True)
        return [Append(REGISTRY, self.partition, again)]

    def abandon(self) -> list[Effect]:
        """Answers whoever waits that another owner decides now; they may try again there."""
        error = Unavailable(DEPOSED)
        effects: list[Effect] = []
        for pending in self._pending.values():
            waiters = [(pending.request, pending.row)]
            waiters += [(request, row) for request, row, _ in pending.waiting]
            for request, row in waiters:
                effects += settle(request, row, Outcome(NO_REVISION, error))
        self._pending.clear()
        self._probed.clear()
        return effects

    def _consider(self, asked: list[Asked], *, is_current: bool = False) -> list[Effect]:
        """Decides wishes or appends them.

        Args:
            asked: the wishes.
            is_current: the log has shown everything that was in it when they came.
        """
        probe: Change | None = None
        begun: list[Pending] = []
        handles = [query_handle(wish.id) for _, _, wish in asked]
        effects: list[Effect] = []
        for (request, row, wish), handle, (revision, digest, expires_ms) in zip(
            asked, handles, self.live.known(handles), strict=True
        ):
            pending = self._pending.get(handle)
            if pending is not None:
                effects += queue(pending, request, row, wish)
                continue
            wanted = digest_of(wish)
            # One whose lifetime has ended and that is only still to be tidied away is gone.
            exists = revision != NO_REVISION and expires_ms > wish.start_ms
            is_equal = wish.query is not None and exists and digest == wanted
            error = None if is_equal else objection(wish, exists=exists)
            is_pointless = is_equal or error is not None
            if is_pointless and is_current:
                outcome = Outcome(revision) if error is None else Outcome(NO_REVISION, error)
                effects += settle(request, row, outcome)
                continue
            if not is_pointless:
                change = Change(
                    handle, wish.query, wish.subscriber, wish.start_ms, revision, wanted,
                    self.epoch, wish.past_ms,
                )  # fmt: skip
                if locator := self.locators.choose(change, self.routing):
                    change = replace(change, locator=locator)
                effects.append(Append(REGISTRY, self.partition, change))
            else:
                change = probe = probe or self._probe(wish.start_ms)
                self._probed[probe.digest].append(handle)
            self._pending[handle] = Pending(request, row, wish, change)
            begun.append(self._pending[handle])
        for pending in begun:
            pending.covered = len(pending.waiting)
        return [*effects, Append(REGISTRY, self.partition, probe)] if probe else effects

    def _probe(self, now_ms: int) -> Change:
        self._probes += 1
        number = self.epoch << PROBE_BITS | self._probes
        self._probed[number] = []
        # No such query exists, so a change of its revision 0 is void.
        return Change(PROBE_HANDLE, None, "", now_ms, 0, number, self.epoch)

    def _valid(self, changes: list[tuple[int, Change]]) -> list[tuple[int, Change]]:
        # Several changes of one query in one batch: each is judged by the revision that the one
        # before it left behind.
        handles = np.array([change.handle for _, change in changes], np.uint64)
        places = self.live.rows.get(handles)
        known = np.where(places >= 0, self.live.revisions[places], NO_REVISION)
        revisions: dict[int, int] = dict(zip(handles.tolist(), known.tolist(), strict=True))
        for handle in self._doubts.keys() & revisions.keys():
            revisions[handle] = self._doubts[handle].revision
        valid: list[tuple[int, Change]] = []
        next_offset = self.offset
        for offset, change in changes:
            current = revisions[change.handle]
            self._note_missing(next_offset, offset)
            next_offset = offset + 1
            # A router that stood still may append what its client has long had done, and undone,
            # by its successor: the revision alone would not tell.
            is_late = change.epoch < self.epoch_seen
            self.epoch_seen = max(self.epoch_seen, change.epoch)
            if self._missing and self.epoch_seen >= self.epoch:
                # Compaction does not come near what was appended since this ownership began, and
                # nothing of it replaces what is missing.
                self._missing.forget()
                self._gone.clear()
                valid += self._believed()
            revision = _revision_of(offset, change)
            if is_late or not self._fits(change, revision, current):
                self._note_void(change)
                continue
            revisions[change.handle] = revision
            self._said(offset, change)
            if self._missing and change.query is None:
                self._gone[change.handle] = offset
            told = (offset if change.query is None else revision, change)
            if change.handle in self._doubts:
                self._doubts[change.handle].believe(revision, told)
                continue
            is_known = current == revision != NO_REVISION
            if change.is_restated and (is_known or not self._missing):
                continue
            if self._missing:
                # Versions that are not known here may stand in any slot.
                self._surprising.add(change.handle)
            valid.append(told)
        return valid

    def _note_missing(self, begin: int, end: int) -> None:
        """The records from `begin` to before `end` were not in the log when it was read."""
        if begin < end and self.epoch_seen < self.epoch:
            self._missing.note(begin, end)

    def _fits(self, change: Change, revision: int, current: int) -> bool:
        """Whether a change replaces what is in force, as far as can be known.

        Where compaction has taken records before they were read here, what they said is not known.
        They were replaced by what it left: the newest record of a query, which tells the truth.
        """
        handle, expected = change.handle, change.expected_revision
        if expected == current:
            return True
        if not self._missing or handle == PROBE_HANDLE:
            return False
        doubt = self._doubts.get(handle)
        if doubt is not None and expected in doubt.possible:
            doubt.possible.add(current)
            return True
        is_gone = current == NO_REVISION
        place = self._gone.get(handle, -1) if is_gone else self.places.get(handle, current)
        if expected != NO_REVISION:
            # A version that came behind the one known here.
            return expected > place and self._missing.holds(expected)
        if not self._missing.reaches_behind(place):
            return False
        # The removal of what is known here may be missing; or whoever appended this did not know.
        doubt = self._doubts.setdefault(handle, Doubt(current))
        # Of what was read here it is to be read as well, unless compaction passed meanwhile.
        was_read = place >= self._begin
        doubt.possible.add(revision if was_read else current)
        return not was_read

    def _believed(self) -> list[tuple[int, Change]]:
        """What came of the doubts; nothing will come to light any more."""
        told = [doubt.told for doubt in self._doubts.values() if doubt.told is not None]
        self._doubts.clear()
        # Of what is in force as it was nobody was told anything else.
        told = [(at, each) for at, each in told if at != self.live.revision(each.handle)]
        # Versions that are not known here may stand in any slot.
        self._surprising.update(change.handle for _, change in told)
        return told

    def _note_void(self, change: Change) -> None:
        if change.handle != PROBE_HANDLE:
            self.voids += 1
            # Also where it says the truth: whoever reads what compaction left has to believe it.
            self.unsaid[change.handle] = None

    def _said(self, offset: int, change: Change) -> None:
        """The newest record of a query says what is in force."""
        self.unsaid.pop(change.handle, None)
        if change.is_restated and change.query is not None:
            self.places[change.handle] = offset
        else:
            self.places.pop(change.handle, None)

    def _deny(self, changes: list[tuple[int, Change]]) -> list[Effect]:
        """Says again of queries that are gone that they are, where a void record says otherwise."""
        effects: list[Effect] = []
        for _, change in changes if self.unsaid else ():
            if change.handle not in self.unsaid or self.live.revision(change.handle) >= 0:
                continue
            if change.handle in self._doubts:
                continue
            del self.unsaid[change.handle]
            if self.epoch_seen <= self.epoch:
                denial = replace(
                    change,
                    query=None,
                    subscriber="",
                    expected_revision=NO_REVISION,
                    digest=0,
                    epoch=self.epoch,
                    past_ms=NO_PAST,
                    is_restated=True,
                    locator=b"",
                )
                effects.append(Append(REGISTRY, self.partition, denial))
        return effects

    def _forward(self, valid: list[tuple[int, Change]], routings: Routings) -> list[Effect]:
        # Of several changes of one query only the last one needs to be told.
        newest = {change.handle: (offset, change) for offset, change in valid}
        kept = [(o, c) for o, c in newest.values() if c.query is not None]
        gone = [(o, c) for o, c in newest.values() if c.query is None]
        former = self._former_slots(valid, newest, routings)
        installs = Installs(self.partition, self.floor)
        said: list[Effect] = []
        if kept:
            said = self._place(kept, routings, installs, former)
        if gone:
            handles = np.array([change.handle for _, change in gone], np.uint64)
            for offset, change in gone:
                installs.remove(former[change.handle], change, offset)
            present = handles[self.live.rows.get(handles) >= 0]
            if self.summarising:
                self.summarising.drop(present)
            self.live.drop(present)
        return installs.effects() + said

    def _former_slots(
        self,
        valid: list[tuple[int, Change]],
        newest: dict[int, tuple[int, Change]],
        routings: Routings,
    ) -> dict[int, set[int]]:
        """The slots that may hold an earlier version of each changed query.

        Versions that are passed over here count too: a predecessor that read in smaller batches
        may have told slots of them before it ended.
        """
        handles = np.array(list(newest), np.uint64)
        everywhere = range(self.stage.newest(routings).slots)
        former: dict[int, set[int]] = {}
        for handle, row in zip(newest, self.live.rows.get(handles).tolist(), strict=True):
            former[handle] = set(self.live.slots(row)) if row >= 0 else set()
            if row >= 0 and not self.live.is_placed[row]:
                # A predecessor may have copied it already, by a definition that is not at hand.
                former[handle] = set(everywhere)
        for handle in self._surprising:
            former[handle] = set(everywhere)
        self._surprising.clear()
        passed = [
            change
            for offset, change in valid
            if change.query is not None and newest[change.handle][0] != offset
        ]
        if passed:
            slots = place_new(passed, self.stage, routings).slots
            for change, each in zip(passed, slots, strict=True):
                former[change.handle].update(each)
        return former

    def _place(
        self,
        kept: list[tuple[int, Change]],
        routings: Routings,
        installs: Installs,
        former: dict[int, set[int]],
    ) -> list[Effect]:
        placed = place_new([change for _, change in kept], self.stage, routings)
        handles = np.array([change.handle for _, change in kept], np.uint64)
        for (offset, change), new in zip(kept, placed.slots, strict=True):
            # Slots that the new version does not reach: the old one ends there.
            installs.remove(former[change.handle].difference(new), change, offset)
        installs.install(kept, placed.rows, placed.slots)
        if self.summarising:
            self.summarising.drop(handles[self.live.rows.get(handles) >= 0])
        self.live.put(
            handles,
            [offset for offset, _ in kept],
            [change.digest for _, change in kept],
            placed.rows.expires_ms,
            placed.slots,
            placed.wanted,
        )
        # Of a version that is missing, what was said again is all that is read, and what was in
        # doubt is told late. If the map changed in between it may stand in other slots, and may
        # have left some: it is copied like others.
        lost = [revision < self._staged for revision, _ in kept]
        newest = self.stage.newest(routings)
        if any(lost):
            self.live.lose(handles[lost], tuple(range(newest.slots)))
        if self.summarising is None:
            return []
        return self.summarising.put(handles, [c for _, c in kept], placed.rows, newest)

    def _resolve(self, offset: int, change: Change, is_valid: bool) -> list[Effect]:
        if change.handle == PROBE_HANDLE:
            probed = [self._pending.pop(h) for h in self._probed.pop(change.digest, [])]
            return self._go_on(probed, is_settled=False)
        pending = self._pending.get(change.handle)
        if pending is None or not is_same(change, pending.change):
            return []
        del self._pending[change.handle]
        effects = []
        if is_valid:
            effects = settle(pending.request, pending.row, Outcome(offset))
        # Void: somebody else's change came first. The wish is looked at anew.
        return effects + self._go_on([pending], is_settled=is_valid)

    def _go_on(self, shown: list[Pending], *, is_settled: bool) -> list[Effect]:
        """Decides the wishes of appends that the log has shown, and those behind them."""
        current: list[Asked] = []
        later: list[Asked] = []
        for pending in shown:
            if not is_settled:
                current.append((pending.request, pending.row, pending.wish))
            waiting = list(pending.waiting)
            current += waiting[: pending.covered]
            later += waiting[pending.covered :]
        effects = self._consider(current, is_current=True) if current else []
        return effects + self._consider(later) if later else effects


def _revision_of(offset: int, change: Change) -> int:
    """What is in force behind a change that is valid."""
    if change.query is None:
        return NO_REVISION
    return change.expected_revision if change.is_restated else offset


def _is_change(record: Read) -> TypeGuard[tuple[int, Change]]:
    return isinstance(record[1], Change)
