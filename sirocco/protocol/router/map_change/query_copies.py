"""Queries follow a change of the map: copied to slots that want them, taken out of others.

A slot takes a copy by what its sender knew of the registry, not by the query's revision: that may
be far below all that the slot was told to be repeats. So whoever copies has read at least as far as
the slots were told that everything was in them, and what it does not know of yet it will tell them
behind the copy.

What owners send lands in any order, and one that stood still sends what it knew then. So an owner
begins to copy and to trim when the log has shown a record of its own: then it has read further than
any before it ever will, which is what slots judge by.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sirocco.protocol.contract.effects import Effect
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.protocol.router.queries.query_placement import Routings, place_known
from sirocco.protocol.router.queries.registry_partition import Registry

# Queries that leave slots at once: 160 kB of records, some milliseconds.
TRIM_MAX = 10_000


def is_copied(registry: Registry) -> bool:
    """Whether all queries stand where the maps want them, also by what is under way."""
    is_placed = not registry.live.unplaced and not registry.is_held_up
    return is_placed and registry.deciding.is_located_anew()


def may_be_saved(registry: Registry) -> bool:
    """Whether a successor that begins with the state of now will know all that slots were told.

    A predecessor may have copied what is not placed here. That went to slots which the maps of the
    change under way want: whoever places it by the same maps tells them. By the maps of a later
    change it would pass some over, and old versions would stay there. So what is not placed is
    saved until its change is over; behind that the checkpoint waits, and with it the next change.

    By a checkpoint slots know what they have been told of, and pass over what others copied who had
    read less. If these have not read that they are deposed they save later, and claim that it is
    there. So what is not placed is saved behind a record of the owner's own: who has read as far as
    that knows.
    """
    if registry.is_deposed or registry.is_guessing:
        return False
    live = registry.live
    is_under_way = registry.stage.following > 0 and not live.is_overdue
    return not live.unplaced or (is_under_way and registry.is_announced)


def copy(
    registry: Registry, reread: Sequence[tuple[int, Change]], routings: Routings
) -> list[Effect]:
    """Copies queries to the slots that a map wants them in and that do not hold them.

    Args:
        registry: the owned partition.
        reread: records of it; those that define no query to be copied are passed over.
        routings: the maps.
    """
    is_behind = registry.is_held_up or registry.offset < registry.floor
    if is_behind or not registry.is_announced or not registry.stage.is_known(routings):
        return []
    live = registry.live
    rows = live.rows.get(np.array([change.handle for _, change in reread], np.uint64)).tolist()
    kept: list[tuple[int, Change]] = []
    kept_rows: list[int] = []
    for (offset, change), row in zip(reread, rows, strict=True):
        is_due = change.query is not None and row >= 0 and not live.is_placed[row]
        if is_due and registry.place(change.handle) == offset:
            kept.append((int(live.revisions[row]), change))
            kept_rows.append(row)
    if not kept:
        return []
    changes = [change for _, change in kept]
    is_by_keyword = registry.stage.is_by_keyword(routings)
    for change in changes:
        registry.locators.learn(change, is_by_keyword=is_by_keyword)
    present = [live.slots(row) for row in kept_rows]
    placed = place_known(changes, present, registry.stage, routings)
    installs = Installs(registry.partition, registry.floor, registry.offset)
    # Those that hold it are told as well: that it leaves them may have been sent long ago, by a
    # router that stood still, and be on its way. But none that it is to leave: whoever comes after
    # this owner may not know of these any more.
    installs.install(kept, placed.rows, placed.slots, placed.told)
    live.placed(np.array(kept_rows, np.int32), placed.slots, placed.wanted)
    effects = installs.effects()
    if registry.summarising:
        effects += registry.summarising.placed(kept_rows)
    return effects


def trim(registry: Registry) -> list[Effect]:
    """Takes queries out of slots where the map in force does not want them; not all at once."""
    is_due = registry.is_announced and registry.live.has_surplus
    if not is_due or registry.stage.following:
        return []
    installs = Installs(registry.partition, registry.floor, registry.offset)
    surplus = registry.live.take_surplus(TRIM_MAX)
    if registry.summarising:
        registry.summarising.gone += len(surplus)
    for handle, _, slots in surplus:
        # As if the newest record had removed it there: whoever copies it later knows more.
        installs.leave(slots, handle, registry.offset - 1)
    return installs.effects()
