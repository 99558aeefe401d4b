"""Lists of standing queries, in small: what counts, ends, and is saved before it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from sirocco.codec.hops import decode, encode
from sirocco.protocol.contract.columns import ENTERS
from sirocco.protocol.contract.effects import SaveCheckpoint
from sirocco.protocol.contract.messages import Delivered, Found
from sirocco.protocol.contract.positions import NO_TIME_MS, position_of
from sirocco.protocol.contract.query_specs import (
    KIND_ENDED,
    KIND_UNKNOWN,
    definition_of_spec,
    ended_spec,
    read_spec,
    versioned_spec,
)
from sirocco.protocol.merger import step_merge
from sirocco.protocol.merger.first_step_barrier import WAIT_MS
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.pending_steps import STEP_BYTES
from sirocco.runtime.loop.progress import merger_start
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.collisions import PAIRS
from tests.support.list_records import (
    End,
    Item,
    ListChange,
    ListVersion,
    Match,
    Ranked,
    Seen,
    Terms,
    found_of,
    knn_spec,
    lists_of,
    ranked_spec,
    spec_of,
    terms_spec,
    tracked_spec,
    version,
)
from tests.support.merger_cluster import MergerCluster
from tests.support.random_messages import differences

NEAR = ListVersion("near", knn_spec("near", 2))
WORDS = ListVersion("words", terms_spec("words", 2))
BEST = ListVersion("best", ranked_spec("best", 2))
PLAIN = ListVersion("plain")


# Mergers check at every window which ended versions they may forget.
LIMITS = MergerLimits(forget_interval_ms=1)


class Slots:
    """Two slots that report in turn; each report of a slot is a record of its own."""

    def __init__(self, slots: int = 2, limits: MergerLimits = LIMITS) -> None:
        self.cluster = MergerCluster(log=[], slots=slots, limits=limits)
        self.ends = [0] * slots
        self.times_ms = [0] * slots

    def say(self, slot: int, *items: Item, time_ms: int | None = None) -> None:
        """Appends a slot's findings at its next position, then its time."""
        if time_ms is not None:
            self.times_ms[slot] = time_ms
        begin = self.ends[slot]
        self.ends[slot] += 1
        at, end = position_of(begin), position_of(begin + 1)
        interval = (slot, at, end, self.times_ms[slot])
        self.cluster.log.append(found_of([interval], [(slot, at, each) for each in items]))

    def take_sent(self) -> list[Any]:
        """Returns the notifications of a window with all reports so far."""
        self.cluster.read(len(self.cluster.log), np.random.default_rng(0))
        return self.cluster.commit()

    def known(self) -> LiveLists:
        """Returns the merger's state after it has checked twice which versions to forget."""
        for _ in range(2):
            self.say(0)
            self.take_sent()
        return self.cluster.machine.windows[0].lists


def lists(sent: list[Any]) -> list[tuple[str, tuple[tuple[int | str, float], ...]]]:
    return [(each.query, each.entries) for each in sent if isinstance(each, ListChange)]


# --- several kinds


def test_plain_and_tracked_matches_continue_as_they_are_beside_candidates() -> None:
    slots = Slots()
    tracked = ListVersion("tracked", tracked_spec("tracked"))
    slots.say(
        0,
        Match(PLAIN, 1),
        Match(tracked, 1, 0.0, ENTERS),
        Match(NEAR, 1, 5.0),
        Match(PLAIN, 2),
    )
    slots.cluster.read(1, np.random.default_rng(0))
    assert slots.cluster.transact is not None
    delivered = [m for m in slots.cluster.transact.messages if isinstance(m, Delivered)]
    matches, sent = delivered
    assert matches.queries.specs is not None
    assert set(matches.queries.specs) == {"", tracked.spec}
    assert matches.matches.distances_m is None
    assert matches.matches.changes is not None
    rows = zip(
        matches.objects.ids[matches.matches.objects].tolist(),
        [matches.queries.specs[row] for row in matches.matches.queries.tolist()],
        matches.matches.changes.tolist(),
        strict=True,
    )
    assert sorted(rows) == [(1, "", 0), (1, tracked.spec, ENTERS), (2, "", 0)]
    assert [(each.query, each.entries) for each in lists_of(sent)] == [("near", ((1, 5.0),))]
    # A reader of a list without a time knows its query.
    assert sent.queries.specs is None


def test_what_cannot_be_read_is_passed_over() -> None:
    slots = Slots()
    for text in ("nonsense", "[1]", '{"kind":"later"}', '{"kind":"knn","k":0}', '{"kind":["knn"]}'):
        assert read_spec(text).kind == KIND_UNKNOWN
        slots.say(0, Match(ListVersion("odd", text), 1, 5.0), Match(PLAIN, 1))
    sent = slots.take_sent()
    assert len(sent) == 5
    assert lists(sent) == []
    text = ended_spec(NEAR.spec, 17, (3, 4))
    removed = read_spec(text)
    assert (removed.kind, removed.ended, removed.ended_ms) == (KIND_ENDED, read_spec(NEAR.spec), 17)
    assert removed.ended_by == (3, 4)
    # For another system it is still JSON.
    assert orjson.loads(text) == {"gone": orjson.loads(NEAR.spec), "at_ms": 17, "by": [3, 4]}
    assert read_spec('{"gone":{}}').kind == KIND_UNKNOWN


def test_versions_with_equal_conditions_are_distinguished_and_subscribers_see_the_condition() -> (
    None
):
    tricky = ['{"a":1,"where":{"a":1,"revision":7}}', tracked_spec(',"revision":7}')]
    for text in (NEAR.spec, BEST.spec, *tricky):
        assert definition_of_spec(versioned_spec(text, 12)) == definition_of_spec(text) == text
    first, second = (read_spec(versioned_spec(BEST.spec, number)) for number in (1, 2))
    assert first.key != second.key
    assert first.ranked == second.ranked == read_spec(BEST.spec).ranked
    slots = Slots(1)
    slots.say(0, Terms(version(WORDS, 3), 100, (("a", 1),)), time_ms=101)
    slots.cluster.read(1, np.random.default_rng(0))
    assert slots.cluster.transact is not None
    delivered = slots.cluster.transact.messages[0]
    assert isinstance(delivered, Delivered)
    assert delivered.queries.specs == (WORDS.spec,)


