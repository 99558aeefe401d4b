"""The coordinator (rule R4) declares differences between the state in force and live members."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import numpy as np
import pytest

from sirocco.model.errors import FailedPrecondition, Unavailable
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
    MapPrepared,
    subject_of,
)
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    ControlRead,
    Effect,
    Member,
    MembersSeen,
    Outcome,
    ProposedMap,
    Publish,
    RebalanceRequest,
    SlotWeights,
    Warmed,
)
from sirocco.protocol.contract.messages import CONTROL, INTAKE, PARTIALS, REGISTRY, SLOTS
from sirocco.protocol.coordinator.assignment import balanced
from sirocco.protocol.coordinator.machine import (
    SETTLING_MS,
    SETTLINGS_MAX,
    WARMING_MS,
    WARMING_TOGETHER_MS,
    CoordinatorMachine,
    CoordinatorSettings,
)
from sirocco.schemes.map.map_bytes import to_bytes
from tests.support.values import map_activated, uniform_map

PARTITIONS = {INTAKE: 4, REGISTRY: 3, SLOTS: 16, PARTIALS: 2}
FIRST = map_activated(0)
SETTINGS = CoordinatorSettings(
    partitions=PARTITIONS, first_map=FIRST.partition_map, first_map_version=FIRST.version
)


def members(routers: int = 1, evaluators: int = 2, mergers: int = 1) -> tuple[Member, ...]:
    counts = {"router": routers, "evaluator": evaluators, "merger": mergers}
    return tuple(Member(f"{s}-{i}", s) for s, count in counts.items() for i in range(count))


class Cluster:
    """A topic `control` and coordinators that read it, each as far as the test allows."""

    def __init__(self, *names: str) -> None:
        self.log: list[Declaration] = []
        self.machines = {name: CoordinatorMachine(name, SETTINGS) for name in names}
        self.heads = dict.fromkeys(names, 0)
        self.held_back: dict[str, deque[Declaration]] = {name: deque() for name in names}
        self.views: list[Publish] = []
        self.now_ms = 0

    def carry_out(self, name: str, effects: list[Effect], *, hold: bool = False) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                self.views.append(effect)
                continue
            assert isinstance(effect, Append)
            assert (effect.topic, effect.partition) == (CONTROL, 0)
            (self.held_back[name] if hold else self.log).append(effect.message)  # type: ignore[arg-type]

    def read(self, name: str, upto: int | None = None) -> None:
        while self.heads[name] < (len(self.log) if upto is None else upto):
            offset = self.heads[name]
            self.heads[name] += 1
            event = ControlRead(offset, self.log[offset])
            self.carry_out(name, self.machines[name].step(event, self.now_ms))

    def see(
        self,
        name: str,
        alive: tuple[Member, ...],
        *,
        leading: bool = True,
        hold: bool = False,
        departed: frozenset[str] = frozenset(),
    ) -> None:
        event = MembersSeen(alive, leading, departed)
        self.carry_out(name, self.machines[name].step(event, self.now_ms), hold=hold)

    def settle(
        self, name: str, alive: tuple[Member, ...], departed: frozenset[str] = frozenset()
    ) -> None:
        """Shows the same members for long enough, twice after another."""
        for _ in range(4):
            self.see(name, alive, departed=departed)
            self.read(name)
            self.now_ms += SETTLING_MS

    def view(self) -> ControlView:
        view = ControlView()
        for offset, declaration in enumerate(self.log):
            view.apply(offset, declaration)
        return view

    def grants(self) -> list[Granted]:
        return [declaration for declaration in self.log if isinstance(declaration, Granted)]


@pytest.mark.parametrize("seed", range(200))
def test_shares_differ_by_one_at_most_and_only_what_must_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"m{i}" for i in range(int(rng.integers(1, 9)))]
    partitions = int(rng.integers(1, 40))
    owners = {p: str(rng.choice([*names, "dead", ""])) for p in range(partitions)}
    alive = tuple(names[: int(rng.integers(1, len(names) + 1))])

    wanted = balanced(owners, alive)

    counts = Counter(dict.fromkeys(alive, 0)) + Counter(wanted.values())
    shares = sorted((counts[name] for name in alive), reverse=True)
    assert wanted.keys() == owners.keys()
    assert set(wanted.values()) <= set(alive)
    assert shares[0] - shares[-1] <= 1, f"seed={seed}"
    # The least number of moves: each member keeps its slots up to its share, and the larger shares
    # are those of the members that hold most.
    held = sorted((sum(o == name for o in owners.values()) for name in alive), reverse=True)
    kept = sum(min(h, share) for h, share in zip(held, shares, strict=True))
    moved = sum(owners[p] != wanted[p] for p in owners)
    assert moved == partitions - kept, f"seed={seed}"
    assert balanced(wanted, alive) == wanted, f"seed={seed}"


def test_r4_a_leader_appends_its_leadership_first_and_acts_once_it_has_read_it() -> None:
    cluster = Cluster("a")
    cluster.see("a", members())
    assert cluster.log == [LeaderElected("a")]
    cluster.now_ms = 10 * SETTLING_MS
    cluster.see("a", members())
    assert len(cluster.log) == 1
    assert not cluster.machines["a"].leading
    cluster.read("a")
    assert cluster.machines["a"].leading


def test_members_settle_before_anything_is_granted() -> None:
    cluster = Cluster("a")
    cluster.see("a", members())
    cluster.read("a")
    cluster.see("a", members(2, 1, 2))
    cluster.now_ms = SETTLING_MS - 1
    cluster.see("a", members(2, 1, 2))
    cluster.see("a", members())
    cluster.now_ms = 2 * SETTLING_MS - 2
    cluster.see("a", members())
    assert cluster.grants() == []
    cluster.now_ms += 1
    cluster.see("a", members())
    assert len(cluster.grants()) == sum(PARTITIONS.values())
    assert [d for d in cluster.log if isinstance(d, MapActivated)] == [FIRST]


def test_each_service_settles_by_itself() -> None:
    cluster = Cluster("a")
    cluster.settle("a", members(mergers=2))
    cluster.see("a", members(evaluators=1, mergers=2))
    for looks in range(4):
        cluster.now_ms += SETTLING_MS // 2
        cluster.see("a", members(routers=1 + looks % 2, evaluators=1, mergers=2))
        cluster.read("a")
    owners = cluster.view().owners.items()
    assert {owner.member for (topic, _), owner in owners if topic == SLOTS} == {"evaluator-0"}


def test_what_the_dead_owned_is_granted_at_once_if_nobody_else_came() -> None:
    cluster = Cluster("a")
    cluster.settle("a", members(evaluators=4))

    def owners(alive: tuple[Member, ...]) -> set[str]:
        cluster.see("a", alive)
        cluster.read("a")
        known = cluster.view().owners.items()
        return {owner.member for (topic, _), owner in known if topic == SLOTS}

    # One after the other: neither waits for the other.
    assert owners(members(evaluators=3)) == {f"evaluator-{n}" for n in range(3)}
    assert owners(members(evaluators=2)) == {f"evaluator-{n}" for n in range(2)}
    # Another comes at the same time: everything waits until it is known who stays.
    news = [member for member in members(evaluators=2) if member.id != "evaluator-1"]
    alive = (*news, Member("evaluator-9", "evaluator"))
    assert owners(alive) == {f"evaluator-{n}" for n in range(2)}
    cluster.now_ms += SETTLING_MS
    assert owners(alive) == {"evaluator-0", "evaluator-9"}


def test_the_first_members_of_a_new_leader_settle_though_some_are_lost() -> None:
    cluster = Cluster("a")
    cluster.see("a", members(evaluators=3))
    cluster.read("a")
    cluster.see("a", members(evaluators=3))
    cluster.see("a", members(evaluators=2))
    assert cluster.grants() == []


def test_what_the_dead_owned_is_granted_though_others_keep_coming() -> None:
    """A rolling upgrade: one more evaluator at each look, and one that dies meanwhile."""
    cluster = Cluster("a")
    cluster.settle("a", members())
    before, begin_ms = len(cluster.grants()), cluster.now_ms
    alive = [member for member in members() if member.id != "evaluator-1"]
    dead: list[bool] = []
    while cluster.now_ms < begin_ms + 2 * SETTLINGS_MAX * SETTLING_MS:
        alive.append(Member(f"new-{len(alive)}", "evaluator"))
        cluster.see("a", tuple(alive))
        cluster.read("a")
        owns = {o.member for (topic, _), o in cluster.view().owners.items() if topic == SLOTS}
        dead.append("evaluator-1" in owns)
        if cluster.now_ms < begin_ms + SETTLINGS_MAX * SETTLING_MS:
            assert len(cluster.grants()) == before
        cluster.now_ms += SETTLING_MS // 2
    looks = 2 * SETTLINGS_MAX
    assert dead == [True] * looks + [False] * looks


def test_a_grant_holds_whether_the_former_owner_has_ended() -> None:
    cluster = Cluster("a")
    cluster.settle("a", members(evaluators=2))
    assert not any(grant.has_ended for grant in cluster.grants())
    # One ends, and later one starts: slots of the dead one, and slots that the living give up.
    cluster.settle("a", members(evaluators=1))
    cluster.settle("a", members(evaluators=2))
    of_slots = [grant for grant in cluster.grants() if grant.topic == SLOTS]
    assert [grant.has_ended for grant in of_slots] == [False] * 16 + [True] * 8 + [False] * 8
    # One more, which has reported that none of its attempts has ended it.
    cluster.settle("a", members(evaluators=1), frozenset({"evaluator-1"}))
    *_, last = cluster.grants()
    assert (last.topic, last.member, last.has_ended) == (SLOTS, "evaluator-0", False)


def test_a_new_leader_does_not_count_what_it_saw_before() -> None:
    cluster = Cluster("a")
    cluster.settle("a", members())
    cluster.see("a", members(evaluators=1))
    cluster.see("a", (), leading=False)
    cluster.now_ms += 2 * SETTLINGS_MAX * SETTLING_MS
    before = cluster.grants()
    for _ in range(2):
        cluster.see("a", members(evaluators=1))
        cluster.read("a")
    assert cluster.machines["a"].leading
    assert cluster.grants() == before


def test_r4_nothing_is_granted_twice_while_a_leader_has_not_read_its_grants() -> None:
    cluster = Cluster("a")
    cluster.see("a", members())
    cluster.read("a")
    for _ in range(5):
        cluster.see("a", members())
        cluster.now_ms += SETTLING_MS
    assert len(cluster.grants()) == sum(PARTITIONS.values())
    cluster.read("a")
    cluster.settle("a", members())
    assert len(cluster.grants()) == sum(PARTITIONS.values())


@pytest.mark.parametrize("seed", range(20))
def test_r4_whoever_comes_and_goes_each_partition_has_one_living_owner(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = Cluster("a")
    for _ in range(6):
        alive = members(*(int(n) for n in rng.integers(1, 5, 3)))
        before = dict(cluster.view().owners)
        cluster.settle("a", alive)
        owners = cluster.view().owners
        assert len(owners) == sum(PARTITIONS.values()), f"seed={seed}"
        assert {owner.member for owner in owners.values()} <= {m.id for m in alive}, f"seed={seed}"
        for key, owner in owners.items():
            # An epoch grows with each change of the owner, and only then.
            if key in before and before[key].member == owner.member:
                assert before[key] == owner, f"seed={seed}"
        assert cluster.views[-1].owners == tuple(
            (topic, p, owner.member, owner.epoch) for (topic, p), owner in sorted(owners.items())
        )


def test_a_service_without_members_keeps_its_grants() -> None:
    cluster = Cluster("a")
    cluster.settle("a", members())
    count = len(cluster.grants())
    cluster.settle("a", members(mergers=0))
    assert len(cluster.grants()) == count


def test_r4_a_new_leader_continues_where_the_last_one_stopped() -> None:
    cluster = Cluster("a", "b")
    cluster.settle("a", members())
    grants = cluster.grants()
    cluster.read("b")
    cluster.see("a", members(), leading=False)
    cluster.settle("b", members())
    assert cluster.grants() == grants
    cluster.read("a")
    assert not cluster.machines["a"].leading
    assert cluster.view().leader == "b"


def test_r4_the_word_of_a_former_leader_is_void_and_the_true_grant_is_republished() -> None:
    # init: a leads, and decides on a move that reaches the log only when b leads.
    cluster = Cluster("a", "b")
    cluster.settle("a", members(evaluators=1))
    cluster.see("a", members(evaluators=2))
    cluster.now_ms += SETTLING_MS
    cluster.see("a", members(evaluators=2), hold=True)
    late = cluster.held_back["a"]
    assert late
    cluster.settle("b", members(evaluators=1))
    before = {key: owner.member for key, owner in cluster.view().owners.items()}

    # test
    cluster.log.extend(late)
    cluster.read("b")

    # check: nothing moved, and the newest record of each subject, which compaction keeps, is one in
    # force.
    assert {key: owner.member for key, owner in cluster.view().owners.items()} == before
    newest = {(g.topic, g.partition): g for g in cluster.grants()}
    assert {key: grant.member for key, grant in newest.items()} == before
    count = len(cluster.log)
    cluster.settle("b", members(evaluators=1))
    assert len(cluster.log) == count


def test_r4_a_map_of_a_former_leader_is_void_and_the_true_one_is_republished() -> None:
    cluster = Cluster("a", "b")
    cluster.see("a", members())
    cluster.read("a")
    cluster.see("a", members())
    cluster.now_ms += SETTLING_MS
    cluster.see("a", members(), hold=True)
    cluster.settle("b", members())
    cluster.log.extend(cluster.held_back["a"])
    cluster.settle("b", members())
    newest = [d for d in cluster.log if isinstance(d, MapActivated)][-1]
    assert newest.term == cluster.view().term
    assert cluster.view().map_version == 1


def test_r4_what_came_without_effect_before_a_leader_is_republished_by_it() -> None:
    # init: b was elected after a and left at once; a's proposals arrived after that election.
    cluster = Cluster("a", "b")
    cluster.settle("a", members())
    term = cluster.view().term
    checkpoints = [CheckpointTaken(SLOTS, 0, 9, offset, f"at {offset}") for offset in (7, 5)]
    cluster.log += [checkpoints[0], LeaderElected("c"), MapPrepared(term, 2, b"void")]
    cluster.log.append(checkpoints[1])

    # test
    cluster.settle("b", members())

    # check: a reader of the compacted log knows as much as the others.
    newest = {subject_of(declaration): declaration for declaration in cluster.log}
    assert newest["map/0"] == MapPrepared(cluster.view().term, 2, b"")
    assert newest[f"checkpoint/{SLOTS}/0"] == checkpoints[0]
    count = len(cluster.log)
    cluster.settle("b", members())
    assert len(cluster.log) == count


def test_r4_a_map_that_cannot_be_read_is_void_and_the_true_one_is_republished() -> None:
    # Compaction would keep the void one, the newest of its subject.
    cluster = Cluster("a")
    cluster.settle("a", members())
    term = cluster.view().term
    cluster.log.append(MapActivated(term, 2, b"no map"))
    cluster.settle("a", members())
    assert cluster.log[-1] == FIRST
    count = len(cluster.log)
    cluster.settle("a", members())
    assert len(cluster.log) == count


def test_r4_a_leader_that_lost_and_regained_its_lease_leads_again() -> None:
    cluster = Cluster("a", "b")
    cluster.settle("a", members())
    # b was elected in between and a has not read of it.
    cluster.log.append(LeaderElected("b"))
    cluster.see("a", members(), leading=False)
    cluster.see("a", members())
    assert cluster.log[-1] == LeaderElected("a")
    for _ in range(4):
        cluster.settle("a", members(evaluators=3))
    assert cluster.machines["a"].leading
    assert cluster.view().leader == "a"
    owners = {o.member for (topic, _), o in cluster.view().owners.items() if topic == SLOTS}
    assert owners == {"evaluator-0", "evaluator-1", "evaluator-2"}


# --- by load


def by_load() -> Cluster:
    """Returns a leader that assigns by load, with all slots on two evaluators."""
    cluster = Cluster("a")
    cluster.machines["a"] = CoordinatorMachine("a", replace(SETTINGS, by_load=True))
    cluster.settle("a", members(evaluators=2))
    return cluster


def owners_of_slots(cluster: Cluster) -> dict[int, str]:
    owners = cluster.view().owners
    return {slot: owners[SLOTS, slot].member for slot in range(PARTITIONS[SLOTS])}


def outcome_of(cluster: Cluster, moves: dict[int, tuple[str, str]]) -> Outcome:
    """Moves slots; returns the machine's answer."""
    *grants, answer = cluster.machines["a"].step(RebalanceRequest(7, moves), cluster.now_ms)
    assert isinstance(answer, Answer)
    assert answer.token == 7
    cluster.carry_out("a", list(grants))
    cluster.read("a")
    return answer.outcomes[0]


