"""An owner reads a compacted registry while the map changes: nothing is lost.

It begins at a checkpoint older than the records that compaction has removed: after an outage, or
with a full archive, for more than an hour (docs/adr/0005). The slots are real, and hold the records
that its predecessors have sent them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirocco.codec.hops import key_of
from sirocco.model.errors import AlreadyExists
from sirocco.protocol.contract.control_records import CheckpointTaken, MapPrepared, MapSwitched
from sirocco.protocol.contract.effects import Answer, Append, Declare, Effect, State
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_REVISION,
    PROBE_HANDLE,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    Message,
    Prepare,
    Retire,
)
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.map_change.query_copies import copy, is_copied, may_be_saved, trim
from sirocco.protocol.router.queries.compaction_gaps import POSSIBLE_MAX
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.map.routing import RoutingArrays
from tests.support.values import change_of, request_of
from tests.unit.protocol.contract.test_map_change import SLOTS_COUNT, holds, query, routings, turned
from tests.unit.protocol.router.test_router_machine import router, saves

FORMER, EPOCH = 7, 9

Q = change_of(request_of("register", query("q", 1, 2)))
# In every slot, so that all of them receive the position of the checkpoint.
ALL = change_of(request_of("register", query("all", -179, 179)))


class Log:
    """A registry partition and the slots; records of owners land at once."""

    def __init__(self) -> None:
        self.records: list[Change | Prepare | Retire] = []
        self.slots = [Slot(number, 1) for number in range(SLOTS_COUNT)]
        for slot in self.slots:
            slot.open(0, 0, 1, 0)
        self.routings: dict[int, RoutingArrays] = routings()
        # A third map that equals the first one.
        self.routings[3] = replace(self.routings[1], version=3)

    def append(self, *records: Change | Prepare | Retire) -> None:
        for each in records:
            if isinstance(each, Change) and not each.epoch:
                self.records.append(replace(each, epoch=FORMER))
            else:
                self.records.append(each)

    def republished_by(self, change: Change, revision: int) -> Change:
        """Returns an owner's append after a void change of a query."""
        return replace(change, expected_revision=revision, epoch=FORMER, is_republished=True)

    def holding(self, query_id: str = "q") -> list[int]:
        return [slot.number for slot in self.slots if holds(slot, query_id) != NO_REVISION]


class Owner:
    """An owner of the partition that begins at a checkpoint."""

    def __init__(self, log: Log, offset: int = 0, state: State | None = None, epoch: int = EPOCH):
        self.log = log
        self.registry = Registry(partition=0, offset=offset, floor=offset, epoch=epoch)
        self.registry.stage.base = 1
        if state is not None:
            self.registry.restore(state)

    def carry_out(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Append) and effect.topic == SLOTS:
                slot = self.log.slots[effect.partition]
                slot.take([(slot.offset, effect.message)])  # type: ignore[list-item]
            elif isinstance(effect, Append):
                assert effect.topic == REGISTRY
                self.log.append(effect.message)  # type: ignore[arg-type]
        return effects

    def read(self, upto: int | None = None, taken: tuple[int, ...] = ()) -> None:
        """Reads on, one record a batch, without those that compaction has removed."""
        end = len(self.log.records) if upto is None else upto
        for offset in range(self.registry.offset, end):
            if offset not in taken:
                record = (offset, self.log.records[offset])
                self.carry_out(self.registry.read([record], self.log.routings))

    def settle(self, taken: tuple[int, ...] = ()) -> None:
        """Appends its probe, copies and trims."""
        self.carry_out(self.registry.announce(0))
        self.read(taken=taken)
        reread = [
            (offset, each)
            for offset, each in enumerate(self.log.records)
            if isinstance(each, Change) and offset not in taken
        ]
        self.carry_out(copy(self.registry, reread, self.log.routings))
        self.carry_out(trim(self.registry))
        assert self.registry.stage.following == 0 or is_copied(self.registry)

    def remove(self, revision: int) -> None:
        removed = change_of(request_of("unregister", "q"), revision)
        self.log.append(replace(removed, epoch=self.registry.epoch))
        self.read()


def home(log: Log, version: int) -> int:
    """Returns the slot of the query under a map."""
    probe = Log()
    probe.append(Q)
    one = Owner(probe)
    one.log.routings = {1: log.routings[version]}
    one.read()
    (slot,) = probe.holding()
    return slot


