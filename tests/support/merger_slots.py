"""Two or more slots whose reports reach one merger: what it sends of lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.merger.live_lists import LiveLists
from tests.support.list_records import (
    Item,
    ListChange,
    ListVersion,
    found_of,
    knn_spec,
    ranked_spec,
    terms_spec,
)
from tests.support.merger_cluster import MergerCluster

NEAR = ListVersion("near", knn_spec("near", 2))
WORDS = ListVersion("words", terms_spec("words", 2))
BEST = ListVersion("best", ranked_spec("best", 2))
PLAIN = ListVersion("plain")


# Mergers check at every window which ended versions they may forget.
LIMITS = MergerLimits(forget_interval_ms=1)


class Slots:
    """Two slots that report in turn; each report of a slot is a record of its own."""

    def __init__(self, slots: int = 2, limits: MergerLimits = LIMITS) -> None:
        self.cluster = MergerCluster(log=[], slots=slots, limits=limits)
        self.ends = [0] * slots
        self.times_ms = [0] * slots

    def report(self, slot: int, *items: Item, time_ms: int | None = None) -> None:
        """Appends a slot's findings at its next position, then its time."""
        if time_ms is not None:
            self.times_ms[slot] = time_ms
        begin = self.ends[slot]
        self.ends[slot] += 1
        at, end = position_of(begin), position_of(begin + 1)
        interval = (slot, at, end, self.times_ms[slot])
        self.cluster.log.append(found_of([interval], [(slot, at, each) for each in items]))

    def take_sent(self) -> list[Any]:
        """Returns the notifications of a window with all reports so far."""
        self.cluster.read(len(self.cluster.log), np.random.default_rng(0))
        return self.cluster.commit()

    def known(self) -> LiveLists:
        """Returns the merger's state after it has checked twice which versions to forget."""
        for _ in range(2):
            self.report(0)
            self.take_sent()
        return self.cluster.machine.windows[0].lists


def sent_lists(sent: list[Any]) -> list[tuple[str, tuple[tuple[int | str, float], ...]]]:
    """Returns the queries and entries of the lists among what was sent."""
    return [(each.query, each.entries) for each in sent if isinstance(each, ListChange)]
