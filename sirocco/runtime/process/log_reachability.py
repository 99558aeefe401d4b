"""Whether this process still hears the log, as the others do.

A process that is cut off from the log alone goes on renewing its lease, and would keep for ever
what it owns and can no longer work on. Whether it is the log that is away, and nobody could do
better, or only this process, is seen from what the others say of themselves in the map store: a
process that hears nothing for some seconds while another one has heard the log all along, ends.
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

# Between two questions to the log, and between two looks at how they went.
LOOK_S = 1.0

# Silence that is more than a leader's election or a slow moment; with a lease given back at once
# and the loading of checkpoints, others go on within 10 s.
SILENT_LOOKS_MAX = 6

# Answers that come further apart than this are not one hearing.
DEAF_MS = 3_000

# Who has heard for so long is proof that the log is there. A broker that was away for all is heard
# by each process within some calls' time limit (10 s) after it is back: none may take the first
# that hears it for proof that itself is cut off.
HEARD_S_MIN = 30.0

HEARD = "log_heard_s"


def is_cut_off(silent_looks: int, others: Iterable[Mapping[str, float]]) -> bool:
    """Decides by one's own silence and by what other living processes say of themselves."""
    if silent_looks < SILENT_LOOKS_MAX:
        return False
    return any(said.get(HEARD, 0.0) >= HEARD_S_MIN for said in others)


class Hearing:
    """Asks the log once a second, and looks how that goes.

    For its own silence looks are counted, not milliseconds: a process that stood still has not been
    deaf. For what it tells others the clock counts: nor has it heard anything meanwhile, and woken
    after an outage it would else be the proof by which all others end.

    Args:
        log, store: of the process.
        member: its id.
        on_cut_off: told once, in a thread of its own, why the process has to end.
    """

    def __init__(
        self, log: Log, store: MapStore, member: str, on_cut_off: Callable[[Exception], None]
    ) -> None:
        self._log = log
        self._store = store
        self._member = member
        self._on_cut_off = on_cut_off
        self._silent_looks = 0
        self._heard_ms = self._hearing_since_ms = monotonic_ms()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=action, name=f"{member}-{name}", daemon=True)
            for name, action in (("ask", self._ask), ("hear", self._look))
        ]

    def start(self) -> None:
        """Begins to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Asks no more; a question under way is not waited for."""
        self._stopping.set()

    def figures(self) -> dict[str, float]:
        """For how long it has heard the log without a break; 0 if it does not hear it now."""
        heard_ms = self._heard_ms
        if monotonic_ms() - heard_ms >= DEAF_MS:
            return {HEARD: 0.0}
        return {HEARD: max(0, heard_ms - self._hearing_since_ms) / 1_000}

    def _ask(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with suppress(TransportError):
                self._log.bounds(CONTROL, 0)
                self._heard(monotonic_ms())

    def _heard(self, now_ms: int) -> None:
        # In this order: whoever reads meanwhile sees too short a hearing, never too long a one.
        if now_ms - self._heard_ms >= DEAF_MS:
            self._hearing_since_ms = now_ms
        self._heard_ms = now_ms
        self._silent_looks = 0

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self._silent_looks += 1
            # Without the map store nothing can be said of the others.
            with suppress(TransportUnavailable):
                if self._silent_looks >= SILENT_LOOKS_MAX and self._is_cut_off():
                    break
        else:
            return
        extra = event("cut_off", member=self._member, silent_s=self._silent_looks)
        logger.error("cut off from the log, others are not", extra=extra)
        self._on_cut_off(TransportUnavailable("cut off from the log, others are not"))

    def _is_cut_off(self) -> bool:
        there = {member.id for member in living(self._store)} - {self._member}
        described = directory(self._store)
        said = [described[member].loads for member in there if member in described]
        return is_cut_off(self._silent_looks, said)