def test_a_known_query_that_is_republished_after_prepare_comes_to_the_slots_of_the_next_map() -> (
    None
):
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q)
    first.read()
    state, offset = first.registry.state(), first.registry.offset
    first.registry.floor = offset
    # A replaced router's change of it is void, so it is republished; the void record is removed.
    log.append(replace(Q, epoch=FORMER - 1), ALL)
    first.read()
    log.append(Prepare(2), log.republished_by(Q, 0))
    second = Owner(log, offset, state)
    second.read(taken=(0, 1))
    second.settle(taken=(0, 1))
    assert log.holding() == sorted((home(log, 1), home(log, 2)))


def test_a_known_query_that_is_republished_after_retire_leaves_the_slots_of_the_former_map() -> (
    None
):
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q)
    first.read()
    state, offset = first.registry.state(), first.registry.offset
    log.append(
        replace(Q, epoch=FORMER - 1), ALL, Prepare(2), Retire(2, 0), log.republished_by(Q, 0)
    )
    second = Owner(log, offset, state)
    second.read(taken=(0, 1))
    second.settle(taken=(0, 1))
    assert log.holding() == [home(log, 2)]
    second.remove(0)
    assert log.holding() == []


def test_an_unknown_query_that_is_republished_after_retire_leaves_no_slot_with_an_old_version() -> (
    None
):
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q, replace(Q, epoch=FORMER - 1), ALL)
    first.read()
    # It copies for the next map, and dies before the query has left the slot of the former.
    log.append(Prepare(2))
    first.settle()
    log.append(Retire(2, 0), log.republished_by(Q, 0))
    assert log.holding() == sorted((home(log, 1), home(log, 2)))
    second = Owner(log)
    taken = (0, 1)
    second.read(taken=taken)
    assert not may_be_saved(second.registry)
    second.settle(taken=taken)
    assert log.holding() == [home(log, 2)]
    assert may_be_saved(second.registry)
    second.remove(0)
    assert log.holding() == []


def test_an_unknown_query_that_is_republished_comes_back_to_a_slot_that_it_had_left() -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q, replace(Q, epoch=FORMER - 1), ALL, Prepare(2))
    first.settle()
    log.append(Retire(2, 0))
    first.settle()
    assert log.holding() == [home(log, 2)]
    # The next map puts it where the first did; it has not been copied yet.
    log.append(Prepare(3), log.republished_by(Q, 0))
    second = Owner(log)
    taken = (0, 1)
    second.read(taken=taken)
    second.settle(taken=taken)
    assert log.holding() == sorted((home(log, 2), home(log, 3)))


def test_a_query_registered_and_removed_unseen_leaves_the_slots_that_received_it() -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q)
    first.read()
    # It is removed, and its owner dies before it has sent that; another change of it is void.
    removed = change_of(request_of("unregister", "q"), 0)
    denial = replace(removed, expected_revision=NO_REVISION, epoch=FORMER, is_republished=True)
    log.append(removed, replace(Q, epoch=FORMER - 1), denial)
    second = Owner(log)
    second.read(taken=(0, 1, 2))
    assert log.holding() == []


SILENT_ANEW = Q
ASKING = change_of(request_of("register", query("q", 1, 2) | {"events": ["ended"]}))
SILENT = replace(change_of(request_of("update", query("q", 1, 2)), 0), since=0)
REMOVED = change_of(request_of("unregister", "q"), 0)


@pytest.mark.parametrize(
    ("others", "taken", "versions"),
    [
        # The end was no longer asked for at its removal.
        ([SILENT, replace(REMOVED, expected_revision=1), Q], (0, 1, 2), []),
        # The previous owner has sent the end; the last removal is of another registration.
        ([REMOVED, Q, replace(REMOVED, expected_revision=2)], (0, 1, 2), []),
        # The missing records concern others: the known query is removed.
        ([ALL, REMOVED], (0, 1), [0]),
    ],
)
def test_only_the_version_that_a_change_replaces_is_reported_as_ended(
    others: list[Change], taken: tuple[int, ...], versions: list[int]
) -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(ASKING)
    first.read()
    state, offset = first.registry.state(), first.registry.offset
    log.append(*others)
    second = Owner(log, offset, state)
    effects: list[Effect] = []
    for place, record in enumerate(log.records):
        if place not in taken:
            effects += second.registry.read([(place, record)], log.routings)
    effects += second.registry.announce(0)
    effects += second.registry.read([(len(log.records), _probe(effects))], log.routings)
    assert ended_versions(effects) == {slot: versions for slot in range(SLOTS_COUNT) if versions}


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("next_one", [replace(ASKING, expected_revision=0), REMOVED])
def test_a_skipped_version_is_reported_as_ended(next_one: Change, is_held: bool) -> None:
    # Both records are read at once. The former owner may have sent the version to slots before it
    # ended, which nobody knows.
    log = Log()
    log.append(ASKING)
    if is_held:
        Owner(log, epoch=FORMER).read()
        assert log.holding()
    log.append(next_one)
    batch = list(enumerate(log.records))
    second = Owner(log)
    effects = second.carry_out(second.registry.read(batch, log.routings))
    assert ended_versions(effects) == {slot: [0] for slot in range(SLOTS_COUNT)}
    assert [slot for slot in log.slots if holds(slot, "q") == 0] == []


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("next_one", [None, Q])
def test_a_version_removed_while_in_doubt_is_reported_as_ended(
    begin: int, next_one: Change | None
) -> None:
    # The missing record may be the removal of the known version, and is: the last record shows it.
    published = _reported_ends(
        [REMOVED, ASKING, replace(REMOVED, expected_revision=2), next_one], begin
    )
    assert published == {slot: [2] for slot in range(SLOTS_COUNT)}


