"""The registry: the half of a router's back that owns queries (rule R3).

The compacted topic `registry` is the source of truth: the newest record of a query id is the query.
A change is one append, conditional on the revision (the offset of the record before it). The owner
of a registry partition appends the change requests of clients (`change_requests`) and decides in
offset order which changes are in force (`change_validation`). It forwards these to the slots that
the region meets (`slot_updates`), answers when every slot has them, and republishes what a void
record may hide (`registry_repair`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.errors import Unavailable
from sirocco.model.text import ANALYSIS
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    AppendChanges,
    ChangeRequest,
    Effect,
    Outcome,
    PlainRequests,
    RemovalRequests,
    State,
)
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_REVISION,
    REGISTRY,
    Change,
    Prepare,
    Retire,
    TrackedMember,
    TrackedMemberSet,
)
from sirocco.protocol.contract.plain_queries import (
    ChangeColumns,
    ChangeRecords,
    PlainChanges,
    Removals,
)
from sirocco.protocol.contract.record_sizes import record_bytes
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.queries.change_requests import PendingRequests
from sirocco.protocol.router.queries.change_validation import ChangeValidation
from sirocco.protocol.router.queries.end_requests import EndRequests
from sirocco.protocol.router.queries.install_records import Installs, installed_bytes
from sirocco.protocol.router.queries.keyword_summary import KeywordSummary
from sirocco.protocol.router.queries.life_starts import LifeStarts
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.member_declarations import MemberDeclarations
from sirocco.protocol.router.queries.plain_updates import (
    PlainUpdates,
    RemovalUpdates,
    parts,
    removal_parts,
)
from sirocco.protocol.router.queries.query_placement import Routings, Stage
from sirocco.protocol.router.queries.registry_repair import RegistryRepair
from sirocco.protocol.router.queries.report_locators import Locators
from sirocco.protocol.router.queries.slot_updates import SlotUpdates
from sirocco.schemes.map.map_difference import map_difference

DEPOSED = "the owner of this part of the registry has changed; try again"

# A record with its offset, or the first offset of several.
Read = tuple[int, Change | Prepare | Retire | ChangeRecords]


@dataclass(slots=True, kw_only=True)
class Registry:
    """One owned registry partition: it decides on changes, forwards them and answers.

    Attributes:
        partition: the Kafka partition.
        offset: next offset to read.
        floor: offset of the last checkpoint: changes below it are in their slots.
        epoch: of the ownership.
        live: the queries.
        locators: where the objects of queries are reported, as far as maps by keyword need it.
        life_starts: the revisions at which changed queries began.
        end_requests: the queries whose end is to be reported.
        stage: the maps by which queries are placed.
        intake_partitions: number of intake partitions.
        limits: of the router.
        keyword_summary: publishes which objects the queries need; None where everything is stored.
        member_declarations: publishes by which members objects are followed.
        repair: republishes queries whose newest record is void.
        validation: decides which changes are in force.
        pending_requests: the pending change requests.
        is_crowded: whether records wait because a turn has sent enough to slots.
        is_paused: whether no more are read meanwhile.
        has_more_expired: whether further lifetimes have ended than `expire` has appended.
    """

    partition: int
    offset: int
    floor: int
    epoch: int
    live: LiveQueries = field(default_factory=LiveQueries)
    locators: Locators = field(init=False)
    life_starts: LifeStarts = field(default_factory=LifeStarts)
    end_requests: EndRequests = field(default_factory=EndRequests)
    stage: Stage = field(default_factory=Stage)
    intake_partitions: int = 1
    limits: RouterLimits = LIMITS
    keyword_summary: KeywordSummary | None = None
    member_declarations: MemberDeclarations = field(init=False)
    repair: RegistryRepair = field(init=False)
    validation: ChangeValidation = field(init=False)
    pending_requests: PendingRequests = field(init=False)
    is_crowded: bool = False
    is_paused: bool = False
    has_more_expired: bool = False
    # Offset of the last `Prepare` or `Retire` that was read.
    _staged: int = -1
    _is_announcing: bool = False
    # Handle and revision of the last query for which `expire` has appended a removal.
    _last_expired: tuple[int, int] = (0, NO_REVISION)
    # Records that wait for a map to be read from `control`, or for the next turn.
    _held: list[Read] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.locators = Locators(limits=self.limits)
        self.member_declarations = MemberDeclarations(self.partition, self.epoch, self.limits)
        self.repair = RegistryRepair(self.partition, self.epoch, self.live)
        self.validation = ChangeValidation(
            epoch=self.epoch, begin=self.offset, live=self.live, repair=self.repair
        )
        self.pending_requests = PendingRequests(
            partition=self.partition,
            epoch=self.epoch,
            live=self.live,
            locators=self.locators,
            validation=self.validation,
            life_starts=self.life_starts,
            member_declarations=self.member_declarations,
            limits=self.limits,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the state for a checkpoint."""
        return {
            "epoch": np.array([self.validation.epoch_seen], np.int64),
            "analysis": np.array([ANALYSIS], np.int64),
            **self.repair.state(),
            **self.stage.state(),
            **self.locators.state(),
            **self.life_starts.state(),
            **self.end_requests.state(),
            **self.member_declarations.state(),
            **self.live.state(),
            **(self.keyword_summary.state() if self.keyword_summary else {}),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        self.validation.epoch_seen = int(state["epoch"][0])
        self.stage.restore(state)
        self.repair.restore(state)
        self.locators.restore(state)
        self.life_starts.restore(state)
        self.end_requests.restore(state)
        self.member_declarations.restore(state)
        self.live.restore(state)
        if self.keyword_summary:
            self.keyword_summary.restore(state)

    @property
    def hidden(self) -> dict[int, None]:
        """Live queries whose newest record is void and that have not been republished yet."""
        return self.repair.hidden

    def place(self, handle: int) -> int:
        """Returns the offset of a live query's definition; `NO_REVISION` when there is none."""
        return self.repair.place(handle)

    def unplaced_places(self) -> NDArray[np.int64]:
        """Returns the offsets of the definitions that are to be copied, i8[n], ascending.

        In any thread: of changes meanwhile it may miss some, or name some in vain.
        """
        return np.sort(self.repair.places_of(self.live.unplaced_rows()))

    @property
    def is_deposed(self) -> bool:
        """Whether the log has shown a record of a later owner of this partition."""
        return self.validation.epoch_seen > self.epoch

    @property
    def is_announced(self) -> bool:
        """See `ChangeValidation.is_announced`."""
        return self.validation.is_announced

    @property
    def is_held_up(self) -> bool:
        """Whether records wait: for a map, or for the next turn."""
        return bool(self._held)

    @property
    def next_offset(self) -> int:
        """Returns the offset after the last record that was taken, of those that wait too."""
        if not self._held:
            return self.offset
        offset, last = self._held[-1]
        return 1 + (int(last.offsets[-1]) if isinstance(last, ChangeRecords) else offset)

    @property
    def has_gaps(self) -> bool:
        """Whether compaction may have removed records whose outcome this owner has yet to read.

        Until then the state may differ from the true one at its offset: it may hold a version that
        a missing one replaced.
        """
        return self.validation.has_gaps

    def take_requests(self, token: int, requests: tuple[ChangeRequest, ...]) -> list[Effect]:
        """Takes the change requests of a client; each is decided at once or appended."""
        if self.is_deposed:
            return [Answer(token, (Outcome(NO_REVISION, Unavailable(DEPOSED)),) * len(requests))]
        return self.pending_requests.take_requests(token, requests)

    def take_column_requests(
        self, token: int, requests: PlainRequests | RemovalRequests
    ) -> list[Effect]:
        """The same for requests that are columns."""
        if self.is_deposed:
            return [Answer(token, (Outcome(NO_REVISION, Unavailable(DEPOSED)),) * len(requests))]
        return self.pending_requests.take_columns(token, requests)

    def read(self, records: Sequence[Read], routings: Routings) -> list[Effect]:
        """Takes the next records of the partition: (offset, record) in order.

        Records that need an unknown map wait, and those beyond what one turn sends to slots; a call
        without records continues with those that wait.
        """
        self._held += records
        self.is_crowded = False
        effects: list[Effect] = []
        room = self.limits.turn_bytes_max
        while self._held:
            self.stage.base = self.stage.base or min(routings, default=0)
            if not self.stage.is_known(routings):
                break
            if room <= 0:
                self.is_crowded = True
                break
            offset, first = self._held[0]
            if isinstance(first, Change):
                own = self._read(self._next_changes(), routings)
            elif isinstance(first, ChangeRecords):
                own = self._read_columns(self._next_columns(first), routings)
            else:
                del self._held[0]
                own = []
                self._read_stage(offset, first, routings)
            effects += own
            room -= installed_bytes(own)
        self.pending_requests.next_routing = routings.get(self.stage.following)
        return effects

    def _next_changes(self) -> list[tuple[int, Change]]:
        """Takes the next changes: at least one, no more than a record of a slot holds."""
        changes: list[tuple[int, Change]] = []
        size = 0
        for each in self._held:
            if not _is_change(each):
                break
            change = each[1]
            if change.query is not None:
                size += record_bytes(change.query, change.subscriber, change.locator)
            if changes and size > self.limits.part_bytes_max:
                break
            changes.append(each)
        del self._held[: len(changes)]
        return changes

    def _next_columns(self, records: ChangeRecords) -> ChangeRecords:
        """Takes the next part of the first record that waits, `records`."""
        offsets, changes = records.offsets, records.changes
        _, end = next(iter(self._parts(changes)))
        if end == len(offsets):
            del self._held[0]
            return records
        rest = ChangeRecords(offsets[end:], changes.take(np.arange(end, len(offsets))))
        self._held[0] = int(rest.offsets[0]), rest
        return ChangeRecords(offsets[:end], changes.take(np.arange(end)))

    def _read_stage(self, offset: int, record: Prepare | Retire, routings: Routings) -> None:
        self.validation.note_gap(self.offset, offset)
        self._staged = offset
        if isinstance(record, Prepare):
            if self.stage.prepare(record.version):
                base, following = routings[self.stage.base], routings.get(record.version)
                change = None if following is None else map_difference(base, following)
                self.live.unplace(change, base.slots)
        elif self.stage.retire(record.version, record.at_ms):
            self.live.has_surplus = True
        self.offset = offset + 1

    def _read(self, changes: list[tuple[int, Change]], routings: Routings) -> list[Effect]:
        valid = self.validation.validate(changes, self.offset)
        is_by_keyword = self.stage.is_by_keyword(routings)
        ends, effects = [], list[Effect]()
        for revision, change in valid:
            # Before it is answered: so what is published after the answer follows these records.
            effects += self._everywhere(self.member_declarations.learn(change))
            self.locators.learn(change, is_by_keyword=is_by_keyword)
            self.life_starts.learn(change)
            if end := self.end_requests.learn(revision, change):
                ends.append(end)
        self.offset = changes[-1][0] + 1
        bytes_max = self.limits.installed_bytes_max
        installs = Installs(self.partition, self.floor, bytes_max=bytes_max)
        updates = SlotUpdates(self.live, self.stage, routings, self._staged, self.keyword_summary)
        effects += updates.forward(valid, self.validation.take_unplaced_versions(), installs)
        # After the changes of queries in the slots' logs.
        effects += updates.send_ends(ends, installs)
        # Those of an owner that is deposed, or not announced yet, would be void.
        effects += (
            self.repair.republish_removals(self.validation.in_doubt) if self.is_announced else []
        )
        valid_offsets = {offset for offset, _ in valid}
        for offset, change in changes:
            effects += self.pending_requests.take_record(
                offset, change, is_valid=offset in valid_offsets
            )
        return effects + self.abandon() if self.is_deposed else effects

    def _read_columns(self, records: ChangeRecords, routings: Routings) -> list[Effect]:
        offsets, changes = records.offsets, records.changes
        if not self._are_usual(changes, routings):
            each = enumerate(offsets.tolist())
            return self._read([(at, changes.change(row)) for row, at in each], routings)
        self.repair.note_many(changes.handles)
        self.offset = int(offsets[-1]) + 1
        effects = self._forward(offsets, changes, routings)
        return effects + self.pending_requests.take_column_records(offsets, changes)

    def _parts(self, changes: ChangeColumns) -> Iterable[tuple[int, int]]:
        """Returns begin and end of the parts that are forwarded one after the other."""
        if isinstance(changes, PlainChanges):
            return parts(changes.queries, self.limits.part_bytes_max)
        return removal_parts(len(changes), self.limits.installed_bytes_max)

    def _forward(
        self, offsets: NDArray[np.int64], changes: ChangeColumns, routings: Routings
    ) -> list[Effect]:
        """Returns the records for slots."""
        if isinstance(changes, Removals):
            updates = RemovalUpdates(self.partition, self.floor, self.live)
            return updates.forward(offsets, changes.handles)
        routing = routings[self.stage.base]
        return PlainUpdates(self.partition, self.floor, self.live, routing).forward(
            offsets, changes
        )

    def _are_usual(self, changes: ChangeColumns, routings: Routings) -> bool:
        """Whether some changes are all valid, and are sent to slots and callers alone.

        That is so if they were appended by this owner, replace what is in force, are of distinct
        queries, and nothing is in doubt, missing or moving.
        """
        if not self.validation.are_certain(changes.epochs):
            return False
        if self.stage.following or self.stage.is_by_keyword(routings) or self.keyword_summary:
            return False
        handles = changes.handles
        known = self.live.rows_of(handles)
        is_here = known >= 0
        if isinstance(changes, Removals) and not is_here.all():
            return False
        revisions = np.where(is_here, self.live.revisions[known], NO_REVISION)
        if not np.array_equal(revisions, changes.expected_revisions):
            return False
        if self.live.unplaced and not self.live.is_placed[known[is_here]].all():
            return False
        noted = (self.end_requests, self.life_starts, self.member_declarations, self.locators)
        are_distinct = len(sorted_distinct(handles)) == len(handles)
        return are_distinct and not any(one.knows(handles) for one in noted)

    def abandon(self) -> list[Effect]:
        """Answers all waiting requests that the owner has changed; callers may try again there."""
        return self.pending_requests.refuse(Unavailable(DEPOSED))

    def expire(self, now_ms: int) -> list[Effect]:
        """Appends removals of queries whose lifetime has ended, the next ones once these are shown.

        Clients choose how many lifetimes end in one moment.
        """
        if self._are_removals_under_way():
            return []
        handles = self.live.expired(now_ms)
        self.has_more_expired = False
        if not self.is_announced:
            return self.announce(now_ms) if len(handles) else []
        handles = handles[~self.pending_requests.are_held(handles)]
        if not len(handles):
            return []
        self.has_more_expired = len(handles) > self.limits.expired_max
        handles = handles[: self.limits.expired_max]
        count = len(handles)
        removals = Removals(
            handles,
            np.full(count, now_ms, np.int64),
            self.live.known_columns(handles).revisions,
            np.full(count, self.epoch, np.int64),
        )
        self._last_expired = int(handles[-1]), int(removals.expected_revisions[-1])
        return [AppendChanges(self.partition, removals)]

    def _are_removals_under_way(self) -> bool:
        """Whether the log has yet to show the last removal that was appended."""
        handle, revision = self._last_expired
        return revision != NO_REVISION and self.live.revision(handle) == revision

    def publish_summary(self, now_ms: int) -> list[Effect]:
        """Publishes part of the summary when due, and no predecessor can change the registry."""
        keyword_summary = self.keyword_summary
        if keyword_summary is None or self.is_deposed or not keyword_summary.is_due:
            return []
        return keyword_summary.next() if self.is_announced else self.announce(now_ms)

    def forget_members(self, now_ms: int) -> list[Effect]:
        """Publishes the tracked members when many have gone and none can be missing."""
        if self.is_deposed or self.has_gaps or not self.member_declarations.is_due:
            return []
        if not self.is_announced:
            return self.announce(now_ms)
        return self._everywhere([self.member_declarations.keep()])

    def _everywhere(self, records: Sequence[TrackedMember | TrackedMemberSet]) -> list[Effect]:
        return [
            Append(INTAKE, partition, each)
            for each in records
            for partition in range(self.intake_partitions)
        ]

    def announce(self, now_ms: int) -> list[Effect]:
        """Appends a record of this ownership, once, if the log has not shown one."""
        if self._is_announcing or self.is_announced or self.is_deposed:
            return []
        self._is_announcing = True
        return [Append(REGISTRY, self.partition, self.pending_requests.probe(now_ms))]

    def republish(self, offset: int, change: Change) -> list[Effect]:
        """Republishes the version in force of a query whose newest record is void.

        Args:
            offset: of the definition in force.
            change: the record there.
        """
        handle = change.handle
        if (
            handle in self.validation.in_doubt
            or handle in self.pending_requests
            or not self.is_announced
        ):
            return []
        return self.repair.republish(offset, change)


def _is_change(record: Read) -> TypeGuard[tuple[int, Change]]:
    return isinstance(record[1], Change)
