"""Reads definitions again that a change of the map wants copied to other slots (docs/adr/0014)."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from itertools import islice

from services.router.stored import StoredQueries
from sirocco.model.errors import SiroccoError
from sirocco.protocol.effects import Reread
from sirocco.protocol.registry import Registry
from sirocco.protocol.router import RouterMachine
from sirocco.runtime.worker import Worker
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Between looks whether anything is to be copied: a hot spot waits for it.
LOOK_S = 0.02

# Behind a pass that failed, or left something.
AGAIN_S = 0.2

# Definitions that are copied in one go: some milliseconds of the loop's time, in which nothing is
# routed. The next are read when the slots have these.
PIECE = 500

# How long the slots may take; then the whole is looked at anew.
SETTLE_S = 60.0


class Rereading:
    """A thread that reads registry partitions from their beginning while queries are to be copied.

    One pass is nearly always enough: what changes meanwhile is placed when the change is read.
    """

    def __init__(
        self, member: str, machine: RouterMachine, stored: StoredQueries, worker: Worker
    ) -> None:
        self._member = member
        self._machine = machine
        self._stored = stored
        self._worker = worker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{member}-rereading", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; what is not yet copied its successor copies."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        pause_s = LOOK_S
        while not self._stopping.wait(pause_s):
            pause_s = LOOK_S
            for partition, registry in list(self._machine.registries.items()):
                if not registry.live.unplaced:
                    continue
                try:
                    self._copy(partition, registry)
                except (SiroccoError, TimeoutError) as error:
                    extra = event("not_copied", member=self._member, reason=str(error))
                    logger.warning("queries are not copied yet", extra=extra)
                except Exception:
                    # Without this thread a change of the map would stand still for ever.
                    extra = event("copying_failed", member=self._member, partition=partition)
                    logger.exception("copying failed", extra=extra)
                if registry.live.unplaced:
                    pause_s = AGAIN_S

    def _copy(self, partition: int, registry: Registry) -> None:
        extra = event("copying", partition=partition, queries=registry.live.unplaced)
        logger.info("queries are copied for another map", extra=extra)
        with closing(self._stored.changes(partition, 0, registry.offset)) as changes:
            while not self._stopping.is_set() and registry.live.unplaced:
                if self._machine.registries.get(partition) is not registry:
                    return  # has another owner by now, who copies
                piece = tuple(islice(changes, PIECE))
                if not piece:
                    return
                self._worker.tell(Reread(partition, piece))
                self._worker.settled().result(SETTLE_S)
