"""Lists are saved before they are sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sirocco.codec.hops import decode, encode
from sirocco.protocol.contract.effects import SaveCheckpoint
from sirocco.protocol.contract.messages import Found
from sirocco.runtime.loop.progress import merger_start
from tests.support.list_records import (
    ListChange,
    Match,
    Ranked,
    Seen,
    Terms,
    found_of,
)
from tests.support.merger_slots import BEST, LIMITS, NEAR, PLAIN, WORDS, Slots, sent_lists
from tests.support.random_messages import differences


def test_without_lists_there_are_no_checkpoints() -> None:
    slots = Slots()
    for i in range(50):
        slots.report(0, Match(PLAIN, i))
        slots.take_sent()
        assert slots.cluster.begin_save == []
        assert slots.cluster.low == i + 1


def test_r5_no_list_is_sent_before_a_checkpoint_is_in_force() -> None:
    slots = Slots()
    cluster = slots.cluster
    slots.report(0, Match(PLAIN, 1))
    slots.take_sent()
    slots.report(0, Match(PLAIN, 2))
    slots.report(0, Match(NEAR, 1, 5.0))
    # init: the archive answers late.
    cluster.is_archive_away = True
    assert slots.take_sent() == []
    assert cluster.machine.windows[0].is_held
    assert cluster.machine.deadline_ms() is None
    (save,) = cluster.begin_save
    assert isinstance(save, SaveCheckpoint)
    assert save.offset == 1
    # Requested once.
    slots.report(1, Match(PLAIN, 3))
    assert slots.take_sent() == []
    assert len(cluster.begin_save) == 1
    cluster.is_archive_away = False
    sent = slots.take_sent()
    assert sent_lists(sent) == [("near", ((1, 5.0),))]
    assert len(sent) == 3
    # From here on the log is kept from the checkpoint on.
    assert cluster.low == 1


def test_a_checkpoint_is_saved_with_its_transaction_and_the_log_cut_below_it() -> None:
    limits = replace(LIMITS, checkpoint_interval_ms=3_000, quiet_checkpoint_interval_ms=6_000)
    slots = Slots(limits=limits)
    lows = []
    for i in range(9):
        slots.report(0, Match(NEAR, i, 50.0 - i))
        slots.take_sent()
        lows.append(slots.cluster.low)
    # One second a window; each checkpoint is declared with the next window.
    assert lows == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    # While lists do not change it is enough to do so now and then.
    for i in range(14):
        slots.report(0, Match(PLAIN, i))
        slots.take_sent()
        lows.append(slots.cluster.low)
    assert lows[9:] == [9] * 6 + [15] * 6 + [21] * 2


def test_an_aborted_window_leaves_no_trace() -> None:
    slots = Slots()
    slots.report(0, Match(NEAR, 1, 5.0))
    slots.take_sent()
    slots.report(0, Match(NEAR, 2, 4.0))
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
    slots.report(0, Match(PLAIN, 1))
    slots.take_sent()
    slots.report(0, Match(PLAIN, 2))
    slots.report(0, Match(NEAR, 1, 5.0))
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
    assert sent_lists(slots.take_sent()) == [("near", ((1, 5.0),))]
    cluster.start()
    assert cluster.follows[-1] == 2
    slots.report(0, Match(NEAR, 3, 3.0))
    assert sent_lists(slots.take_sent()) == [("near", ((3, 3.0), (1, 5.0)))]


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
