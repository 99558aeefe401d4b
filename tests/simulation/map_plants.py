"""Planted bugs in the change of the map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import Effect
from sirocco.protocol.contract.messages import Change, Installed
from sirocco.protocol.coordinator import machine
from sirocco.protocol.evaluator.slot.query_changes import QueryChanges
from sirocco.protocol.router import machine as router
from sirocco.protocol.router.map_change.query_copies import copy
from sirocco.protocol.router.queries import registry_partition
from sirocco.protocol.router.queries.change_validation import ChangeValidation
from sirocco.protocol.router.queries.place_sets import PlaceSets
from sirocco.protocol.router.queries.query_placement import Routings
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.map import map_difference
from sirocco.schemes.map.map_difference import MapDifference
from sirocco.schemes.map.routing import RoutingArrays
from tests.simulation.plants import Plant


def _copy_late(
    registry: Registry, reread: Sequence[tuple[int, Change]], routings: Routings
) -> list[Effect]:
    """Sends copies with the next piece: after changes that were made meanwhile."""
    late, _LATE[registry.epoch] = _LATE.get(registry.epoch, []), copy(registry, reread, routings)
    return late


def _nothing(base: RoutingArrays, following: RoutingArrays) -> MapDifference:
    names = base.leaf_ids.tolist()
    return MapDifference(frozenset(), frozenset(), dict(zip(names, names, strict=True)))


def _in_one_slot(base: RoutingArrays, following: RoutingArrays) -> MapDifference | None:
    change = _differ(base, following)
    if change is None:
        return None
    slots = frozenset(sorted(change.slots)[:1])
    kept = zip(base.leaf_ids.tolist(), base.slot_of_leaf.tolist(), strict=True)
    return replace(change, leaves=change.leaves & {leaf for leaf, slot in kept if slot in slots})


def _without_names(base: RoutingArrays, following: RoutingArrays) -> MapDifference | None:
    change = _differ(base, following)
    return change and replace(change, renamed={leaf: leaf for leaf in change.renamed})


def _mixed_up(self: PlaceSets, numbers: NDArray[np.int32]) -> dict[str, Any]:
    return _leaves_state(self, np.roll(numbers, 1))


_differ = map_difference.map_difference
_leaves_state = PlaceSets.leaves_state


# Epoch of an owner → copies that it has yet to send.
_LATE: dict[int, list[Effect]] = {}


def _take_any_copy(
    self: QueryChanges, message: Installed, floor: int, revisions: NDArray[np.int64]
) -> NDArray[np.bool_]:
    return np.asarray(message.revisions > revisions)


def _copied_by_anybody(self: ControlView, declaration: Any) -> bool:
    self.copied[declaration.partition] = declaration.version
    return True


def _miss_nothing(self: ChangeValidation, begin: int, end: int) -> None:
    """Ignores compaction."""


MAP_PLANTS = (
    Plant(
        "no query moves when the map changes",
        "changing",
        ((registry_partition, "map_difference", _nothing),),
    ),
    Plant(
        "only queries of one slot may move",
        "changing",
        ((registry_partition, "map_difference", _in_one_slot),),
    ),
    Plant(
        "leaves keep the names of the map before",
        "stepping",
        ((registry_partition, "map_difference", _without_names),),
    ),
    Plant(
        "words that move to other leaves move no queries",
        "stepping",
        ((map_difference, "_losing_words", lambda *_: set()),),
    ),
    Plant(
        "a checkpoint gives queries the leaves of others",
        "stepping-kills",
        ((PlaceSets, "leaves_state", _mixed_up),),
    ),
    Plant(
        "the map is switched before the copies are complete",
        "changing",
        ((machine, "uncopied", lambda view, version, partitions: ()),),
    ),
    Plant(
        "the floor hides copies",
        "changing",
        ((QueryChanges, "_is_new_copy", QueryChanges._is_new),),
    ),
    Plant(
        "a removal is overtaken by a copy",
        "changing",
        ((router, "copy", _copy_late), (QueryChanges, "_is_new_copy", _take_any_copy)),
    ),
    Plant(
        "queries are removed from slots while objects are still sent there",
        "changing",
        ((ControlView, "lagging", lambda self, topic, partitions, version: []),),
    ),
    Plant(
        "an owner ignores the gaps of compaction",
        "gaps",
        ((ChangeValidation, "note_gap", _miss_nothing),),
    ),
)
