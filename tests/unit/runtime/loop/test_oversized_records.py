"""A record that the log will never accept is set aside: the process and later records continue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sirocco.protocol.contract.effects import Append, ChangeRequests, Committed, Fence, Transact
from sirocco.protocol.contract.messages import DEAD_LETTERS, DELIVERIES, SLOTS, Delivered, Routed
from sirocco.runtime.loop.hops import DEAD_LETTER_BYTES_MAX
from sirocco.transport.log import RECORD_BYTES_MAX
from sirocco.transport.memory_log import MemoryLog
from tests.support.random_messages import delivered
from tests.support.scripted_machine import Script, messages, on, progress, running
from tests.support.values import routed_of
from tests.support.waiting import eventually


def oversized() -> Routed:
    record = routed_of(0, 3, [{"id": 1, "lon": 1, "lat": 1, "text": "x"}], [500])
    text = np.full(RECORD_BYTES_MAX, ord("x"), np.uint8)
    offsets = np.array([0, len(text)], np.int64)
    return replace(record, objects=replace(record.objects, text=text, text_offsets=offsets))


def test_a_record_that_is_too_large_is_a_dead_letter_and_its_positions_are_covered(
    log: MemoryLog,
) -> None:
    large = oversized()
    small = routed_of(0, 4, [{"id": 2, "lon": 1, "lat": 1, "text": "y"}], [500])
    script = Script(on(ChangeRequests, Append(SLOTS, 0, large), Append(SLOTS, 0, small)))
    with running(log, script) as worker:
        worker.post(ChangeRequests(1, 0, ()))
        reported = eventually(
            lambda: [m for m in messages(log, SLOTS) if isinstance(m, Routed)][1:]
        )
        assert worker.failure is None
        assert worker.rejected_total == 1
        eventually(lambda: not worker.unacknowledged)
    assert [len(each.objects) for each in reported] == [1]
    (first, _) = messages(log, SLOTS)
    assert (len(first.objects), first.intervals.ends.tolist()) == (
        0,
        large.intervals.ends.tolist(),
    )
    consumer = log.consumer("look")
    consumer.assign({(DEAD_LETTERS, 0): 0})
    (letter,) = consumer.poll(10, 0)
    consumer.close()
    headers = dict(letter.headers)
    assert headers["topic"] == SLOTS.encode()
    assert b"the limit is" in headers["reason"]
    assert len(letter.value) == DEAD_LETTER_BYTES_MAX


def test_a_delivery_that_is_too_large_is_set_aside_within_its_transaction(log: MemoryLog) -> None:
    small = delivered(np.random.default_rng(1), 3)
    large = replace(
        small,
        objects=replace(
            small.objects,
            text=np.full(RECORD_BYTES_MAX, ord("x"), np.uint8),
            text_offsets=np.array([0, *[RECORD_BYTES_MAX] * len(small.objects)], np.int64),
        ),
    )
    script = Script(on(ChangeRequests, Fence(0), Transact(0, 1, (large, small, progress(7)))))
    with running(log, script) as worker:
        worker.post(ChangeRequests(1, 0, ()))
        (committed,) = script.wait(Committed)
        assert worker.failure is None
    reported = messages(log, DELIVERIES)
    assert [type(each).__name__ for each in reported] == ["Delivered", "Progress"]
    assert isinstance(reported[0], Delivered)
    assert 2 <= committed.end_offset <= log.bounds(DELIVERIES, 0)[1]
    assert log.bounds(DEAD_LETTERS, 0)[1] > 0
