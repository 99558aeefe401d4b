"""Steps of standing terms queries in a slot: counts continued from the last step, or searched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.index.base.compile import compile_queries
from sirocco.index.store.store import StoreLimits
from sirocco.index.store.terms_search import count_terms
from sirocco.model.attributes import Filter
from sirocco.model.geometry import Rectangle
from sirocco.model.objects import ObjectColumnsBuilder, ObjectRow
from sirocco.model.query import (
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    canonical,
    query_handle,
)
from sirocco.model.text import TextAnalyser
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import Change, Found, Installed, Routed
from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
    PART_BITS,
    Intervals,
    Reached,
    position_after,
    position_of,
)
from sirocco.protocol.contract.query_definitions import query_of
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.reports import step_answers
from sirocco.protocol.evaluator.reports.partial_records import founds
from sirocco.protocol.evaluator.reports.step_records import StepReport
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing import definitions
from sirocco.protocol.router.queries.install_records import Installs
from tests.support.seeds import drawn_seed
from tests.support.values import change_of, request_of

START_MS = 1_000_000
STORE_LIMITS = StoreLimits(active_rows=150, slices=3, slice_rows=600)
BATCH = 40


def opened(report_steps_max: int = LIMITS.report_steps_max, gap_ms: int = LIMITS.gap_ms) -> Slot:
    slot = Slot(0, 1, STORE_LIMITS, report_steps_max=report_steps_max, gap_ms=gap_ms)
    slot.open(0, 0, 1, START_MS)
    return slot


def posts(rng: np.random.Generator, number: int, now_ms: int) -> Routed:
    """Returns a record of posts; the frequency of words rises and falls."""
    builder = ObjectColumnsBuilder()
    for place in range(BATCH):
        words = (rng.random(6) ** 3 * 80 + number // 10 * 3).astype(np.int64)
        builder.add(
            ObjectRow(
                id=number * BATCH + place,
                name="",
                lon=float(rng.normal(0, 2)),
                lat=float(rng.normal(0, 2)),
                ts=now_ms,
                text=" ".join(f"word{word}" for word in words),
                attributes=b"",
            )
        )
    objects = builder.build()
    begin, end = position_of(number), position_of(number + 1)
    numbers = np.arange(number * BATCH, (number + 1) * BATCH).astype(np.uint64)
    return Routed(
        map_version=1,
        intervals=Intervals.of([(0, begin, end, now_ms)]),
        objects=objects,
        events=EventColumns(
            np.ones(BATCH, np.uint64), numbers, np.sort(rng.integers(-90, 1, BATCH)) + now_ms
        ),
        positions=begin + np.arange(BATCH),
        interval_rows=np.zeros(BATCH, np.uint32),
        terms=TextAnalyser().analyse_batch(objects.text, objects.text_offsets),
    )


def queries(rng: np.random.Generator) -> list[TermsQuery]:
    asked = []
    for number in range(12):
        side = float(rng.choice([0.5, 2.0, 20.0]))
        asked.append(
            TermsQuery(
                id=f"q{number}",
                mode="continuous",
                k=int(rng.choice([1, 5, 40])),
                region=Rectangle(-side, -side, side, side),
                window_ms=int(rng.choice([500, 1_500, 4_000])),
                step_ms=int(rng.choice([100, 300, 500])),
                ttl_ms=int(rng.choice([5_000, 1 << 40])),
            )
        )
    return asked


def steps_of(slot: Slot, message: Any) -> list[tuple[int, int, bytes, list[int]]]:
    """Returns the reports of steps."""
    reports = slot.take([(slot.offset, message)])
    results = [one for each in reports if isinstance(each, StepReport) for one in each.results]
    return [
        (one.query_row, one.at_ms, one.terms.terms.tobytes(), one.terms.counts.tolist())
        for one in results
        if one.terms is not None
    ]


@pytest.mark.parametrize("trial", range(4))
def test_steps_report_the_results_of_searches(trial: int) -> None:
    seed = drawn_seed()
    print(f"seed {seed}, trial {trial}")
    rng = np.random.default_rng(seed)
    slots, asked = (opened(gap_ms=1_000), opened(gap_ms=1_000)), queries(rng)
    retention_ms = int(rng.choice([1_000, 4_600, 1 << 40]))
    steps = 0
    for number in range(120):
        if number == 5:
            starts_ms = [START_MS + 600 + int(rng.integers(0, 300)) for _ in asked]
            changes = [
                Change(
                    handle=query_handle(q.id),
                    query=q,
                    subscriber="s",
                    start_ms=at,
                    expected_revision=-1,
                    digest=0,
                    past_ms=int(rng.choice([0, 2_000])),
                )
                for q, at in zip(asked, starts_ms, strict=True)
            ]
            installs = Installs(0, 0)
            rows = compile_queries(asked, starts_ms)
            installs.install(list(enumerate(changes, 1)), rows, [(0,)] * len(changes))
            message = installs.installed(0)
            for slot in slots:
                steps_of(slot, message)
            for entry in slots[1].standing.steps.queries.values():
                entry.kept = None
            for entry in slots[0].standing.steps.queries.values():
                # Windows that do not overlap share nothing; long lists are searched for.
                assert (entry.kept is None) == (
                    entry.query.k == 40 or entry.step_ms == entry.query.window_ms
                )
        # Sometimes there is no record for longer than a window.
        now_ms = START_MS + 100 * number + (5_000 if number > 80 else 0)
        record = posts(rng, number, now_ms)
        first, second = (steps_of(slot, record) for slot in slots)
        assert first == second
        steps += len(first)
        if number == 60:
            shared = np.flatnonzero(rng.random(len(asked)) < 0.3).astype(np.int32)
            for slot in slots:
                slot.standing.steps.share(shared)
        if rng.random() < 0.5:
            for slot in slots:
                while (job := slot.past.next_job()) is not None:
                    slot.past.worked(job())
        for slot in slots:
            slot.past.manifest.saved_seq = slot.past.store.next_seq - 1
            slot.forget(retention_ms)
    assert steps > 200
    # The counts kept of windows are counted as memory of the queries.
    kept = [e for e in slots[0].standing.steps.queries.values() if e.kept is not None]
    least = slots[1].standing.bytes_total + 200 * len(kept)
    assert slots[0].standing.bytes_total >= least, len(kept)


@pytest.mark.parametrize(
    ("query", "oldest_ms"),
    [
        # (at - window, at], so that windows as long as a step share no object.
        (TermsQuery(id="q", mode="continuous", k=3, window_ms=1_000, step_ms=1_000), 1),
        # The count of a search at that time.
        (
            RankedQuery(
                id="q",
                mode="continuous",
                lon=0,
                lat=0,
                radius_m=1e3,
                k=3,
                keywords=("a",),
                window_ms=1_000,
                step_ms=1_000,
            ),
            0,
        ),
    ],
)
def test_the_window_of_a_step_begins_with_it_or_as_that_of_a_search(
    query: Query, oldest_ms: int
) -> None:
    slot = opened()
    installs = Installs(0, 0)
    change = Change(
        handle=query_handle("q"),
        query=query,
        subscriber="s",
        start_ms=START_MS,
        expected_revision=-1,
        digest=0,
    )
    installs.install([(1, change)], compile_queries([query], [START_MS]), [(0,)])
    slot.take([(0, installs.installed(0))])
    (entry,) = slot.standing.steps.queries.values()
    at_ms = START_MS + 5_000
    assert entry.from_ms(at_ms) == at_ms - 1_000 + oldest_ms
    assert entry.from_ms(START_MS + 1) == START_MS


def test_steps_over_a_gap_without_objects_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a jump of time there may be thousands: each as dear as a search, they stop a slot."""
    searches: list[int] = []

    def counted(*given: Any, **named: Any) -> Any:
        searches.append(1)
        return count_terms(*given, **named)

    monkeypatch.setattr(step_answers, "count_terms", counted)
    slot, installs = opened(), Installs(0, 0)
    # A window as long as a step is searched each time.
    query = TermsQuery(id="q", mode="continuous", k=3, window_ms=1_000, step_ms=1_000)
    change = Change(
        handle=query_handle("q"),
        query=query,
        subscriber="s",
        start_ms=START_MS,
        expected_revision=-1,
        digest=0,
    )
    installs.install([(1, change)], compile_queries([query], [START_MS]), [(0,)])
    steps_of(slot, installs.installed(0))
    rng = np.random.default_rng(1)

    # test: a minute between two records.
    assert steps_of(slot, posts(rng, 0, START_MS + 500)) == []
    found = steps_of(slot, posts(rng, 1, START_MS + 60_500))

    # check: all are reported, the first one alone is not empty.
    assert [(at_ms - START_MS) // 1_000 for _, at_ms, _, _ in found] == list(range(1, 61))
    assert [bool(counts) for _, _, _, counts in found] == [True] + [False] * 59
    assert len(searches) == 1


def test_what_time_completes_at_once_takes_no_place_of_the_objects_after_it() -> None:
    # init: steps of two hours due at once, each in a record of its own, and a range query.
    limits = RecordLimits(bytes_max=1)
    slot, reached = opened(), Reached()
    asked: list[Query] = [
        TermsQuery(id="steps", mode="continuous", k=1, window_ms=1_000, step_ms=1_000),
        RangeQuery(id="all", mode="continuous"),
    ]
    changes = [
        (
            number,
            Change(
                handle=query_handle(query.id),
                query=query,
                subscriber="s",
                start_ms=START_MS,
                expected_revision=-1,
                digest=0,
            ),
        )
        for number, query in enumerate(asked, 1)
    ]
    installs = Installs(0, 0)
    installs.install(changes, compile_queries(asked, [START_MS] * 2), [(0,)] * 2)
    slot.take([(0, installs.installed(0))])
    rng = np.random.default_rng(0)

    # test: objects before, with, and after them.
    found = []
    for number, now_ms in enumerate((START_MS + 10, START_MS + 7_200_000, START_MS + 7_200_500)):
        slot_reports = slot.take([(slot.offset, posts(rng, number, now_ms))])
        for _, record in founds(slot_reports, limits):
            fresh_from = reached.accept(record.intervals)[0]
            assert fresh_from <= record.intervals.begins[0]
            found.append(record)

    # check: all of it was accepted, and is in its place.
    steps = [each.steps.positions[0] for each in found if each.steps is not None]
    assert len(steps) > 1 << PART_BITS
    assert steps == [
        *range(position_after(2), position_after(2) + len(steps) - 1),
        position_after(3),
    ]
    assert sum(len(each.matches) for each in found) == 3 * BATCH
    assert (reached.repeats, reached.gaps) == (0, 0)


@pytest.mark.parametrize("turn", [0, 1, 7, 50])
def test_results_of_many_steps_do_not_depend_on_the_batch_size(
    turn: int,
) -> None:
    # init: two slots with the same queries; ranked steps come after all others.
    rng = np.random.default_rng(turn)
    ranked = RankedQuery(
        id="best",
        mode="continuous",
        lon=0,
        lat=0,
        radius_m=1e6,
        k=3,
        keywords=("word3", "word4"),
        window_ms=9_000,
        step_ms=700,
    )
    asked: list[Query] = [*queries(rng), ranked, RangeQuery(id="all", mode="continuous")]
    changes = [
        (
            number,
            Change(
                handle=query_handle(query.id),
                query=query,
                subscriber="s",
                start_ms=START_MS,
                expected_revision=-1,
                digest=0,
            ),
        )
        for number, query in enumerate(asked, 1)
    ]
    installs = Installs(0, 0)
    rows = compile_queries(asked, [START_MS] * len(asked))
    installs.install(changes, rows, [(0,)] * len(asked))
    message = installs.installed(0)
    whole, pieces = opened(5), opened(5)
    for slot in (whole, pieces):
        slot.take([(0, message)])

    # test: time does not advance for twenty seconds; one slot takes its steps a few at a time.
    steps = 0
    for number in range(12):
        now_ms = START_MS + 100 * number + (20_000 if number > 5 else 0)
        record: list[tuple[int, Routed | Installed]] = [(number + 1, posts(rng, number, now_ms))]
        at_once = whole.take(record)
        in_turns = pieces.take(record, turn)
        reported_ms = pieces.reported_ms
        while pieces.is_stepping:
            # Objects that later steps count do not leave, and no other report is sent.
            pieces.forget(9_000)
            assert pieces.report().time_ms == reported_ms <= pieces.standing.steps.next_ms
            assert pieces.report().end == position_after(number + 1)
            in_turns += pieces.continue_steps()
            reported_ms = pieces.reported_ms
        first, second = ([content_of(one) for one in founds(each)] for each in (at_once, in_turns))
        assert [each[:-1] for each in first] == [each[:-1] for each in second]
        # The time may be reported by more records, and never decreases.
        times_ms = [each[-1] for each in second if each[-1] != NO_TIME_MS]
        assert times_ms == sorted(times_ms)
        assert times_ms[-1] == whole.time_ms == pieces.reported_ms
        steps += len([each for each in first if each[1]])
        whole.forget(9_000)
        pieces.forget(9_000)

    # check
    assert min(whole.steps_total, pieces.steps_total) > 200
    assert steps > 40
    assert whole.report().end == pieces.report().end == position_of(13)


def holding(asked: list[Query], rng: np.random.Generator) -> Slot:
    """Returns a slot with queries, sole in it, and some posts shortly before a step of 300 ms."""
    changes = [
        (number, change_of(request_of("register", canonical(query), "s", START_MS)))
        for number, query in enumerate(asked)
    ]
    installs = Installs(0, 0)
    rows = compile_queries(asked, [START_MS] * len(asked))
    installs.install(changes, rows, [(0,)] * len(asked))
    slot = opened()
    slot.take([(0, installs.installed(0)), (1, posts(rng, 0, START_MS + 250))])
    return slot


def test_steps_of_one_time_that_search_are_taken_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # init: no step continues another, so each is a search.
    rng = np.random.default_rng(1)
    asked = [replace(query, window_ms=300, step_ms=300, ttl_ms=None) for query in queries(rng)]
    slot = holding(list(asked), rng)
    told_ms = slot.reported_ms
    searched: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        searched.append(1)
        return count_terms(*args, **options)

    monkeypatch.setattr(step_answers, "count_terms", counted)

    # test
    turns = [len(slot.take([(2, posts(rng, 1, START_MS + 350))], 1))]
    while slot.is_stepping:
        assert len(searched) <= len(turns)
        # Nothing of the time is reported before all of it is reported.
        assert slot.report().time_ms == slot.reported_ms <= START_MS + 300
        turns.append(len(slot.continue_steps()))
    assert len(searched) == len(turns) == len(asked)
    assert sum(turns[1:]) == 1
    assert slot.reported_ms > told_ms


def test_the_first_count_of_a_sliding_window_is_a_turn_of_its_own() -> None:
    rng = np.random.default_rng(1)
    asked = [
        TermsQuery(id=f"q{each}", mode="continuous", k=3, window_ms=900, step_ms=300)
        for each in range(7)
    ]
    slot = holding(list(asked), rng)

    # test
    turns = []
    for number, now_ms in ((1, START_MS + 350), (2, START_MS + 650)):
        slot.take([(number + 1, posts(rng, number, now_ms))], 1)
        turns.append(1)
        while slot.is_stepping:
            slot.continue_steps()
            turns[-1] += 1
    # Afterwards they slide.
    assert turns == [7, 1]


def test_a_restored_slot_reads_conditions_at_their_first_steps_one_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # init: a definition is read once for its outline, which has no expression.
    rng = np.random.default_rng(2)
    ranked = RankedQuery(
        id="r",
        mode="continuous",
        lon=0.0,
        lat=0.0,
        keywords=("w1",),
        k=3,
        radius_m=1e7,
        step_ms=300,
        where=Filter.parse({"a": 1}),
    )
    asked = [replace(q, window_ms=900, step_ms=300, ttl_ms=None) for q in queries(rng)]
    slot = holding([*asked, ranked], rng)
    state, read = slot_state(slot, START_MS, ()), list[str]()

    def counted(spec: str) -> Query:
        read.append(spec)
        return query_of(spec)

    monkeypatch.setattr(definitions, "query_of", counted)

    # test
    again = opened()
    again.open(slot.offset, slot.offset, 1, START_MS)
    restore_slot(again, state, ())
    assert not read
    record: list[tuple[int, Routed | Installed]] = [(2, posts(rng, 1, START_MS + 350))]
    reports = again.take(record, 1)
    turns = 1
    while again.is_stepping:
        assert len(read) <= turns
        reports += again.continue_steps()
        turns += 1

    # check: the results are those of the slot that was not restored.
    assert len(read) == turns == len(asked) + 1
    assert again.steps_total > 100 * turns
    expected = slot.take(record)
    first, second = ([content_of(one) for one in founds(each)] for each in (expected, reports))
    assert [each[1] for each in first if each[1]] == [each[1] for each in second if each[1]]


def content_of(step: tuple[int, Found]) -> tuple[int, list[Any], list[Any], list[int], int]:
    """Returns a record's target, steps, matches, intervals and reported time."""
    target, record = step
    steps: list[Any] = []
    if (columns := record.steps) is not None:
        steps = [
            columns.at_ms.tolist(),
            columns.queries.tolist(),
            columns.positions.tolist(),
            columns.terms.tobytes(),
            columns.counts.tolist(),
            columns.distances_m.tolist(),
        ]
    matches = [record.positions.tolist(), record.matches.queries.tolist()]
    covered = [*record.intervals.begins.tolist(), *record.intervals.ends.tolist()]
    (time_ms,) = record.intervals.times_ms.tolist()
    return target, steps, matches, covered, time_ms
