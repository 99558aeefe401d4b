"""Lists of standing queries, in small: what counts, and when it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from sirocco.codec.hops import encode
from sirocco.protocol.contract.columns import ENTERS
from sirocco.protocol.contract.messages import Delivered
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
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.pending_steps import STEP_BYTES
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.collisions import PAIRS
from tests.support.list_records import (
    End,
    ListVersion,
    Match,
    Ranked,
    Seen,
    Terms,
    found_of,
    lists_of,
    ranked_spec,
    terms_spec,
    tracked_spec,
    version,
)
from tests.support.merger_slots import BEST, LIMITS, NEAR, PLAIN, WORDS, Slots, sent_lists
from tests.support.merger_states import state_of

# --- several kinds


def test_plain_and_tracked_matches_continue_as_they_are_beside_candidates() -> None:
    slots = Slots()
    tracked = ListVersion("tracked", tracked_spec("tracked"))
    slots.report(
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
        slots.report(0, Match(ListVersion("odd", text), 1, 5.0), Match(PLAIN, 1))
    sent = slots.take_sent()
    assert len(sent) == 5
    assert sent_lists(sent) == []
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
    slots.report(0, Terms(version(WORDS, 3), 100, (("a", 1),)), time_ms=101)
    slots.cluster.read(1, np.random.default_rng(0))
    assert slots.cluster.transact is not None
    delivered = slots.cluster.transact.messages[0]
    assert isinstance(delivered, Delivered)
    assert delivered.queries.specs == (WORDS.spec,)


def test_an_end_before_any_reported_time_is_remembered_from_the_first_on() -> None:
    slots = Slots()
    slots.times_ms = [NO_TIME_MS] * 2
    slots.report(0, End(NEAR, NO_TIME_MS))
    slots.report(0, time_ms=5_000)
    slots.report(1, time_ms=5_000)
    slots.report(1, Match(NEAR, 1, 5.0))
    assert slots.take_sent() == []
    slots.report(1, End(NEAR, 5_000))
    slots.cluster.registry_saved(1)
    assert len(slots.known().versions) == 0


def test_repeats_are_trimmed_by_position() -> None:
    slots = Slots()
    slots.report(0, Terms(WORDS, 100, (("a", 1),)), Match(NEAR, 1, 5.0))
    slots.report(1, Terms(WORDS, 100, (("a", 1),)))
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
    slots.report(1, time_ms=150)
    assert sent_lists(slots.take_sent()) == [
        ("near", ((2, 1.0), (1, 5.0))),
        ("words", (("b", 3.0), ("a", 2.0))),
    ]


# --- steps


def test_a_step_waits_for_the_time_of_all_slots_and_comes_in_order() -> None:
    slots = Slots(3)
    for slot in (0, 1):
        slots.report(slot, Terms(WORDS, 100, (("a", 1),)), Terms(WORDS, 200, ()), time_ms=201)
    # Slot 2 has not reported yet.
    assert slots.take_sent() == []
    slots.report(2, time_ms=100)
    assert slots.take_sent() == []
    slots.report(2, Terms(WORDS, 100, (("b", 5),)), time_ms=201)
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
        slots.report(slot, time_ms=500)

    # test: one reports its share, the other not yet; the third does not hold the query.
    slots.report(0, first_step(0), Terms(WORDS, 200, (("b", 1),)))
    for slot in (0, 2):
        slots.report(slot, time_ms=600)
    assert slots.take_sent() == []
    # A slot's report at one position may take several records; the last one has the time.
    slots.report(1, first_step(1), time_ms=NO_TIME_MS)
    slots.report(1, Terms(WORDS, 100, (("c", 9),), slot_count=2), time_ms=NO_TIME_MS)
    assert slots.take_sent() == []
    slots.report(1, Terms(WORDS, 200, (("b", 1),)), time_ms=500)

    # check
    assert [(each.at_ms, each.entries, each.is_partial) for each in slots.take_sent()] == [
        (100, (("c", 9.0), ("a", 3.0)), False),
        (200, (("b", 2.0),), False),
    ]
    # From then on the time decides.
    slots.report(0, Terms(WORDS, 300, (("a", 1),)), time_ms=700)
    assert [(each.at_ms, each.entries) for each in slots.take_sent()] == [(300, (("a", 1.0),))]


def test_history_of_a_single_slot_is_sent_whole() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.report(slot, time_ms=500)
    slots.report(0, Terms(WORDS, 100, (("a", 1),), slot_count=1), time_ms=NO_TIME_MS)
    slots.report(0, Terms(WORDS, 100, (("b", 2),), slot_count=1), time_ms=NO_TIME_MS)
    slots.report(0, Terms(WORDS, 200, (("a", 3),)), time_ms=NO_TIME_MS)
    # The slot is in the middle of its steps: its reported time is before its former one.
    slots.report(0, time_ms=200)
    assert slots.take_sent() == []
    slots.report(0, Terms(WORDS, 200, (("b", 4),)), time_ms=500)
    assert [(each.at_ms, each.entries) for each in slots.take_sent()] == [
        (100, (("b", 2.0), ("a", 1.0))),
        (200, (("b", 4.0), ("a", 3.0))),
    ]


def test_a_version_that_ends_before_all_slots_reported_its_first_step_is_still_sent() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.report(slot, time_ms=500)
    slots.report(0, first_step(0), Terms(WORDS, 400, ()))
    # The other received the query and its end before its time passed anything.
    slots.report(1, End(WORDS, 300))
    assert [(each.at_ms, each.entries) for each in slots.take_sent()] == [(100, (("a", 1.0),))]


@pytest.mark.parametrize("by", ["time", "bytes"])
def test_a_slot_that_never_reports_the_first_step_is_awaited_within_a_bound(by: str) -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    for slot in (0, 1):
        slots.report(slot, time_ms=500)
    slots.report(0, first_step(0))
    for slot in (0, 1):
        slots.report(slot, time_ms=500 + WAIT_MS)
    assert slots.take_sent() == []
    if by == "bytes":
        steps.bytes_max = STEP_BYTES
    for slot in (0, 1):
        slots.report(slot, time_ms=501 + WAIT_MS)
    (sent,) = slots.take_sent()
    assert (sent.at_ms, sent.entries, sent.is_partial) == (100, (("a", 1.0),), True)
    assert (steps.pending_steps, steps.bytes_total) == (0, 0)


def test_awaited_slots_are_known_after_a_take_over() -> None:
    slots = Slots()
    steps = slots.cluster.machine.windows[0].lists.steps
    for slot in (0, 1):
        slots.report(slot, time_ms=500)
    slots.report(0, first_step(0))
    assert slots.take_sent() == []
    successor = step_merge.StepMerges()
    successor.restore(state_of(steps))
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
    slots.report(0, Terms(WORDS, 100, counts), time_ms=101)
    (sent,) = slots.take_sent()
    assert sent.entries == (("é", 3.0), ("￮", 2.0))


def test_parts_that_come_late_make_no_second_list_of_a_step() -> None:
    slots = Slots()
    for slot in (0, 1):
        slots.report(slot, time_ms=500)
    slots.report(0, Terms(WORDS, 100, (("a", 1),)), Terms(WORDS, 200, (("b", 1),)))
    assert [each.at_ms for each in slots.take_sent()] == [100, 200]
    slots.report(1, Terms(WORDS, 200, (("c", 1),)), Terms(WORDS, 300, ()))
    assert [each.at_ms for each in slots.take_sent()] == [300]
    assert slots.cluster.machine.windows[0].lists.steps.late_parts == 1


def test_many_parts_of_a_step_are_added_up_as_they_come() -> None:
    slots = Slots(1, replace(LIMITS, terms_parts_max=2))
    for i in range(9):
        slots.report(0, Terms(WORDS, 100, (("a", 1), (f"t{i % 3}", 2))))
    pending = slots.cluster
    slots.report(0, time_ms=101)
    assert slots.take_sent()[0].entries == (("a", 9.0), ("t0", 6.0))
    assert not pending.machine.windows[0].lists.steps.has_pending


def test_a_ranked_list_is_sent_only_when_its_ids_change() -> None:
    def step(at_ms: int, *seen: Seen) -> Ranked:
        return Ranked(asked=BEST, at_ms=at_ms, total=5, tokens=50, holders=(2, 1), seen=seen)

    def one(name: int, number: int, distance_m: float, at_ms: int) -> Seen:
        return Seen(name, (1, number), at_ms, 10, distance_m, (1, 0))

    slots = Slots(1)
    slots.report(0, step(100), time_ms=101)
    assert slots.take_sent() == []
    slots.report(0, step(200, one(7, 1, 10.0, 150), one(8, 2, 20.0, 160)), time_ms=201)
    (first,) = slots.take_sent()
    assert [name for name, _ in first.entries] == [7, 8]
    assert first.new == ((7, "text of 7"), (8, "text of 8"))
    # Another publication of 8, and other scores: the same ids.
    slots.report(0, step(300, one(7, 1, 10.0, 150), one(8, 3, 15.0, 290)), time_ms=301)
    assert slots.take_sent() == []
    slots.report(0, step(400, one(8, 3, 15.0, 290), one(7, 1, 10.0, 0)), time_ms=401)
    assert slots.take_sent() == []
    # The last notification knew another publication.
    slots.report(0, step(500, one(8, 3, 5.0, 290), one(7, 1, 10.0, 150)), time_ms=501)
    (second,) = slots.take_sent()
    assert [name for name, _ in second.entries] == [8, 7]
    assert second.new == ((8, "text of 8"),)
    slots.report(0, step(600), time_ms=601)
    (third,) = slots.take_sent()
    assert (third.at_ms, third.entries) == (600, ())


@pytest.mark.parametrize("restored", ["not", "with names", "from before"])
def test_a_ranked_list_is_sent_when_another_object_has_its_number(restored: str) -> None:
    one, other = PAIRS[0]
    seen = [Seen(name, (1, n), 150, 10, 10.0, (1, 0)) for n, name in enumerate((one, other, other))]
    slots = Slots(1)
    slots.report(
        0,
        Ranked(asked=BEST, at_ms=200, total=5, tokens=50, holders=(2, 1), seen=(seen[0],)),
        time_ms=201,
    )
    assert [each.entries[0][0] for each in slots.take_sent()] == [one]
    known = slots.cluster.machine.windows[0].lists
    if restored != "not":
        state = dict(state_of(known))
        if restored == "from before":
            del state["versions.names"], state["versions.has_names"]
        known = slots.cluster.machine.windows[0].lists = LiveLists(slots=1)
        known.restore(state)
    slots.report(
        0,
        Ranked(asked=BEST, at_ms=300, total=5, tokens=50, holders=(2, 1), seen=(seen[1],)),
        time_ms=301,
    )
    sent = [each.entries[0][0] for each in slots.take_sent()]
    # Facts missing in an older checkpoint are unknown until something changes.
    assert sent == ([] if restored == "from before" else [other])
    slots.report(
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
            slots.report(slot, Terms(asked, 100, tuple(counts[at : at + 15])))
    slots.report(0, time_ms=101)
    slots.report(1, time_ms=101)
    (sent,) = sent_whole(slots)
    assert sent.is_partial
    assert 60 < len(sent.entries) < k
    assert sent.entries == tuple((term, float(n)) for term, n in counts[: len(sent.entries)])
    # The next step fits, and is complete.
    slots.report(0, Terms(asked, 200, tuple(counts[:15])), time_ms=201)
    slots.report(1, time_ms=201)
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
            slots.report(0, step(at_ms, begin, begin + 2_500))
        slots.report(0, time_ms=at_ms + 1)
        return sent_whole(slots)

    slots = Slots(1)
    (sent,) = say(100)
    assert sent.is_partial
    assert 9_000 < len(sent.entries) < k
    assert [name for name, _ in sent.entries] == ids[: len(sent.entries)]
    # Nothing has changed: a truncated list alone is no reason to notify.
    assert say(200) == []
