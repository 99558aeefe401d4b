"""Reads definitions back that the registry has to republish (docs/adr/0005)."""

from __future__ import annotations

import logging
import threading

from sirocco.model.errors import SiroccoError
from sirocco.protocol.contract.effects import RecoveredDefinition
from sirocco.protocol.contract.messages import NO_REVISION
from sirocco.protocol.router.machine import RouterMachine
from sirocco.runtime.loop.worker import Worker
from sirocco.services.router.registry_definitions import StoredQueries
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Compaction removes nothing younger than an hour: there is time.
RECOVERY_INTERVAL_S = 5.0

# Definitions read in one go; each is a separate read of the log.
DEFINITIONS_MAX = 100


class DefinitionRecovery:
    """A thread that finds definitions to republish, reads them, and hands them to the machine."""

    def __init__(
        self, member: str, machine: RouterMachine, stored: StoredQueries, worker: Worker
    ) -> None:
        self._member = member
        self._machine = machine
        self._stored = stored
        self._worker = worker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{member}-recalling", daemon=True)

    def start(self) -> None:
        """Starts looking."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; the next owner republishes the rest."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.wait(RECOVERY_INTERVAL_S):
            try:
                self.look()
            except SiroccoError as error:
                extra = event("definitions_not_read", member=self._member, reason=str(error))
                logger.warning("definitions cannot be read back; trying again", extra=extra)
            except Exception:
                # If the thread ended, compaction would remove definitions unnoticed.
                extra = event("definition_recovery_failed", member=self._member)
                logger.exception("reading definitions back failed", extra=extra)

    def look(self) -> None:
        """Reads the definitions to republish now; nearly always there are none."""
        for partition, registry in list(self._machine.registries.items()):
            for handle in list(registry.hidden)[:DEFINITIONS_MAX]:
                place = registry.place(handle)
                change = None if place == NO_REVISION else self._stored.at(partition, place)
                if change is None:
                    continue
                extra = event(
                    "definition_republished", partition=partition, offset=place, handle=handle
                )
                logger.info("a void change hides this definition; it is republished", extra=extra)
                self._worker.post(RecoveredDefinition(partition, place, change))
