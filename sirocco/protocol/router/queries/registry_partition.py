"""The registry: the half of a router's back that owns queries (rule R3).

The compacted topic `registry` is the source of truth: the newest record of a query id is the query.
A change is one append, conditional on the revision (the offset of the record before it). The owner
of a registry partition appends what its clients wish (`deciding`), decides in offset order which
changes are in force (`judging`), forwards these to the slots that the region meets (`forwarding`),
answers when every slot has it, and says again what a void record may hide (`restating`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.effects import Answer, Append, Effect, Outcome, State, Wish
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_REVISION,
    REGISTRY,
    Change,
    Prepare,
    Retire,
    Tracked,
    TrackedOnly,
)
from sirocco.protocol.router.queries.change_requests import Deciding
from sirocco.protocol.router.queries.change_validation import Judging
from sirocco.protocol.router.queries.end_requests import Askers
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.protocol.router.queries.keyword_summary import Summarising
from sirocco.protocol.router.queries.life_starts import Lives
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.member_declarations import Tracking
from sirocco.protocol.router.queries.query_placement import Routings, Stage
from sirocco.protocol.router.queries.registry_repair import Restating
from sirocco.protocol.router.queries.report_locators import Locators
from sirocco.protocol.router.queries.slot_updates import Forwarding

DEPOSED = "the owner of this part of the registry has changed; try again"

Read = tuple[int, Change | Prepare | Retire]


@dataclass(slots=True)
class Registry:
    """One owned registry partition: decides, forwards, answers.

    Attributes:
        partition: the Kafka partition.
        offset: next offset to read.
        floor: offset of the last checkpoint: changes below it are in their slots.
        epoch: of the ownership.
        live: the queries.
        locators: where the objects of queries are reported, as far as maps by keyword need it.
        lives: where those of changed queries began.
        askers: the queries whose end is to be told.
        stage: the maps by which queries stand.
        intake_partitions: how many there are.
        summarising: says which objects the queries need; None where everything is stored.
        tracking: says by which members objects are followed.
        restating: what the newest records of queries say.
        judging: which changes are in force.
        deciding: the wishes under way.
    """

    partition: int
    offset: int
    floor: int
    epoch: int
    live: LiveQueries = field(default_factory=LiveQueries)
    locators: Locators = field(default_factory=Locators)
    lives: Lives = field(default_factory=Lives)
    askers: Askers = field(default_factory=Askers)
    stage: Stage = field(default_factory=Stage)
    intake_partitions: int = 1
    summarising: Summarising | None = None
    tracking: Tracking = field(init=False)
    restating: Restating = field(init=False)
    judging: Judging = field(init=False)
    deciding: Deciding = field(init=False)
    # Offset of the last record of a change of the map that was read.
    _staged: int = -1
    _is_announcing: bool = False
    # Records that wait for a map to be read from `control`.
    _held: list[Read] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracking = Tracking(self.partition, self.epoch)
        self.restating = Restating(self.partition, self.epoch, self.live)
        self.judging = Judging(self.epoch, self.offset, self.live, self.restating)
        self.deciding = Deciding(
            self.partition, self.epoch, self.live, self.locators, self.judging, self.lives,
            self.tracking,
        )  # fmt: skip

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        return {
            "epoch": np.array([self.judging.epoch_seen], np.int64),
            **self.restating.state(),
            **self.stage.state(),
            **self.locators.state(),
            **self.lives.state(),
            **self.askers.state(),
            **self.tracking.state(),
            **self.live.state(),
            **(self.summarising.state() if self.summarising else {}),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        self.judging.epoch_seen = int(state["epoch"][0])
        self.stage.restore(state)
        self.restating.restore(state)
        self.locators.restore(state)
        self.lives.restore(state)
        self.askers.restore(state)
        self.tracking.restore(state)
        self.live.restore(state)
        if self.summarising:
            self.summarising.restore(state)

    @property
    def unsaid(self) -> dict[int, None]:
        """Live queries whose newest record is void, until what is in force is said again."""
        return self.restating.unsaid

    def place(self, handle: int) -> int:
        """The offset of the definition of a live query; `NO_REVISION` when there is none."""
        return self.restating.place(handle)

    @property
    def is_deposed(self) -> bool:
        """Whether another owns this partition now, by what it appended."""
        return self.judging.epoch_seen > self.epoch

    @property
    def is_announced(self) -> bool:
        """See `Judging.is_announced`."""
        return self.judging.is_announced

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
        return self.judging.is_guessing

    def wish(self, token: int, wishes: tuple[Wish, ...]) -> list[Effect]:
        """Takes the wishes of a client; each is decided at once or appended."""
        if self.is_deposed:
            return [Answer(token, (Outcome(NO_REVISION, Unavailable(DEPOSED)),) * len(wishes))]
        return self.deciding.wish(token, wishes)

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
            self._read_stage(offset, first)
            del self._held[0]
        self.deciding.coming = routings.get(self.stage.following)
        return effects

    def _read_stage(self, offset: int, record: Prepare | Retire) -> None:
        self.judging.miss(self.offset, offset)
        self._staged = offset
        if isinstance(record, Prepare):
            if self.stage.prepare(record.version):
                self.live.unplace()
        elif self.stage.retire(record.version, record.at_ms):
            self.live.has_surplus = True
        self.offset = offset + 1

    def _read(self, changes: list[tuple[int, Change]], routings: Routings) -> list[Effect]:
        valid = self.judging.judge(changes, self.offset)
        is_by_keyword = self.stage.is_by_keyword(routings)
        ends, effects = [], list[Effect]()
        for revision, change in valid:
            # Before it is answered: what is published then comes behind.
            effects += self._everywhere(self.tracking.learn(change))
            self.locators.learn(change, is_by_keyword=is_by_keyword)
            self.lives.learn(change)
            if end := self.askers.learn(revision, change):
                ends.append(end)
        self.offset = changes[-1][0] + 1
        installs = Installs(self.partition, self.floor)
        forwarding = Forwarding(self.live, self.stage, routings, self._staged, self.summarising)
        effects += forwarding.forward(valid, self.judging.take_surprising(), installs)
        # Behind what slots are told of the queries.
        effects += forwarding.tell_ends(ends, installs)
        # Of who has just begun, or is deposed, it would be void.
        effects += self.restating.deny(self.judging.in_doubt) if self.is_announced else []
        valid_offsets = {offset for offset, _ in valid}
        for offset, change in changes:
            effects += self.deciding.show(offset, change, is_valid=offset in valid_offsets)
        return effects + self.abandon() if self.is_deposed else effects

    def abandon(self) -> list[Effect]:
        """Answers whoever waits that another owner decides now; they may try again there."""
        return self.deciding.refuse(Unavailable(DEPOSED))

    def expire(self, now_ms: int) -> list[Effect]:
        """Appends the removal of the queries whose lifetime has ended."""
        effects: list[Effect] = []
        expired = self.live.expired(now_ms)
        if not self.is_announced:
            return self.announce(now_ms) if expired else []
        for handle in expired:
            if handle in self.deciding:
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

    def forget_members(self, now_ms: int) -> list[Effect]:
        """Says which members are tracked, where many are not any more, and none can be missing."""
        if self.is_deposed or self.is_guessing or not self.tracking.is_due:
            return []
        if not self.is_announced:
            return self.announce(now_ms)
        return self._everywhere([self.tracking.keep()])

    def _everywhere(self, said: Sequence[Tracked | TrackedOnly]) -> list[Effect]:
        return [
            Append(INTAKE, partition, each)
            for each in said
            for partition in range(self.intake_partitions)
        ]

    def announce(self, now_ms: int) -> list[Effect]:
        """Appends a record of this ownership, once, if the log has shown none."""
        if self._is_announcing or self.is_announced or self.is_deposed:
            return []
        self._is_announcing = True
        return [Append(REGISTRY, self.partition, self.deciding.probe(now_ms))]

    def restate(self, offset: int, change: Change) -> list[Effect]:
        """Says again what is in force of a query whose newest record is void.

        Args:
            offset: where the definition in force stands.
            change: what is there.
        """
        handle = change.handle
        if handle in self.judging.in_doubt or handle in self.deciding or not self.is_announced:
            return []
        return self.restating.restate(offset, change)


def _is_change(record: Read) -> TypeGuard[tuple[int, Change]]:
    return isinstance(record[1], Change)
