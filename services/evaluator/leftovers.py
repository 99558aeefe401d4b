"""The leftovers of the slots here, found beside the searches that ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from services.evaluator.slot_search import SlotSearch
from sirocco.protocol.search.leftovers import leaves_elsewhere
from sirocco.protocol.search.messages import Leftovers
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.schemes.map.routing import RoutingArrays

# Leftovers become fewer as objects age. Finding them takes a second for ten million objects.
AGE_MS_MAX = 30_000

Run: TypeAlias = "Callable[[Callable[[], None]], object]"


@dataclass(slots=True)
class _Known:
    leftovers: Leftovers
    found_ms: int


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
        self._known: dict[int, _Known] = {}
        self._under_way: set[int] = set()

    def of(self, slot: int, version: int, search: SlotSearch) -> Leftovers | None:
        """Returns what is known of a slot; has it found, or found again, beside.

        Args:
            slot: its number.
            version: of the map.
            search: of the slot.
        """
        if self._is_due(slot, version) and search.least_version >= version:
            self._under_way.add(slot)
            self._run(lambda: self._find(slot, version, search))
        known = self._known.get(slot)
        return known.leftovers if known is not None and self._is_of(known, version) else None

    def _is_due(self, slot: int, version: int) -> bool:
        known = self._known.get(slot)
        if slot in self._under_way:
            return False
        if known is None or not self._is_of(known, version):
            return True
        return not known.leftovers.is_empty and self._now_ms() - known.found_ms > AGE_MS_MAX

    def _is_of(self, known: _Known, version: int) -> bool:
        leftovers = known.leftovers
        return leftovers.version == version and leftovers.epoch == self._epoch(leftovers.slot)

    def _find(self, slot: int, version: int, search: SlotSearch) -> None:
        try:
            routing = self._routing(version)
            if routing is None:
                return
            leaves = leaves_elsewhere(search.points(), routing, slot)
            found = Leftovers(
                slot=slot,
                epoch=search.epoch,
                version=version,
                leaves=leaves,
                archived_upto_ms=search.archived_upto_ms,
            )
            self._known[slot] = _Known(found, self._now_ms())
        finally:
            self._under_way.discard(slot)
