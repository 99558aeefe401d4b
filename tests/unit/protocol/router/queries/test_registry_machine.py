"""Changes of queries (rule R3): decided in offset order, answered when the slots know them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.model.errors import AlreadyExists, NotFound, ResourceExhausted, Unavailable
from sirocco.model.geometry import Region
from sirocco.model.query import RangeQuery, parse_query, query_handle
from sirocco.protocol.contract.effects import Append, Outcome
from sirocco.protocol.contract.messages import NO_REVISION, SLOTS, Change
from sirocco.protocol.router.limits import RouterLimits
from sirocco.protocol.router.queries.install_records import installed_bytes
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.registry_partition import Registry
from tests.support.registry_log import ROUTING, SLOTS_COUNT, Log, query, slots_after
from tests.support.values import change_of, request_of


def slots_of(region: Region) -> set[int]:
    boxes = np.array(region.boxes(), np.float64).reshape(-1, 4)
    return set(ROUTING.route_boxes(boxes, np.array([0, len(boxes)])).slots.tolist())


def slots_between(west: float, east: float) -> set[int]:
    found = parse_query(query("any", west, east))
    assert isinstance(found, RangeQuery)
    assert found.region is not None
    return slots_of(found.region)


def test_r3_a_registration_is_answered_when_its_slots_have_it() -> None:
    log = Log()
    token = log.request(request_of("register", query("a", -170, -110)))
    assert log.answers == {}
    log.read()
    assert log.outcome(token) == Outcome(0)
    assert log.order == ["install", "answer"]
    assert log.installed_ids() == {key: {"a": 0} for key in slots_between(-170, -110)}


def test_r3_an_equal_registration_gets_the_revision_and_changes_nothing() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x AND y")))
    assert log.ask(request_of("register", query("a", text="x y"), start_ms=99)) == Outcome(0)
    assert log.changes == 1


def test_a_query_whose_lifetime_has_ended_may_be_registered_again() -> None:
    log = Log()
    request = request_of("register", query("a", ttl="1h"), start_ms=0)
    log.ask(request)

    again = log.ask(request_of("register", query("a", ttl="1h"), start_ms=3_600_000))

    assert again == Outcome(1)
    assert log.changes == 2
    unequal = log.ask(request_of("register", query("a", ttl="2h"), start_ms=4_000_000))
    assert isinstance(unequal.error, AlreadyExists)


@pytest.mark.parametrize("action", ["register", "update", "unregister"])
def test_r3_an_owner_that_was_replaced_unknowingly_does_not_answer_from_memory(action: str) -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    handle = query_handle("a")
    if action == "register":
        # Another has removed it meanwhile: here it still seems registered.
        log.records.append(
            Change(
                handle=handle,
                query=None,
                subscriber="",
                start_ms=5,
                expected_revision=0,
                digest=0,
                epoch=8,
            )
        )
    else:
        # Another has removed and registered it anew: here it would seem removed.
        log.ask(request_of("unregister", "a"))
        other = change_of(request_of("register", query("a", -10, 10), start_ms=5))
        log.records.append(replace(other, epoch=8))
    wanted = "a" if action == "unregister" else query("a")

    outcome = log.ask(request_of(action, wanted, start_ms=9))

    assert isinstance(outcome.error, Unavailable)
    again = log.ask(request_of(action, wanted, start_ms=10))
    assert isinstance(again.error, Unavailable), "it knows by now, without another append"


def test_r3_what_a_deposed_owner_appends_late_is_void() -> None:
    # It was paused with a registration, which its client has since made and undone elsewhere.
    log = Log()
    log.ask(request_of("register", query("a")))
    log.ask(request_of("unregister", "a"))
    late = change_of(request_of("register", query("a")))
    log.records.append(replace(late, epoch=6))
    log.read()
    assert log.installed_ids() == {}
    assert log.registry.live.revision(query_handle("a")) == NO_REVISION


def test_r3_a_removal_of_before_is_not_taken_for_the_one_that_is_requested() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    # A removal and a registration under this ownership, not read here when the request arrives.
    log.records.append(
        Change(
            handle=query_handle("a"),
            query=None,
            subscriber="",
            start_ms=5,
            expected_revision=0,
            digest=0,
            epoch=7,
        )
    )
    other = change_of(request_of("register", query("a", -10, 10), start_ms=6))
    log.records.append(replace(other, epoch=7))
    assert log.ask(request_of("unregister", "a", start_ms=9)).error is None
    assert log.installed_ids() == {}


@pytest.mark.parametrize("subscriber", ["s", "t"])
def test_r3_an_unequal_registration_is_a_conflict(subscriber: str) -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x")))
    changed = query("a", text="y" if subscriber == "s" else "x")
    outcome = log.ask(request_of("register", changed, subscriber))
    assert isinstance(outcome.error, AlreadyExists)
    assert outcome.error.field == "id"
    assert log.changes == 1


def test_r3_what_does_not_exist_can_neither_be_updated_nor_removed() -> None:
    log = Log()
    for request in (request_of("update", query("a")), request_of("unregister", "a")):
        assert isinstance(log.ask(request).error, NotFound)
    assert log.changes == 0


def test_r3_an_update_moves_a_query_between_slots() -> None:
    log = Log()
    log.ask(request_of("register", query("a", -170, -10)))
    before, after = slots_between(-170, -10), slots_between(-80, 80)
    assert before - after
    assert before & after
    assert after - before
    log.installs.clear()
    assert log.ask(request_of("update", query("a", -80, 80))) == Outcome(1)
    installed = {slot for slot, message in log.installs if len(message.revisions)}
    removed = {slot for slot, message in log.installs if len(message.removed)}
    assert (installed, removed) == (after, before - after)
    revisions = {
        int(revision)
        for _, message in log.installs
        for revision in [*message.revisions, *message.removed_revisions]
    }
    assert revisions == {1}


def test_r3_a_removal_reaches_all_slots_of_the_query() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    assert log.ask(request_of("unregister", "a")) == Outcome(1)
    assert log.installed_ids() == {}
    assert len(log.registry.live) == 0
    assert log.ask(request_of("register", query("a"))) == Outcome(2)


def test_r3_requests_after_an_append_of_the_same_query_wait_their_turn() -> None:
    log = Log()
    tokens = [
        log.request(request_of("register", query("a", text="x"))),
        log.request(request_of("register", query("a", text="x"))),
        log.request(request_of("register", query("a", text="y"))),
        log.request(request_of("update", query("a", text="y"))),
        log.request(request_of("unregister", "a")),
        log.request(request_of("unregister", "a")),
        log.request(request_of("register", query("a", text="z"))),
    ]
    assert log.head == 1
    log.read()
    outcomes = [log.outcome(token) for token in tokens]
    assert [o.revision for o in outcomes] == [0, 0, NO_REVISION, 2, 3, NO_REVISION, 4]
    # One probe for all requests that had arrived by then.
    assert log.changes == log.head - 1
    assert [type(o.error).__name__ for o in outcomes if o.error] == ["AlreadyExists", "NotFound"]
    assert set(log.installed_ids()) == set(range(SLOTS_COUNT))


def test_r3_a_request_is_answered_once_with_all_its_outcomes_in_order() -> None:
    log = Log()
    log.ask(request_of("register", query("old")))
    token = log.request(
        request_of("register", query("a")),
        request_of("unregister", "missing"),
        request_of("register", query("old")),
        request_of("register", query("a")),
    )
    assert token not in log.answers
    log.read()
    revisions = [outcome.revision for outcome in log.answers[token]]
    assert revisions == [1, NO_REVISION, 0, 1]


def test_r3_a_change_appended_first_by_another_owner_voids_ours_which_is_validated_again() -> None:
    log = Log()
    # An unknown record lands between our decision and our append.
    theirs = change_of(request_of("register", query("a", text="theirs")))
    log.records.append(replace(theirs, epoch=7))
    register = log.request(request_of("register", query("a", text="ours")))
    update = log.request(request_of("update", query("a", text="ours")))
    log.read()
    assert isinstance(log.outcome(register).error, AlreadyExists)
    assert log.outcome(update) == Outcome(2)
    assert log.registry.validation.voids == 1
    assert log.installed_ids() == {key: {"a": 2} for key in range(SLOTS_COUNT)}


def test_r3_the_void_record_of_a_zombie_changes_nothing() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    log.ask(request_of("update", query("a", text="new")))
    log.installs.clear()
    log.records.append(change_of(request_of("update", query("a", text="zombie")), 0))
    log.records.append(change_of(request_of("unregister", "a"), NO_REVISION))
    log.read()
    assert (log.installs, log.registry.validation.voids) == ([], 2)
    assert log.registry.live.revision(query_handle("a")) == 1


def test_r3_an_equal_change_of_another_answers_our_request() -> None:
    log = Log()
    log.records.append(replace(change_of(request_of("register", query("a"))), epoch=7))
    token = log.request(request_of("register", query("a")))
    log.read()
    assert log.outcome(token) == Outcome(0)
    assert log.registry.validation.voids == 1


def test_r3_several_changes_of_one_query_in_a_batch_leave_the_last_one() -> None:
    log = Log()
    changes = [
        change_of(request_of("register", query("a", -170, -110))),
        change_of(request_of("update", query("a", 100, 170)), 0),
        change_of(request_of("update", query("a", 10, 80)), 1),
        change_of(request_of("register", query("b"))),
        change_of(request_of("unregister", "b"), 3),
    ]
    log.records += [replace(change, epoch=7) for change in changes]
    log.read()
    assert log.installed_ids() == {key: {"a": 2} for key in slots_between(10, 80)}


@pytest.mark.parametrize("seed", range(40))
def test_r3_a_successor_leaves_slots_as_in_the_log_wherever_its_predecessor_ended(
    seed: int,
) -> None:
    # init: the owner sends the slots a random log, in random batches, up to some place.
    rng = np.random.default_rng(seed)
    log = Log()
    for _ in range(40):
        query_id = str(rng.choice(["a", "b", "c"]))
        west = float(rng.integers(-18, 10) * 10)
        members = query(query_id, west, min(170.0, west + float(rng.integers(1, 12) * 10)))
        action = str(rng.choice(["register", "update", "unregister"]))
        request = request_of(action, query_id if action == "unregister" else members)
        log.request(request)
        if rng.random() < 0.5:
            log.read()
    log.read()
    checkpoint = int(rng.integers(0, log.head))
    first = Log()
    first.records = log.records
    while first.registry.offset < checkpoint:
        first.read(min(checkpoint, first.registry.offset + int(rng.integers(1, 5))))
    state = first.registry.live.state()
    died_at = int(rng.integers(checkpoint, log.head + 1))
    while first.registry.offset < died_at:
        first.read(min(died_at, first.registry.offset + int(rng.integers(1, 5))))

    # test: its successor begins at a checkpoint and reads in other batches.
    second = Log()
    second.records = log.records
    second.registry = Registry(partition=3, offset=checkpoint, floor=checkpoint, epoch=9)
    second.registry.live.restore(state)
    while second.registry.offset < log.head:
        second.read(min(log.head, second.registry.offset + int(rng.integers(1, 12))))

    # check: the slots of each query's region hold its newest valid version, and nothing else.
    live: dict[str, tuple[int, set[int]]] = {}
    revisions: dict[int, int] = {}
    for offset, change in enumerate(log.records):
        if change.expected_revision != revisions.get(change.handle, NO_REVISION):
            continue
        revisions[change.handle] = NO_REVISION if change.query is None else offset
        live = {name: each for name, each in live.items() if query_handle(name) != change.handle}
        if isinstance(change.query, RangeQuery) and change.query.region is not None:
            live[change.query.id] = offset, slots_of(change.query.region)
    wanted: dict[int, dict[str, int]] = {}
    for name, (revision, slots) in live.items():
        for slot in slots:
            wanted.setdefault(slot, {})[name] = revision
    assert slots_after(first.installs + second.installs) == wanted, f"seed={seed}"


def test_expired_queries_are_removed_once_their_lifetime_is_over() -> None:
    log = Log()
    log.ask(request_of("register", query("a", ttl="10s"), start_ms=1_000))
    log.ask(request_of("register", query("b")))
    assert log.registry.expire(10_999) == []
    log.carry_out(log.registry.expire(11_000))
    # Not again before the log has shown it.
    assert log.registry.expire(11_001) == []
    log.read()
    assert log.registry.validation.voids == 0
    assert log.installed_ids() == {key: {"b": 1} for key in range(SLOTS_COUNT)}
    assert log.registry.expire(99_999) == []


def test_one_turn_sends_slots_a_bounded_part_of_what_is_read() -> None:
    # Of 1 KB each, which take 60 KB in every slot.
    words = " OR ".join(f"w{number}" for number in range(128))
    text = f"({words}) AND " + " ".join(f"v{number}" for number in range(31))
    limits = RouterLimits(turn_bytes_max=1 << 20)
    log, whole = Log(limits=limits), Log()
    for each in (log, whole):
        each.request(*(request_of("register", query(f"q{row}", text=text)) for row in range(100)))
    records = list(enumerate(log.records))
    whole.read()
    most = 0
    for turn in range(100):
        effects = log.registry.read(records if turn == 0 else (), {1: ROUTING})
        most = max(most, installed_bytes(effects))
        log.carry_out(effects)
        if not log.registry.is_crowded:
            break
        assert log.registry.is_held_up
        assert log.registry.next_offset == 100
    assert log.registry.offset == 100
    # The limit, and the record of a slot in each of them.
    assert most < (1 << 20) + SLOTS_COUNT * 3 * (1 << 20)
    assert 3 * most < installed_bytes(Append(SLOTS, slot, each) for slot, each in whole.installs)
    assert log.installed_ids() == whole.installed_ids()
    assert log.answers == whole.answers


def test_lifetimes_that_end_together_are_ended_some_at_a_time() -> None:
    log = Log(limits=RouterLimits(expired_max=100))
    names = [f"q{number}" for number in range(250)]
    log.request(*(request_of("register", query(name, ttl="10s"), start_ms=0) for name in names))
    log.read()
    left, registry = [], log.registry
    for _ in range(4):
        before = log.head
        log.carry_out(registry.expire(10_000))
        assert log.head - before <= 100
        assert registry.expire(10_000) == [], "the log has not shown the last ones"
        log.read()
        left.append((len(registry.live), registry.has_more_expired))
    assert left == [(150, True), (50, True), (0, False), (0, False)]
    assert registry.validation.voids == 0


def test_expiry_leaves_a_query_that_is_being_changed() -> None:
    log = Log()
    log.ask(request_of("register", query("a", ttl="10s"), start_ms=1_000))
    log.request(request_of("update", query("a"), start_ms=10_000))
    assert log.registry.expire(11_000) == []
    log.read()
    assert log.registry.expire(1 << 50) == []


def test_r3_callers_waiting_at_a_lost_owner_are_asked_to_retry() -> None:
    log = Log()
    settled = log.request(request_of("register", query("b")))
    log.read()
    tokens = [
        log.request(request_of("register", query("a")), request_of("register", query("b"))),
        log.request(request_of("unregister", "a")),
    ]
    log.carry_out(log.registry.abandon())
    assert log.outcome(settled) == Outcome(0)
    for outcome in (*log.answers[tokens[0]], *log.answers[tokens[1]]):
        assert isinstance(outcome.error, Unavailable)
        assert outcome.error.retryable
    assert log.registry.abandon() == []


def test_a_flood_of_changes_of_one_query_is_refused_beyond_a_bound() -> None:
    log = Log(limits=RouterLimits(waiting_changes_max=3))
    tokens = [log.request(request_of("register", query("a"))) for _ in range(6)]
    refused = [token for token in tokens if token in log.answers]
    assert refused == tokens[4:]
    # Only of these rows: unavailable ones are tried at another owner, with the whole request.
    assert isinstance(log.outcome(refused[0]).error, ResourceExhausted)
    log.read()
    assert [log.outcome(token) for token in tokens[:4]] == [Outcome(0)] * 4


def test_installs_carry_names_filters_and_the_floor() -> None:
    log = Log(offset=100)
    log.request(
        request_of("register", query("ä", -170, -110, where={"x": 1}), "s1"),
        request_of("register", query("b", -170, -110), "s2"),
    )
    log.read()
    ((_, message),) = log.installs
    assert (message.registry_partition, message.floor) == (3, 100)
    assert message.revisions.tolist() == [100, 101]
    assert message.names.ids.tobytes() == "äb".encode()
    assert [message.names.subscribers[r] for r in message.names.subscriber_rows] == ["s1", "s2"]
    assert message.filters == ('{"x":1}', "")


@pytest.mark.parametrize("seed", range(20))
def test_live_queries_agree_with_a_dict_over_checkpoints(seed: int) -> None:
    rng = np.random.default_rng(seed)
    live = LiveQueries()
    model: dict[int, Any] = {}
    for revision in range(300):
        handles = np.unique(rng.integers(1, 120, int(rng.integers(1, 9)), np.uint64))
        if rng.random() < 0.4:
            present = np.array([h for h in handles.tolist() if h in model], np.uint64)
            live.drop(present)
            for handle in present.tolist():
                del model[handle]
        else:
            slots = [tuple(sorted(set(rng.integers(0, 6, 3).tolist()))) for _ in handles]
            ends = rng.integers(0, 1_000, len(handles))
            digests = rng.integers(0, 1 << 63, len(handles)).tolist()
            marks = rng.integers(1, 1 << 63, len(handles)).tolist()
            live.put(handles, [revision] * len(handles), digests, ends, slots, fingerprints=marks)
            for i, handle in enumerate(handles.tolist()):
                model[handle] = revision, digests[i], int(ends[i]), marks[i], slots[i]
        if rng.random() < 0.05:
            state = live.state()
            live = LiveQueries()
            live.restore(state)
    assert len(live) == len(model)
    every = list(range(1, 120))
    rows = live.rows_of(np.array(every, np.uint64)).tolist()
    for handle, row, known in zip(every, rows, live.known(every), strict=True):
        if handle not in model:
            assert known[0] == NO_REVISION, f"seed={seed}"
            continue
        assert (*known, live.slots(row)) == model[handle], f"seed={seed}"
    expired = {handle for handle, (_, _, end, *_) in model.items() if end <= 500}
    assert set(live.expired(500).tolist()) == expired, f"seed={seed}"