def test_an_end_before_any_reported_time_is_remembered_from_the_first_on() -> None:
    slots = Slots()
    slots.times_ms = [NO_TIME_MS] * 2
    slots.say(0, End(NEAR, NO_TIME_MS))
    slots.say(0, time_ms=5_000)
    slots.say(1, time_ms=5_000)
    slots.say(1, Match(NEAR, 1, 5.0))
    assert slots.take_sent() == []
    slots.say(1, End(NEAR, 5_000))
    slots.cluster.registry_saved(1)
    assert len(slots.known().versions) == 0


def test_repeats_are_trimmed_by_position() -> None:
    slots = Slots()
    slots.say(0, Terms(WORDS, 100, (("a", 1),)), Match(NEAR, 1, 5.0))
    slots.say(1, Terms(WORDS, 100, (("a", 1),)))
    slots.cluster.log.append(
        found_of(
            [(0, 0, position_of(2), 150)],
            [
                (0, 0, Terms(WORDS, 100, (("a", 1),))),
                (0, 0, Match(NEAR, 1, 5.0)),
                (0, position_of(1), Terms(WORDS, 100, (("b", 3),))),
                (0, position_of(1), Match(NEAR, 2, 1.0)),
            ],
        )
    )
    slots.ends[0] = 2
    slots.say(1, time_ms=150)
    assert lists(slots.take_sent()) == [
        ("near", ((2, 1.0), (1, 5.0))),
        ("words", (("b", 3.0), ("a", 2.0))),
    ]


# --- steps


def test_a_step_waits_for_the_time_of_all_slots_and_comes_in_order() -> None:
    slots = Slots(3)
    for slot in (0, 1):
        slots.say(slot, Terms(WORDS, 100, (("a", 1),)), Terms(WORDS, 200, ()), time_ms=201)
    # Slot 2 has not reported yet.
    assert slots.take_sent() == []
    slots.say(2, time_ms=100)
    assert slots.take_sent() == []
    slots.say(2, Terms(WORDS, 100, (("b", 5),)), time_ms=201)
    sent = slots.take_sent()
    assert [(each.at_ms, each.entries) for each in sent] == [
        (100, (("b", 5.0), ("a", 2.0))),
        (200, ()),
    ]


def first_step(slot: int) -> Terms:
    """Returns the report of one of two slots for a step with history."""
    return Terms(WORDS, 100, (("a", slot + 1),), slot_count=2)


def test_history_is_sent_when_all_slots_have_reported_theirs_however_late() -> None:
    # init: when they get the query, the time of all of them is past its first two steps.
    slots = Slots(3)
    for slot in range(3):
        slots.say(slot, time_ms=500)

    # test: one reports its share, the other not yet; the third does not hold the query.
    slots.say(0, first_step(0), Terms(WORDS, 200, (("b", 1),)))
    for slot in (0, 2):
        slots.say(slot, time_ms=600)
    assert slots.take_sent() == []
    # A slot's report at one position may take several records; the last one has the time.
    slots.say(1, first_step(1), time_ms=NO_TIME_MS)
    slots.say(1, Terms(WORDS, 100, (("c", 9),), slot_count=2), time_ms=NO_TIME_MS)
    assert slots.take_sent() == []
    slots.say(1, Terms(WORDS, 200, (("b", 1),)), time_ms=500)

    # check
    assert [(each.at_ms, each.entries, each.is_partial) for each in slots.take_sent()] == [
        (100, (("c", 9.0), ("a", 3.0)), False),
        (200, (("b", 2.0),), False),
    ]
    # From then on the time decides.
    slots.say(0, Terms(WORDS, 300, (("a", 1),)), time_ms=700)
    assert [(each.at_ms, each.entries) for each in slots.take_sent()] == [(300, (("a", 1.0),))]


def test_history_of_a_single_slot_is_sent_whole() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.say(slot, time_ms=500)
    slots.say(0, Terms(WORDS, 100, (("a", 1),), slot_count=1), time_ms=NO_TIME_MS)
    slots.say(0, Terms(WORDS, 100, (("b", 2),), slot_count=1), time_ms=NO_TIME_MS)
    slots.say(0, Terms(WORDS, 200, (("a", 3),)), time_ms=NO_TIME_MS)
    # The slot is in the middle of its steps: its reported time is before its former one.
    slots.say(0, time_ms=200)
    assert slots.take_sent() == []
    slots.say(0, Terms(WORDS, 200, (("b", 4),)), time_ms=500)
    assert [(each.at_ms, each.entries) for each in slots.take_sent()] == [
        (100, (("b", 2.0), ("a", 1.0))),
        (200, (("b", 4.0), ("a", 3.0))),
    ]


def test_a_version_that_ends_before_all_slots_reported_its_first_step_is_still_sent() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.say(slot, time_ms=500)
    slots.say(0, first_step(0), Terms(WORDS, 400, ()))
    # The other received the query and its end before its time passed anything.
    slots.say(1, End(WORDS, 300))
    assert [(each.at_ms, each.entries) for each in slots.take_sent()] == [(100, (("a", 1.0),))]


@pytest.mark.parametrize("by", ["time", "bytes"])
def test_a_slot_that_never_reports_the_first_step_is_awaited_within_a_bound(by: str) -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    for slot in (0, 1):
        slots.say(slot, time_ms=500)
    slots.say(0, first_step(0))
    for slot in (0, 1):
        slots.say(slot, time_ms=500 + WAIT_MS)
    assert slots.take_sent() == []
    if by == "bytes":
        steps.bytes_max = STEP_BYTES
    for slot in (0, 1):
        slots.say(slot, time_ms=501 + WAIT_MS)
    (sent,) = slots.take_sent()
    assert (sent.at_ms, sent.entries, sent.is_partial) == (100, (("a", 1.0),), True)
    assert (steps.pending_steps, steps.bytes_total) == (0, 0)


def test_awaited_slots_are_known_after_a_take_over() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    for slot in (0, 1):
        slots.say(slot, time_ms=500)
    slots.say(0, first_step(0))
    assert slots.take_sent() == []
    successor = step_merge.StepMerges()
    successor.restore(steps.state())
    for known in (steps, successor):
        known.complete(500)
        assert not known.has_output
        part = found_of([(1, 9, 10, 500)], [(1, 9, first_step(1))])
        known.take(part, 0, read_spec(WORDS.spec), 500)
        known.pause(1)
        known.complete(500)
        (sent,) = known.flush()
        assert sent.lists.values.tolist() == [3.0]


