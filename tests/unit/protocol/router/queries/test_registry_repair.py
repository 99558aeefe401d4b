"""The newest record of a query is true: a void one is followed by the change in force.

Compaction keeps the newest record of each query, so a void one must not stay the newest; and an
owner that reads the compacted log ends in the same state as one that read everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sirocco.model.query import query_handle
from sirocco.protocol.contract.effects import Append, Effect, Outcome
from sirocco.protocol.contract.messages import NO_REVISION, PROBE_HANDLE, Change
from sirocco.protocol.router.queries.compaction_gaps import CompactionGaps
from sirocco.protocol.router.queries.registry_partition import Registry
from tests.support.registry_log import ROUTING, Log, query, slots_after
from tests.support.values import change_of, request_of

A = query_handle("a")

# Of the owner in these tests, and of one that it replaced.
EPOCH = 7
FORMER = 6


def zombie(log: Log, change: Change, epoch: int = FORMER) -> None:
    """A replaced router appends its pending change."""
    log.records.append(replace(change, epoch=epoch))


def recall(log: Log, registry: Registry | None = None) -> list[Change]:
    """Reads back the changes to republish, as the service does, and appends them."""
    registry = log.registry if registry is None else registry
    effects: list[Effect] = []
    for handle in list(registry.hidden):
        place = registry.place(handle)
        effects += registry.republish(place, log.records[place])
    log.carry_out(effects)
    return [effect.message for effect in effects if isinstance(effect, Append)]


def test_what_is_in_force_is_republished_after_a_void_change() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x", ttl="9h"), start_ms=3, past_ms=5))
    zombie(log, change_of(request_of("register", query("a", text="y"))))
    log.read()
    assert list(log.registry.hidden) == [A]
    log.installs.clear()

    (again,) = recall(log)
    assert again == replace(log.records[0], expected_revision=0, epoch=EPOCH, is_republished=True)
    assert recall(log) == [], "it is under way"
    log.read()

    assert (log.registry.hidden, log.registry.place(A), log.installs) == ({}, 2, [])
    assert log.registry.live.revision(A) == 0


def test_definitions_to_be_copied_are_where_they_were_republished() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x")))
    log.ask(request_of("register", query("b", text="x")))
    zombie(log, change_of(request_of("register", query("a", text="y"))))
    log.read()
    recall(log)
    log.read()
    registry = log.registry
    assert registry.unplaced_places().tolist() == []
    registry.live.unplace(None, 4)
    assert registry.unplaced_places().tolist() == [1, registry.place(A)]
    assert registry.place(A) > 1


def test_changes_continue_from_the_revision_that_was_republished() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x")))
    zombie(log, change_of(request_of("unregister", "a"), 0))
    log.read()
    recall(log)
    log.read()
    assert log.ask(request_of("register", query("a", text="x"))) == Outcome(0)
    assert log.ask(request_of("update", query("a", text="z"))).error is None
    assert log.records[-1].expected_revision == 0
    newest = log.head - 1
    assert (log.registry.live.revision(A), log.registry.place(A)) == (newest, newest)
    assert log.registry.hidden == {}


def test_the_absence_of_a_removed_query_is_published_at_once() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    log.ask(request_of("unregister", "a"))
    zombie(log, change_of(request_of("update", query("a", text="y")), 0))
    zombie(log, change_of(request_of("update", query("a", text="z")), 0))
    log.installs.clear()
    log.read()
    assert log.registry.hidden == {}
    *_, denial = log.records
    assert len(log.records) == 5
    assert (denial.handle, denial.query, denial.is_republished) == (A, None, True)
    assert (denial.expected_revision, denial.epoch) == (NO_REVISION, EPOCH)
    assert log.installs == []
    assert log.ask(request_of("register", query("a"))).error is None


def test_a_removal_without_effect_of_a_query_that_is_gone_is_republished() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    state, begin = log.registry.state(), log.head
    log.ask(request_of("unregister", "a"))
    zombie(log, change_of(request_of("unregister", "a"), 0))
    log.read()
    assert (len(log.records), log.registry.hidden) == (4, {})
    # If void, it would not show a reader of the compacted log that the query is gone.
    found = replayed(log.records, state, begin, log.head)  # type: ignore[arg-type]
    assert live_of(found.registry) == {}


def test_a_republication_that_comes_too_late_is_followed_by_another() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x")))
    late = replace(log.records[0], expected_revision=0, is_republished=True)
    log.ask(request_of("update", query("a", text="y")))
    zombie(log, late)
    log.records.append(replace(late, epoch=EPOCH))
    log.read()
    assert log.registry.live.revision(A) == 1
    (again,) = recall(log)
    assert again.query == log.records[1].query
    log.read()
    assert log.registry.hidden == {}


def test_the_next_change_takes_the_place_of_a_republication() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x")))
    zombie(log, change_of(request_of("register", query("a", text="y"))))
    log.read()
    token = log.request(request_of("update", query("a", text="z")))
    assert recall(log) == [], "its own change is under way"
    log.read()
    assert log.outcome(token) == Outcome(2)
    assert log.registry.hidden == {}


def test_what_was_read_elsewhere_than_in_force_is_not_republished() -> None:
    log = Log()
    log.ask(request_of("register", query("a", text="x")))
    log.ask(request_of("update", query("a", text="y")))
    zombie(log, change_of(request_of("register", query("a", text="z"))))
    log.read()
    assert log.registry.republish(0, log.records[0]) == []
    assert len(log.registry.republish(1, log.records[1])) == 1


def test_a_deposed_owner_republishes_nothing() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    log.ask(request_of("register", query("b")))
    log.ask(request_of("unregister", "b"))
    zombie(log, change_of(request_of("register", query("a", text="y"))))
    zombie(log, change_of(request_of("register", query("b", text="y"))))
    log.records.append(
        Change(
            handle=PROBE_HANDLE,
            query=None,
            subscriber="",
            start_ms=0,
            expected_revision=0,
            digest=1,
            epoch=EPOCH + 1,
        )
    )
    before = len(log.records)
    log.read()
    assert recall(log) == []
    assert len(log.records) == before


def test_a_successor_republishes_what_its_predecessor_did_not() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    log.ask(request_of("register", query("b")))
    zombie(log, change_of(request_of("register", query("a", text="y"))))
    zombie(log, change_of(request_of("register", query("b", text="y"))))
    log.read()
    first = log.registry
    first.republish(0, log.records[0])
    log.records.append(
        replace(log.records[0], expected_revision=0, epoch=EPOCH, is_republished=True)
    )
    log.read()
    log.registry = Registry(partition=3, offset=log.head, floor=log.head, epoch=EPOCH + 1)
    log.registry.restore(first.state())
    assert log.registry.place(A) == 4
    assert recall(log) == [], "nothing was read of its own ownership yet"
    log.carry_out(log.registry.announce(0))
    log.read()
    (again,) = recall(log)
    assert again.query == log.records[1].query
    # A republished change may be republished again.
    zombie(log, change_of(request_of("register", query("a", text="w"))))
    log.read()
    (again,) = recall(log)
    assert (again.query, again.expected_revision) == (log.records[0].query, 0)


def test_a_checkpoint_of_an_earlier_version_holds_nothing_unpublished() -> None:
    log = Log()
    log.ask(request_of("register", query("a")))
    added = ("unsaid", "said_again", "places")
    state = {name: value for name, value in log.registry.state().items() if name not in added}
    restored = Registry(partition=3, offset=1, floor=1, epoch=EPOCH)
    restored.restore(state)
    assert (restored.hidden, restored.place(A)) == ({}, 0)


# --- the compacted log


def compacted(records: list[Change], begin: int, upto: int) -> list[tuple[int, Change]]:
    """Returns the records from `begin` on; below `upto` only the newest of each query."""
    newest = {change.handle: offset for offset, change in enumerate(records[:upto])}
    return [
        (offset, records[offset])
        for offset in range(begin, len(records))
        if offset >= upto or newest[records[offset].handle] == offset
    ]


def replayed(
    records: list[Change], state: dict[str, object], begin: int, upto: int, epoch: int = 9
) -> Log:
    """Returns an owner that begins at a checkpoint and reads the compacted log."""
    log = Log()
    log.registry = Registry(partition=3, offset=begin, floor=begin, epoch=epoch)
    if state:
        log.registry.restore(state)  # type: ignore[arg-type]
    for offset, change in compacted(records, begin, upto):
        log.carry_out(log.registry.read([(offset, change)], {1: ROUTING}))
    # Doubtful changes are sent once the log has shown a record of its own.
    announced = Change(
        handle=PROBE_HANDLE,
        query=None,
        subscriber="",
        start_ms=0,
        expected_revision=0,
        digest=1,
        epoch=epoch,
    )
    log.carry_out(log.registry.read([(len(records), announced)], {1: ROUTING}))
    return log


def ask(log: Log, action: str, *members: object) -> None:
    assert log.ask(request_of(action, *members)).error is None  # type: ignore[arg-type]


Step = Callable[[Log], object]


def asks(action: str, *members: object) -> Step:
    return lambda log: ask(log, action, *members)


PASTS: dict[str, tuple[Step, ...]] = {
    "updated twice": (
        asks("register", query("a", text="x")),
        asks("update", query("a", text="y")),
    ),
    "updated, and of before": (
        asks("update", query("z", text="x")),
        asks("update", query("z", text="y")),
    ),
    "removed and registered anew": (
        asks("unregister", "z"),
        asks("register", query("z", text="y")),
    ),
    "updated and removed": (
        asks("update", query("z", text="x")),
        asks("unregister", "z"),
    ),
    "come and gone": (
        asks("register", query("a")),
        asks("unregister", "a"),
    ),
    "said again": (
        asks("update", query("z", -170, -110)),
        lambda log: zombie(log, change_of(request_of("register", query("z", text="w")))),
        Log.read,
        recall,
        Log.read,
    ),
    "denied": (
        asks("unregister", "z"),
        lambda log: zombie(log, change_of(request_of("update", query("z", text="w")), 0)),
        Log.read,
    ),
}


@pytest.mark.parametrize("past", PASTS)
def test_an_owner_that_reads_what_compaction_left_knows_what_is_in_force(past: str) -> None:
    # init: a checkpoint when z is there, then a past that is compacted as a whole.
    log = Log()
    ask(log, "register", query("z"))
    state, begin = log.registry.state(), log.head
    for step in PASTS[past]:
        step(log)
    # test
    found = replayed(log.records, state, begin, log.head)  # type: ignore[arg-type]
    # check
    assert live_of(found.registry) == live_of(log.registry)
    for handle in live_of(log.registry):
        assert found.registry.place(handle) == log.registry.place(handle)
    assert found.registry.hidden == {}
    assert slots_after(log.installs + found.installs) == log.installed_ids()


def test_a_void_change_that_nothing_is_missing_before_stays_void() -> None:
    log = Log()
    ask(log, "register", query("z"))
    ask(log, "update", query("z", text="x"))
    state, begin = log.registry.state(), log.head
    ask(log, "register", query("a"))
    ask(log, "update", query("a", text="x"))
    # Of the owner's own epoch, so that only its revision shows that it is void.
    log.records.append(
        replace(change_of(request_of("update", query("z", text="w")), 0), epoch=EPOCH)
    )
    log.read()
    found = replayed(log.records, state, begin, 4)  # type: ignore[arg-type]
    assert live_of(found.registry) == live_of(log.registry)
    assert list(found.registry.hidden) == [query_handle("z")]


def live_of(registry: Registry) -> dict[int, tuple[object, ...]]:
    live = registry.live
    return {
        int(live.handles[row]): (
            int(live.revisions[row]),
            int(live.digests[row]),
            int(live.expires_ms[row]),
            live.slots(row),
        )
        for row in np.flatnonzero(live.revisions != NO_REVISION).tolist()
    }


@pytest.mark.parametrize("seed", range(150))
def test_compaction_makes_no_difference_wherever_it_has_come(seed: int) -> None:
    # init: a random life of some queries, with a replaced router, and with void changes of the
    # newest epoch: an owner may append before it has read all.
    rng = np.random.default_rng(seed)
    log = Log()
    once = {name: {NO_REVISION} for name in "abcd"}
    for _ in range(60):
        name = str(rng.choice(["a", "b", "c", "d"]))
        west = float(rng.integers(-18, 10) * 10)
        members = query(name, west, min(170.0, west + float(rng.integers(1, 12) * 10)))
        action = str(rng.choice(["register", "update", "update", "unregister"]))
        request = request_of(action, name if action == "unregister" else members)
        if rng.random() < 0.1:
            zombie(
                log,
                change_of(request, int(rng.choice(sorted(once[name])))),
                int(rng.choice([FORMER, EPOCH])),
            )
            log.read()
            while recall(log):
                log.read()
        else:
            log.request(request)
            if rng.random() < 0.5:
                log.read()
        once[name].add(log.registry.live.revision(query_handle(name)))
    log.read()
    while recall(log):
        log.read()
    records = log.records
    begin = int(rng.integers(0, log.head))
    # Somewhere where no void record is the newest of its query: that requires an outage longer than
    # the lag of compaction right after it.
    told_apart = Log()
    told_apart.records = records
    void: set[int] = set()
    sound = [begin]
    for offset, change in enumerate(records):
        voids = told_apart.registry.validation.voids
        told_apart.read_one()
        void.discard(change.handle)
        if told_apart.registry.validation.voids > voids:
            void.add(change.handle)
        if not void and offset >= begin:
            sound.append(offset + 1)
    end = int(rng.choice(sound))

    # test: an owner that ends somewhere, and a successor that reads the rest.
    first = Log()
    first.records = list(records)
    state: dict[str, object] = {}
    while first.registry.offset < begin:
        first.read_one()
    if begin:
        state = first.registry.state()  # type: ignore[assignment]
    for _ in range(int(rng.integers(0, log.head - begin + 1))):
        first.read_one()
    second = replayed(records, state, begin, end)

    # check
    assert live_of(second.registry) == live_of(log.registry), f"seed={seed}"
    assert slots_after(first.installs + second.installs) == log.installed_ids(), f"seed={seed}"
    assert len(compacted(records, 0, log.head)) == len({r.handle for r in records})


def test_missing_offsets_are_known_by_their_ranges() -> None:
    missing = CompactionGaps()
    assert not missing
    missing.note(3, 5)
    missing.note(9, 10)
    assert [offset for offset in range(12) if missing.holds(offset)] == [3, 4, 9]
    assert [offset for offset in range(12) if missing.has_after(offset)] == list(range(9))
    assert not missing.has_after(9)
    missing.forget()
    assert not missing
    assert not missing.holds(3)
