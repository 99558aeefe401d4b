"""Planted bugs of searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.store import SlotStore
from sirocco.protocol.evaluator.search_visibility import TokenCheck
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.search import gather
from sirocco.protocol.search.gather import Gather
from sirocco.protocol.search.leftovers import Former, KnownLeftovers, LeftoverTable
from sirocco.protocol.search.messages import Leftovers
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.evaluator import leftovers
from sirocco.services.evaluator import slot_search as answering
from sirocco.services.evaluator.slot_search import SlotSearch, Wanted
from sirocco.services.evaluator.slot_store import StoredSearch
from tests.simulation import searches
from tests.simulation.plants import Plant


def _count_as_answered(self: Gather, number: int, why: str, now_ms: int, pause_ms: int = 0) -> None:
    if why == "has moved":
        self._close([number], now_ms)
    else:
        _again(self, number, why, now_ms, pause_ms)


def _arrive_at_once(self: TokenCheck[Any]) -> bool:
    _look(self)
    return True


def _whatever_is_here(self: TokenCheck[Any], number: int) -> Slot | None:
    # The bug as it was found on real processes, which did not check whether a slot lags.
    searches_here = self._here.__self__  # type: ignore[attr-defined]
    return searches_here._node.machine.slots.get(number)  # type: ignore[no-any-return]


def _all_are_cheap(
    wanted: Wanted, numbers: Sequence[int], here: Callable[[int], SlotSearch | None]
) -> list[tuple[int, SlotSearch]]:
    return [(number, here(number) or StoredSearch(SlotStore().view())) for number in numbers]


def _of_known_slots(
    self: LeftoverTable, leaves: NDArray[np.int32], from_ms: int, slots: int
) -> set[int]:
    found = _slots_beside(self, leaves, from_ms, slots)
    return found & self.of_slot.keys()


def _known_although_changing(
    self: KnownLeftovers, routing: RoutingArrays, from_ms: int
) -> Former | None:
    former = _former(self, routing, from_ms)
    if former is None or not former.is_everywhere:
        return former
    none = np.empty(0, np.int32)
    empty = {
        slot: Leftovers(slot=slot, epoch=0, version=0, leaves=none, archived_upto_ms=None)
        for slot in range(routing.slots)
    }
    return Former(leftovers=LeftoverTable.of(routing.version, empty))


_again = Gather._retry
_former = KnownLeftovers.former
_slots_beside = LeftoverTable.slots_beside
_look = TokenCheck.check
_plan_search = searches.plan_search

SEARCH_PLANTS = (
    Plant(
        "a slot is searched that arrived after the others had reached the token",
        "searching",
        ((TokenCheck, "slot", _whatever_is_here),),
    ),
    Plant(
        "a slot is searched after a take-over before it has read its log",
        "searching",
        ((searches, "searchable", lambda slots, number: slots.get(number)),),
    ),
    Plant(
        "a moved slot counts as answered",
        "searching",
        ((Gather, "_retry", _count_as_answered),),
    ),
    Plant(
        "nobody waits for a position token",
        "searching",
        ((TokenCheck, "check", _arrive_at_once),),
        first_seed=21,
    ),
    Plant(
        "absent slots are answered as if they were empty",
        "searching",
        ((answering, "_cheap", _all_are_cheap),),
    ),
    Plant(
        "objects of a slot are sent again when it is asked again",
        "searching",
        ((gather, "_unknown", lambda events, handed: np.ones(len(events), np.bool_)),),
        first_seed=316,
    ),
    Plant(
        "only the map in force decides which slots are searched",
        "changing",
        ((searches, "plan_search", lambda routing, query, *_: _plan_search(routing, query)),),
    ),
    Plant(
        "slots do not name what former maps left in them",
        "changing",
        ((leftovers, "leaves_elsewhere", lambda *_: np.empty(0, np.int32)),),
        first_seed=5,
    ),
    Plant(
        "slots that have not named what former maps left in them are not asked",
        "changing",
        ((LeftoverTable, "slots_beside", _of_known_slots),),
    ),
    Plant(
        "what slots named holds while the map changes",
        "changing",
        ((KnownLeftovers, "former", _known_although_changing),),
        first_seed=8,
    ),
)