def test_equal_counts_are_sent_by_code_point_and_never_more_than_k() -> None:
    slots = Slots(1)
    counts = (("\U0001d11e", 2), ("￮", 2), ("z", 1), ("é", 3))
    slots.say(0, Terms(WORDS, 100, counts), time_ms=101)
    (sent,) = slots.take_sent()
    assert sent.entries == (("é", 3.0), ("￮", 2.0))


def test_parts_that_come_late_make_no_second_list_of_a_step() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.say(slot, time_ms=500)
    slots.say(0, Terms(WORDS, 100, (("a", 1),)), Terms(WORDS, 200, (("b", 1),)))
    assert [each.at_ms for each in slots.take_sent()] == [100, 200]
    slots.say(1, Terms(WORDS, 200, (("c", 1),)), Terms(WORDS, 300, ()))
    assert [each.at_ms for each in slots.take_sent()] == [300]
    assert slots.cluster.machine.windows[0].lists.steps.late_parts == 1


def test_many_parts_of_a_step_are_added_up_as_they_come() -> None:
    slots = Slots(1, replace(LIMITS, terms_parts_max=2))
    for i in range(9):
        slots.say(0, Terms(WORDS, 100, (("a", 1), (f"t{i % 3}", 2))))
    pending = slots.cluster
    slots.say(0, time_ms=101)
    assert slots.take_sent()[0].entries == (("a", 9.0), ("t0", 6.0))
    assert not pending.machine.windows[0].lists.steps.has_pending


def test_a_ranked_list_is_sent_only_when_its_ids_change() -> None:
    def step(at_ms: int, *seen: Seen) -> Ranked:
        return Ranked(asked=BEST, at_ms=at_ms, total=5, tokens=50, holders=(2, 1), seen=seen)

    def one(name: int, number: int, distance_m: float, at_ms: int) -> Seen:
        return Seen(name, (1, number), at_ms, 10, distance_m, (1, 0))

    slots = Slots(1)
    slots.say(0, step(100), time_ms=101)
    assert slots.take_sent() == []
    slots.say(0, step(200, one(7, 1, 10.0, 150), one(8, 2, 20.0, 160)), time_ms=201)
    (first,) = slots.take_sent()
    assert [name for name, _ in first.entries] == [7, 8]
    assert first.new == ((7, "text of 7"), (8, "text of 8"))
    # Another publication of 8, and other scores: the same ids.
    slots.say(0, step(300, one(7, 1, 10.0, 150), one(8, 3, 15.0, 290)), time_ms=301)
    assert slots.take_sent() == []
    slots.say(0, step(400, one(8, 3, 15.0, 290), one(7, 1, 10.0, 0)), time_ms=401)
    assert slots.take_sent() == []
    # The last notification knew another publication.
    slots.say(0, step(500, one(8, 3, 5.0, 290), one(7, 1, 10.0, 150)), time_ms=501)
    (second,) = slots.take_sent()
    assert [name for name, _ in second.entries] == [8, 7]
    assert second.new == ((8, "text of 8"),)
    slots.say(0, step(600), time_ms=601)
    (third,) = slots.take_sent()
    assert (third.at_ms, third.entries) == (600, ())


@pytest.mark.parametrize("restored", ["not", "with names", "from before"])
def test_a_ranked_list_is_sent_when_another_object_has_its_number(restored: str) -> None:
    one, other = PAIRS[0]
    seen = [Seen(name, (1, n), 150, 10, 10.0, (1, 0)) for n, name in enumerate((one, other, other))]
    slots = Slots(1)
    slots.say(
        0,
        Ranked(asked=BEST, at_ms=200, total=5, tokens=50, holders=(2, 1), seen=(seen[0],)),
        time_ms=201,
    )
    assert [each.entries[0][0] for each in slots.take_sent()] == [one]
    known = slots.cluster.machine.windows[0].lists
    if restored != "not":
        state = dict(known.state())
        if restored == "from before":
            del state["versions.names"], state["versions.has_names"]
        known = slots.cluster.machine.windows[0].lists = LiveLists(slots=1)
        known.restore(state)
    slots.say(
        0,
        Ranked(asked=BEST, at_ms=300, total=5, tokens=50, holders=(2, 1), seen=(seen[1],)),
        time_ms=301,
    )
    sent = [each.entries[0][0] for each in slots.take_sent()]
    # Facts missing in an older checkpoint are unknown until something changes.
    assert sent == ([] if restored == "from before" else [other])
    slots.say(
        0,
        Ranked(asked=BEST, at_ms=400, total=5, tokens=50, holders=(2, 1), seen=(seen[2],)),
        time_ms=401,
    )
    assert slots.take_sent() == []


# --- lists that no record can hold


def sent_whole(slots: Slots) -> list[Any]:
    """Returns the notifications of a window, in records that the log accepts."""
    slots.cluster.read(len(slots.cluster.log), np.random.default_rng(0))
    assert slots.cluster.transact is not None
    for message in slots.cluster.transact.messages:
        assert encode(message)[1].ByteSize() + 4_096 < RECORD_BYTES_MAX
    return slots.cluster.commit()


