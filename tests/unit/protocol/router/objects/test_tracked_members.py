"""Members whose values are tracked: clients choose them, one with each query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.model.errors import ResourceExhausted
from sirocco.protocol.contract.effects import Append, ChangeRequest, Effect, Outcome, State
from sirocco.protocol.contract.messages import SLOTS, Routed, TrackedMember, TrackedMemberSet
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.objects.followed_members import FollowedMembers
from sirocco.protocol.router.queries import member_declarations
from sirocco.protocol.router.queries.registry_partition import Registry
from tests.support.registry_log import Log, query
from tests.support.values import change_of, request_of, taken_of
from tests.unit.protocol.router.objects.test_intake_router import router as intake_router
from tests.unit.protocol.router.objects.test_single_track_copies import values_in


class Touched(set[str]):
    """A set that counts its look-ups; iteration is an error."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return super().__contains__(key)

    def __iter__(self) -> Any:
        raise AssertionError("the work must not depend on how many there are")


def tags_of(effects: list[Effect]) -> set[tuple[int, str]]:
    """Returns (object id, member) of each copy."""
    found: set[tuple[int, str]] = set()
    for effect in effects:
        if isinstance(effect, Append) and effect.topic == SLOTS:
            assert isinstance(effect.message, Routed)
            found |= values_in(effect.message).keys()
    return found


def test_an_object_is_followed_by_its_own_members_whatever_others_there_are() -> None:
    made = intake_router(0)
    for i in range(500):
        made.add(0, i, TrackedMember(f"m{i}"), 0)
    made.flush(0, at_once=True)
    made._track_keys = Touched(made._track_keys)
    objects: list[dict[str, Any]] = [
        {"id": 1, "lon": 1, "lat": 1, "m7": "a", "m499": 3, "other": 1},
        {"id": 2, "lon": 1, "lat": 1, "m500": "a", "m8": None},
        {"id": 3, "lon": 1, "lat": 1},
        {"id": 4, "lon": 2, "lat": 1, "m7": "b"},
    ]
    made.add(0, 500, taken_of(1, 1, objects), 0)
    assert tags_of(made.flush(0, at_once=True)) == {(1, "m7"), (1, "m499"), (4, "m7")}
    assert made._track_keys.asked == 6


def test_members_go_with_the_partition_that_they_stand_in() -> None:
    made = intake_router(0, 1)
    made.add(0, 0, TrackedMember("a"), 0)
    made.add(1, 0, TrackedMember("b"), 0)
    made.flush(0, at_once=True)
    made.disown(0)
    one = {"id": 1, "lon": 1, "lat": 1, "a": 1, "b": 1}
    made.add(1, 1, taken_of(1, 1, [one]), 0)
    assert tags_of(made.flush(0, at_once=True)) == {(1, "b")}


@pytest.mark.parametrize("is_former", [False, True])
def test_members_are_known_after_a_take_over(is_former: bool) -> None:
    # An earlier version stored them without their ends.
    names = ["a", "b", "ä"] if is_former else ["a", "b\0c", "\0", "ä"]
    made = intake_router(0)
    for i, name in enumerate(names):
        made.add(0, i, TrackedMember(name), 0)
    made.flush(0, at_once=True)
    state = dict(made.sources[0].state())
    if is_former:
        del state["track_key_ends"], state["members.parts"]
    successor = intake_router()
    successor.own(0, len(names), state, 0)
    one = {"id": 1, "lon": 1, "lat": 1, "b": 1, "c": 1, **dict.fromkeys(names, 1)}
    successor.add(0, len(names), taken_of(1, 1, [one]), 0)
    assert tags_of(successor.flush(0, at_once=True)) == {(1, name) for name in names}
    empty = intake_router()
    empty.own(0, 0, intake_router(0).sources[0].state(), 0)
    assert not empty.sources[0].members.names


# --- members that are no longer tracked


def published_by(log: Owner) -> list[TrackedMember | TrackedMemberSet]:
    """Returns the new records for the first intake partition."""
    published, log.members = log.members, []
    return [message for partition, message in published if partition == 0]


class Owner(Log):
    """A registry partition, and its records for intake partitions."""

    def __init__(
        self,
        offset: int = 0,
        epoch: int = 7,
        state: State | None = None,
        limits: RouterLimits = LIMITS,
    ) -> None:
        super().__init__(offset)
        self.registry = Registry(
            partition=3,
            offset=offset,
            floor=offset,
            epoch=epoch,
            intake_partitions=2,
            limits=limits,
        )
        if state is not None:
            self.registry.restore(read_state(write_state(state)))
        self.registry.validation.epoch_seen = epoch

    def do(self, *requests: ChangeRequest) -> list[Outcome]:
        token = self.request(*requests)
        self.read()
        return list(self.answers[token])

    def tick(self) -> None:
        self.carry_out(self.registry.forget_members(0))


def tracks(number: int, member: str) -> ChangeRequest:
    return request_of("register", query(f"q{number}", track=member))


