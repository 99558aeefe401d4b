"""Reads definitions again that a map change copies to other slots (docs/adr/0014)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial

from sirocco.model.errors import SiroccoError
from sirocco.protocol.contract.effects import RegistryRecords
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.contract.record_sizes import record_bytes
from sirocco.protocol.router.machine import RouterMachine
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.runtime.loop.worker import Worker
from sirocco.services.router.registry_definitions import StoredQueries
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Between checks whether anything has to be copied: a hot spot waits for it.
LOOK_S = 0.02

# Pause after a pass that failed or is incomplete.
AGAIN_S = 0.2

# Definitions read and handed to the loop at a time.
PIECE = 500

# Their bytes in a record of a slot, and perhaps in one of each slot: those of a definition of 2 KB
# may be 100 KB.
PIECE_BYTES = 1 << 20

# Definitions on their way to slots, and their bytes: while these are copied the next are read. They
# take some ten milliseconds of the loop's time, in which nothing is routed; registry partitions
# with few definitions share them.
UNDER_WAY_MAX = 1_000
UNDER_WAY_BYTES_MAX = 2 * PIECE_BYTES

# Time limit of the slots; afterwards everything is checked again.
SETTLE_S = 60.0


class MapChangeReader:
    """A thread that reads registry partitions from their beginning while queries are to be copied.

    One pass is nearly always enough: a query that changes meanwhile is placed when its change is
    read.
    """

    def __init__(
        self, member: str, machine: RouterMachine, stored: StoredQueries, worker: Worker
    ) -> None:
        self._member = member
        self._machine = machine
        self._stored = stored
        self._worker = worker
        self._under_way = self._under_way_bytes = 0
        self._settled: Future[None] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{member}-rereading", daemon=True)

    def start(self) -> None:
        """Starts looking."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; the next owner copies the rest."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        pause_s = LOOK_S
        while not self._stopping.wait(pause_s):
            pause_s = AGAIN_S if self._pass() else LOOK_S

    def _pass(self) -> bool:
        """Copies the waiting definitions; returns whether some are left."""
        due = [each for each in list(self._machine.registries.items()) if each[1].live.unplaced]
        for partition, registry in due:
            self._try(partial(self._copy, partition, registry))
        self._try(self._settle)
        return any(registry.live.unplaced for _, registry in due)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (SiroccoError, TimeoutError) as error:
            extra = event("not_copied", member=self._member, reason=str(error))
            logger.warning("queries cannot be copied now; trying again", extra=extra)
        except Exception:
            # Without this thread a map change would never finish.
            extra = event("copying_failed", member=self._member)
            logger.exception("copying failed", extra=extra)

    def _copy(self, partition: int, registry: Registry) -> None:
        extra = event("copying", partition=partition, queries=registry.live.unplaced)
        logger.info("queries are copied for another map", extra=extra)
        wanted = registry.unplaced_places()
        if not len(wanted):
            return
        begin, end = int(wanted[0]), int(wanted[-1]) + 1
        with closing(self._stored.changes(partition, begin, end, wanted)) as changes:
            for piece, size in pieces(changes):
                if self._machine.registries.get(partition) is not registry:
                    return  # has another owner by now, which copies
                self._post(RegistryRecords(partition, piece), size)
                if self._stopping.is_set() or not registry.live.unplaced:
                    return

    def _post(self, records: RegistryRecords, size: int) -> None:
        """Lets the loop copy; continues once the slots have the previous definitions."""
        is_full = self._under_way + len(records.changes) > UNDER_WAY_MAX
        if is_full or self._under_way_bytes + size > UNDER_WAY_BYTES_MAX:
            self._settle()
        self._worker.post(records)
        self._under_way += len(records.changes)
        self._under_way_bytes += size
        self._settled = self._worker.settled()

    def _settle(self) -> None:
        settled, self._settled = self._settled, None
        self._under_way = self._under_way_bytes = 0
        if settled is not None:
            settled.result(SETTLE_S)


def pieces(
    changes: Iterable[tuple[int, Change]],
) -> Iterator[tuple[tuple[tuple[int, Change], ...], int]]:
    """Yields changes that are copied together, with about their bytes in a record of a slot."""
    piece: list[tuple[int, Change]] = []
    size = 0
    for each in changes:
        change = each[1]
        own = 0
        if change.query is not None:
            own = record_bytes(change.query, change.subscriber, change.locator)
        if piece and (len(piece) == PIECE or size + own > PIECE_BYTES):
            yield tuple(piece), size
            piece, size = [], 0
        piece.append(each)
        size += own
    if piece:
        yield tuple(piece), size
