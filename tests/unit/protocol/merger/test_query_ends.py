"""The reported end of a query: which process decides it, and when it is sent."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.installs import read_installed, write_installed
from sirocco.protocol.contract.columns import BY_REMOVAL, BY_TTL
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import NEVER_MS, NO_REVISION, Change, Installed
from sirocco.protocol.contract.query_specs import end_spec, read_spec
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.query_ends import EndReport
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.query_ends import _DUE_MIN, ENDS_MAX, QueryEnds
from sirocco.protocol.router.queries.end_requests import End, EndRequests
from sirocco.protocol.router.queries.install_records import Installs
from tests.support.list_records import End as Gone
from tests.support.list_records import (
    ListChange,
    ListVersion,
    Match,
    QueryEnd,
    Ranked,
    knn_spec,
    ranked_spec,
    version,
)
from tests.support.merger_slots import Slots
from tests.support.merger_states import state_of
from tests.support.values import change_of, installed_of, request_of, routed_of

AREA = {"rect": {"west": 0.0, "south": 0.0, "east": 6.0, "north": 6.0}}
PLAIN = ListVersion("q")
PLACE = (0, 5)


def asking(**more: Any) -> dict[str, Any]:
    query = {"id": "q", "kind": "range", "mode": "continuous", "region": AREA}
    return query | {"events": ["ended"]} | more


def removal(revision: int, now_ms: int) -> Change:
    return Change(
        handle=change_of(request_of("register", asking(), "s", 0), -1).handle,
        query=None,
        subscriber="",
        start_ms=now_ms,
        expected_revision=revision,
        digest=0,
    )


# --- the registry


def test_a_removal_is_an_end_and_an_update_is_none() -> None:
    end_requests = EndRequests()
    change = change_of(request_of("register", asking(ttl="1s"), "s", 1_000), NO_REVISION)
    assert end_requests.learn(5, change) is None
    # Republished.
    assert end_requests.learn(5, replace(change, is_republished=True)) is None
    update = change_of(request_of("update", asking(ttl="2s"), "t", 1_500), 5)
    assert end_requests.learn(9, replace(update, since=5)) is None
    restored = EndRequests()
    restored.restore(dict(read_state(write_state(end_requests.state()))))
    for each in (end_requests, restored):
        assert each.learn(12, removal(9, 2_000)) == End("q", "t", 9, 12, has_expired=False)
        assert each.learn(13, removal(9, 2_000)) is None


def test_another_registration_is_an_end_by_the_lifetime_that_was_over() -> None:
    end_requests = EndRequests()
    change = change_of(request_of("register", asking(ttl="1s"), "s", 1_000), NO_REVISION)
    end_requests.learn(5, change)
    again = change_of(request_of("register", asking(), "s", 2_000), 5)
    assert end_requests.learn(9, again) == End("q", "s", 5, 9, has_expired=True)
    silent = asking() | {"events": ["ended"]}
    del silent["events"]
    # An update that no longer asks for the end ends nothing, and nothing is reported.
    assert (
        end_requests.learn(11, replace(change_of(request_of("update", silent, "s", 0), 9), since=9))
        is None
    )
    assert end_requests.learn(12, removal(11, 3_000)) is None


def test_a_change_of_a_version_that_is_missing_ends_none_that_is_known() -> None:
    registered = change_of(request_of("register", asking(), "s", 1_000), NO_REVISION)
    other = change_of(request_of("register", asking(), "t", 2_000), NO_REVISION)
    for missed in (removal(7, 2_000), other):
        end_requests = EndRequests()
        end_requests.learn(5, registered)
        # After compaction: by then version 5 was updated or removed by a record that is missing.
        assert end_requests.learn(9, missed) is None
        # Its replacement is known from here on, also its removal.
        end = end_requests.learn(12, removal(9, 3_000))
        assert end == (None if missed.query is None else End("q", "t", 9, 12, has_expired=False))


# --- a slot


def opened(offset: int = 0) -> Slot:
    slot = Slot(0, 3)
    slot.open(offset, offset, 1, 0)
    return slot


def ended(*ends: End) -> Installed:
    effects = Installs(0, 0).ends(list(ends), [0])
    assert all(isinstance(effect, Append) for effect in effects)
    message = effects[0].message  # type: ignore[union-attr]
    assert isinstance(message, Installed)
    return read_installed(write_installed(message))


def installed(revision: int, members: dict[str, Any], start_ms: int = 0) -> Installed:
    message = installed_of(0, [(revision, members, "s", start_ms)])
    assert message.reports_end is not None
    return read_installed(write_installed(message))


def overs(slot: Slot, records: list[Any]) -> list[tuple[tuple[int, int], int | None]]:
    found = []
    for report in slot.take(records):
        assert isinstance(report, Report | EndReport)
        if isinstance(report, EndReport):
            found += [(over.place, over.expires_ms) for over in report.ends]
    return found  # type: ignore[return-value]


def objects_at(offset: int, arrival_ms: int) -> Any:
    begin = 0 if offset == 0 else None
    members = [{"id": offset + 1, "lon": 1.0, "lat": 1.0}]
    return routed_of(0, offset, members, [arrival_ms], begin=begin)


def taken_over(slot: Slot) -> Slot:
    state = dict(read_state(write_state(slot_state(slot, 0, ()))))
    successor = opened(slot.offset)
    restore_slot(successor, state, ())
    return successor


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_lifetime_ends_where_the_time_of_the_slot_passes_it(is_taken_over: bool) -> None:
    slot = opened()
    assert overs(slot, [(0, installed(5, asking(ttl="1s"))), (1, objects_at(0, 1_000))]) == []
    slot = taken_over(slot) if is_taken_over else slot
    assert overs(slot, [(2, objects_at(1, 1_001))]) == [(PLACE, 1_000)]
    assert overs(slot, [(3, objects_at(2, 1_002))]) == []


def test_another_version_or_a_removal_takes_the_place_of_a_lifetime() -> None:
    slot = opened()
    records = [(0, installed(5, asking(ttl="1s"))), (1, installed(9, asking(ttl="2s")))]
    assert overs(slot, [*records, (2, objects_at(0, 1_500))]) == []
    assert overs(slot, [(3, objects_at(1, 2_001))]) == [((0, 9), 2_000)]
    slot = opened()
    removed = installed_of(0, [], removed=[("q", 9)])
    assert overs(slot, [records[0], (1, removed), (2, objects_at(0, 5_000))]) == []


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_an_end_from_the_registry_is_reported_once(is_taken_over: bool) -> None:
    slot = opened()
    sent = ended(End("q", "s", 5, 9, has_expired=False))
    assert overs(slot, [(0, sent)]) == [(PLACE, NEVER_MS)]
    slot = taken_over(slot) if is_taken_over else slot
    # A successor reports it again, perhaps by another change; below the floor it is a repeat, too.
    again = ended(End("q", "s", 5, 11, has_expired=False))
    assert overs(slot, [(1, sent), (2, again)]) == []
    assert (
        overs(slot, [(3, replace(ended(End("p", "s", 6, 12, has_expired=False)), floor=20))]) != []
    )
    assert overs(slot, [(4, sent), (5, again)]) == []
    assert not slot.queries.endings._reported


@pytest.mark.parametrize("is_taken_over", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_version_that_the_registry_has_ended_expires_no_more(
    is_late: bool, is_taken_over: bool
) -> None:
    """The record of its successor was refused, or its own came again after its end."""
    slot = opened()
    own, end = installed(5, asking(ttl="1s")), ended(End("q", "s", 5, 9, has_expired=True))
    records = [end, own] if is_late else [own, end]
    assert overs(slot, list(enumerate(records))) == [(PLACE, NEVER_MS)]
    slot = taken_over(slot) if is_taken_over else slot
    assert overs(slot, [(2, objects_at(0, 1_500))]) == []


# --- a merger


def ends(sent: list[Any]) -> list[Any]:
    """Returns the reasons of ends, and ids of matches or lists, in order."""
    return [
        (each.query, each.ended)
        if isinstance(each, ListChange) and each.ended
        else [name for name, _ in each.entries]
        if isinstance(each, ListChange)
        else each[2]
        for each in sent
    ]


def test_an_end_is_reported_when_all_slots_have_passed_the_position_in_the_registry() -> None:
    slots = Slots()
    slots.report(0, Match(PLAIN, 1))
    slots.report(0, QueryEnd(PLAIN, PLACE))
    slots.report(0, QueryEnd(PLAIN, PLACE))
    slots.report(1, Match(PLAIN, 2))
    assert ends(slots.take_sent()) == [1, 2]
    slots.report(1, Match(PLAIN, 3))
    slots.report(1, QueryEnd(PLAIN, PLACE))
    # Another query is not delayed, and this one may begin anew.
    slots.report(1, Match(PLAIN, 4))
    assert ends(slots.take_sent()) == [3, ("q", BY_REMOVAL), 4]
    assert len(slots.known().ends) == 0


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_lifetime_is_over_when_the_time_of_all_slots_has_passed_it(is_taken_over: bool) -> None:
    slots = Slots()
    slots.report(0, QueryEnd(PLAIN, PLACE, expires_ms=1_000), time_ms=1_001)
    slots.report(1, Match(PLAIN, 1), time_ms=1_000)
    assert ends(slots.take_sent()) == [1]
    if is_taken_over:
        lists = slots.cluster.machine.windows[0].lists
        restored = LiveLists(slots=2)
        restored.restore(dict(read_state(write_state(state_of(lists)))))
        slots.cluster.machine.windows[0].lists = restored
    slots.report(1, Match(PLAIN, 2), Match(PLAIN, 3), time_ms=1_000)
    slots.report(1, QueryEnd(PLAIN, PLACE, expires_ms=1_000), time_ms=1_001)
    assert ends(slots.take_sent()) == [2, 3, ("q", BY_TTL)]
    # Clean-up records of the registry are repeats.
    for slot in (0, 1):
        slots.report(slot, QueryEnd(PLAIN, PLACE, has_expired=True), time_ms=9_000)
    assert ends(slots.take_sent()) == []
    assert len(slots.known().ends) == 0


def test_the_registry_may_report_an_end_before_slots_reach_its_time() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.report(slot, QueryEnd(PLAIN, PLACE, has_expired=True))
    assert ends(slots.take_sent()) == [("q", BY_TTL)]


def test_an_end_comes_after_lists_and_steps() -> None:
    slots = Slots()
    near, best = (
        ListVersion("near", knn_spec("near", 2)),
        ListVersion("best", ranked_spec("best", 2)),
    )
    near, best = version(near, 5), version(best, 6)
    slots.report(0, Match(near, 1, 5.0))
    slots.report(
        0, Ranked(asked=best, at_ms=100, total=5, tokens=50, holders=(2, 1), seen=()), time_ms=101
    )
    slots.report(0, QueryEnd(near, (0, 5), expires_ms=500), time_ms=200)
    slots.report(0, Gone(best, 150, by=(0, 9)), time_ms=200)
    slots.report(0, QueryEnd(best, (0, 6)), time_ms=200)
    slots.report(
        1, Ranked(asked=best, at_ms=100, total=5, tokens=50, holders=(2, 1), seen=()), time_ms=99
    )
    assert ends(slots.take_sent()) == [[1]]
    slots.report(1, Gone(best, 150, by=(0, 9)), time_ms=99)
    slots.report(1, QueryEnd(best, (0, 6)), time_ms=99)
    # A step before the end is incomplete: slot 1 has not reported a later time.
    assert ends(slots.take_sent()) == []
    slots.report(0, Match(near, 2, 1.0), time_ms=501)
    slots.report(1, time_ms=501)
    assert ends(slots.take_sent()) == [[2, 1], ("best", BY_REMOVAL), ("near", BY_TTL)]


def test_many_lifetimes_that_end_at_once_are_not_looked_through() -> None:
    """An end cost 3 ms where 65,536 others were waiting; a merger was blocked for hours."""
    known = QueryEnds()

    def taken_s(begin: int) -> float:
        specs = [
            read_spec(end_spec((0, begin + i), 1_000, has_expired=False)) for i in range(2_000)
        ]
        begin_s = time.process_time()
        for spec in specs:
            known.take_report(spec, "q", "s", 0, 2)
        return time.process_time() - begin_s

    first_s = taken_s(0)
    for begin in range(2_000, ENDS_MAX, 2_000):
        taken_s(begin)
    # The least of several, since a garbage collection in one took longer than all of it.
    again_s = min(taken_s(ENDS_MAX + i * 2_000) for i in range(1, 4))
    assert again_s < 50 * first_s
    known.complete(1_001, lambda *_: False)
    (sent,) = known.flush()
    assert len(sent) == len(known) > ENDS_MAX
    # The first reported ones are forgotten.
    taken_s(2 * ENDS_MAX)
    assert len(known) == ENDS_MAX + 2_000
    assert known.early == len(sent) - ENDS_MAX


def test_a_checkpoint_of_before_knows_of_no_ends() -> None:
    lists = LiveLists(slots=2)
    state = {
        name: column for name, column in state_of(lists).items() if not name.startswith("over.")
    }
    LiveLists(slots=2).restore(state)
    assert not len(lists.ends)
    assert np.array_equal(state["versions.keys"], np.empty(0, np.uint64))


# --- slots that report nothing


def waiting_ends(known: QueryEnds, *, expires_ms: int | None = None) -> list[str]:
    """Reports 50 ends by one of two slots; returns the queries whose ends are sent."""
    sent = []
    for revision in range(50):
        spec = read_spec(end_spec((0, revision), expires_ms, has_expired=False))
        known.take_report(spec, f"q{revision}", "s", 0, 2)
        known.complete(100, lambda *_: False)
        sent += sent_queries(known)
    return sent


def sent_queries(known: QueryEnds) -> list[str]:
    found = []
    for batch in known.flush():
        offsets = batch.queries.id_offsets.tolist()
        ids = batch.queries.ids.tobytes()
        found += [ids[begin:end].decode() for begin, end in pairwise(offsets)]
    return found


@pytest.mark.parametrize("expires_ms", [None, 1_000])
def test_ends_that_wait_for_a_slot_are_bounded_and_the_first_are_sent(
    expires_ms: int | None,
) -> None:
    known = QueryEnds(bytes_max=4_100)
    assert waiting_ends(known, expires_ms=expires_ms) == [f"q{i}" for i in range(40)]
    assert known.early == 40
    restored = QueryEnds(bytes_max=4_100)
    restored.restore(state_of(known))
    for each in (known, restored):
        # The missing slot is back: what was sent is not sent again.
        for revision in range(50):
            removed = read_spec(end_spec((0, revision), None, has_expired=False))
            each.take_report(removed, f"q{revision}", "s", 0, 2)
            each.take_report(removed, f"q{revision}", "s", 1, 2)
        each.complete(100, lambda *_: False)
        assert sent_queries(each) == [f"q{i}" for i in range(40, 50)]
        assert not len(each)
        assert not each._bytes_waiting


def test_lifetimes_of_ends_that_were_sent_are_forgotten() -> None:
    known = QueryEnds(bytes_max=4_100)
    for revision in range(3_000):
        spec = read_spec(end_spec((0, revision), 1_000, has_expired=False))
        known.take_report(spec, f"q{revision}", "s", 0, 2)
    assert len(known._due) <= _DUE_MIN + 2 * 10


def test_ends_that_wait_for_other_results_are_bounded() -> None:
    known = QueryEnds(bytes_max=4_100)
    for revision in range(50):
        spec = read_spec(end_spec((0, revision), None, has_expired=False))
        known.take_report(spec, f"q{revision}", "s", 0, 1)
    known.complete(100, lambda *_: True)
    assert sent_queries(known) == [f"q{i}" for i in range(11, 50)]
    known.complete(100, lambda *_: False)
    assert sent_queries(known) == [f"q{i}" for i in range(11)]
    assert not known._bytes_awaiting


def test_an_end_takes_no_more_than_is_counted() -> None:
    known = QueryEnds()
    specs = [read_spec(end_spec((0, at), None, has_expired=False)) for at in range(2_000)]
    tracemalloc.start()
    for slot in range(63):
        for at, spec in enumerate(specs):
            known.take_report(spec, f"query {at}", "s", slot, 64)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= known._bytes_waiting


def test_a_slot_that_there_is_not_reports_nothing() -> None:
    known = QueryEnds()
    spec = read_spec(end_spec(PLACE, None, has_expired=False))
    known.take_report(spec, "q", "s", 1 << 31, 2)
    assert not len(known)
