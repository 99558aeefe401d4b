"""Ends a process whose appends get no answer although the log could take them.

A client of Kafka may lose the leader of a single Kafka partition, for good if it misses the news of
the next one, and may be cut off from one broker of several. The process renews its lease all the
same, and whatever waits for these appends waits for ever. A new process has a new client.

No process ends for a Kafka partition that no process can append to, or for a quota of Kafka's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from sirocco.telemetry.logging import event
from sirocco.transport.errors import TransportError, TransportUnavailable
from sirocco.transport.log import Log, WaitingAppends

logger = logging.getLogger(__name__)

# Interval between checks.
CHECK_S = 1.0

# Checks of a Kafka partition that is in sync and answers nothing. A log line reports it before the
# process ends: after more than a slow broker takes, before a client gives up its call (30 s).
WARNED_CHECKS: Final = 10
STALLED_CHECKS_MAX: Final = 25


class StallCounts:
    """Counts checks in which appends to a Kafka partition stood still although it was in sync."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int], tuple[WaitingAppends, int]] = {}

    def note(
        self, waiting: list[WaitingAppends], is_in_sync: Callable[[str, int], bool]
    ) -> dict[WaitingAppends, int]:
        """Takes a check; returns the appends that stood still, and for how many checks.

        Args:
            waiting: what the producers wait for now.
            is_in_sync: of a topic and Kafka partition. Asked for appends that stood still, and
                where it raises, all counts begin anew.
        """
        former, self._seen = self._seen, {}
        counts = {one: self._counted(former, one, is_in_sync) for one in waiting}
        self._seen = {one[:3]: (one, checks) for one, checks in counts.items()}
        return {one: checks for one, checks in counts.items() if checks}

    @staticmethod
    def _counted(
        former: dict[tuple[str, str, int], tuple[WaitingAppends, int]],
        one: WaitingAppends,
        is_in_sync: Callable[[str, int], bool],
    ) -> int:
        before, checks = former.get(one[:3], (None, 0))
        if before is None or before.answered != one.answered:
            return 0
        if before.polls == one.polls:
            return checks  # a busy process that has taken no answers meanwhile
        return checks + 1 if is_in_sync(one.topic, one.partition) else 0


class AppendWatch:
    """Looks once a second at the appends without an answer.

    Args:
        log: of the process.
        member: its id.
        on_stalled: called once, in a thread of its own, with the reason why the process has to end.
        check_s: interval between checks.
    """

    def __init__(
        self,
        log: Log,
        member: str,
        on_stalled: Callable[[Exception], None],
        check_s: float = CHECK_S,
    ) -> None:
        self._log = log
        self._member = member
        self._on_stalled = on_stalled
        self._check_s = check_s
        self._counts = StallCounts()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"{member}-appends", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stops looking; does not wait for a request under way."""
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._check_s):
            try:
                stalled = self._counts.note(self._log.waiting_appends(), self._log.is_in_sync)
            except TransportError:
                continue
            for one, checks in stalled.items():
                if checks == WARNED_CHECKS:
                    self._warn(one, checks)
                if checks >= STALLED_CHECKS_MAX:
                    self._end(one, checks)
                    return

    def _warn(self, one: WaitingAppends, checks: int) -> None:
        where = {"topic": one.topic, "partition": one.partition, "checks": checks}
        extra = event("appends_wait", member=self._member, producer=one.producer, **where)
        logger.warning("appends to a partition that is in sync get no answer", extra=extra)

    def _end(self, one: WaitingAppends, checks: int) -> None:
        where = {"topic": one.topic, "partition": one.partition, "checks": checks}
        extra = event("appends_stalled", member=self._member, producer=one.producer, **where)
        reason = (
            f"appends to {one.topic}/{one.partition} get no answer, and the log could take them;"
            " the process exits"
        )
        logger.error(reason, extra=extra)
        self._on_stalled(TransportUnavailable(reason))