@pytest.mark.parametrize("next_one", [None, Q])
def test_a_known_version_removed_after_one_without_effect_is_reported_as_ended(
    next_one: Change | None,
) -> None:
    published = _reported_ends([ALL, SILENT_ANEW, REMOVED, next_one], begin=1)
    assert published == {slot: [0] for slot in range(SLOTS_COUNT)}


def test_a_version_without_effect_is_not_reported_as_ended() -> None:
    # The next record names the known version, which then continues.
    published = _reported_ends([ALL, ASKING, replace(SILENT, since=0)], begin=1)
    assert published == {}
    # Republished.
    again = replace(ASKING, expected_revision=0, epoch=FORMER, is_republished=True)
    assert _reported_ends([ALL, ASKING, again], begin=1) == {}
    assert _reported_ends([ALL, SILENT_ANEW, again, REMOVED], begin=1) == {
        slot: [0] for slot in range(SLOTS_COUNT)
    }


def test_a_query_that_changes_endlessly_reports_its_last_ends() -> None:
    others: list[Change | None] = [REMOVED]
    for revision in range(2, 2_002, 2):
        others += [ASKING, replace(REMOVED, expected_revision=revision)]
    published = _reported_ends(others, begin=1)[0]
    assert published == list(range(2_002 - POSSIBLE_MAX, 2_002, 2))


def _reported_ends(others: list[Change | None], begin: int) -> dict[int, list[int]]:
    """Returns the ends reported by an owner that knows version 0 and missed the next record.

    Args:
        others: after the version at offset 0; the first of them is missing.
        begin: where it begins to read: 1, with a checkpoint that holds the version, or 0.
    """
    log = Log()
    log.append(ASKING, *(each for each in others if each is not None))
    second = Owner(log, begin, known(log, begin))
    effects: list[Effect] = []
    for place, record in enumerate(log.records):
        if place >= begin and place != 1:
            effects += second.registry.read([(place, record)], log.routings)
    assert ended_versions(effects) == {}
    effects += second.registry.announce(0)
    effects += second.registry.read([(len(log.records), _probe(effects))], log.routings)
    return ended_versions(effects)


def _probe(effects: list[Effect]) -> Change:
    (probe,) = [e.message for e in effects if isinstance(e, Append) and e.topic == REGISTRY]
    assert isinstance(probe, Change)
    return probe


def ended_versions(effects: list[Effect]) -> dict[int, list[int]]:
    """Returns slot → versions whose ends are reported to it."""
    return {
        each.partition: each.message.ended.revisions.tolist()
        for each in effects
        if isinstance(each, Append)
        and isinstance(each.message, Installed)
        and each.message.ended is not None
    }


@pytest.mark.parametrize("behind", [Prepare(2), Retire(2, 0)])
def test_what_is_missing_right_before_a_change_of_the_map_is_missing(
    behind: Prepare | Retire,
) -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q, *([Prepare(2)] if isinstance(behind, Retire) else []))
    first.read()
    state, offset = first.registry.state(), first.registry.offset
    # Changed twice; compaction has removed the first of these versions.
    moved = change_of(request_of("update", query("q", 1, 3)), 0)
    again = change_of(request_of("update", query("q", 1, 4)), offset)
    log.append(moved, behind, again)
    second = Owner(log, offset, state)
    second.read(taken=(0, offset))
    second.settle(taken=(0, offset))
    assert second.registry.live.revision(Q.handle) == offset + 2
    assert second.registry.validation.voids == 0


