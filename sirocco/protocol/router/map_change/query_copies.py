"""Copies queries to the slots that a new map needs, and removes them from others.

A slot accepts a copy by how far its sender had read the registry, not by the query's revision. The
revision may be far below the floor under which the slot drops changes as repeats. So the sender has
read at least as far as any floor sent to the slots, and sends later changes after the copy.

Records of several owners arrive in any order, and a suspended owner sends outdated ones. So an
owner copies and trims only after the log has shown a record of its own: then it has read further
than any former owner ever will, and slots compare just that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sirocco.protocol.contract.effects import Effect
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.protocol.router.queries.query_placement import Routings, place_known
from sirocco.protocol.router.queries.registry_partition import Registry

# Queries removed from slots in one turn: 160 kB of records, some milliseconds.
TRIM_MAX = 10_000


def is_copied(registry: Registry) -> bool:
    """Whether all queries are in the slots that the maps want, also after pending changes."""
    is_placed = not registry.live.unplaced and not registry.is_held_up
    return is_placed and registry.pending_requests.are_locators_current()


def may_be_saved(registry: Registry) -> bool:
    """Whether a successor that starts from the state of now will know all that slots were sent.

    A predecessor may have copied queries that are not placed here. Those copies went to slots that
    the maps of the present change want; an owner that places by the same maps reaches those slots.
    By the maps of a later change it would miss some, and old versions would stay there. So unplaced
    queries are saved only until their change is over; after that the checkpoint waits, and so does
    the next change.

    By a checkpoint slots know what they were sent, and ignore copies by owners that had read less.
    A deposed owner that does not know it yet saves later and claims those copies. So unplaced
    queries are saved only after a record of the owner's own: a former owner that reads so far knows
    it is deposed.
    """
    if registry.is_deposed or registry.has_gaps:
        return False
    live = registry.live
    is_under_way = registry.stage.following > 0 and not live.is_overdue
    return not live.unplaced or (is_under_way and registry.is_announced)


def copy(
    registry: Registry, reread: Sequence[tuple[int, Change]], routings: Routings
) -> list[Effect]:
    """Copies queries to the slots that a map wants and that do not hold them.

    Args:
        registry: the owned partition.
        reread: records of it; those that define no query to be copied are ignored.
        routings: the maps.
    """
    is_behind = registry.is_held_up or registry.offset < registry.floor
    if is_behind or not registry.is_announced or not registry.stage.is_known(routings):
        return []
    live = registry.live
    rows = live.rows_of(np.array([change.handle for _, change in reread], np.uint64))
    offsets = np.array([offset for offset, _ in reread], np.int64)
    is_due = (rows >= 0) & ~live.is_placed[rows] & (registry.repair.places_of(rows) == offsets)
    is_due &= np.array([change.query is not None for _, change in reread], np.bool_)
    if not is_due.any():
        return []
    kept_rows = rows[is_due].tolist()
    revisions = live.revisions[kept_rows].tolist()
    due = [reread[row][1] for row in np.flatnonzero(is_due).tolist()]
    kept = list(zip(revisions, due, strict=True))
    changes = [change for _, change in kept]
    is_by_keyword = registry.stage.is_by_keyword(routings)
    for change in changes:
        registry.locators.learn(change, is_by_keyword=is_by_keyword)
    present = [live.slots(row) for row in kept_rows]
    placed = place_known(changes, present, registry.stage, routings)
    installs = Installs(
        registry.partition,
        registry.floor,
        registry.offset,
        registry.limits.installed_bytes_max,
    )
    # Slots that hold it get it as well: a suspended router may have sent a removal long ago that is
    # still in transit. Slots that it is to leave do not: a later owner may not know of them any
    # more.
    installs.install(kept, placed.rows, placed.slots, placed.receivers)
    rows_placed = np.array(kept_rows, np.int32)
    live.placed(rows_placed, placed.slots, placed.wanted, placed.leaves)
    effects = installs.effects()
    if registry.keyword_summary:
        effects += registry.keyword_summary.placed(kept_rows)
    return effects


def trim(registry: Registry) -> list[Effect]:
    """Removes queries from slots where the map in force does not want them; not all at once."""
    is_due = registry.is_announced and registry.live.has_surplus
    if not is_due or registry.stage.following:
        return []
    installs = Installs(
        registry.partition,
        registry.floor,
        registry.offset,
        registry.limits.installed_bytes_max,
    )
    surplus = registry.live.take_surplus(TRIM_MAX)
    if registry.keyword_summary:
        registry.keyword_summary.obsolete += len(surplus)
    for handle, _, slots in surplus:
        # As if the newest record had removed it: a later copy has a greater offset.
        installs.leave(slots, handle, registry.offset - 1)
    return installs.effects()
