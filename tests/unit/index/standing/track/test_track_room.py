"""What values inside tracked queries may take: bounded, and decided alike by every evaluator."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.track.last_objects import weights_of
from sirocco.index.standing.track.track_index import (
    ENTERS,
    EXITS,
    INSIDE,
    TrackIndex,
)
from sirocco.kernels.standing.track_sets import ENTRY_BYTES, SET_BYTES, USED
from sirocco.model.objects import ObjectColumns, pack_bytes
from tests.support.range_oracle import PlainQuery, columns

ALL = 1 << ENTERS | 1 << INSIDE | 1 << EXITS
KEY = 1
IN, OUT = 5.0, 100.0


@dataclass(frozen=True)
class Seen:
    """An object of a value, at a longitude, with a text of a length."""

    value: int
    lon: float = IN
    text: int = 0


def rows(seen: list[Seen], first: int) -> StoredRows:
    count = len(seen)
    text, text_offsets = pack_bytes([b"x" * each.text for each in seen])
    nothing, no_offsets = pack_bytes([b""] * count)
    return StoredRows(
        objects=ObjectColumns(
            ids=np.arange(count, dtype=np.uint64),
            names=nothing,
            name_offsets=no_offsets,
            lon=np.array([each.lon for each in seen]),
            lat=np.zeros(count),
            ts=np.zeros(count, np.int64),
            text=text,
            text_offsets=text_offsets,
            attributes=nothing,
            attribute_offsets=no_offsets,
        ),
        sessions=np.zeros(count, np.uint64),
        numbers=np.arange(first, first + count, dtype=np.uint64),
        arrivals_ms=np.zeros(count, np.int64),
        seqs=np.zeros(count, np.int64),
        lengths=np.zeros(count, np.int32),
        term_offsets=np.zeros(count + 1, np.int64),
        terms=np.empty(0, np.uint64),
        counts=np.empty(0, np.uint16),
    )


def box(west: float, east: float) -> PlainQuery:
    return PlainQuery(boxes=[(west, -10.0, east, 10.0)])


class Slot:
    """An index with what a slot keeps of it."""

    def __init__(
        self,
        bytes_max: int,
        queries: list[PlainQuery] | None = None,
        garbage_min: int = LIMITS.track_objects_garbage_min,
        tenants: list[int] | None = None,
    ) -> None:
        self.limits = StandingLimits(
            tracked_bytes_max=bytes_max, track_objects_garbage_min=garbage_min
        )
        self.index = TrackIndex(limits=self.limits)
        self.position = 0
        self.query_rows = self.insert(queries or [box(0, 10)], tenants)

    def insert(self, queries: list[PlainQuery], tenants: list[int] | None = None) -> np.ndarray:
        keys = np.full(len(queries), KEY, np.uint64)
        events = np.full(len(queries), ALL, np.uint8)
        owners = None if tenants is None else np.array(tenants, np.uint64)
        return self.index.insert(columns(queries), keys, events, self.position, owners)

    def see(self, *seen: Seen) -> list[tuple[int, int, int]]:
        """Returns (object, event, query) sorted; queries by the order of insertion."""
        count, stored = len(seen), rows(list(seen), self.position)
        positions = np.arange(self.position, self.position + count)
        self.position += count
        found = self.index.match(
            stored.objects.lon,
            stored.objects.lat,
            stored.term_offsets,
            stored.terms,
            stored.arrivals_ms,
            positions,
            np.arange(count),
            np.full(count, KEY, np.uint64),
            np.array([each.value for each in seen], np.uint64),
            rows_of=stored.take,
        )
        number = {row: at for at, row in enumerate(self.query_rows.tolist())}
        queries = [number[row] for row in found.query_rows.tolist()]
        return sorted(zip(found.object_rows.tolist(), found.events.tolist(), queries, strict=True))

    def moved(self) -> Slot:
        """The slot at its next owner, from a checkpoint."""
        after = Slot.__new__(Slot)
        after.limits = replace(self.limits, tracked_bytes_max=self.index._values.bytes_max)
        after.index = TrackIndex(limits=after.limits)
        after.position = self.position
        # As a checkpoint lists the queries, by whatever rows they have here.
        order = np.argsort(self.query_rows)
        restored = after.index.restore(self.index.state(self.query_rows[order]))
        after.query_rows = np.empty_like(restored)
        after.query_rows[order] = restored
        return after


def room_for(values: int, text: int = 0) -> int:
    """Bytes with which one query may hold so many values."""
    each = ENTRY_BYTES + SET_BYTES + int(weights_of(rows([Seen(0, text=text)], 0))[0])
    # What it has and what is free are equal then.
    return 2 * values * each


def test_values_without_end_take_bounded_memory_and_are_counted() -> None:
    slot = Slot(room_for(1_000))
    events: list[int] = []
    for begin in range(0, 20_000, 500):
        events += [e for _, e, _ in slot.see(*(Seen(v) for v in range(begin, begin + 500)))]
    index = slot.index
    assert index.tracked_values == events.count(ENTERS)
    assert 1_000 <= index.tracked_values <= 1_001
    # All others are matches, and counted.
    assert events.count(INSIDE) == index.refused_total == 20_000 - index.tracked_values
    assert index.held_bytes <= index._values.bytes_max
    assert len(index._values.last) < 4_096


def test_room_that_values_leave_is_given_to_others() -> None:
    slot = Slot(room_for(10))
    slot.see(*(Seen(v) for v in range(30)))
    inside = slot.index.tracked_values
    late = Seen(25)
    assert slot.see(late) == [(0, INSIDE, 0)]
    assert slot.see(Seen(0, OUT), late, late) == [(0, EXITS, 0), (1, ENTERS, 0), (2, INSIDE, 0)]
    # Without an enter there is no exit.
    assert slot.see(Seen(28, OUT)) == []
    assert slot.index.tracked_values == inside
    slot.see(*(Seen(v, OUT) for v in range(30)))
    assert (slot.index.tracked_values, slot.index.held_bytes) == (0, 0)


def test_no_query_takes_the_room_of_all() -> None:
    slot = Slot(room_for(1_000), [box(0, 10), box(20, 30)])
    slot.see(*(Seen(v) for v in range(5_000)))
    events = slot.see(*(Seen(v, 25.0) for v in range(5_000, 5_400)))
    assert {event for _, event, _ in events} == {ENTERS}
    # Nor does a third find nothing.
    slot.see(*(Seen(v, 25.0) for v in range(6_000, 12_000)))
    slot.query_rows = np.concatenate([slot.query_rows, slot.insert([box(40, 50)])])
    events = slot.see(*(Seen(v, 45.0) for v in range(20_000, 20_100)))
    assert {event for _, event, _ in events} == {ENTERS}


def test_no_tenant_takes_the_room_of_all() -> None:
    """Many queries of one tenant take three quarters, and another's values still enter."""
    greedy = 30
    regions = [box(120 + at, 120.5 + at) for at in range(greedy)]
    slot = Slot(room_for(1_000), [*regions, box(20, 30)], tenants=[7] * greedy + [9])
    for begin in range(0, 5_000, 500):
        slot.see(*(Seen(v, 120.2 + v % greedy) for v in range(begin, begin + 500)))
    tenants: Any = slot.index._values.rows.tenants
    share = 0.75 * slot.index._values.bytes_max
    assert 0.98 * share < tenants[0, USED] <= share
    events = slot.see(*(Seen(v, 25.0) for v in range(9_000, 9_100)))
    assert {event for _, event, _ in events} == {ENTERS}
    # What values grow by counts as well.
    slot.see(*(Seen(v, 120.2 + v % greedy, text=2_000) for v in range(200)))
    assert slot.index.stale_total
    assert tenants[0, USED] <= share
    # A share is given back with the query, and with the values.
    slot.index.remove(slot.query_rows[1:greedy], slot.position)
    assert 0 < tenants[0, USED] < share / 20
    slot.see(*(Seen(v, OUT) for v in range(10_000)))
    assert not tenants[:, USED].any()


