"""The leftovers of the slots here, found beside the searches that ask for them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sirocco.protocol.search.leftovers import leaves_elsewhere
from sirocco.protocol.search.messages import Leftovers
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.evaluator.answers.slot_interface import SlotSearch
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Leftovers become fewer as objects age, so they are looked for again after this time, or this many
# times what the last look took: an object takes 70 ns, under text nodes 1.1 us.
AGE_MS_MAX = 30_000
LOOK_SHARE = 100

Run: TypeAlias = "Callable[[Callable[[], None]], object]"


@dataclass(frozen=True, slots=True)
class _Look:
    """The last look at a slot.

    Attributes:
        epoch: of the slot's grant.
        version: of the map.
        found: its leftovers; None if they could not be found.
        due_ms: when to look again.
    """

    epoch: int
    version: int
    found: Leftovers | None
    due_ms: float


class LeftoverBook:
    """The leftovers of slots, by the newest map that was asked for.

    Args:
        routing: version → its routing arrays, None where it is not the map in force; may compile.
        epoch: slot → the epoch of its grant, None where it is not here.
        run: runs an action later, one after another.
        now_ms: a clock that does not go back.
    """

    def __init__(
        self,
        routing: Callable[[int], RoutingArrays | None],
        epoch: Callable[[int], int | None],
        run: Run,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._routing = routing
        self._epoch = epoch
        self._run = run
        self._now_ms = now_ms
        self._looks: dict[int, _Look] = {}
        self._under_way: set[int] = set()

    def of(self, slot: int, version: int, search: SlotSearch) -> Leftovers | None:
        """Returns what is known of a slot; has it found, or found again, beside.

        Args:
            slot: its number.
            version: of the map.
            search: of the slot.
        """
        look = self._looks.get(slot)
        if look is not None and (look.epoch, look.version) != (self._epoch(slot), version):
            look = None
        is_due = look is None or self._now_ms() > look.due_ms
        if is_due and slot not in self._under_way and search.least_version >= version:
            self._under_way.add(slot)
            self._run(lambda: self._look_at(slot, version, search))
        return None if look is None else look.found

    def _look_at(self, slot: int, version: int, search: SlotSearch) -> None:
        begin_ms = self._now_ms()
        found = None
        try:
            routing = self._routing(version)
            if routing is None:
                # This evaluator has yet to read of the map, or has read of a later one.
                return
            found = Leftovers(
                slot=slot,
                epoch=search.epoch,
                version=version,
                leaves=leaves_elsewhere(search.points(), routing, slot),
                archived_upto_ms=search.former_upto_ms(version),
            )
        except Exception:
            # All searches ask the slot until the next look.
            extra = event("leftovers_not_found", slot=slot)
            logger.exception("what former maps left in a slot was not found", extra=extra)
        finally:
            self._under_way.discard(slot)
        pause_ms = max(AGE_MS_MAX, LOOK_SHARE * (self._now_ms() - begin_ms))
        is_final = found is not None and found.is_empty
        due_ms = math.inf if is_final else self._now_ms() + pause_ms
        self._looks[slot] = _Look(search.epoch, version, found, due_ms)