def test_by_load_a_new_evaluator_gets_its_share_at_once() -> None:
    cluster = by_load()
    before = owners_of_slots(cluster)
    heavy = next(slot for slot, owner in before.items() if owner == "evaluator-0")
    weights = tuple(30.0 if slot == heavy else 1.0 for slot in range(16))
    assert cluster.machines["a"].step(SlotWeights(weights), cluster.now_ms) == []

    cluster.settle("a", members(evaluators=3))

    after = owners_of_slots(cluster)
    moved = {slot for slot in after if after[slot] != before[slot]}
    assert moved
    assert {after[slot] for slot in moved} == {"evaluator-2"}
    # With equal counts the heavy slot's owner would also keep its other slots.
    assert {before[slot] for slot in moved} == {"evaluator-0"}


def test_by_load_slots_change_hands_all_or_none_and_stay() -> None:
    cluster = by_load()
    owners = owners_of_slots(cluster)
    slots = [slot for slot, owner in owners.items() if owner == "evaluator-0"][:3]
    moves = dict.fromkeys(slots, ("evaluator-0", "evaluator-1"))

    for wrong in (
        {**moves, slots[0]: ("evaluator-1", "evaluator-0")},
        {**moves, slots[0]: ("evaluator-0", "evaluator-9")},
    ):
        assert isinstance(outcome_of(cluster, wrong).error, FailedPrecondition)
        assert owners_of_slots(cluster) == owners
    assert outcome_of(cluster, moves).error is None

    assert owners_of_slots(cluster) == owners | dict.fromkeys(slots, "evaluator-1")
    # Counts are not made equal again.
    cluster.settle("a", members(evaluators=2))
    assert owners_of_slots(cluster) == owners | dict.fromkeys(slots, "evaluator-1")


