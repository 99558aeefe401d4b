"""Which numbers of a session count (rule R1): the run without gaps, each once."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.protocol.contract.messages import NO_OBJECTS, IntakeObjects
from sirocco.protocol.router.objects.publish_sessions import SessionTable


def record(session: int, first: int, span: int, acknowledged_to: int = 0) -> IntakeObjects:
    return IntakeObjects(
        session=session,
        first_number=first,
        span=span,
        acknowledged_to=acknowledged_to,
        received_ms=0,
        objects=NO_OBJECTS,
        number_deltas=None,
    )


def test_r1_records_in_order_are_new() -> None:
    table = SessionTable()
    assert table.take(record(5, 1, 10), 0) == 0
    assert table.take(record(5, 11, 1), 0) == 0
    assert (table.dropped_gap, table.dropped_repeat) == (0, 0)


def test_r1_a_resend_is_dropped_and_an_overlap_trimmed() -> None:
    table = SessionTable()
    table.take(record(5, 1, 10), 0)
    assert table.take(record(5, 1, 10), 0) == 10
    assert table.take(record(5, 4, 10), 0) == 7
    assert table.dropped_repeat == 17
    assert table.take(record(5, 14, 1), 0) == 0


def test_r1_after_a_gap_nothing_counts_until_it_is_filled() -> None:
    table = SessionTable()
    table.take(record(5, 1, 2), 0)
    assert table.take(record(5, 4, 3), 0) == 3
    assert table.take(record(5, 3, 1), 0) == 0
    assert table.take(record(5, 4, 3), 0) == 0
    assert table.dropped_gap == 1


def test_r1_an_unknown_session_begins_after_what_was_acknowledged() -> None:
    table = SessionTable()
    assert table.take(record(1, 2, 5), 0) == 5  # its first number never arrived
    assert table.take(record(2, 8, 5, acknowledged_to=7), 0) == 0
    assert table.take(record(3, 6, 5, acknowledged_to=7), 0) == 2
    assert table.take(record(4, 9, 5, acknowledged_to=7), 0) == 5
    assert len(table) == 2


def test_a_known_session_continues_by_the_table_and_not_by_the_client() -> None:
    table = SessionTable()
    table.take(record(1, 1, 5), 0)
    assert table.take(record(1, 8, 2, acknowledged_to=7), 0) == 2
    assert table.take(record(1, 6, 2, acknowledged_to=0), 0) == 0


def test_idle_sessions_are_forgotten_and_come_back_with_their_acknowledgement() -> None:
    table = SessionTable()
    table.take(record(1, 1, 5), 100)
    table.take(record(2, 1, 5), 200)
    table.forget(before_ms=200)
    assert len(table) == 1
    assert table.take(record(1, 6, 1, acknowledged_to=5), 300) == 0
    assert table.take(record(2, 1, 6), 300) == 5


def test_beyond_the_bound_the_longest_idle_go() -> None:
    table = SessionTable(sessions_max=10)
    for session in range(1, 31):
        table.take(record(session, 1, 1), 1_000 + session)
    table.forget(before_ms=0)
    assert sorted(table.state()["sessions"].tolist()) == list(range(21, 31))


def test_nothing_is_forgotten_of_an_empty_table() -> None:
    table = SessionTable()
    table.forget(before_ms=10)
    table.restore(table.state())
    assert table.take(record(1, 1, 1), 0) == 0


class Model:
    """The same with a dict."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[int, int]] = {}

    def take(self, taken: IntakeObjects, received_ms: int) -> int:
        last = self.last.get(taken.session, (taken.acknowledged_to, 0))[0]
        wanted = range(taken.first_number, taken.first_number + taken.span)
        if last + 1 < wanted.start:
            return taken.span
        repeats = sum(number <= last for number in wanted)
        if repeats < taken.span:
            self.last[taken.session] = wanted.stop - 1, received_ms
        return repeats


@pytest.mark.parametrize("seed", range(30))
def test_the_table_agrees_with_a_dict_over_checkpoints_and_forgetting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, model = SessionTable(), Model()
    for now_ms in range(400):
        session = int(rng.integers(1, 90)) * 0x9E3779B97F4A7C15 % (1 << 64)
        last = model.last.get(session, (0, 0))[0]
        first = max(1, last + 1 + int(rng.integers(-6, 3)))
        acknowledged_to = max(0, first - 1 - int(rng.integers(0, 3)))
        taken = record(session, first, int(rng.integers(1, 9)), acknowledged_to)
        assert table.take(taken, now_ms) == model.take(taken, now_ms), f"seed={seed} at {now_ms}"
        if rng.random() < 0.02:
            table.forget(now_ms - 100)
            model.last = {s: v for s, v in model.last.items() if v[1] >= now_ms - 100}
        if rng.random() < 0.02:
            state = table.state()
            table = SessionTable()
            table.restore(state)
    state = table.state()
    found = dict(zip(state["sessions"].tolist(), state["numbers"].tolist(), strict=True))
    assert found == {session: last for session, (last, _) in model.last.items()}, f"seed={seed}"