def test_what_an_owner_appends_itself_replaces_nothing_that_is_missing() -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    other = change_of(request_of("register", query("other", 1, 2)))
    log.append(Q, other, change_of(request_of("update", query("other", 1, 3)), 1))
    first.read()
    # A client registers another query under the same id, before the owner has read of this one.
    second = Owner(log)
    request = request_of("register", query("q", 5, 6))
    second.carry_out(second.registry.take_requests(1, (request,)))
    answers: list[Effect] = []
    for _ in range(2):
        end = len(log.records)
        for offset in range(second.registry.offset, end):
            if offset != 1:
                record = (offset, log.records[offset])
                effects = second.registry.read([record], log.routings)
                answers += second.carry_out(effects)
    (answer,) = [each for each in answers if isinstance(each, Answer)]
    assert isinstance(answer.outcomes[0].error, AlreadyExists)
    assert second.registry.live.revision(Q.handle) == 0


def test_the_map_is_not_switched_before_what_is_republished_was_read() -> None:
    one = router()
    one.own(REGISTRY, 0)
    one.control(MapPrepared(0, 2, turned(2)))
    one.tick()
    # It knows no query yet, so there is none to copy.
    one.poll((REGISTRY, 0, 2, Prepare(2)))
    effects = one.tick()
    assert not [each for each in effects if isinstance(each, Declare)]


def test_an_owner_repeats_no_step_of_a_change_before_it_knows_what_the_log_holds() -> None:
    # Of equal steps compaction keeps the last one: a reader of the compacted log would place the
    # records between the two by the former map.
    one = router()
    one.own(REGISTRY, 0)
    one.control(MapPrepared(0, 2, turned(2)))
    (announced,) = appended(one.tick())
    assert isinstance(announced, Change)
    one.poll((REGISTRY, 0, 0, Q), (REGISTRY, 0, 1, Prepare(2)))
    assert appended(one.tick()) == []
    one.control(MapSwitched(0, 2))
    one.control(CheckpointTaken(INTAKE, 0, 1, 9, "i", 2))
    one.poll((REGISTRY, 0, 2, Retire(2, 0)), (REGISTRY, 0, 3, announced))
    assert appended(one.tick()) == []
    # One that finds none in the log appends it.
    other = router()
    other.own(REGISTRY, 0)
    other.control(MapPrepared(0, 2, turned(2)))
    (announced,) = appended(other.tick())
    other.poll((REGISTRY, 0, 0, Q), (REGISTRY, 0, 1, announced))
    assert appended(other.tick()) == [Prepare(2)]


def appended(effects: list[Effect]) -> list[Message]:
    """Returns the appends to the registry."""
    return [e.message for e in effects if isinstance(e, Append) and e.topic == REGISTRY]


def test_nothing_is_saved_while_reading_what_compaction_left() -> None:
    # The query known there may be older than the one in force: a successor that began with it,
    # after the gap, would take for void the change that replaced the missing version.
    one = router()
    one.own(REGISTRY, 0)
    again = change_of(request_of("update", query("q", 1, 3)), 1)
    one.poll((REGISTRY, 0, 0, Q), (REGISTRY, 0, 2, ALL))
    effects = one.tick(LIMITS.checkpoint_interval_ms)
    assert saves(effects) == []
    (announced,) = appended(effects)
    one.poll((REGISTRY, 0, 3, again), (REGISTRY, 0, 4, announced))
    assert one.machine.registries[0].live.revision(Q.handle) == 3
    (saved,) = saves(one.tick(LIMITS.checkpoint_interval_ms))
    assert saved.offset == 5


# --- void changes in a compacted log

OTHER = change_of(request_of("register", query("other", 1, 2)))
# An append by an owner that had not read of the query yet: void, though of the newest epoch.
IN_VAIN = change_of(request_of("register", query("q", 5, 6)))


def superseded(*behind: Change | Prepare | Retire) -> Log:
    """Returns a log whose record 1, of another query, is removed by compaction."""
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q, OTHER, change_of(request_of("update", query("other", 1, 3)), 1), IN_VAIN, *behind)
    first.read()
    return log


def revisions(log: Log) -> set[int]:
    """Returns the revisions of the query in the slots."""
    return {holds(slot, "q") for slot in log.slots} - {NO_REVISION}


@pytest.mark.parametrize("begin", [0, 1])
def test_a_change_without_effect_is_made_by_the_owner_that_knew_the_version(begin: int) -> None:
    log = superseded(change_of(request_of("update", query("q", 1, 4)), 0))
    second = Owner(log, begin, known(log, begin))
    second.read(taken=(1,))
    second.settle(taken=(1,))
    assert second.registry.live.revision(Q.handle) == 4
    assert revisions(log) == {4}