def test_by_load_nothing_moves_while_the_map_changes_or_another_leads() -> None:
    cluster = by_load()
    slot, owner = next(iter(owners_of_slots(cluster).items()))
    other = next(name for name in ("evaluator-0", "evaluator-1") if name != owner)
    moves = {slot: (owner, other)}
    proposal = to_bytes(uniform_map(PARTITIONS[SLOTS], 32, FIRST.version + 1))
    effects = cluster.machines["a"].step(ProposedMap(1, proposal), cluster.now_ms)
    assert isinstance(outcome_of(cluster, moves).error, FailedPrecondition)
    (prepared,) = effects
    assert isinstance(prepared, Append)
    machine, offset = cluster.machines["a"], len(cluster.log)
    machine.step(ControlRead(offset, prepared.message), cluster.now_ms)  # type: ignore[arg-type]
    assert isinstance(outcome_of(cluster, moves).error, FailedPrecondition)

    cluster.see("a", members(), leading=False)
    assert isinstance(outcome_of(cluster, moves).error, Unavailable)


@pytest.mark.parametrize("loads", [False, True])
def test_a_leaving_member_loses_all_partitions_at_once(loads: bool) -> None:
    cluster = Cluster("a")
    cluster.machines["a"] = CoordinatorMachine("a", replace(SETTINGS, by_load=loads))
    cluster.settle("a", members(evaluators=3))
    leaving = tuple(
        replace(one, is_leaving=one.id == "evaluator-1") for one in members(evaluators=3)
    )

    # There is no time for the members to settle.
    cluster.see("a", leaving)
    cluster.read("a")

    assert set(owners_of_slots(cluster).values()) == {"evaluator-0", "evaluator-2"}


