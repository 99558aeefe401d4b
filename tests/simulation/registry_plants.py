"""Planted bugs in the registry: after compaction, with void changes, with ended lifetimes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import Effect, PlainRequests, RemovalRequests
from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.contract.plain_queries import ChangeColumns, Removals
from sirocco.protocol.router.machine import RouterMachine
from sirocco.protocol.router.queries import change_requests, slot_updates
from sirocco.protocol.router.queries.change_validation import ChangeValidation
from sirocco.protocol.router.queries.live_queries import Known, LiveQueries
from sirocco.protocol.router.queries.plain_updates import PlainUpdates, RemovalUpdates
from sirocco.protocol.router.queries.query_placement import Routings
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.protocol.router.queries.registry_repair import RegistryRepair
from tests.simulation.plants import Plant


def _expects_none(self: ChangeValidation, change: Change, current: int) -> bool:
    return change.expected_revision == NO_REVISION != current and change.handle not in self._doubts


def _fit_as_if_nothing_missed(
    self: ChangeValidation, change: Change, revision: int, current: int
) -> bool:
    return not _expects_none(self, change, current) and _fits(self, change, revision, current)


def _believe_as_new(
    self: ChangeValidation, offset: int, change: Change, current: int
) -> list[tuple[int, Change]]:
    return _believe(self, offset, replace(change, is_republished=False), current)


def _tick_as_if_awake(self: RouterMachine, now_ms: int) -> list[Effect]:
    self._ticked_ms, self._awake_ms = now_ms, 0
    return _tick(self, now_ms)


def _state_without_fingerprints(self: LiveQueries) -> dict[str, Any]:
    return {name: column for name, column in _state(self).items() if name != "fingerprints"}


def _slots_but_one(
    self: RemovalUpdates, handles: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    slots, begins = _removal_slots(self, handles)
    return slots[:-1], np.minimum(begins, len(slots) - 1)


def _usual_by_handle(
    requests: PlainRequests | RemovalRequests, known: Known, now_ms: int
) -> NDArray[np.bool_]:
    if isinstance(requests, RemovalRequests):
        return np.asarray(known.revisions != NO_REVISION)
    return _usual_rows(requests, known, now_ms)


def _usual_whatever_is_replaced(self: Registry, changes: ChangeColumns, routings: Routings) -> bool:
    if not isinstance(changes, Removals):
        return _are_usual(self, changes, routings)
    return bool((self.live.rows_of(changes.handles) >= 0).all())


def _next_without_the_rest(self: Registry) -> list[tuple[int, Change]]:
    changes = _next_changes(self)
    while self._held and isinstance(self._held[0][1], Change):
        del self._held[0]
    return changes


_next_changes = Registry._next_changes
_removal_slots = RemovalUpdates._slots
_usual_rows = change_requests.usual_rows
_are_usual = Registry._are_usual
_state = LiveQueries.state
_fits = ChangeValidation._fits
_believe = ChangeValidation._accept
_tick = RouterMachine._tick

# The code before fingerprints existed; and changes as columns.
IDENTITY_PLANTS = (
    Plant(
        "a query moved with others stays in the slots that it has left",
        "calm",
        ((PlainUpdates, "_left", lambda self, offsets, changes, places: {}),),
        first_seed=3,
    ),
    Plant(
        "a query removed with others stays in one of its slots",
        "calm",
        ((RemovalUpdates, "_slots", _slots_but_one),),
        first_seed=3,
    ),
    Plant(
        "a removal in columns removes the query of another id with the same hash",
        "colliding",
        ((change_requests, "usual_rows", _usual_by_handle),),
    ),
    Plant(
        "a removal in columns is taken for another owner's earlier one",
        "late-changes",
        ((Registry, "_are_usual", _usual_whatever_is_replaced),),
    ),
    Plant(
        "an id that collides with another changes its query",
        "colliding",
        (
            (change_requests, "fingerprint_of", lambda query_id: 1),
            (slot_updates, "fingerprint_of", lambda query_id: 1),
        ),
    ),
    Plant(
        "a checkpoint forgets the fingerprints of its queries",
        "colliding",
        ((LiveQueries, "state", _state_without_fingerprints),),
    ),
)

REGISTRY_PLANTS = (
    Plant(
        "a change that expects none is void where a removal may be missing",
        "gaps",
        ((ChangeValidation, "_fits", _fit_as_if_nothing_missed),),
    ),
    Plant(
        "a new owner appends before it has read its predecessor's records",
        "gaps",
        ((ChangeValidation, "is_announced", property(lambda self: True)),),
    ),
    Plant(
        "what is in force is not republished after a void change",
        "changing-moving",
        ((Registry, "republish", lambda self, offset, change: []),),
    ),
    Plant(
        "a removal is not republished after a void change",
        "late-changes",
        ((RegistryRepair, "republish_removals", lambda self, in_doubt: []),),
        first_seed=6,
    ),
    Plant(
        "a republished version counts as a new one",
        "gaps",
        ((ChangeValidation, "_accept", _believe_as_new),),
    ),
    Plant(
        "changes beyond what one turn takes are forgotten",
        "calm",
        ((Registry, "_next_changes", _next_without_the_rest),),
    ),
    Plant(
        "an owner that was suspended removes expired queries at once",
        "outage",
        ((RouterMachine, "_tick", _tick_as_if_awake),),
    ),
)
