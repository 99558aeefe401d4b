"""From hits to records on `partials`: split so that each fits, chained so that none is missed."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from sirocco.codec.hops import encode
from sirocco.protocol.contract.messages import Found
from sirocco.protocol.contract.positions import NO_TIME_MS, Reached, position_of
from sirocco.protocol.contract.record_sizes import RecordLimits, partition_of
from sirocco.protocol.evaluator.reports.match_records import marks
from sirocco.protocol.evaluator.reports.partial_records import founds
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.support.slot_log import INTAKE_PARTITIONS, SlotLog, expected_matches
from tests.support.values import installed_of, routed_of

PARTIALS = 3
Seen = tuple[int, int, str, str, int]


def opened(number: int) -> Slot:
    slot = Slot(number, PARTIALS)
    slot.open(0, 0, INTAKE_PARTITIONS, 0)
    return slot


def matches_of(found: Found) -> list[tuple[int, int, int, str, str, int]]:
    """Returns (interval row, slot, position, query, subscriber, object) of each match."""
    ids, bounds = found.queries.ids.tobytes(), found.queries.id_offsets.tolist()
    rows = []
    for at, query in zip(
        found.matches.objects.tolist(), found.matches.queries.tolist(), strict=True
    ):
        interval = int(found.interval_rows[at])
        subscriber = found.queries.subscribers[int(found.queries.subscriber_rows[query])]
        rows.append(
            (
                interval,
                int(found.intervals.sources[interval]),
                int(found.positions[at]),
                ids[bounds[query] : bounds[query + 1]].decode(),
                subscriber,
                int(found.objects.ids[at]),
            )
        )
    return rows


class Partials:
    """Takes records as a merger does; checks the promises of each record."""

    def __init__(self) -> None:
        self.reached: dict[int, Reached] = defaultdict(Reached)
        self.seen: Counter[Seen] = Counter()

    def take(self, target: int, found: Found) -> None:
        sources = found.intervals.sources.tolist()
        assert len(set(sources)) == len(sources)
        assert (np.diff(found.matches.objects.astype(np.int64)) >= 0).all()
        fresh_from = self.reached[target].accept(found.intervals)
        assert self.reached[target].gaps == 0
        for interval, slot, position, query, subscriber, number in matches_of(found):
            begin, end = found.intervals.begins[interval], found.intervals.ends[interval]
            assert begin <= position < end
            assert partition_of(subscriber, PARTIALS) == target
            if position >= fresh_from[interval]:
                # The part is not a part of an object's place.
                place = position >> 7 << 7
                self.seen[slot, place, query, subscriber, number] += 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("matches_max", "bytes_max"), [(1 << 15, 2 << 20), (3, 2 << 20), (1, 2 << 20), (50, 400)]
)
def test_r2_the_pieces_chain_and_their_union_is_the_whole(
    seed: int, matches_max: int, bytes_max: int
) -> None:
    # init: three slots with logs of their own.
    limits = RecordLimits(matches_max=matches_max, bytes_max=bytes_max)
    rng = np.random.default_rng(seed)
    logs = {number: SlotLog(10 * seed + number, 40).records for number in range(3)}
    slots = {number: opened(number) for number in logs}
    partials = Partials()

    # test: polls of all slots, marks now and then.
    heads = dict.fromkeys(logs, 0)
    while any(heads[n] < len(log) for n, log in logs.items()):
        reports = []
        for number, log in logs.items():
            end = min(len(log), heads[number] + int(rng.integers(0, 12)))
            if end > heads[number]:
                reports += slots[number].take(log[heads[number] : end])
                heads[number] = end
        for target, found in founds(reports, limits):
            assert 0 < len(found.matches) <= matches_max
            partials.take(target, found)
        if rng.random() < 0.2:
            for target, mark in marks([s.report() for s in slots.values()], PARTIALS):
                partials.take(target, mark)
    for target, mark in marks([s.report() for s in slots.values()], PARTIALS):
        partials.take(target, mark)

    # check: compared with the simple rules; every target knows that its records are complete.
    wanted = Counter((n, *match) for n, log in logs.items() for match in expected_matches(log))
    assert partials.seen == wanted, f"seed={seed}"
    for target in range(PARTIALS):
        assert partials.reached[target].positions == {
            number: position_of(log[-1][0] + 1) for number, log in logs.items()
        }


def crowd(order: list[int]) -> Slot:
    """Returns a slot whose queries were registered in some order, and so are in other rows."""
    slot = opened(0)
    for offset, i in enumerate(order):
        members = {"id": f"q{i}", "kind": "range", "mode": "continuous"}
        slot.take([(offset, installed_of(0, [(i, members, "s", 0)]))])
    return slot


def test_the_time_comes_with_the_last_record_of_what_belongs_to_it() -> None:
    slot = crowd([0])
    rows = [{"id": i, "lon": 1, "lat": 1, "text": "x"} for i in range(7)]
    slot.take([(40, routed_of(1, 0, [], [], time_ms=900))])
    reports = slot.take([(50, routed_of(0, 0, rows, [500] * 7, time_ms=800))])
    reported = list(founds(reports, RecordLimits(matches_max=2)))
    times_ms = [int(found.intervals.times_ms[0]) for _, found in reported]
    assert len(times_ms) == 4
    assert times_ms[:-1] == [NO_TIME_MS] * 3
    assert times_ms[-1] == 800


def test_r2_evaluators_with_other_row_numbers_split_reports_equally() -> None:
    limits = RecordLimits(matches_max=7)
    pieces = []
    for order in (list(range(50)), list(reversed(range(50)))):
        slot = crowd(order)
        routed = routed_of(0, 0, [{"id": 5, "lon": 1, "lat": 1, "text": "x"}], [1])
        reported = [found for _, found in founds(slot.take([(50, routed)]), limits)]
        assert len(reported) == 8
        pieces.append(
            [
                (
                    found.intervals.ends.tolist(),
                    found.positions.tolist(),
                    sorted(query for *_, query, _, _ in matches_of(found)),
                )
                for found in reported
            ]
        )
    assert pieces[0] == pieces[1]


def test_r2_a_merger_that_has_some_parts_of_an_object_takes_the_others() -> None:
    limits = RecordLimits(matches_max=7)
    partials = Partials()
    routed = routed_of(0, 0, [{"id": 5, "lon": 1, "lat": 1, "text": "x"}], [1])
    zombie = list(founds(crowd(list(range(50))).take([(50, routed)]), limits))
    successor = list(founds(crowd(list(reversed(range(50)))).take([(50, routed)]), limits))
    for target, found in zombie[:4] + successor:
        partials.take(target, found)
    assert len(partials.seen) == 50
    assert set(partials.seen.values()) == {1}


def test_a_record_of_long_ids_and_large_objects_fits_the_log() -> None:
    # init: very many queries with the longest ids, and objects with the most attributes.
    slots = []
    for number in range(3):
        slot = opened(number)
        many = [
            (i, {"id": f"{i:0>256}", "kind": "range", "mode": "continuous"}, "s", 0)
            for i in range(9_000)
        ]
        slot.take([(0, installed_of(0, many))])
        slots.append(slot)
    large = {"lon": 1, "lat": 1, "text": "t" * 65_000, "a": "x" * 16_000}
    routed = routed_of(0, 0, [{"id": i, **large} for i in range(2)], [1, 1])

    # test
    reported = [
        found for _, found in founds([r for slot in slots for r in slot.take([(1, routed)])])
    ]

    # check
    assert sum(len(found.matches) for found in reported) == 3 * 2 * 9_000
    for found in reported:
        assert encode(found)[1].ByteSize() < RECORD_BYTES_MAX