def test_terms_that_no_record_can_hold_are_cut_from_the_end_and_marked() -> None:
    k = 90
    asked = ListVersion("long", terms_spec("long", k))
    counts = [(f"{i:02}" + "n" * 60_000, k - i) for i in range(k)]
    slots = Slots()
    for slot, begin in ((0, 0), (1, k // 2)):
        # Slots split their reports into parts, in records of their own.
        for at in range(begin, begin + k // 2, 15):
            slots.say(slot, Terms(asked, 100, tuple(counts[at : at + 15])))
    slots.say(0, time_ms=101)
    slots.say(1, time_ms=101)
    (sent,) = sent_whole(slots)
    assert sent.is_partial
    assert 60 < len(sent.entries) < k
    assert sent.entries == tuple((term, float(n)) for term, n in counts[: len(sent.entries)])
    # The next step fits, and is complete.
    slots.say(0, Terms(asked, 200, tuple(counts[:15])), time_ms=201)
    slots.say(1, time_ms=201)
    (sent,) = sent_whole(slots)
    assert (sent.is_partial, sent.entries) == (False, tuple((t, float(n)) for t, n in counts[:15]))


def test_a_ranked_list_that_no_record_can_hold_is_cut_from_the_end_and_marked() -> None:
    k, words = 10_000, [f"{i}" + "w" * 16_000 for i in range(64)]
    asked = ListVersion("wide", ranked_spec("wide", k, words))
    holds = (1,) + (0,) * 63
    ids = [f"{i:05}" + "n" * 251 for i in range(k)]

    def step(at_ms: int, begin: int, end: int) -> Ranked:
        seen = tuple(Seen(ids[i], (1, i), 50, 10, i / 100, holds) for i in range(begin, end))
        total, tokens = (k, 10 * k) if begin == 0 else (0, 0)
        return Ranked(
            asked=asked,
            at_ms=at_ms,
            total=total,
            tokens=tokens,
            holders=(total,) + (0,) * 63,
            seen=seen,
        )

    def say(at_ms: int) -> list[Any]:
        for begin in range(0, k, 2_500):
            slots.say(0, step(at_ms, begin, begin + 2_500))
        slots.say(0, time_ms=at_ms + 1)
        return sent_whole(slots)

    slots = Slots(1)
    (sent,) = say(100)
    assert sent.is_partial
    assert 9_000 < len(sent.entries) < k
    assert [name for name, _ in sent.entries] == ids[: len(sent.entries)]
    # Nothing has changed: a truncated list alone is no reason to notify.
    assert say(200) == []


# --- versions that end


def test_the_rest_of_a_ranked_step_of_a_dead_evaluator_counts_from_its_successor() -> None:
    # Other candidates, in another order and fewer records: slices differ there.
    first = Seen(1, (1, 1), 90, 4, 2.0, (1, 0))
    second = Seen(2, (1, 2), 91, 4, 2.0, (2, 0))
    third = Seen(3, (1, 3), 92, 4, 2.0, (1, 1))
    slots = Slots()

    def record(begin: int, time_ms: int, part: Ranked) -> None:
        found = found_of([(0, begin, begin + 1, time_ms)], [(0, begin, part)])
        slots.cluster.log.append(found)

    record(
        0,
        NO_TIME_MS,
        Ranked(asked=BEST, at_ms=100, total=3, tokens=12, holders=(4, 1), seen=(first,)),
    )
    record(
        0,
        101,
        Ranked(asked=BEST, at_ms=100, total=3, tokens=12, holders=(4, 1), seen=(second, third)),
    )
    # A repeat of a step that the slot's time completes adds nothing.
    record(
        0,
        101,
        Ranked(
            asked=BEST,
            at_ms=100,
            total=3,
            tokens=12,
            holders=(4, 1),
            seen=(Seen(9, (1, 9), 93, 4, 2.0, (9, 9)),),
        ),
    )
    slots.say(1, time_ms=101)
    ((_, entries),) = lists(slots.take_sent())
    assert [name for name, _ in entries] == [3, 1]

    slots = Slots()
    slots.say(
        0,
        Ranked(
            asked=BEST, at_ms=100, total=3, tokens=12, holders=(4, 1), seen=(first, second, third)
        ),
        time_ms=101,
    )
    slots.say(1, time_ms=101)
    assert lists(slots.take_sent()) == [("best", entries)]


def test_the_rest_of_a_ranked_step_over_history_counts_from_a_successor() -> None:
    # The slot's time is past the step before any report of it.
    first = Seen(1, (1, 1), 90, 4, 2.0, (1, 0))
    second = Seen(2, (1, 2), 91, 4, 2.0, (2, 0))
    third = Seen(3, (1, 3), 92, 4, 2.0, (1, 1))
    slots = Slots()
    for slot in (0, 1):
        slots.say(slot, time_ms=500)

    def record(place: int, time_ms: int, *seen: Seen) -> None:
        part = Ranked(
            asked=BEST, at_ms=100, total=3, tokens=12, holders=(4, 1), seen=seen, slot_count=1
        )
        at = position_of(1, place)
        found = found_of([(0, at, at + 1, time_ms)], [(0, at, part)])
        slots.cluster.log.append(found)

    record(0, NO_TIME_MS, first)
    # The slot's new owner needs one record where its predecessor began the first of two.
    record(0, 500, third, second, first)
    ((_, entries),) = lists(slots.take_sent())
    assert [name for name, _ in entries] == [3, 1]


def test_a_list_ends_with_the_report_of_the_first_slot_and_later_ones_do_not_count() -> None:
    slots = Slots()
    slots.say(0, Match(NEAR, 1, 5.0))
    assert lists(slots.take_sent()) == [("near", ((1, 5.0),))]
    slots.say(0, End(NEAR))
    # Slot 1 lags: its findings belong to the list that has ended.
    slots.say(1, Match(NEAR, 2, 4.0))
    assert slots.take_sent() == []
    # The same query again, in slot 0 at first.
    again = version(NEAR, 7)
    slots.say(0, Match(again, 3, 9.0))
    assert lists(slots.take_sent()) == [("near", ((3, 9.0),))]
    slots.say(1, Match(NEAR, 4, 1.0))
    assert slots.take_sent() == []
    slots.say(1, End(NEAR))
    slots.say(1, Match(again, 5, 8.0))
    assert lists(slots.take_sent()) == [("near", ((5, 8.0), (3, 9.0)))]
    # And again; slot 1 never held this version.
    slots.say(0, End(again))
    last = version(NEAR, 9)
    slots.say(0, Match(version(NEAR, 8), 6, 7.0), End(version(NEAR, 8)))
    slots.say(1, Match(again, 6, 7.0))
    assert slots.take_sent() == []
    slots.say(1, End(again))
    slots.say(1, Match(last, 7, 7.5))
    assert lists(slots.take_sent()) == [("near", ((7, 7.5),))]


def test_another_version_of_the_query_continues() -> None:
    slots = Slots()
    other = ListVersion("near", knn_spec("near", 5))
    slots.say(0, Match(NEAR, 1, 5.0), Terms(WORDS, 100, ()))
    slots.say(1, Match(other, 2, 6.0))
    slots.take_sent()
    known = slots.cluster.machine.windows[0].lists
    assert (len(known.knn), len(known.steps)) == (2, 1)
    slots.say(0, End(NEAR))
    slots.say(0, End(WORDS))
    slots.take_sent()
    assert (len(known.knn), known.steps.has_pending) == (1, False)
    slots.say(0, Match(other, 3, 5.0))
    assert lists(slots.take_sent()) == [("near", ((3, 5.0), (2, 6.0)))]


def test_the_end_of_a_version_that_is_repeated_ends_no_later_one() -> None:
    slots = Slots()
    again = version(NEAR, 7)
    slots.say(0, Match(NEAR, 1, 5.0))
    slots.say(0, End(NEAR))
    slots.say(0, Match(again, 2, 6.0))
    assert lists(slots.take_sent()) == [("near", ((2, 6.0),))]
    for begin in (0, 1):
        slots.cluster.log.append(found_of([(0, begin, 2, 0)], [(0, 1, End(NEAR))]))
    slots.say(0, Match(again, 3, 7.0))
    assert lists(slots.take_sent()) == [("near", ((2, 6.0), (3, 7.0)))]


def test_only_steps_that_all_slots_passed_before_the_end_are_sent() -> None:
    slots = Slots()
    again = version(WORDS, 7)
    slots.say(0, Terms(WORDS, 100, (("a", 1),)), time_ms=101)
    slots.say(0, End(WORDS, 150), time_ms=150)
    # The next version is equal and begins at once; slot 1 ends the first one later.
    slots.say(0, Terms(again, 200, (("b", 1),)), time_ms=201)
    slots.say(1, Terms(WORDS, 100, (("a", 2),)), time_ms=101)
    assert lists(slots.take_sent()) == [("words", (("a", 3.0),))]
    slots.say(1, Terms(WORDS, 200, (("c", 1),)), time_ms=201)
    assert lists(slots.take_sent()) == [("words", (("b", 1.0),))]
    slots.say(1, End(WORDS, 250), time_ms=250)
    slots.say(1, Terms(again, 300, (("b", 2),)), time_ms=301)
    slots.say(0, time_ms=301)
    assert lists(slots.take_sent()) == [("words", (("b", 2.0),))]


# --- steps that wait for a slot that does not advance


def test_steps_beyond_the_bound_are_sent_without_the_slot_and_marked_partial() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    # Two steps with one part each.
    steps.bytes_max = 5 * STEP_BYTES
    for at_ms in (100, 200):
        slots.say(0, Terms(WORDS, at_ms, (("a", at_ms),)), time_ms=at_ms + 1)
    assert lists(slots.take_sent()) == []
    slots.say(0, Terms(WORDS, 300, (("a", 300),)), time_ms=301)
    (early,) = slots.take_sent()
    assert (early.at_ms, early.entries, early.is_partial) == (100, (("a", 100.0),), True)
    assert (steps.partial_steps, steps.pending_steps, steps.earliest_ms) == (1, 2, 200)
    # The slot is back: it is late for the reported steps, the rest is complete.
    for at_ms in (100, 200, 300):
        slots.say(1, Terms(WORDS, at_ms, (("a", 1),)), time_ms=at_ms + 1)
    second, third = slots.take_sent()
    assert (second.at_ms, second.entries, second.is_partial) == (200, (("a", 201.0),), False)
    assert (third.at_ms, third.entries, third.is_partial) == (300, (("a", 301.0),), False)
    assert (steps.late_parts, steps.partial_steps, steps.bytes_total) == (1, 1, 0)
    assert steps.earliest_ms is None


def test_a_partial_ranked_step_is_sent_even_if_the_list_seems_unchanged() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    seen = (Seen(7, (1, 1), 50, 3, 10.0, (1, 1)),)
    for slot in (0, 1):
        part = Ranked(
            asked=BEST, at_ms=100, total=1, tokens=3, holders=(1, 1), seen=seen if slot == 0 else ()
        )
        slots.say(slot, part, time_ms=101)
    (first,) = slots.take_sent()
    assert [name for name, _ in first.entries] == [7]
    steps.bytes_max = STEP_BYTES
    slots.say(
        0, Ranked(asked=BEST, at_ms=200, total=1, tokens=3, holders=(1, 1), seen=seen), time_ms=201
    )
    (second,) = slots.take_sent()
    assert (second.at_ms, second.is_partial, first.is_partial) == (200, True, False)
    assert [name for name, _ in second.entries] == [7]
    # Complete and unchanged: nothing to report.
    steps.bytes_max = 100 * STEP_BYTES
    for slot in (0, 1):
        part = Ranked(
            asked=BEST, at_ms=300, total=1, tokens=3, holders=(1, 1), seen=seen if slot == 0 else ()
        )
        slots.say(slot, part, time_ms=301)
    assert slots.take_sent() == []


def test_what_waits_weighs_the_same_after_a_take_over() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    for at_ms in (100, 200, 300):
        slots.say(0, Terms(WORDS, at_ms, (("word", 1), ("é", 2))), time_ms=at_ms)
        seen = (Seen("näme", (1, at_ms), 50, 3, 10.0, (1, 1)),)
        slots.say(
            0,
            Ranked(asked=BEST, at_ms=at_ms, total=1, tokens=3, holders=(1, 1), seen=seen),
            time_ms=at_ms + 1,
        )
    slots.take_sent()
    before = steps.bytes_total
    successor = step_merge.StepMerges()
    successor.restore(steps.state())
    assert successor.bytes_total == before > 12 * STEP_BYTES
    assert successor.pending_steps == steps.pending_steps == 6
    for known in (steps, successor):
        known.end(read_spec(WORDS.spec), 0, 0, 200)
        known.drop(read_spec(BEST.spec).key)
        known.complete(1_000)
        assert (known.bytes_total, known.pending_steps) == (0, 0)


# --- versions that are forgotten


def test_that_a_version_ended_is_remembered_until_all_slots_have_come_to_its_end() -> None:
    # The router that sends changes to slots is away, while another one routes objects.
    slots = Slots()
    slots.say(0, Match(version(NEAR, 5), 1, 5.0))
    slots.say(0, End(version(NEAR, 5), 1_000, (0, 7)), time_ms=1_000)
    slots.say(0, Match(version(NEAR, 7), 2, 1.0))
    assert lists(slots.take_sent()) == [("near", ((2, 1.0),))]
    slots.cluster.registry_saved(7)
    for hour in range(1, 10):
        for slot in (0, 1):
            slots.say(slot, Match(version(NEAR, 5 + 2 * (not slot)), hour, 9.0))
            slots.say(slot, time_ms=hour * 3_600_000)
        sent = lists(slots.take_sent())
        assert all((2, 1.0) in entries for _, entries in sent)
        assert len(slots.known().versions) == 1

    # test: it returns.
    slots.say(1, End(version(NEAR, 5), 9 * 3_600_000, (0, 7)))
    assert len(slots.known().versions) == 1
    slots.cluster.registry_saved(8)

    # check
    assert len(slots.known().versions) == 0
    assert len(slots.known().knn) == 1


def test_an_ended_version_is_remembered_until_all_slots_have_reported_their_time() -> None:
    # A slot reports its findings before its time, and until then it repeats steps.
    slots = Slots()
    slots.cluster.registry_saved(1)
    slots.say(0, End(WORDS, 1_000), time_ms=1_000)
    slots.say(1, End(WORDS, 2_000), time_ms=1_000)
    assert len(slots.known().versions) == 1
    for slot in (0, 1):
        assert len(slots.known().versions) == 1
        slots.say(slot, time_ms=2_000)
    assert len(slots.known().versions) == 0


def test_records_of_an_earlier_version_hold_less_about_ends() -> None:
    slots = Slots(1)
    members = {"gone": orjson.loads(NEAR.spec), "at_ms": 17}
    removed = read_spec(orjson.dumps(members).decode())
    assert (removed.kind, removed.ended, removed.ended_by) == (
        KIND_ENDED,
        read_spec(NEAR.spec),
        (0, -1),
    )
    versions = slots.known().versions
    versions.restore({"ends.keys": np.array([1], np.uint64)})
    assert versions.has_ended(1)
    assert len(slots.known().versions) == 0


def test_a_list_with_a_lifetime_lasts_until_a_slot_reports_its_end() -> None:
    # Slots that lag far report objects that arrived long before the query was registered.
    slots = Slots()
    short = ListVersion("near", spec_of(orjson.loads(NEAR.spec) | {"ttl": "1s"}))
    slots.say(0, Match(short, 1, 5.0), time_ms=5_000)
    slots.take_sent()
    for slot in (0, 1):
        slots.say(slot, time_ms=500_000)
    slots.say(0, Match(short, 2, 4.0), time_ms=500_000)
    assert lists(slots.take_sent()) == [("near", ((2, 4.0), (1, 5.0)))]
    for slot in (0, 1):
        slots.say(slot, End(short), time_ms=600_000)
    slots.cluster.registry_saved(1)
    known = slots.known()
    assert (len(known.knn), len(known.versions)) == (0, 0)


# --- checkpoints


def test_without_lists_there_are_no_checkpoints() -> None:
    slots = Slots()
    for i in range(50):
        slots.say(0, Match(PLAIN, i))
        slots.take_sent()
        assert slots.cluster.begin_save == []
        assert slots.cluster.low == i + 1


def test_r5_no_list_is_sent_before_a_checkpoint_is_in_force() -> None:
    slots = Slots()
    cluster = slots.cluster
    slots.say(0, Match(PLAIN, 1))
    slots.take_sent()
    slots.say(0, Match(PLAIN, 2))
    slots.say(0, Match(NEAR, 1, 5.0))
    # init: the archive answers late.
    cluster.is_archive_away = True
    assert slots.take_sent() == []
    assert cluster.machine.windows[0].is_held
    assert cluster.machine.deadline_ms() is None
    (save,) = cluster.begin_save
    assert isinstance(save, SaveCheckpoint)
    assert save.offset == 1
    # Requested once.
    slots.say(1, Match(PLAIN, 3))
    assert slots.take_sent() == []
    assert len(cluster.begin_save) == 1
    cluster.is_archive_away = False
    sent = slots.take_sent()
    assert lists(sent) == [("near", ((1, 5.0),))]
    assert len(sent) == 3
    # From here on the log is kept from the checkpoint on.
    assert cluster.low == 1


def test_a_checkpoint_is_saved_with_its_transaction_and_the_log_cut_below_it() -> None:
    limits = replace(LIMITS, checkpoint_interval_ms=3_000, quiet_checkpoint_interval_ms=6_000)
    slots = Slots(limits=limits)
    lows = []
    for i in range(9):
        slots.say(0, Match(NEAR, i, 50.0 - i))
        slots.take_sent()
        lows.append(slots.cluster.low)
    # One second a window; each checkpoint is declared with the next window.
    assert lows == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    # While lists do not change it is enough to do so now and then.
    for i in range(14):
        slots.say(0, Match(PLAIN, i))
        slots.take_sent()
        lows.append(slots.cluster.low)
    assert lows[9:] == [9] * 6 + [15] * 6 + [21] * 2


def test_an_aborted_window_leaves_no_trace() -> None:
    slots = Slots()
    slots.say(0, Match(NEAR, 1, 5.0))
    slots.take_sent()
    slots.say(0, Match(NEAR, 2, 4.0))
    cluster = slots.cluster
    cluster.read(2, np.random.default_rng(0))
    assert cluster.transact is not None
    cluster.transact = None
    cluster.start()
    cluster.read(2, np.random.default_rng(0))
    (sent,) = cluster.commit()
    assert isinstance(sent, ListChange)
    assert sent.entries == ((2, 4.0), (1, 5.0))
    assert [name for name, _ in sent.new] == [2]


def test_r5_a_late_first_checkpoint_of_a_predecessor_is_not_read_from() -> None:
    # init: the first merger finds a list in its second window and requests its first checkpoint, at
    # offset 1. Then it is gone.
    slots = Slots()
    cluster = slots.cluster
    slots.say(0, Match(PLAIN, 1))
    slots.take_sent()
    slots.say(0, Match(PLAIN, 2))
    slots.say(0, Match(NEAR, 1, 5.0))
    cluster.is_archive_away = True
    assert slots.take_sent() == []
    (late,) = cluster.begin_save
    assert late.offset == 1
    # The next one reports more before it finds the list, and the log is truncated there.
    cluster.start()
    cluster.read(2, np.random.default_rng(0))
    assert len(cluster.commit()) == 1
    assert cluster.low == 2

    # test: now the first one's checkpoint appears.
    cluster.begin_save = [late]
    cluster.is_archive_away = False
    cluster.save()
    cluster.is_archive_away = True
    assert slots.take_sent() == []
    (own,) = cluster.begin_save
    assert own.offset == 2

    # check: whichever merger dies, before or after its own is in force, the list is reported.
    cluster.start()
    assert cluster.follows[-1] == 2
    cluster.is_archive_away = False
    assert lists(slots.take_sent()) == [("near", ((1, 5.0),))]
    cluster.start()
    assert cluster.follows[-1] == 2
    slots.say(0, Match(NEAR, 3, 3.0))
    assert lists(slots.take_sent()) == [("near", ((3, 3.0), (1, 5.0)))]


def test_r5_a_checkpoint_below_what_is_kept_is_passed_over() -> None:
    state = {"knn.keys": np.empty(0, np.uint64)}
    assert merger_start(None, (state, 2), 3) == (0, None)
    assert merger_start(None, (state, 3), 3) == (3, state)


def test_records_name_their_queries() -> None:
    # The codec accepts the hand-made records.
    found = found_of(
        [(0, 0, 3, 7), (1, 0, 1, 9)],
        [
            (0, 0, Match(NEAR, "näme", 5.0)),
            (0, 1, Terms(WORDS, 100, (("é", 3),))),
            (
                1,
                0,
                Ranked(
                    asked=BEST,
                    at_ms=100,
                    total=5,
                    tokens=50,
                    holders=(1, 2),
                    seen=(Seen(3, (2, 1), 90, 4, 2.5, (1, 0)),),
                ),
            ),
        ],
    )
    again = decode(encode(found)[1])
    assert isinstance(again, Found)
    assert differences(found, again) == []


# --- versions that continue others


def changes(sent: list[Any]) -> list[tuple[list[Any], list[Any], list[Any]]]:
    """Returns of each list what is new in it, what has left, and the whole."""
    return [
        (
            [name for name, _ in each.new],
            list(each.removed),
            [name for name, _ in each.entries],
        )
        for each in sent
        if isinstance(each, ListChange)
    ]


FIRST, SECOND, THIRD = (version(NEAR, number) for number in (5, 9, 12))


def send_first(slots: Slots) -> None:
    slots.say(0, Match(FIRST, 1, 10.0), Match(FIRST, 2, 20.0))
    assert changes(slots.take_sent()) == [([1, 2], [], [1, 2])]


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_version_that_continues_leads_on_from_the_last_list_sent(
    is_taken_over: bool,
) -> None:
    slots = Slots()
    send_first(slots)
    slots.say(0, End(FIRST, by=(0, 9), is_continued=True))
    if is_taken_over:
        # A successor that begins here knows this.
        window = slots.cluster.machine.windows[0]
        assert slots.take_sent() == []
        restored = LiveLists(slots=2)
        restored.restore(window.lists.state())
        window.lists = restored
    slots.say(0, Match(SECOND, 3, 30.0))
    # The other slot has yet to reach the update: its findings belong to the former version.
    slots.say(1, Match(FIRST, 4, 1.0))
    slots.say(1, End(FIRST, by=(0, 9), is_continued=True))
    slots.say(1, Match(SECOND, 5, 40.0))
    assert changes(slots.take_sent()) == [([3, 5], [1, 2], [3, 5])]
    slots.say(1, Match(SECOND, 6, 5.0))
    assert changes(slots.take_sent()) == [([6], [5], [6, 3])]


def test_a_query_that_is_registered_again_starts_its_list_from_nothing() -> None:
    slots = Slots()
    send_first(slots)
    slots.say(0, End(FIRST, by=(0, 9)))
    slots.say(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([3], [], [3])]


def test_a_slot_that_passes_over_a_version_does_not_break_the_lists_of_others() -> None:
    slots = Slots()
    send_first(slots)
    slots.say(0, End(FIRST, by=(0, 9), is_continued=True))
    slots.say(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([3], [1, 2], [3])]
    # It received only the third version.
    slots.say(1, End(FIRST, by=(0, 12), is_continued=True))
    slots.say(1, Match(THIRD, 4, 1.0))
    slots.say(0, Match(SECOND, 5, 2.0))
    assert changes(slots.take_sent()) == [([4], [3], [4])]
    slots.say(0, End(SECOND, by=(0, 12), is_continued=True))
    slots.say(0, Match(THIRD, 6, 3.0))
    assert changes(slots.take_sent()) == [([6], [], [4, 6])]
    slots.say(0, End(THIRD, by=(0, 20)))
    assert len(slots.known().knn) == 0


def test_results_of_a_version_are_sent_before_the_next_version_continues_them() -> None:
    """A process that reads the records again finds the same list, whenever others reported it."""
    slots = Slots()
    slots.say(0, Match(FIRST, 1, 10.0))
    slots.say(1, Match(FIRST, 2, 20.0))
    slots.say(0, End(FIRST, by=(0, 9), is_continued=True))
    slots.say(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([1, 2], [], [1, 2]), ([3], [1, 2], [3])]


def test_a_successor_continues_lists_sent_in_windows_that_it_does_not_know() -> None:
    slots = Slots()
    send_first(slots)
    slots.say(0, End(FIRST, by=(0, 9), is_continued=True))
    assert slots.take_sent() == []
    # It reads all of it at once, and reports nothing.
    slots.cluster.start()
    slots.say(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([3], [1, 2], [3])]


def test_another_subscriber_of_a_query_is_led_on_from_nothing() -> None:
    """A slot that did not hold the query reports nothing of the time before."""
    slots = Slots()
    send_first(slots)
    slots.say(1, Match(replace(SECOND, subscriber="bob"), 3, 30.0))
    slots.say(0, Match(FIRST, 4, 1.0))
    sent = {each.subscriber: each for each in slots.take_sent() if isinstance(each, ListChange)}
    assert changes([sent["bob"]]) == [([3], [], [3])]
    assert changes([sent["ann"]]) == [([4], [2], [4, 1])]


OLD, NEW = (version(BEST, number) for number in (5, 9))


def say_ranked(slots: Slots, asked: ListVersion, at_ms: int, *objects: int) -> None:
    """Appends a step that slot 0 reports alone, and that both have passed."""
    seen = tuple(Seen(number, (1, number), 50, 3, 10.0, (1, 1)) for number in objects)
    slots.say(
        0,
        Ranked(asked=asked, at_ms=at_ms, total=5, tokens=50, holders=(2, 1), seen=seen),
        time_ms=at_ms + 1,
    )
    slots.say(1, time_ms=at_ms + 1)


def ranked_lists(sent: list[Any]) -> list[tuple[int | None, list[int | str]]]:
    each_list = [each for each in sent if isinstance(each, ListChange)]
    return [(each.at_ms, [name for name, _ in each.entries]) for each in each_list]


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_ranked_version_without_results_empties_the_former_list(
    is_taken_over: bool,
) -> None:
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    for slot in (0, 1):
        slots.say(slot, End(OLD, 150, by=(0, 9), is_continued=True), time_ms=150)
    if is_taken_over:
        window = slots.cluster.machine.windows[0]
        assert slots.take_sent() == []
        restored = LiveLists(slots=2)
        restored.restore(window.lists.state())
        window.lists = restored
    say_ranked(slots, NEW, 200)
    say_ranked(slots, NEW, 300)
    assert ranked_lists(slots.take_sent()) == [(200, [])]
    say_ranked(slots, NEW, 400, 8)
    assert ranked_lists(slots.take_sent()) == [(400, [8])]


@pytest.mark.parametrize("late", [(6, 7), ()])
def test_a_later_ranked_version_repeats_its_list_after_a_step_of_the_version_before(
    late: tuple[int, ...],
) -> None:
    """Slots may lag: then the later version begins while steps of the earlier one are waiting."""
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    say_ranked(slots, NEW, 110, 8)
    say_ranked(slots, OLD, 200, *late)
    assert ranked_lists(slots.take_sent()) == [(100, [7]), (110, [8]), (200, list(late))]
    # Without it, the subscriber would keep the list of the earlier version.
    say_ranked(slots, NEW, 210, 8)
    say_ranked(slots, NEW, 310, 8)
    assert ranked_lists(slots.take_sent()) == [(210, [8])]


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_slot_that_a_ranked_query_leaves_does_not_end_its_list(
    order: tuple[bool, bool],
) -> None:
    """It only learns that the query is no longer there."""
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    for slot, is_continued in enumerate(order):
        slots.say(slot, End(OLD, 150, by=(0, 9), is_continued=is_continued), time_ms=150)
    say_ranked(slots, NEW, 200)
    assert ranked_lists(slots.take_sent()) == [(200, [])]
    for slot in (0, 1):
        slots.say(slot, End(NEW, 250, by=(0, 20)), time_ms=250)
    slots.cluster.registry_saved(21)
    known = slots.known()
    assert (len(known.versions), len(known.steps), len(known.steps._sent_revisions)) == (0, 0, 0)


@pytest.mark.parametrize("is_continued", [True, False])
def test_a_ranked_version_of_which_an_end_was_the_first_word_is_led_on_from(
    is_continued: bool,
) -> None:
    """A slot that only held it for a change of the map may end it before others report a step."""
    slots = Slots()
    slots.say(1, End(OLD, 150, by=(0, 9), is_continued=is_continued), time_ms=150)
    seen = (Seen(7, (1, 7), 50, 3, 10.0, (1, 1)),)
    slots.say(
        0, Ranked(asked=OLD, at_ms=100, total=5, tokens=50, holders=(2, 1), seen=seen), time_ms=101
    )
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    slots.say(0, End(OLD, 150, by=(0, 9), is_continued=True), time_ms=150)
    say_ranked(slots, NEW, 200)
    assert ranked_lists(slots.take_sent()) == [(200, [])]


@pytest.mark.parametrize("order", [1, -1])
def test_a_ranked_query_that_moves_to_other_slots_only_empties_its_list(
    order: int,
) -> None:
    """The slots that it leaves get a removal with the revision of the next version."""
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    passed, last = version(BEST, 9), version(BEST, 12)
    for ended, by in [(OLD, 9), (passed, 12)][::order]:
        slots.say(0, End(ended, 150, by=(0, by)), time_ms=150)
    slots.say(1, time_ms=150)
    say_ranked(slots, last, 200)
    assert ranked_lists(slots.take_sent()) == [(200, [])]


def test_a_ranked_query_that_moves_after_a_new_registration_sends_nothing() -> None:
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    slots.say(0, End(OLD, 150, by=(0, 7)), time_ms=150)
    slots.say(1, time_ms=150)
    slots.say(0, End(NEW, 160, by=(0, 12)), time_ms=160)
    slots.say(1, time_ms=160)
    say_ranked(slots, version(BEST, 12), 200)
    assert ranked_lists(slots.take_sent()) == []


def test_a_ranked_query_registered_again_sends_no_missing_objects() -> None:
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    for slot in (0, 1):
        slots.say(slot, End(OLD, 150, by=(0, 7)), time_ms=150)
    say_ranked(slots, NEW, 200)
    assert ranked_lists(slots.take_sent()) == []
    for slot in (0, 1):
        slots.say(slot, End(NEW, 250, by=(0, 20)), time_ms=250)
    slots.cluster.registry_saved(21)
    # Nothing is kept of ended versions.
    known = slots.known()
    assert (len(known.versions), len(known.steps), len(known.steps._sent_revisions)) == (0, 0, 0)


def test_a_step_before_the_end_is_sent_after_a_slot_reported_the_removal() -> None:
    slots = Slots()
    say_ranked(slots, OLD, 100, 7)
    for slot in (0, 1):
        slots.say(slot, End(OLD, 150, by=(0, 9), is_continued=True), time_ms=150)
    slots.say(
        0, Ranked(asked=NEW, at_ms=200, total=5, tokens=50, holders=(2, 1), seen=()), time_ms=201
    )
    slots.say(0, End(NEW, 250, by=(0, 20)), time_ms=250)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    slots.say(1, time_ms=201)
    assert ranked_lists(slots.take_sent()) == [(200, [])]