def gone(number: int) -> ChangeRequest:
    return request_of("unregister", f"q{number}")


def test_a_member_is_published_once_and_before_its_first_query_is_answered() -> None:
    log = Owner()
    log.do(tracks(1, "bus"))
    assert log.order[0] == "published"
    assert log.order.index("answer") > log.order.index("published")
    assert [partition for partition, _ in log.members] == [0, 1]
    assert published_by(log) == [TrackedMember("bus", 3, 7)]
    log.do(tracks(2, "bus"), tracks(3, "line"))
    assert published_by(log) == [TrackedMember("line", 3, 7)]


def test_what_is_tracked_no_more_is_forgotten_and_republished() -> None:
    limits = RouterLimits(obsolete_members_min=0)
    log = Owner(limits=limits)
    log.do(tracks(1, "bus"), tracks(2, "bus"), tracks(3, "line"))
    published_by(log)
    log.do(gone(1), gone(3))
    log.tick()
    assert published_by(log) == [TrackedMemberSet(3, 7, ("bus",))]
    log.tick()
    assert published_by(log) == []
    # An update to another member stops the tracking of the former one.
    log.do(request_of("update", query("q2", track="tram")))
    log.tick()
    assert published_by(log) == [TrackedMember("tram", 3, 7), TrackedMemberSet(3, 7, ("tram",))]
    log.do(tracks(4, "line"))
    assert published_by(log) == [TrackedMember("line", 3, 7)]
    log.do(gone(2), gone(4))
    log.tick()
    assert published_by(log) == [TrackedMemberSet(3, 7, ())]


def test_few_that_are_gone_wait_for_more() -> None:
    log = Owner()
    count = LIMITS.obsolete_members_min
    log.do(*(tracks(number, f"m{number}") for number in range(count + 1)))
    log.do(*(gone(number) for number in range(count)))
    published_by(log)
    log.tick()
    assert published_by(log) == []
    log.do(gone(count))
    log.tick()
    assert published_by(log) == [TrackedMemberSet(3, 7, ())]


def test_members_of_queries_outlive_an_owner_and_a_version() -> None:
    limits = RouterLimits(obsolete_members_min=0)
    log = Owner(limits=limits)
    log.do(tracks(1, "bus"), tracks(2, "line"), request_of("register", query("q3")))
    log.do(gone(2))
    state = log.registry.state()
    second = Owner(log.head, 9, state, limits=limits)
    second.tick()
    # The predecessor's declarations are withdrawn by its successor.
    assert published_by(second) == [TrackedMemberSet(3, 9, ("bus",))]
    # An earlier version has not stored it: it is read once more.
    old = {name: column for name, column in state.items() if not name.startswith("track.")}
    assert member_declarations.are_missing(old)
    third = Owner(log.head, 9, member_declarations.with_members(old, enumerate(log.records)))
    third.tick()
    assert published_by(third) == [TrackedMemberSet(3, 9, ("bus",))]
    # Where the log no longer holds all of it, nothing is ever withdrawn.
    rest = [(at, change) for at, change in enumerate(log.records) if at != 0]
    fourth = Owner(log.head, 9, member_declarations.with_members(old, rest), limits=limits)
    fourth.do(tracks(5, "tram"), gone(5))
    fourth.do(gone(5))
    fourth.tick()
    assert published_by(fourth) == [TrackedMember("tram", 3, 9)]
    assert member_declarations.are_missing(fourth.registry.state())


def test_nothing_is_forgotten_before_the_log_has_shown_the_owner() -> None:
    limits = RouterLimits(obsolete_members_min=0)
    log = Owner(limits=limits)
    log.do(tracks(1, "bus"))
    log.do(gone(1))
    second = Owner(log.head, 9, log.registry.state(), limits=limits)
    second.registry.validation.epoch_seen = 7
    second.tick()
    assert published_by(second) == []
    # Records in the log before its own first record are read by then.
    third = change_of(tracks(2, "bus"))
    second.records = [replace(third, epoch=7), *second.records]
    second.read()
    second.tick()
    assert published_by(second) == [TrackedMember("bus", 3, 9)]