def test_the_last_one_that_leaves_keeps_what_it_has() -> None:
    cluster = Cluster("a")
    cluster.settle("a", members(evaluators=1))
    leaving = tuple(replace(one, is_leaving=one.service == "evaluator") for one in members(1, 1))
    count = len(cluster.grants())

    cluster.settle("a", leaving)

    assert len(cluster.grants()) == count


def warming(*, by_load: bool = False) -> Cluster:
    """A settled cluster of two evaluators that loads past objects before slots move."""
    cluster = Cluster("c")
    settings = replace(SETTINGS, warms=True, by_load=by_load)
    cluster.machines["c"] = CoordinatorMachine("c", settings)
    cluster.settle("c", members())
    assert cluster.machines["c"].unwarmed == {}
    return cluster


@pytest.mark.parametrize("by_load", [False, True])
def test_slots_with_owners_move_together_when_the_next_one_has_their_past(by_load: bool) -> None:
    cluster = warming(by_load=by_load)
    machine, before = cluster.machines["c"], owners_of_slots(cluster)
    for _ in range(3):
        cluster.see("c", members(evaluators=3))
        cluster.now_ms += SETTLING_MS
    assert owners_of_slots(cluster) == before
    moves = dict(machine.unwarmed)
    assert len(moves) == 5
    assert all(move == (before[slot], "evaluator-2") for slot, move in moves.items())
    assert all(map(machine.moves_together, moves))
    first, *rest = moves
    assert machine.step(Warmed(first, "evaluator-2"), cluster.now_ms) == []
    cluster.see("c", members(evaluators=3))
    assert set(machine.unwarmed) == set(rest)
    for slot in rest:
        machine.step(Warmed(slot, "evaluator-2"), cluster.now_ms)
    cluster.see("c", members(evaluators=3))
    cluster.read("c")
    assert owners_of_slots(cluster) == before | dict.fromkeys(moves, "evaluator-2")
    assert machine.unwarmed == {}


