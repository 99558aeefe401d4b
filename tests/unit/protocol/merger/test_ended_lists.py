"""Lists of versions that end, and of slots that do not advance."""

from __future__ import annotations

import numpy as np
import orjson

from sirocco.protocol.contract.positions import NO_TIME_MS, position_of
from sirocco.protocol.contract.query_specs import (
    KIND_ENDED,
    read_spec,
)
from sirocco.protocol.merger import step_merge
from sirocco.protocol.merger.pending_steps import STEP_BYTES
from tests.support.list_records import (
    End,
    ListVersion,
    Match,
    Ranked,
    Seen,
    Terms,
    found_of,
    knn_spec,
    spec_of,
    version,
)
from tests.support.merger_slots import BEST, NEAR, WORDS, Slots, sent_lists
from tests.support.merger_states import state_of

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
    slots.report(1, time_ms=101)
    ((_, entries),) = sent_lists(slots.take_sent())
    assert [name for name, _ in entries] == [3, 1]

    slots = Slots()
    slots.report(
        0,
        Ranked(
            asked=BEST, at_ms=100, total=3, tokens=12, holders=(4, 1), seen=(first, second, third)
        ),
        time_ms=101,
    )
    slots.report(1, time_ms=101)
    assert sent_lists(slots.take_sent()) == [("best", entries)]


def test_the_rest_of_a_ranked_step_over_history_counts_from_a_successor() -> None:
    # The slot's time is past the step before any report of it.
    first = Seen(1, (1, 1), 90, 4, 2.0, (1, 0))
    second = Seen(2, (1, 2), 91, 4, 2.0, (2, 0))
    third = Seen(3, (1, 3), 92, 4, 2.0, (1, 1))
    slots = Slots()
    for slot in (0, 1):
        slots.report(slot, time_ms=500)

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
    ((_, entries),) = sent_lists(slots.take_sent())
    assert [name for name, _ in entries] == [3, 1]


def test_a_list_ends_with_the_report_of_the_first_slot_and_later_ones_do_not_count() -> None:
    slots = Slots()
    slots.report(0, Match(NEAR, 1, 5.0))
    assert sent_lists(slots.take_sent()) == [("near", ((1, 5.0),))]
    slots.report(0, End(NEAR))
    # Slot 1 lags: its findings belong to the list that has ended.
    slots.report(1, Match(NEAR, 2, 4.0))
    assert slots.take_sent() == []
    # The same query again, in slot 0 at first.
    again = version(NEAR, 7)
    slots.report(0, Match(again, 3, 9.0))
    assert sent_lists(slots.take_sent()) == [("near", ((3, 9.0),))]
    slots.report(1, Match(NEAR, 4, 1.0))
    assert slots.take_sent() == []
    slots.report(1, End(NEAR))
    slots.report(1, Match(again, 5, 8.0))
    assert sent_lists(slots.take_sent()) == [("near", ((5, 8.0), (3, 9.0)))]
    # And again; slot 1 never held this version.
    slots.report(0, End(again))
    last = version(NEAR, 9)
    slots.report(0, Match(version(NEAR, 8), 6, 7.0), End(version(NEAR, 8)))
    slots.report(1, Match(again, 6, 7.0))
    assert slots.take_sent() == []
    slots.report(1, End(again))
    slots.report(1, Match(last, 7, 7.5))
    assert sent_lists(slots.take_sent()) == [("near", ((7, 7.5),))]


def test_another_version_of_the_query_continues() -> None:
    slots = Slots()
    other = ListVersion("near", knn_spec("near", 5))
    slots.report(0, Match(NEAR, 1, 5.0), Terms(WORDS, 100, ()))
    slots.report(1, Match(other, 2, 6.0))
    slots.take_sent()
    known = slots.cluster.machine.windows[0].lists
    assert (len(known.knn), len(known.steps)) == (2, 1)
    slots.report(0, End(NEAR))
    slots.report(0, End(WORDS))
    slots.take_sent()
    assert (len(known.knn), known.steps.has_pending) == (1, False)
    slots.report(0, Match(other, 3, 5.0))
    assert sent_lists(slots.take_sent()) == [("near", ((3, 5.0), (2, 6.0)))]


def test_the_end_of_a_version_that_is_repeated_ends_no_later_one() -> None:
    slots = Slots()
    again = version(NEAR, 7)
    slots.report(0, Match(NEAR, 1, 5.0))
    slots.report(0, End(NEAR))
    slots.report(0, Match(again, 2, 6.0))
    assert sent_lists(slots.take_sent()) == [("near", ((2, 6.0),))]
    for begin in (0, 1):
        slots.cluster.log.append(found_of([(0, begin, 2, 0)], [(0, 1, End(NEAR))]))
    slots.report(0, Match(again, 3, 7.0))
    assert sent_lists(slots.take_sent()) == [("near", ((2, 6.0), (3, 7.0)))]