def test_a_registration_of_one_member_too_many_is_refused() -> None:
    limits = RouterLimits(members_max=3)
    log = Owner(limits=limits)
    outcomes = log.do(*(tracks(number, f"m{number}") for number in range(5)))
    assert [type(outcome.error) for outcome in outcomes] == [
        *([type(None)] * 3),
        *([ResourceExhausted] * 2),
    ]
    assert outcomes[3].error is not None
    assert outcomes[3].error.field == "track"
    # Other members stay, and so do queries that track the same member.
    (same,) = log.do(tracks(7, "m1"))
    (plain,) = log.do(request_of("register", query("q8")))
    (late,) = log.do(tracks(9, "m9"))
    assert same.error is plain.error is None
    assert isinstance(late.error, ResourceExhausted)
    log.do(gone(0))
    (late,) = log.do(tracks(9, "m9"))
    assert late.error is None


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_no_tenant_tracks_more_members_than_are_free(is_taken_over: bool) -> None:
    limits = RouterLimits(members_max=16)
    log = Owner(limits=limits)

    def taken(tenant: str, number: int) -> int:
        outcomes = log.do(
            *(
                request_of("register", query(f"{tenant}:q{i}", track=f"{tenant}-{i}"))
                for i in range(number)
            )
        )
        refused = [each.error for each in outcomes if each.error is not None]
        assert all(isinstance(error, ResourceExhausted) for error in refused)
        assert {error.field for error in refused} <= {"track"}
        return len(outcomes) - len(refused)

    # One after the other, and all at once.
    assert [taken("greedy", 2), taken("greedy", 20)] == [2, 8]
    if is_taken_over:
        log = Owner(log.head, 9, log.registry.state(), limits=limits)
    assert taken("greedy", 20) == 8
    assert taken("other", 20) == 4
    assert taken("third", 20) == 2
    # A tenant that tracks what others track uses no share; the operator may have the rest.
    (same,) = log.do(request_of("register", query("greedy:x", track="other-1")))
    assert same.error is None
    outcomes = log.do(*(tracks(number, f"m{number}") for number in range(4)))
    assert [each.error is None for each in outcomes] == [True, True, False, False]
    # What a tenant gives back it may have again.
    log.do(
        *(request_of("unregister", f"greedy:{name}") for name in ("q0", "x")),
        *(gone(number) for number in range(4)),
    )
    for tenant in ("other", "third"):
        log.do(*(request_of("unregister", f"{tenant}:q{i}") for i in range(4)))
    assert taken("greedy", 20) == 8


def test_a_checkpoint_of_an_earlier_version_holds_no_tenants_of_members() -> None:
    limits = RouterLimits(members_max=8)
    log = Owner(limits=limits)
    log.do(*(request_of("register", query(f"a:q{i}", track=f"m{i}")) for i in range(3)))
    old = {
        name: column
        for name, column in log.registry.state().items()
        if not name.startswith("track.tenants")
    }
    second = Owner(log.head, 9, old, limits=limits)
    outcomes = second.do(
        *(request_of("register", query(f"a:r{i}", track=f"n{i}")) for i in range(5))
    )
    assert [each.error is None for each in outcomes] == [True, True, True, False, False]
    second.do(request_of("unregister", "a:q0"))


def test_sources_know_no_more_than_what_is_tracked() -> None:
    """Memory does not grow if a client tracks another member with each query."""
    log, source = Owner(), FollowedMembers(4)
    most = 0
    for number in range(2_000):
        log.do(tracks(number, f"m{number}"))
        log.do(gone(number))
        log.tick()
        for each in published_by(log):
            if isinstance(each, TrackedMember):
                source.add(each)
            else:
                source.keep(each)
        most = max(most, len(source.names))
    assert most <= LIMITS.obsolete_members_min + 2
    assert (
        len(log.registry.member_declarations.state()["track.known"])
        < 10 * LIMITS.obsolete_members_min
    )


def test_partitions_and_owners_do_not_forget_for_each_other() -> None:
    source = FollowedMembers(2)
    # From an earlier router, which may still have queries for it.
    source.add(TrackedMember("old"))
    source.add(TrackedMember("bus", 0, 5))
    source.add(TrackedMember("bus", 1, 6))
    source.add(TrackedMember("line", 0, 5))
    assert source.keep(TrackedMemberSet(0, 5, ("line",)))
    assert source.names == {"old", "bus", "line"}
    assert source.keep(TrackedMemberSet(1, 6, ()))
    assert source.names == {"line"}
    # A former owner, which was paused, knows of fewer, and declares it late.
    source.add(TrackedMember("tram", 0, 8))
    assert not source.keep(TrackedMemberSet(0, 5, ()))
    assert source.names == {"line", "tram"}
    source.add(TrackedMember("late", 0, 5))
    successor = FollowedMembers(2)
    successor.restore(read_state(write_state(source.state())))
    assert successor.names == {"line", "tram", "late"}
    assert not successor.keep(TrackedMemberSet(0, 7, ()))
    assert successor.keep(TrackedMemberSet(0, 8, ("tram",)))
    assert successor.names == {"tram"}


def test_objects_before_a_member_is_forgotten_are_followed() -> None:
    made = intake_router(0)
    made.add(0, 0, TrackedMember("bus", 0, 1), 0)
    made.add(0, 1, taken_of(1, 1, [{"id": 1, "lon": 1, "lat": 1, "bus": 1}]), 0)
    made.add(0, 2, TrackedMemberSet(0, 1, ()), 0)
    assert tags_of(made.flush(0, at_once=True)) == {(1, "bus")}
    made.add(0, 3, taken_of(1, 2, [{"id": 2, "lon": 1, "lat": 1, "bus": 1}]), 0)
    assert tags_of(made.flush(0, at_once=True)) == set()
    assert made.followed_members == 0
