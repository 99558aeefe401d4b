"""The tail of `deliveries`, and the last progress in it."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from sirocco.codec.hops import HOPS, encode
from sirocco.protocol.contract.messages import DELIVERIES, Delivered, Progress
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.merger.delivery_records import deliveries
from sirocco.runtime.loop.delivery_tail import Tail, TailRecord, Tails, pieces_of
from sirocco.runtime.loop.hops import HopReader, HopWriter
from sirocco.runtime.loop.limits import TAIL, TailLimits
from sirocco.runtime.loop.log_readers import LogReaders
from sirocco.runtime.loop.progress import last_progress
from sirocco.transport.calls import METHOD_HEADER
from sirocco.transport.errors import (
    LogFull,
    OffsetOutOfRange,
    TransportError,
    TransportUnavailable,
)
from sirocco.transport.log import Producer, Record
from sirocco.transport.memory_log import MemoryConsumer, MemoryLog
from tests.support.list_records import ListVersion, Match, found_of, knn_spec
from tests.support.merger_slots import Slots
from tests.support.random_messages import MAKERS
from tests.support.random_messages import delivered as random_delivered
from tests.support.waiting import eventually, until

WAIT_S = 120.0


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join(WAIT_S)
    made.close()


def delivered(seed: int) -> Delivered:
    message = MAKERS[Delivered](np.random.default_rng(seed), 4)
    assert isinstance(message, Delivered)
    return message


def progress(offset: int) -> Progress:
    return Progress(offset, np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))


class Writer:
    """Writes windows as a merger does."""

    def __init__(self, log: MemoryLog, transactional: bool = True) -> None:
        self.producer: Producer = log.producer("w", transactional_id="w" if transactional else None)
        self.transactional = transactional
        if transactional:
            self.producer.init_transactions()
        self._writer = HopWriter(self.producer, lambda *_: None)

    def window(self, *messages: Delivered | Progress) -> None:
        if self.transactional:
            self.producer.begin()
        for message in messages:
            self._writer.append(DELIVERIES, 0, message, 0)
        if self.transactional:
            self.producer.commit()


class Opened:
    """The tail of the only Kafka partition, and its readers."""

    def __init__(
        self, log: MemoryLog, loop: asyncio.AbstractEventLoop, limits: TailLimits = TAIL
    ) -> None:
        self._tails = Tails(log, limits)
        tail = self._tails.open(0, loop)
        self.after, self.wait, self._tail = tail.after, tail.wait, tail

    @property
    def tail(self) -> Tail:
        return self._tail

    def close(self) -> None:
        self._tails.close()


def reached(tail: Opened, offset: int, end: int) -> bool:
    kept = tail.after(offset)
    return kept is not None and kept[1] >= end


def read(log: MemoryLog, begin: int, end: int) -> list[int]:
    """Returns the offsets of records that are read from the log itself."""

    async def run() -> list[int]:
        readers, offsets, offset = LogReaders(log), [], begin
        try:
            while offset < end:
                stretch = await readers.read(0, offset)
                offsets += [piece.offset for piece in stretch.pieces if piece.offset < end]
                offset = stretch.end
        finally:
            readers.close()
        return offsets

    return asyncio.run(run())


def test_a_tail_begins_where_the_log_ends_and_keeps_what_comes(
    log: MemoryLog, loop: asyncio.AbstractEventLoop
) -> None:
    writer = Writer(log)
    writer.window(delivered(1), progress(1))
    begin = log.bounds(DELIVERIES, 0)[1]
    tail = Opened(log, loop)
    try:
        assert tail.after(0) is None
        assert tail.after(begin) == ([], begin)
        writer.window(delivered(2), delivered(3), progress(2))
        end = log.bounds(DELIVERIES, 0)[1]
        eventually(lambda: reached(tail, begin, end))
        kept = tail.after(begin + 1)
        assert kept is not None
        assert [piece.offset for piece in kept[0]] == [begin + 1]
        assert kept[1] == end
    finally:
        tail.close()


def test_waiting_readers_wake_when_a_record_arrives(
    log: MemoryLog, loop: asyncio.AbstractEventLoop
) -> None:
    tail = Opened(log, loop)
    try:
        waiting = asyncio.run_coroutine_threadsafe(tail.wait(0, WAIT_S), loop)
        Writer(log).window(delivered(1))
        waiting.result(WAIT_S / 2)
        assert reached(tail, 0, 1)
        asyncio.run_coroutine_threadsafe(tail.wait(0, WAIT_S), loop).result(WAIT_S / 2)
    finally:
        tail.close()


def test_beyond_its_bytes_a_tail_forgets_the_oldest_and_they_are_read_from_the_log(
    log: MemoryLog, loop: asyncio.AbstractEventLoop
) -> None:
    limits = TailLimits(kept_bytes=40_000)
    tail, writer = Opened(log, loop, limits), Writer(log, transactional=False)
    try:
        for seed in range(20):
            writer.window(delivered(seed))
        eventually(lambda: (tail.after(19) or ([], 0))[0])
        assert tail.after(0) is None
        first = next(offset for offset in range(21) if tail.after(offset) is not None)
        kept = tail.after(first)
        assert kept is not None
        assert [piece.offset for piece in kept[0]] == list(range(first, 20))
        assert 1 < first < 20
        assert read(log, 0, first) == list(range(first))
    finally:
        tail.close()


def test_pieces_count_what_they_take_in_memory() -> None:
    """Small records take twenty times their bytes: a trickle of matches filled the memory."""
    match, near = Match(ListVersion("q"), 7), Match(ListVersion("n", knn_spec("n", 2)), 7)
    plain = next(deliveries([found_of([(0, 0, position_of(1), 5)], [(0, 0, match)])]))
    shared = random_delivered(np.random.default_rng(4), 6)
    shared = replace(shared, lists=None, list_offsets=None)
    assert len(shared.queries.subscribers) > 1
    slots = Slots(1)
    slots.report(0, near)
    slots.cluster.read(1, np.random.default_rng(0))
    assert slots.cluster.transact is not None
    for message in (plain, shared, slots.cluster.transact.messages[0]):
        value = encode(message)[1].SerializeToString()
        headers = ((METHOD_HEADER, HOPS[Delivered].method_path.encode()),)
        # A value of its own for each, as the log returns them.
        records = [
            Record(DELIVERIES, 0, i, 0, None, bytes(bytearray(value)), headers) for i in range(500)
        ]
        reader = HopReader(lambda letter: pytest.fail(letter.reason))
        # What is imported or kept with the first is not a piece's.
        pieces_of(records[:1], reader)
        tracemalloc.start()
        pieces = pieces_of(records, reader)[0]
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken + 500 * len(value) <= sum(piece.bytes_total for piece in pieces)


def test_readers_of_truncated_records_receive_an_error(log: MemoryLog) -> None:
    writer = Writer(log, transactional=False)
    writer.window(*(delivered(seed) for seed in range(5)))
    log.truncate(DELIVERIES, 0, 3)
    with pytest.raises(OffsetOutOfRange) as caught:
        read(log, 0, 5)
    assert caught.value.earliest == 3


def test_a_reader_that_goes_by_the_tail_skips_nothing(
    log: MemoryLog, loop: asyncio.AbstractEventLoop
) -> None:
    tail, writer = Opened(log, loop), Writer(log)
    message, count = delivered(1), 400

    def write() -> None:
        for i in range(count):
            writer.window(message, progress(i))

    threading.Thread(target=write).start()
    try:
        seen: list[int] = []
        offset = 0

        def has_all() -> bool:
            nonlocal offset
            kept = tail.after(offset)
            assert kept is not None
            seen.extend(piece.offset for piece in kept[0])
            offset = kept[1]
            return len(seen) >= count

        eventually(has_all)
        assert seen == [3 * i for i in range(count)]
    finally:
        tail.close()


@pytest.mark.parametrize("windows", [0, 1, 3])
@pytest.mark.parametrize("behind", [0, 5, 40])
def test_the_last_progress_is_found_however_far_from_the_end(
    windows: int, behind: int, log: MemoryLog
) -> None:
    writer = Writer(log)
    for i in range(windows):
        writer.window(delivered(i), delivered(i), progress(100 + i))
    # Aborted transactions of zombies leave offsets without records.
    for i in range(behind):
        writer.producer.begin()
        HopWriter(writer.producer, lambda *_: None).append(DELIVERIES, 0, progress(999 + i), 0)
        writer.producer.abort()
    found = last_progress(log, 0, poll_s=0.02)
    assert (None if found is None else found.input_offset) == (
        100 + windows - 1 if windows else None
    )


def test_no_progress_is_found_where_all_was_truncated(log: MemoryLog) -> None:
    Writer(log, transactional=False).window(progress(1))
    log.truncate(DELIVERIES, 0, 1)
    assert last_progress(log, 0) is None


class Slow:
    """Makes consumers of a log return nothing in their first polls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, empty_polls: int) -> None:
        self.left = empty_polls
        poll = MemoryConsumer.poll

        def late(consumer: MemoryConsumer, max_records: int, timeout_s: float) -> list[Record]:
            if self.left > 0:
                self.left -= 1
                return []
            return poll(consumer, max_records, timeout_s)

        monkeypatch.setattr(MemoryConsumer, "poll", late)


