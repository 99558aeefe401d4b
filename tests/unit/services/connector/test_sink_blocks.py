"""Blocks: cut by count, bytes, time and planned ends; the state after each."""

from __future__ import annotations

import random

import orjson
import pytest

from sirocco.services.connector.sinks.blocks import DROPPED_MS, MOVED_MS, Block, BlockLimits, Blocks
from sirocco.services.connector.sinks.rows import Form, Place, Row
from sirocco.services.connector.sinks.state import Saved
from sirocco.services.connector.sinks.throttle import Throttle, ThrottleLimit
from tests.support import seeds

LIMITS = BlockLimits(rows=3, bytes_total=1_000, wait_ms=100, held_rows=10, held_bytes=5_000)
BEGIN = Saved(Place("0.0"))


def rows(begin: int, count: int, size: int = 10, query: str = "q") -> list[Row]:
    return [
        Row(f"r-{i}", query, query, "", b"x" * size, i, Place("0.1", i + 1))
        for i in range(begin, begin + count)
    ]


def blocks(
    limits: BlockLimits = LIMITS,
    saved: Saved = BEGIN,
    throttle: Throttle | None = None,
    form: Form = "json",
) -> Blocks:
    return Blocks(limits, saved, throttle, form, "/s", 0)


def ids(block: Block | None) -> list[str]:
    assert block is not None
    return [row.id for row in block.rows]


def test_a_full_block_is_cut_at_once_and_the_rest_waits() -> None:
    made = blocks()
    made.take(rows(0, 4), 0)
    first = made.cut(0)
    assert ids(first) == ["r-0", "r-1", "r-2"]
    assert first is not None
    assert (first.saved.place, first.end) == (Place("0.1", 3), "r-2")
    assert made.cut(99) is None
    assert made.due_ms(0) == 100
    assert ids(made.cut(100)) == ["r-3"]


def test_bytes_cut_a_block_and_a_large_row_is_one_of_its_own() -> None:
    made = blocks()
    made.take(rows(0, 1, 5_000) + rows(1, 2, 600), 0)
    assert not made.has_room
    assert ids(made.cut(0)) == ["r-0"]
    assert ids(made.cut(0)) == ["r-1", "r-2"]
    assert made.has_room


def test_room_is_bounded_by_rows() -> None:
    made = blocks()
    made.take(rows(0, 10), 0)
    assert not made.has_room
    made.cut(0)
    assert made.has_room


def test_a_place_alone_is_kept_now_and_then() -> None:
    made = blocks()
    assert made.cut(MOVED_MS - 1) is None
    made.moved("0.9")
    assert made.due_ms(0) == MOVED_MS
    block = made.cut(MOVED_MS)
    assert block is not None
    assert (list(block.rows), block.saved.place) == ([], Place("0.9"))
    # Also one that has not moved: others see by it that the sink works.
    assert made.cut(2 * MOVED_MS - 1) is None
    assert made.cut(2 * MOVED_MS) is not None


def test_a_place_does_not_overtake_rows_that_wait() -> None:
    made = blocks()
    made.take(rows(0, 1), 0)
    made.moved("0.9")
    block = made.cut(100)
    assert block is not None
    assert block.saved.place == Place("0.1", 1)


def test_planned_ends_are_cut_again() -> None:
    """Batches of 2 and 1 were under way; the limit would make them one of 3."""
    made = blocks(saved=Saved(Place("0.0"), ends=("r-1", "r-2")))
    made.take(rows(0, 1), 0)
    # The rest of the planned batch is on its way.
    assert made.cut(200) is None
    made.take(rows(1, 4), 200)
    assert ids(made.cut(200)) == ["r-0", "r-1"]
    assert ids(made.cut(200)) == ["r-2"]
    assert made.cut(200) is None
    assert ids(made.cut(300)) == ["r-3", "r-4"]


def test_a_planned_end_that_never_comes_holds_up_nothing() -> None:
    made = blocks(saved=Saved(Place("0.0"), ends=("gone-1",)))
    made.take(rows(0, 2), 0)
    assert made.cut(999) is None
    assert ids(made.cut(1_000)) == ["r-0", "r-1"]


