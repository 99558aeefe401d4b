"""The change of the map as the machines see it: proposal, copies, switch, retirement."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from sirocco.codec.hops import key_of
from sirocco.model.errors import FailedPrecondition, InvalidArgument, SiroccoError, Unavailable
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    ControlRead,
    Declare,
    Effect,
    MembersSeen,
    ProposedMap,
)
from sirocco.protocol.contract.map_change import LEAF_ID_MAX, ChangePhase, check_proposal, progress
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_REVISION,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    IntakeObjects,
    Prepare,
    Retire,
    Routed,
    Switch,
)
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.removed_queries import NO_REMOVAL
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.map_change.query_copies import copy, is_copied, trim
from sirocco.protocol.router.map_change.steps import RouterSteps
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.builders.uniform_grid import UniformGrid
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.map.routing import RoutingArrays
from tests.support.values import (
    change_of,
    installed_of,
    map_activated,
    request_of,
    taken_of,
    uniform_map,
)
from tests.unit.protocol.coordinator.test_coordinator_machine import Cluster, members

SLOTS_COUNT = 4
TWO = np.array([2], np.uint32)


def turned(version: int, by: int = 1, slots: int = SLOTS_COUNT) -> bytes:
    """Returns the map of equal tiles with each in another slot."""
    made = uniform_map(slots, slots, version)
    return to_bytes(replace(made, slot_of_leaf=(made.slot_of_leaf + by) % slots))


def routings() -> dict[int, RoutingArrays]:
    made = {1: uniform_map(SLOTS_COUNT, SLOTS_COUNT)}
    made[2] = replace(made[1], version=2, slot_of_leaf=(made[1].slot_of_leaf + 1) % SLOTS_COUNT)
    return {version: UniformGrid().compile(each) for version, each in made.items()}


def view_of(*declarations: Declaration) -> ControlView:
    view = ControlView()
    for offset, declaration in enumerate(declarations):
        view.apply(offset, declaration)
    return view


# --- control


BEGIN = (LeaderElected("c"), map_activated(0), Granted(0, REGISTRY, 0, "r"))


def test_a_prepared_map_is_not_in_force_before_its_activation() -> None:
    view = view_of(*BEGIN, MapPrepared(0, 2, turned(2)))
    assert (view.map_version, view.prepared, view.has_changed) == (1, 2, True)
    view.apply(4, MapSwitched(0, 2))
    assert (view.map_version, view.prepared) == (2, 0)
    assert set(view.maps) == {1, 2}
    view.apply(5, MapPrepared(0, 3, turned(3)))
    assert (view.map_version, view.prepared, set(view.maps)) == (2, 3, {2, 3})


def test_a_map_that_cannot_be_read_is_prepared_nowhere() -> None:
    view = view_of(*BEGIN, MapPrepared(0, 2, turned(2)[:-3]), MapPrepared(0, 3, turned(2)))
    assert (view.map_version, view.prepared) == (1, 0)


def test_whoever_reads_what_compaction_left_comes_to_the_same_maps() -> None:
    log: list[Declaration] = [*BEGIN]
    for version in (2, 3, 4):
        log += [MapPrepared(0, version, turned(version, version)), MapSwitched(0, version)]
    whole = view_of(*log)
    kept = {key_of(each): (offset, each) for offset, each in enumerate(log)}
    # The leader may have republished any of the maps, in any order.
    maps = [pair for pair in kept.values() if isinstance(pair[1], MapPrepared | MapSwitched)]
    for order in permutations(each for _, each in maps):
        short = view_of(*BEGIN, *order)
        assert short.map_version == whole.map_version == 4
        assert short.maps == whole.maps


def test_copies_count_when_their_owner_reports_them() -> None:
    view = view_of(*BEGIN, MapPrepared(0, 2, turned(2)), Granted(0, REGISTRY, 0, "other"))
    assert not view.apply(5, MapCopied(0, 2, 2))
    assert view.apply(6, MapCopied(0, 2, 4))
    assert view.copied == {0: 2}


# --- proposals


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (turned(2)[:-5], InvalidArgument),
        (b"", InvalidArgument),
        (bytes(4 << 20), InvalidArgument),
        (turned(2, slots=5), InvalidArgument),
        (turned(1), FailedPrecondition),
        (turned(3), FailedPrecondition),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused(data: bytes, error: type[SiroccoError]) -> None:
    view = view_of(*BEGIN)
    with pytest.raises(error):
        check_proposal(data, view, SLOTS_COUNT, progress(view, 1, 1))


@pytest.mark.parametrize("number", [LEAF_ID_MAX + 1, (1 << 31) - 1])
def test_leaf_numbers_out_of_bounds_are_refused(number: int) -> None:
    """Routers keep a counter for each number up to the greatest: 16 GiB of them for the last."""

    def numbered(last: int) -> bytes:
        made = uniform_map(SLOTS_COUNT, SLOTS_COUNT, 2)
        return to_bytes(
            replace(made, leaves=(*made.leaves[:-1], replace(made.leaves[-1], id=last)))
        )

    view = view_of(*BEGIN)
    with pytest.raises(InvalidArgument, match=str(number)):
        check_proposal(numbered(number), view, SLOTS_COUNT, progress(view, 1, 1))
    found = check_proposal(numbered(LEAF_ID_MAX), view, SLOTS_COUNT, progress(view, 1, 1))
    assert found.leaves[-1].id == LEAF_ID_MAX


def test_nothing_is_proposed_before_the_first_map_is_in_force() -> None:
    """Found by the simulator: a process that read a record of a former leader after it ended."""
    cluster = Cluster("a", "b")
    cluster.see("a", members())
    answers(cluster, "a")
    assert cluster.machines["a"].leading
    (answer,) = propose(cluster, "a", turned(1, slots=16))
    assert isinstance(answer.outcomes[0].error, FailedPrecondition)
    # A leader of an earlier release did, and the first map came under another one.
    term = cluster.view().term
    first = MapActivated(term, 1, turned(1, slots=16))
    cluster.log += [MapPrepared(term, 1, turned(1, slots=16)), LeaderElected("b"), first]
    answers(cluster, "b")
    assert cluster.machines["b"].view.partition_map == b""


def test_one_change_at_a_time() -> None:
    view = view_of(*BEGIN)
    phases = []
    for declaration in (
        MapPrepared(0, 2, turned(2)),
        MapCopied(0, 2, 2),
        MapSwitched(0, 2),
        CheckpointTaken(INTAKE, 0, 1, 9, "i", 2),
    ):
        view.apply(view.next_offset, declaration)
        phases.append(progress(view, 1, 1).phase)
        with pytest.raises(FailedPrecondition, match="under way"):
            check_proposal(turned(3), view, SLOTS_COUNT, progress(view, 1, 1))
    assert phases == [
        ChangePhase.COPYING,
        ChangePhase.COPYING,
        ChangePhase.SWITCHING,
        ChangePhase.RETIRING,
    ]
    view.apply(view.next_offset, CheckpointTaken(REGISTRY, 0, 1, 9, "r", 2))
    assert progress(view, 1, 1).phase is ChangePhase.NONE
    assert check_proposal(turned(3), view, SLOTS_COUNT, progress(view, 1, 1)).version == 3


# --- the coordinator


def leading() -> Cluster:
    cluster = Cluster("a", "b")
    cluster.settle("a", members())
    return cluster


def propose(cluster: Cluster, name: str, data: bytes) -> list[Any]:
    effects = cluster.machines[name].step(ProposedMap(7, data), cluster.now_ms)
    cluster.log += [e.message for e in effects if isinstance(e, Append)]  # type: ignore[misc]
    return [effect for effect in effects if isinstance(effect, Answer)]


def answers(cluster: Cluster, name: str) -> list[Answer]:
    """Reads all records; returns the answers among the effects."""
    found: list[Answer] = []
    machine = cluster.machines[name]
    while cluster.heads[name] < len(cluster.log):
        offset = cluster.heads[name]
        cluster.heads[name] += 1
        effects = machine.step(ControlRead(offset, cluster.log[offset]), cluster.now_ms)
        found += [effect for effect in effects if isinstance(effect, Answer)]
        others: list[Effect] = [each for each in effects if not isinstance(each, Answer)]
        cluster.carry_out(name, others)
    return found


def test_a_proposal_is_answered_when_it_is_read_back() -> None:
    cluster = leading()
    assert propose(cluster, "a", turned(2, slots=16)) == []
    (again,) = propose(cluster, "a", turned(2, slots=16))
    assert isinstance(again.outcomes[0].error, FailedPrecondition)
    (answer,) = answers(cluster, "a")
    assert (answer.outcomes[0].revision, answer.outcomes[0].error) == (2, None)
    (other,) = propose(cluster, "b", turned(2, slots=16))
    assert isinstance(other.outcomes[0].error, Unavailable)


def test_the_switch_waits_for_all_copies_and_a_new_leader_continues() -> None:
    cluster = leading()
    propose(cluster, "a", turned(2, slots=16))
    answers(cluster, "a")
    owners = cluster.view().owners
    epochs = {p: owners[REGISTRY, p].epoch for p in range(3)}
    cluster.log += [MapCopied(p, 2, epochs[p]) for p in (0, 1)]
    answers(cluster, "a")
    assert not any(isinstance(each, MapSwitched) for each in cluster.log)
    # The leader dies; another one has read all records when it begins to lead.
    cluster.log.append(MapCopied(2, 2, epochs[2]))
    answers(cluster, "b")
    cluster.see("b", members())
    answers(cluster, "b")
    assert cluster.machines["b"].leading
    cluster.carry_out("b", cluster.machines["b"].step(MembersSeen(members(), True), 10**6))
    answers(cluster, "b")
    assert [each.version for each in cluster.log if isinstance(each, MapSwitched)] == [2]
    assert cluster.view().map_version == 2


def test_preparations_of_a_former_leader_are_void_and_replaced() -> None:
    cluster = leading()
    term = cluster.machines["a"].view.term
    answers(cluster, "b")
    cluster.see("b", members())
    answers(cluster, "b")
    cluster.log.append(MapPrepared(term, 2, turned(2, slots=16)))
    answers(cluster, "b")
    newest = [each for each in cluster.log if key_of(each) == b"map/0"][-1]
    assert isinstance(newest, MapPrepared)
    assert newest.partition_map == b""
    assert cluster.view().prepared == 0


# --- a registry partition


def query(query_id: str, west: float, east: float, kind: str = "range") -> dict[str, Any]:
    region = {"rect": {"west": west, "south": 1, "east": east, "north": 2}}
    more = {"k": 1, "step": "1s"} if kind == "terms" else {}
    return {"id": query_id, "kind": kind, "mode": "continuous", "region": region, **more}


class Partition:
    """A registry partition and its owner."""

    def __init__(self, *queries: dict[str, Any]) -> None:
        # The log has shown a record of its owner.
        self.registry = Registry(partition=0, offset=0, floor=0, epoch=7)
        self.registry.validation.epoch_seen = 7
        self.records: list[tuple[int, Change | Prepare | Retire]] = []
        self.routings = routings()
        self.installed: list[tuple[int, Installed]] = []
        for each in queries:
            self.read(change_of(request_of("register", each)))

    def read(self, record: Change | Prepare | Retire) -> list[tuple[int, Installed]]:
        offset = len(self.records)
        record = replace(record, epoch=7) if isinstance(record, Change) else record
        self.records.append((offset, record))
        return self.installs(self.registry.read([(offset, record)], self.routings))

    def installs(self, effects: list[Any]) -> list[tuple[int, Installed]]:
        found = [(e.partition, e.message) for e in effects if e.topic == SLOTS]
        self.installed += found
        return found

    def copy(self) -> list[tuple[int, Installed]]:
        changes = [(o, r) for o, r in self.records if isinstance(r, Change)]
        return self.installs(copy(self.registry, changes, self.routings))

    def slots(self, query_id: str) -> tuple[int, ...]:
        handle = change_of(request_of("register", query(query_id, 0, 1))).handle
        row = int(self.registry.live.rows_of(np.array([handle], np.uint64))[0])
        return self.registry.live.slots(row)


def test_changes_go_to_both_maps_from_prepare_to_retire() -> None:
    one = Partition(query("before", 1, 2))
    (home,) = one.slots("before")
    following = (home + 1) % SLOTS_COUNT
    assert one.read(Prepare(2)) == []
    assert not is_copied(one.registry)
    published = one.read(change_of(request_of("register", query("meanwhile", 1, 2))))
    assert sorted(slot for slot, _ in published) == sorted((home, following))
    # Copies: by the records that the owner has read.
    copies = dict(one.copy())
    assert copies.keys() == {home, following}
    message = copies[following]
    assert (message.copied_at, message.revisions.tolist()) == (3, [0])
    assert is_copied(one.registry)
    assert one.copy() == []
    assert trim(one.registry) == []
    one.read(Retire(2, 0))
    removed = one.installs(trim(one.registry))
    assert [(slot, len(each.removed)) for slot, each in removed] == [(home, 2)]
    assert one.slots("before") == one.slots("meanwhile") == (following,)
    published = one.read(change_of(request_of("register", query("behind", 1, 2), start_ms=9)))
    assert [slot for slot, _ in published] == [following]


def test_what_is_removed_before_it_is_copied_is_removed_everywhere() -> None:
    one = Partition(query("q", 1, 2))
    one.read(Prepare(2))
    change = change_of(request_of("unregister", "q"), expected_revision=0)
    published = one.read(change)
    assert sorted(slot for slot, _ in published) == list(range(SLOTS_COUNT))
    assert one.copy() == []
    assert is_copied(one.registry)


def test_a_query_that_counts_stays_and_all_its_slots_learn_of_each_other() -> None:
    one = Partition(query("t", 1, 2, "terms"))
    (home,) = one.slots("t")
    one.read(Prepare(2))
    published = dict(one.copy())
    assert set(published) == {home, (home + 1) % SLOTS_COUNT}
    assert {int(each.slot_counts[0]) for each in published.values()} == {2}
    one.read(Retire(2, 0))
    assert trim(one.registry) == []
    assert len(one.slots("t")) == 2


def test_history_from_before_a_change_is_requested_of_all_slots() -> None:
    one = Partition()
    one.read(Prepare(2))
    one.read(Retire(2, 5_000))
    asks = request_of("register", query("past", 1, 2), start_ms=6_000, past_ms=2_000)
    assert len(one.read(change_of(asks))) == SLOTS_COUNT
    asks = request_of("register", query("new", 1, 2), start_ms=9_000, past_ms=2_000)
    assert len(one.read(change_of(asks))) == 1


def test_an_owner_that_lags_the_activation_does_not_copy() -> None:
    one = Partition(query("q", 1, 2))
    one.read(Prepare(2))
    one.registry.floor = 3
    assert one.copy() == []
    one.read(change_of(request_of("register", query("p", 1, 2))))
    assert len(one.copy()) == 2


def test_a_map_that_is_not_known_yet_is_waited_for() -> None:
    one = Partition(query("q", 1, 2))
    later = one.routings.pop(2)
    one.read(Prepare(2))
    one.read(change_of(request_of("register", query("p", 1, 2))))
    assert one.registry.is_held_up
    # The record of the change cannot be placed yet, so a checkpoint has to be before it.
    assert one.registry.offset == 2
    one.routings[2] = later
    assert len(one.installs(one.registry.read((), one.routings))) == 2
    assert one.registry.offset == 3


def test_a_checkpoint_keeps_what_is_copied_and_what_is_not() -> None:
    one = Partition(query("a", 1, 2), query("b", 1, 2))
    one.read(Prepare(2))
    changes = [(o, r) for o, r in one.records if isinstance(r, Change)]
    copy(one.registry, changes[:1], one.routings)
    other = Registry(partition=0, offset=one.registry.offset, floor=one.registry.offset, epoch=8)
    other.restore(one.registry.state())
    other.validation.epoch_seen = 8
    assert (other.stage, other.live.unplaced) == (one.registry.stage, 1)
    published = one.installs(copy(other, changes, one.routings))
    assert [message.revisions.tolist() for _, message in published] == [[1], [1]]
    assert other.live.state()["slots"].tolist() != []


# --- a slot


def slot_of(*records: Installed) -> Slot:
    slot = Slot(0, 1)
    slot.open(0, 0, 1, 0)
    for record in records:
        slot.take([(slot.offset, record)])
    return slot


def installed_as(query_id: str, revision: int, kind: str = "range", **more: Any) -> Installed:
    made = installed_of(0, [(revision, query(query_id, 1, 2, kind), "s", 0)])
    return replace(made, **more)


def holds(slot: Slot, query_id: str) -> int:
    """Returns the revision of a query that a slot holds."""
    handle = change_of(request_of("unregister", query_id)).handle
    return int(slot.standing.names.find(np.array([handle], np.uint64))[1][0])


def removal(query_id: str, revision: int, floor: int = 0) -> Installed:
    return installed_of(0, [], [(query_id, revision)], floor)


def test_a_copy_is_taken_though_it_is_older_than_the_floor() -> None:
    slot = slot_of(removal("other", 30, floor=50), installed_as("q", 20, copied_at=60))
    assert holds(slot, "q") == 20
    # Sent as a change it would be a repeat.
    assert holds(slot_of(removal("other", 30, floor=50), installed_as("q", 20)), "q") == NO_REVISION


def test_a_copy_does_not_overtake_a_removal() -> None:
    # The sender had not read of it.
    assert holds(slot_of(removal("q", 60), installed_as("q", 20, copied_at=60)), "q") == NO_REVISION
    # Nor when the slot has forgotten it, since then all changes below the floor are known.
    forgotten = removal("other", 61, floor=61)
    late = slot_of(removal("q", 60), forgotten, installed_as("q", 20, copied_at=60))
    handle = change_of(request_of("unregister", "q")).handle
    assert late.queries.removed.find(np.array([handle], np.uint64))[1].tolist() == [NO_REMOVAL]
    assert holds(late, "q") == NO_REVISION


def test_a_query_that_left_a_slot_may_come_back_by_a_copy() -> None:
    assert holds(slot_of(installed_as("q", 20), removal("q", 60)), "q") == NO_REVISION
    back = slot_of(installed_as("q", 20), removal("q", 60), installed_as("q", 20, copied_at=61))
    assert holds(back, "q") == 20


def test_a_query_that_was_copied_since_does_not_leave_for_an_earlier_map() -> None:
    late = replace(removal("q", 40), copied_at=41)
    assert holds(slot_of(installed_as("q", 20, copied_at=60), late), "q") == 20
    assert holds(slot_of(installed_as("q", 20, copied_at=30), late), "q") == NO_REVISION


def test_a_query_leaves_though_another_one_was_copied_since() -> None:
    removed = replace(removal("q", 40), copied_at=41)
    assert (
        holds(slot_of(installed_as("q", 20), installed_as("p", 20, copied_at=60), removed), "q") < 0
    )


@pytest.mark.parametrize("kind", ["range", "terms"])
def test_a_checkpoint_knows_by_what_place_queries_were_copied(kind: str) -> None:
    published = (
        installed_as("q", 20, kind),
        installed_as("q", 20, kind, copied_at=60, slot_counts=TWO),
    )
    slot = slot_of(
        *published, installed_as("p", 9, kind, copied_at=30, slot_counts=TWO), installed_as("r", 61)
    )
    restored = Slot(0, 1)
    restored.open(slot.offset, slot.offset, 1, 0)
    restore_slot(restored, slot_state(slot, 0, ()), ())
    for name in ("p", "q", "r"):
        restored.take([(restored.offset, replace(removal(name, 62), copied_at=59))])
    assert [holds(restored, name) for name in ("p", "q", "r")] == [NO_REVISION, 20, NO_REVISION]


def test_a_query_that_is_not_here_may_leave_with_others() -> None:
    both = replace(installed_of(0, [], [("p", 40), ("q", 40)]), copied_at=41)
    slot = slot_of(installed_as("p", 20), both)
    assert holds(slot, "p") == NO_REVISION
    # A copy whose sender knew less does not count, either.
    slot.take([(slot.offset, installed_as("q", 20, copied_at=40))])
    assert holds(slot, "q") == NO_REVISION


def test_a_reused_row_does_not_count_as_copied() -> None:
    slot = slot_of(installed_as("q", 20, copied_at=60), removal("q", 61), installed_as("p", 62))
    slot.take([(slot.offset, replace(removal("p", 63), copied_at=59))])
    assert holds(slot, "p") == NO_REVISION


def test_a_copy_does_not_replace_a_newer_version() -> None:
    assert holds(slot_of(installed_as("q", 25), installed_as("q", 20, copied_at=60)), "q") == 25


def test_a_query_that_counts_continues_in_its_new_slot_and_is_no_longer_alone_in_the_old() -> None:
    slot = slot_of(installed_as("t", 20, "terms"))
    (entry,) = slot.standing.steps.queries.values()
    assert (entry.is_sole, entry.is_home, entry.next_ms) == (True, True, 1_000)
    slot.take([(slot.offset, installed_as("t", 20, "terms", copied_at=60, slot_counts=TWO))])
    assert (entry.is_sole, entry.is_home, entry.next_ms) == (False, True, 1_000)

    other = slot_of()
    other.reached.times_ms[0] = 7_300
    other.take([(0, installed_as("t", 20, "terms", copied_at=60, slot_counts=TWO))])
    (entry,) = other.standing.steps.queries.values()
    assert (entry.is_sole, entry.is_home, entry.next_ms) == (False, False, 8_000)


# --- an intake partition


def test_objects_follow_the_map_of_their_place_also_within_one_flush() -> None:
    def router() -> IntakeRouter:
        made = IntakeRouter(slots=SLOTS_COUNT, event_time=False)
        made.use(routings(), 1)
        made.own(0, 0, None, 0)
        return made

    def installed(made: IntakeRouter, *, at_once: bool) -> list[tuple[int, int, int]]:
        members_ = [{"id": n, "lon": 10.0, "lat": 10.0} for n in range(4)]
        records: list[IntakeObjects | Switch] = [
            taken_of(5, 1, members_[:2]),
            Switch(2),
            Switch(2),
            taken_of(5, 3, members_[2:]),
        ]
        effects = []
        for offset, record in enumerate(records):
            made.add(0, offset, record, 0)
            if not at_once:
                effects += made.flush(offset, at_once=True)
        effects += made.flush(100, at_once=True)
        found = []
        for effect in effects:
            assert isinstance(effect, Append)
            assert isinstance(effect.message, Routed)
            message = effect.message
            numbers = message.events.numbers.tolist()
            found += [(message.map_version, effect.partition, number) for number in numbers]
        return found

    one, other = router(), router()
    together, apart = installed(one, at_once=True), installed(other, at_once=False)
    assert together == apart
    assert [version for version, _, _ in together] == [1, 1, 2, 2]
    former, following = together[0][1], together[2][1]
    assert following == (former + 1) % SLOTS_COUNT
    assert one.sources[0].state()["map_version"].tolist() == [2]
    # A mark that covers the source carries the version: searches then ask other slots, too.
    assert one.map_version == 1
    marks = [effect.message for effect in one.marks([0]) if isinstance(effect, Append)]
    assert [mark.map_version for mark in marks if isinstance(mark, Routed)] == [2] * SLOTS_COUNT
    # Each slot has been sent everything up to the end of its last record.
    assert (one.sources[0].sent <= one.sources[0].position).all()


def test_a_router_reports_each_step_once_and_when_it_is_due() -> None:
    view = view_of(*BEGIN, Granted(0, INTAKE, 0, "r"))
    intake = IntakeRouter(slots=SLOTS_COUNT, event_time=False)
    registry = Registry(partition=0, offset=0, floor=0, epoch=2)
    registry.validation.epoch_seen = 2
    steps = RouterSteps(
        view=view, intake=intake, registries={0: registry}, intake_partitions=1, event_time=False
    )
    steps.learn()
    intake.own(0, 0, None, 0)
    registry.stage.base = 1
    assert steps.next(0) == []

    view.apply(4, MapPrepared(0, 2, turned(2)))
    steps.learn()
    assert steps.next(0) == [Append(REGISTRY, 0, Prepare(2))]
    assert steps.next(0) == []
    registry.read([(0, Prepare(2))], intake.routings)
    (declared,) = steps.next(0)
    assert declared.declaration == MapCopied(0, 2, 2)  # type: ignore[union-attr]
    view.apply(5, MapCopied(0, 2, 2))
    view.apply(6, MapSwitched(0, 2))
    steps.learn()
    assert steps.next(0) == [Append(INTAKE, 0, Switch(2))]
    view.apply(7, CheckpointTaken(INTAKE, 0, 3, 1, "i", 2))
    intake.sources[0].map_version = 2
    (retire,) = steps.next(0)
    assert isinstance(retire, Append)
    assert isinstance(retire.message, Retire)
    assert steps.next(0) == []
    registry.read([(1, retire.message)], intake.routings)
    assert (registry.stage.base, registry.stage.following) == (2, 0)
    assert steps.next(0) == []


def test_reports_for_earlier_maps_are_forgotten() -> None:
    """A cluster that balances changes its map some thousand times a year."""
    view = view_of(*BEGIN, Granted(0, INTAKE, 0, "r"))
    intake = IntakeRouter(slots=SLOTS_COUNT, event_time=False)
    registry = Registry(partition=0, offset=0, floor=0, epoch=2)
    registry.validation.epoch_seen = 2
    steps = RouterSteps(
        view=view, intake=intake, registries={0: registry}, intake_partitions=1, event_time=False
    )
    steps.learn()
    intake.own(0, 0, None, 0)
    registry.stage.base = 1
    kept = []
    for version in range(2, 8):
        view.apply(view.next_offset, MapPrepared(0, version, turned(version)))
        steps.learn()
        assert steps.next(0) == [Append(REGISTRY, 0, Prepare(version))]
        registry.read([(registry.offset, Prepare(version))], intake.routings)
        (declared,) = steps.next(0)
        assert isinstance(declared, Declare)
        view.apply(view.next_offset, declared.declaration)
        view.apply(view.next_offset, MapSwitched(0, version))
        steps.learn()
        assert steps.next(0) == [Append(INTAKE, 0, Switch(version))]
        intake.sources[0].map_version = version
        view.apply(view.next_offset, CheckpointTaken(INTAKE, 0, 3, version, "i", version))
        (retire,) = steps.next(0)
        assert isinstance(retire, Append)
        assert isinstance(retire.message, Retire)
        registry.read([(registry.offset, retire.message)], intake.routings)
        assert steps.next(0) == []
        kept.append(len(steps._appended))
    assert kept[-1] == kept[-2], kept