def test_the_sizes_of_objects_count() -> None:
    slot = Slot(1 << 20, [box(0, 10), box(20, 30)])
    slot.see(*(Seen(v, text=60_000) for v in range(100)))
    assert slot.index.tracked_values == 3
    # A small object enters, and its successor is too large to be kept: the value stays inside.
    assert slot.see(Seen(200, 25.0)) == [(0, ENTERS, 1)]
    before = slot.index.held_bytes
    assert slot.see(Seen(200, 25.0, 250_000)) == [(0, INSIDE, 1)]
    assert (slot.index.held_bytes, slot.index.stale_total) == (before, 1)
    assert slot.see(Seen(200, OUT)) == [(0, EXITS, 1)]
    slot.see(*(Seen(v, OUT) for v in range(100)))
    assert slot.index.held_bytes == 0


def test_a_value_in_many_queries_has_one_object() -> None:
    slot = Slot(200_000, [box(0, 10) for _ in range(500)])
    assert {event for _, event, _ in slot.see(Seen(1, text=10_000))} == {ENTERS}
    assert slot.index.held_bytes == 500 * ENTRY_BYTES + SET_BYTES + 128 + 30_000


def random_batch(rng: random.Random, values: int) -> list[Seen]:
    count = rng.choice([1, 3, 40])
    return [
        Seen(
            rng.randrange(values),
            rng.choice([IN, 15.0, 25.0, OUT]),
            rng.choice([0, 10, 100, 1_000, 20_000]),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("bytes_max", [0, 5_000, 60_000, 300_000])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tenants", [None, [5, 5, 5, 6, 0], [5, 5, 5, 5, 5]])
def test_every_owner_of_a_slot_decides_equally(
    seed: int, bytes_max: int, tenants: list[int] | None
) -> None:
    """Else a successor would report an enter or an exit twice, or never."""
    rng = random.Random(seed)
    regions = [box(0, 10), box(0, 20), box(0, 20), box(10, 30), box(0, 30)]
    stays = Slot(bytes_max, regions, tenants=tenants)
    moves = Slot(bytes_max, regions[::-1], tenants=None if tenants is None else tenants[::-1])
    moves.query_rows = moves.query_rows[::-1]
    refused = 0
    for _ in range(60):
        batch = random_batch(rng, 120)
        expected = stays.see(*batch)
        # Batches are cut elsewhere, too.
        cut = rng.randrange(len(batch) + 1)
        first, last = batch[:cut], batch[cut:]
        found = moves.see(*first) if first else []
        if rng.random() < 0.3:
            moves = moves.moved()
        later = moves.see(*last) if last else []
        assert found + [(o + cut, e, q) for o, e, q in later] == expected
        assert moves.index.held_bytes == stays.index.held_bytes
        refused = stays.index.refused_total + stays.index.stale_total
        for slot in (stays, moves):
            own = slot.index._values.rows.row_bytes.array[slot.query_rows]
            counted = stays.index._values.rows.row_bytes.array[stays.query_rows]
            assert own.tolist() == counted.tolist()
    assert refused or bytes_max == 300_000
    assert stays.index.held_bytes <= max(bytes_max, 0)


def test_what_was_held_before_there_was_a_bound_is_kept() -> None:
    slot = Slot(1 << 30)
    slot.see(*(Seen(v) for v in range(300)))
    slot.index._values.bytes_max = 1_000
    after = slot.moved()
    assert after.index.tracked_values == 300
    assert after.see(Seen(1), Seen(500)) == [(0, INSIDE, 0), (1, INSIDE, 0)]
    assert after.see(Seen(1, OUT)) == [(0, EXITS, 0)]


def test_an_update_takes_the_values_along() -> None:
    slot = Slot(room_for(50))
    slot.see(*(Seen(v, text=v % 7) for v in range(200)))
    held, values = slot.index.held_bytes, slot.index.tracked_values
    members = slot.index.take_members(slot.query_rows)
    assert (slot.index.held_bytes, len(members)) == (0, values)
    slot.index.put_members(members)
    assert (slot.index.held_bytes, slot.index.tracked_values) == (held, values)


@pytest.mark.parametrize("way", ["leave", "end"])
def test_memory_goes_with_the_values(way: str) -> None:
    slot = Slot(LIMITS.tracked_bytes_max, garbage_min=16)
    slot.see(*(Seen(v, text=100) for v in range(30_000)))
    full = slot.index.bytes_total
    assert slot.index.tracked_values == 30_000
    if way == "leave":
        slot.see(*(Seen(v, OUT) for v in range(29_990)))
        assert slot.index.tracked_values == 10
        assert slot.see(Seen(29_995), Seen(29_996, OUT)) == [(0, INSIDE, 0), (1, EXITS, 0)]
    else:
        slot.index.take_members(slot.query_rows)
        slot.index.remove(slot.query_rows, slot.position)
        slot.index.reclaim(slot.position)
        assert slot.index.tracked_values == 0
    assert slot.index.bytes_total < full / 5


def test_the_count_of_bytes_is_near_what_they_take() -> None:
    slot = Slot(LIMITS.tracked_bytes_max)
    for begin in range(0, 200_000, 10_000):
        slot.see(*(Seen(v, text=100) for v in range(begin, begin + 10_000)))
    index: Any = slot.index
    assert index.held_bytes > LIMITS.tracked_bytes_max // 2 - 1_000
    measured = index._values.sets.bytes_total + index._values.last.bytes_total
    assert measured < 2 * index.held_bytes
