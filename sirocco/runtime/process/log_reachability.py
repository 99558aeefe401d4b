"""Ends a process that is cut off from the log while others reach it.

Such a process would renew its lease, and keep for ever what it owns and can no longer work on. If
the log is unavailable to all, no process could do better, and none ends. Reports of the other
processes in the map store show the difference: a process that gets no answer for some seconds,
while another one has reached the log all along, exits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from sirocco.protocol.contract.messages import CONTROL
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.membership import directory, living
from sirocco.telemetry.logging import event
from sirocco.transport.errors import TransportError, TransportUnavailable
from sirocco.transport.log import Log
from sirocco.transport.map_store import MapStore

logger = logging.getLogger(__name__)

# Interval between requests to the log, and between checks of their results.
CHECK_S = 1.0

# More silence than a leader's election or a slow moment. The lease is given back at once: other
# processes continue within 10 s, with the time to load checkpoints.
SILENT_CHECKS_MAX = 6

# Answers that are further apart than this do not count as a continuous connection.
SILENCE_MS = 3_000

# A process that has reached the log for so long proves that the log is there. After an outage for
# all, each process reaches the broker within some calls' time limit (10 s). So the first one that
# does must not be proof for the others that they are cut off.
CONNECTED_S_MIN = 30.0

CONNECTED_S = "log_heard_s"


def is_cut_off(silent_checks: int, others: Iterable[Mapping[str, float]]) -> bool:
    """Decides by the process's own silence and by the reports of other living processes."""
    if silent_checks < SILENT_CHECKS_MAX:
        return False
    return any(loads.get(CONNECTED_S, 0.0) >= CONNECTED_S_MIN for loads in others)


class LogReachability:
    """Asks the log once a second, and checks for answers.

    The process's own silence is counted in checks, not in milliseconds: a suspended process was not
    cut off. Its report to others uses the clock: it had no answers meanwhile either, and when
    resumed after an outage it would otherwise be the proof by which all others exit.

    Args:
        log, store: of the process.
        member: its id.
        on_cut_off: called once, in a thread of its own, with the reason why the process has to end.
        check_s: interval between requests.
    """

    def __init__(
        self,
        log: Log,
        store: MapStore,
        member: str,
        on_cut_off: Callable[[Exception], None],
        check_s: float = CHECK_S,
    ) -> None:
        self._check_s = check_s
        self._log = log
        self._store = store
        self._member = member
        self._on_cut_off = on_cut_off
        self._silent_checks = 0
        self._answered_ms = self._connected_since_ms = monotonic_ms()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=action, name=f"{member}-{name}", daemon=True)
            for name, action in (("ask", self._ask), ("check", self._check))
        ]

    def start(self) -> None:
        """Begins to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stops asking; does not wait for a request under way."""
        self._stopping.set()

    def figures(self) -> dict[str, float]:
        """Returns how long it has reached the log without a break; 0 if it does not now."""
        answered_ms = self._answered_ms
        if monotonic_ms() - answered_ms >= SILENCE_MS:
            return {CONNECTED_S: 0.0}
        return {CONNECTED_S: max(0, answered_ms - self._connected_since_ms) / 1_000}

    def _ask(self) -> None:
        while not self._stopping.wait(self._check_s):
            with suppress(TransportError):
                self._log.bounds(CONTROL, 0)
                self._note_answer(monotonic_ms())

    def _note_answer(self, now_ms: int) -> None:
        # In this order: a concurrent reader sees too short a time, never too long a one.
        if now_ms - self._answered_ms >= SILENCE_MS:
            self._connected_since_ms = now_ms
        self._answered_ms = now_ms
        self._silent_checks = 0

    def _check(self) -> None:
        while not self._stopping.wait(self._check_s):
            self._silent_checks += 1
            # Without the map store nothing is known about the others.
            with suppress(TransportUnavailable):
                if self._silent_checks >= SILENT_CHECKS_MAX and self._is_cut_off():
                    break
        else:
            return
        extra = event("cut_off", member=self._member, silent_s=self._silent_checks)
        logger.error(
            "this process cannot reach the log, and other processes can; it exits", extra=extra
        )
        self._on_cut_off(
            TransportUnavailable(
                "this process cannot reach the log, and other processes can; it exits"
            )
        )

    def _is_cut_off(self) -> bool:
        members = {member.id for member in living(self._store)} - {self._member}
        described = directory(self._store)
        loads = [described[member].loads for member in members if member in described]
        return is_cut_off(self._silent_checks, loads)