def test_a_digest_comes_at_the_end_of_the_period() -> None:
    throttle = Throttle(ThrottleLimit(count=1, period_ms=1_000))
    made = blocks(throttle=throttle)
    made.take(rows(0, 3), 0)
    first = made.cut(0)
    assert ids(first) == ["r-0"]
    assert first is not None
    assert (first.dropped, first.end, first.saved.place) == (2, "r-2", Place("0.1", 3))
    assert first.saved.windows["q"].held == 2
    assert made.due_ms(0) == 1_000
    block = made.cut(1_000)
    assert block is not None
    assert orjson.loads(block.rows[0].value) == {
        "id": "r-1-digest",
        "query": "q",
        "event": "digest",
        "count": 2,
        "first": "r-1",
        "last": "r-2",
        "from": 1,
        "until": 2,
    }
    assert block.saved.windows == {}


def test_a_digest_is_a_cloud_event_among_others() -> None:
    throttle = Throttle(ThrottleLimit(count=0, period_ms=1_000))
    made = blocks(throttle=throttle, form="cloudevents")
    made.take(rows(0, 3), 0)
    assert made.cut(0) is None
    block = made.cut(1_000)
    assert block is not None
    event = orjson.loads(block.rows[0].value)
    assert (event["type"], event["subject"], event["data"]["count"]) == ("sirocco.digest", "q", 3)


def test_a_digest_in_binary_mode_has_headers() -> None:
    throttle = Throttle(ThrottleLimit(count=0, period_ms=1_000))
    made = blocks(throttle=throttle, form="cloudevents-binary")
    made.take(rows(0, 3), 0)
    assert made.cut(0) is None
    block = made.cut(1_000)
    assert block is not None
    headers = dict(block.rows[0].headers)
    assert (headers["ce_type"], headers["ce_subject"]) == (b"sirocco.digest", b"q")
    assert orjson.loads(block.rows[0].value)["count"] == 3


def test_what_is_dropped_moves_the_place_soon() -> None:
    throttle = Throttle(ThrottleLimit(count=0, period_ms=1_000_000))
    made = blocks(throttle=throttle)
    made.take(rows(0, 3), 0)
    assert made.cut(0) is None
    block = made.cut(DROPPED_MS)
    assert block is not None
    assert (list(block.rows), block.dropped, block.saved.place) == ([], 3, Place("0.1", 3))


def test_more_digests_than_a_block_has_room_for_come_one_block_after_the_other() -> None:
    throttle = Throttle(ThrottleLimit(count=0, period_ms=1_000))
    made = blocks(throttle=throttle)
    made.take([one for i in range(7) for one in rows(i, 1, query=f"q{i}")], 0)
    for now_ms in (100, 100, 200):
        made.cut(now_ms)
    found = [ids(made.cut(2_000)) for _ in range(3)]
    assert [len(each) for each in found] == [3, 3, 1]


@pytest.mark.parametrize("with_throttle", [False, True])
def test_a_restart_at_any_block_continues_without_gap_or_double(with_throttle: bool) -> None:
    rng = random.Random(seeds.drawn_seed())
    limit = ThrottleLimit(count=2, period_ms=300)
    all_rows = [
        Row(f"r-{i}", f"q{i % 3}", None, "", b"x" * rng.randrange(500), i, Place("0.1", i + 1))
        for i in range(100)
    ]
    saved, done, dropped, digests, now_ms = BEGIN, [], 0, 0, 0
    while saved.place.skip < 100 or any(one.held for one in saved.windows.values()):
        throttle = Throttle(limit, dict(saved.windows)) if with_throttle else None
        made = Blocks(LIMITS, saved, throttle, "json", "/s", now_ms)
        at = saved.place.skip
        for _ in range(rng.randrange(1, 8)):
            now_ms += rng.randrange(200)
            count = rng.randrange(5)
            if made.has_room:
                made.take(all_rows[at : at + count], now_ms)
                at = min(100, at + count)
            block = made.cut(now_ms)
            if block is not None:
                saved = block.saved
                dropped += block.dropped
                for row in block.rows:
                    if row.id.endswith("-digest"):
                        digests += orjson.loads(row.value)["count"]
                    else:
                        done.append(row.id)
        now_ms += DROPPED_MS
    assert done == sorted(set(done), key=lambda one: int(one[2:]))
    assert len(done) + dropped == 100
    assert digests == dropped
    assert with_throttle or dropped == 0


def test_the_id_of_a_block_tells_its_rows() -> None:
    one, two = rows(0, 1), rows(0, 2)
    made = {Block(each, BEGIN).id for each in (one, two, rows(0, 3), [two[1], two[0]])}
    assert len(made) == 4
    assert Block(one, BEGIN).id == "r-0"
    assert Block(two, BEGIN).id == Block(rows(0, 2), BEGIN).id