def test_slots_move_after_some_time_in_any_case() -> None:
    cluster = warming()
    cluster.see("c", members(evaluators=3))
    cluster.now_ms += SETTLING_MS
    cluster.see("c", members(evaluators=3))
    assert len(cluster.machines["c"].unwarmed) == 5
    cluster.now_ms += WARMING_TOGETHER_MS - 1
    cluster.see("c", members(evaluators=3))
    cluster.read("c")
    assert Counter(owners_of_slots(cluster).values())["evaluator-2"] == 0
    cluster.now_ms += 1
    cluster.see("c", members(evaluators=3))
    cluster.read("c")
    assert Counter(owners_of_slots(cluster).values())["evaluator-2"] == 5
    assert cluster.machines["c"].unwarmed == {}


def test_slots_of_a_leaving_owner_wait_less_than_those_that_move_together() -> None:
    cluster = warming()
    leaving = tuple(replace(m, is_leaving=m.id == "evaluator-1") for m in members())
    cluster.see("c", leaving)
    assert not any(map(cluster.machines["c"].moves_together, range(PARTITIONS[SLOTS])))
    cluster.now_ms += WARMING_MS
    cluster.see("c", leaving)
    cluster.read("c")
    assert set(owners_of_slots(cluster).values()) == {"evaluator-0"}


