"""Reports to operators tracked values that find no room in their slots."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics

logger = logging.getLogger(__name__)

# A tenant could make it happen for every object.
LOG_INTERVAL_S = 60.0


class TrackRoom:
    """Counts what slots refused; logs it at most once a minute."""

    def __init__(self, metrics: EvaluatorMetrics) -> None:
        self._metrics = metrics
        self._known: WeakKeyDictionary[Slot, tuple[int, int]] = WeakKeyDictionary()
        self._logged_s = -LOG_INTERVAL_S
        self._waiting: dict[int, int] = {}

    def look(self, slots: Iterable[Slot], now_s: float) -> None:
        """Notes what is new since the last look.

        Args:
            slots: the owned ones.
            now_s: a monotonic time, seconds.
        """
        held = 0
        for slot in slots:
            index = slot.standing.tracked
            held += index.held_bytes
            refused, stale = index.refused_total, index.stale_total
            before_refused, before_stale = self._known.get(slot, (0, 0))
            self._known[slot] = refused, stale
            if refused > before_refused or stale > before_stale:
                counter = self._metrics.untracked_objects
                counter.labels(reason="value").inc(refused - before_refused)
                counter.labels(reason="object").inc(stale - before_stale)
                more = refused - before_refused + stale - before_stale
                self._waiting[slot.number] = self._waiting.get(slot.number, 0) + more
        self._metrics.tracked_bytes.set(held)
        if self._waiting and now_s - self._logged_s >= LOG_INTERVAL_S:
            self._log(now_s)

    def _log(self, now_s: float) -> None:
        waiting, self._waiting = self._waiting, {}
        self._logged_s = now_s
        worst = max(waiting, key=lambda number: waiting[number])
        extra = event(
            "values_not_tracked", slots=len(waiting), objects=sum(waiting.values()), slot=worst
        )
        logger.warning(
            "too many tracked values are inside queries: further ones match, but do not enter or "
            "exit; see docs/guides/security.md, Budgets",
            extra=extra,
        )