def test_a_log_that_is_slow_to_answer_has_its_progress_all_the_same(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(log).window(delivered(1), progress(7))
    slow = Slow(monkeypatch, 3)
    found = last_progress(log, 0)
    assert slow.left == 0
    assert found is not None
    assert found.input_offset == 7


def test_what_cannot_be_read_is_not_taken_for_none(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(log).window(delivered(1), progress(7))
    Slow(monkeypatch, 1 << 60)
    with pytest.raises(TransportUnavailable):
        last_progress(log, 0, read_s=0.02)


def test_a_tail_outlives_whatever_the_log_answers(
    log: MemoryLog, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [LogFull("busy"), TransportError("nobody thought of this")]
    poll = MemoryConsumer.poll

    def failing(self: MemoryConsumer, max_records: int, timeout_s: float) -> list[Record]:
        if failures:
            raise failures.pop()
        return poll(self, max_records, timeout_s)

    monkeypatch.setattr(MemoryConsumer, "poll", failing)
    tail = Opened(log, loop, TailLimits(retry_s=0.01))
    Writer(log).window(delivered(1))
    eventually(lambda: (tail.after(0) or ((), 0))[0])
    assert not failures
    tail.close()


def test_windows_of_others_do_not_wake_thousands_of_streams_each() -> None:
    """A stream with new records wakes at once, the others as often as the loop can bear."""
    looks = {"mine": 0, "others": 0}

    async def run() -> None:
        tail = Tail(0, 0, asyncio.get_running_loop())
        message = delivered(3)
        mine = message.queries.subscribers[0]

        async def stream(name: str, kind: str) -> None:
            offset = 0
            while offset < 20:
                await tail.wait(offset, WAIT_S, name)
                looks[kind] += 1
                offset = tail.end

        streams = [asyncio.create_task(stream(f"other-{n}", "others")) for n in range(2_000)]
        streams.append(asyncio.create_task(stream(mine, "mine")))
        await asyncio.sleep(0)
        for offset in range(20):
            tail.keep([TailRecord(offset, offset + 1, message, 1)], offset + 1, 1 << 20)
            await until(lambda offset=offset: looks["mine"] > offset)
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*streams)
        assert not tail._waiting
        assert tail._waiting_count == 0

    asyncio.run(run())
    assert looks["mine"] == 20
    # Once when all had long been woken, and once for the rest of the windows.
    assert looks["others"] <= 2_000 * 3


def test_who_waits_is_not_woken_for_others_and_passes_their_records_all_the_same() -> None:
    async def run() -> None:
        # init: one waits through windows of others, which the tail soon forgets
        tail = Tail(0, 0, asyncio.get_running_loop())
        others, mine = delivered(3), delivered(4)
        name = next(
            one for one in mine.queries.subscribers if one not in others.queries.subscribers
        )
        wakes = []

        async def stream() -> int:
            offset = 0
            while offset < 50:
                offset = await tail.wait(offset, WAIT_S, name)
                wakes.append(offset)
            return offset

        waiting = asyncio.create_task(stream())
        await asyncio.sleep(0)
        for offset in range(50):
            tail.keep([TailRecord(offset, offset + 1, others, 100)], offset + 1, 250)
        assert tail.after(0) is None
        # test: its own record, after the others without a pause
        tail.keep([TailRecord(50, 51, mine, 100)], 51, 250)
        async with asyncio.timeout(WAIT_S):
            assert await waiting == 50
        # check
        assert wakes == [50]
        kept = tail.after(50)
        assert kept is not None
        assert [piece.offset for piece in kept[0]] == [50]

    asyncio.run(run())


def test_who_waits_passes_the_records_of_others_when_its_time_is_over() -> None:
    async def run() -> None:
        tail = Tail(0, 0, asyncio.get_running_loop())
        tail.keep([TailRecord(7, 8, delivered(3), 1)], 8, 1 << 20)
        # Before the loop knows of it, it may be anybody's.
        assert await tail.wait(0, 0.0, "nobody") == 0
        assert await tail.wait(8, 0.0, "nobody") == 8
        waiting = asyncio.create_task(tail.wait(8, 0.3, "nobody"))
        await asyncio.sleep(0)
        tail.keep([TailRecord(8, 9, delivered(3), 1)], 12, 1 << 20)
        assert await asyncio.wait_for(waiting, WAIT_S) == 12

    asyncio.run(run())


def test_what_was_truncated_unread_is_not_passed() -> None:
    """It may have been the subscriber's: it has to learn that its cursor has expired."""

    async def run() -> None:
        tail = Tail(0, 0, asyncio.get_running_loop())
        waiting = asyncio.create_task(tail.wait(0, 0.3, "mine"))
        await asyncio.sleep(0)
        tail.forget(5)
        tail.keep([TailRecord(5, 6, delivered(3), 1)], 6, 1 << 20)
        assert await asyncio.wait_for(waiting, WAIT_S) == 0
        assert tail.after(0) is None

    asyncio.run(run())


def test_a_stream_that_is_cancelled_waits_no_more() -> None:
    async def run() -> None:
        tail = Tail(0, 0, asyncio.get_running_loop())
        waiting = asyncio.create_task(tail.wait(0, WAIT_S, "a"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not tail._waiting
        # The next one waits as if there had been none before.
        waiting = asyncio.create_task(tail.wait(0, 0.2, "a"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.wait_for(waiting, WAIT_S)

    asyncio.run(run())