def test_what_was_loaded_by_another_member_does_not_count() -> None:
    cluster = warming()
    machine, before = cluster.machines["c"], owners_of_slots(cluster)
    for member in ("evaluator-9", "evaluator-9", "evaluator-9"):
        cluster.see("c", members(evaluators=3))
        cluster.now_ms += SETTLING_MS
        for slot in machine.unwarmed:
            machine.step(Warmed(slot, member), cluster.now_ms)
    assert len(machine.unwarmed) == 5
    assert owners_of_slots(cluster) == before


def test_slots_without_a_living_owner_wait_for_nothing() -> None:
    cluster = warming()
    # One was killed, the other has left before others had all of its slots.
    for left in ((), frozenset({"evaluator-1"})):
        cluster = warming()
        alive = tuple(each for each in members() if each.id != "evaluator-1")
        cluster.settle("c", alive, departed=frozenset(left))
        assert set(owners_of_slots(cluster).values()) == {"evaluator-0"}


def test_a_leaving_owner_keeps_its_slots_until_others_have_their_past() -> None:
    cluster = warming()
    machine = cluster.machines["c"]
    leaving = tuple(replace(m, is_leaving=m.id == "evaluator-1") for m in members())
    cluster.see("c", leaving)
    first, *rest = machine.unwarmed
    assert len(rest) == 7
    machine.step(Warmed(first, "evaluator-0"), cluster.now_ms)
    cluster.see("c", leaving)
    cluster.read("c")
    # Each moves as soon as it can.
    assert Counter(owners_of_slots(cluster).values())["evaluator-1"] == 7
    for slot in rest:
        machine.step(Warmed(slot, "evaluator-0"), cluster.now_ms)
    cluster.see("c", leaving)
    cluster.read("c")
    assert set(owners_of_slots(cluster).values()) == {"evaluator-0"}


def test_slots_are_not_prepared_again_once_they_are_warm_or_another_leads() -> None:
    cluster = warming()
    machine = cluster.machines["c"]
    for _ in range(2):
        cluster.see("c", members(evaluators=3))
        cluster.now_ms += SETTLING_MS
    first, *rest = machine.unwarmed
    machine.step(Warmed(first, "evaluator-2"), cluster.now_ms)
    assert list(machine.unwarmed) == rest
    cluster.see("c", members(evaluators=3), leading=False)
    assert machine.unwarmed == {}