@pytest.mark.parametrize("begin", [0, 1])
def test_what_was_changed_without_effect_and_republished_stays(begin: int) -> None:
    log = superseded()
    log.append(log.republished_by(Q, 0))
    second = Owner(log, begin, known(log, begin))
    second.read(taken=(1,))
    second.settle(taken=(1,))
    registry = second.registry
    assert (registry.live.revision(Q.handle), registry.place(Q.handle)) == (0, 4)
    # No slot received the void change meanwhile: it could not return to the former one.
    assert revisions(log) == {0}


def test_what_was_read_here_was_replaced_by_nothing_that_is_missing() -> None:
    log = superseded()
    second = Owner(log)
    second.read(taken=(1,))
    second.settle(taken=(1,))
    assert second.registry.live.revision(Q.handle) == 0
    assert revisions(log) == {0}
    assert list(second.registry.hidden) == [Q.handle]


def test_what_was_republished_was_replaced_by_nothing_that_is_missing() -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    log.append(Q, replace(Q, epoch=FORMER - 1), log.republished_by(Q, 0), IN_VAIN)
    first.read()
    second = Owner(log)
    second.read(taken=(0, 1))
    second.settle(taken=(0, 1))
    assert second.registry.live.revision(Q.handle) == 0
    assert revisions(log) == {0}


def test_what_was_removed_here_is_not_there_because_something_before_is_missing() -> None:
    log = Log()
    first = Owner(log, epoch=FORMER)
    removed = change_of(request_of("unregister", "q"), 0)
    # Appended before the removal was read: void.
    log.append(Q, removed, change_of(request_of("update", query("q", 1, 4)), 0))
    first.read()
    second = Owner(log)
    second.read(taken=(0,))
    second.settle(taken=(0,))
    assert second.registry.live.revision(Q.handle) == NO_REVISION
    assert revisions(log) == set()


def test_an_owner_that_reads_of_its_successor_has_read_all_changes_in_doubt() -> None:
    # Clients may wait for its answer.
    log = superseded(change_of(request_of("update", query("q", 1, 4)), 0), probe(EPOCH + 1))
    second = Owner(log, 1, known(log, 1))
    second.read(taken=(1,))
    assert second.registry.live.revision(Q.handle) == 4


def test_what_was_in_doubt_when_the_map_began_to_change_comes_to_the_slots_of_the_next() -> None:
    change = change_of(request_of("update", query("q", 1, 4)), 0)
    log = superseded(change)
    log.append(Prepare(2))
    # A former owner's checkpoint was declared late: slots skip records below it.
    for slot in log.slots:
        slot.queries.floors[0] = 5
    second = Owner(log, 1, known(log, 1))
    second.read(taken=(1,))
    second.settle(taken=(1,))
    assert revisions(log) == {4}
    aside = Log()
    aside.append(Prepare(2), replace(change, expected_revision=NO_REVISION))
    Owner(aside).read()
    assert log.holding() == aside.holding()


def test_compaction_that_passes_while_an_owner_reads_is_known_by_what_follows() -> None:
    # Read here, removed, and registered anew: the removal is gone before it was read.
    log = Log()
    removed = change_of(request_of("unregister", "q"), 0)
    log.append(Q, removed, IN_VAIN, change_of(request_of("update", query("q", 1, 4)), 2))
    second = Owner(log)
    second.read(taken=(1,))
    second.settle(taken=(1,))
    assert second.registry.live.revision(Q.handle) == 3
    assert revisions(log) == {3}


def known(log: Log, begin: int) -> State | None:
    """Returns the state of a checkpoint; None for one at the log's beginning."""
    if not begin:
        return None
    one = Owner(Log())
    one.log.records = log.records
    one.read(begin)
    return one.registry.state()


def test_the_probe_of_a_router_that_was_replaced_hides_no_epoch() -> None:
    # After the probe that alone shows a greater epoch a router that was paused appends its own
    # probe, and then a change that its client has long been sent elsewhere.
    log = Log()
    log.append(probe(FORMER), probe(FORMER - 1), replace(Q, epoch=FORMER - 1))
    end = 2
    newest = {key_of(each): offset for offset, each in enumerate(log.records[:end])}
    taken = tuple(offset for offset in range(end) if offset not in newest.values())
    second = Owner(log)
    second.read(taken=taken)
    second.settle(taken=taken)
    assert second.registry.live.revision(Q.handle) == NO_REVISION


def probe(epoch: int) -> Change:
    return Change(
        handle=PROBE_HANDLE,
        query=None,
        subscriber="",
        start_ms=0,
        expected_revision=0,
        digest=epoch,
        epoch=epoch,
    )