def test_only_steps_that_all_slots_passed_before_the_end_are_sent() -> None:
    slots = Slots()
    again = version(WORDS, 7)
    slots.report(0, Terms(WORDS, 100, (("a", 1),)), time_ms=101)
    slots.report(0, End(WORDS, 150), time_ms=150)
    # The next version is equal and begins at once; slot 1 ends the first one later.
    slots.report(0, Terms(again, 200, (("b", 1),)), time_ms=201)
    slots.report(1, Terms(WORDS, 100, (("a", 2),)), time_ms=101)
    assert sent_lists(slots.take_sent()) == [("words", (("a", 3.0),))]
    slots.report(1, Terms(WORDS, 200, (("c", 1),)), time_ms=201)
    assert sent_lists(slots.take_sent()) == [("words", (("b", 1.0),))]
    slots.report(1, End(WORDS, 250), time_ms=250)
    slots.report(1, Terms(again, 300, (("b", 2),)), time_ms=301)
    slots.report(0, time_ms=301)
    assert sent_lists(slots.take_sent()) == [("words", (("b", 2.0),))]


# --- steps that wait for a slot that does not advance


def test_steps_beyond_the_bound_are_sent_without_the_slot_and_marked_partial() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    # Two steps with one part each.
    steps.bytes_max = 5 * STEP_BYTES
    for at_ms in (100, 200):
        slots.report(0, Terms(WORDS, at_ms, (("a", at_ms),)), time_ms=at_ms + 1)
    assert sent_lists(slots.take_sent()) == []
    slots.report(0, Terms(WORDS, 300, (("a", 300),)), time_ms=301)
    (early,) = slots.take_sent()
    assert (early.at_ms, early.entries, early.is_partial) == (100, (("a", 100.0),), True)
    assert (steps.partial_steps, steps.pending_steps, steps.earliest_ms) == (1, 2, 200)
    # The slot is back: it is late for the reported steps, the rest is complete.
    for at_ms in (100, 200, 300):
        slots.report(1, Terms(WORDS, at_ms, (("a", 1),)), time_ms=at_ms + 1)
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
        slots.report(slot, part, time_ms=101)
    (first,) = slots.take_sent()
    assert [name for name, _ in first.entries] == [7]
    steps.bytes_max = STEP_BYTES
    slots.report(
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
        slots.report(slot, part, time_ms=301)
    assert slots.take_sent() == []


def test_what_waits_weighs_the_same_after_a_take_over() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    for at_ms in (100, 200, 300):
        slots.report(0, Terms(WORDS, at_ms, (("word", 1), ("é", 2))), time_ms=at_ms)
        seen = (Seen("näme", (1, at_ms), 50, 3, 10.0, (1, 1)),)
        slots.report(
            0,
            Ranked(asked=BEST, at_ms=at_ms, total=1, tokens=3, holders=(1, 1), seen=seen),
            time_ms=at_ms + 1,
        )
    slots.take_sent()
    before = steps.bytes_total
    successor = step_merge.StepMerges()
    successor.restore(state_of(steps))
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
    slots.report(0, Match(version(NEAR, 5), 1, 5.0))
    slots.report(0, End(version(NEAR, 5), 1_000, (0, 7)), time_ms=1_000)
    slots.report(0, Match(version(NEAR, 7), 2, 1.0))
    assert sent_lists(slots.take_sent()) == [("near", ((2, 1.0),))]
    slots.cluster.registry_saved(7)
    for hour in range(1, 10):
        for slot in (0, 1):
            slots.report(slot, Match(version(NEAR, 5 + 2 * (not slot)), hour, 9.0))
            slots.report(slot, time_ms=hour * 3_600_000)
        sent = sent_lists(slots.take_sent())
        assert all((2, 1.0) in entries for _, entries in sent)
        assert len(slots.known().versions) == 1

    # test: it returns.
    slots.report(1, End(version(NEAR, 5), 9 * 3_600_000, (0, 7)))
    assert len(slots.known().versions) == 1
    slots.cluster.registry_saved(8)

    # check
    assert len(slots.known().versions) == 0
    assert len(slots.known().knn) == 1


def test_an_ended_version_is_remembered_until_all_slots_have_reported_their_time() -> None:
    # A slot reports its findings before its time, and until then it repeats steps.
    slots = Slots()
    slots.cluster.registry_saved(1)
    slots.report(0, End(WORDS, 1_000), time_ms=1_000)
    slots.report(1, End(WORDS, 2_000), time_ms=1_000)
    assert len(slots.known().versions) == 1
    for slot in (0, 1):
        assert len(slots.known().versions) == 1
        slots.report(slot, time_ms=2_000)
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
    slots.report(0, Match(short, 1, 5.0), time_ms=5_000)
    slots.take_sent()
    for slot in (0, 1):
        slots.report(slot, time_ms=500_000)
    slots.report(0, Match(short, 2, 4.0), time_ms=500_000)
    assert sent_lists(slots.take_sent()) == [("near", ((2, 4.0), (1, 5.0)))]
    for slot in (0, 1):
        slots.report(slot, End(short), time_ms=600_000)
    slots.cluster.registry_saved(1)
    known = slots.known()
    assert (len(known.knn), len(known.versions)) == (0, 0)
