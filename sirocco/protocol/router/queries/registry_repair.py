"""Republishes what is in force where the newest record of a query does not hold it.

Compaction keeps the newest record of a query, and that may be void. So the owner republishes what
is in force (docs/adr/0005): the newest record of a query holds the truth, or soon will.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import Append, Effect, State
from sirocco.protocol.contract.messages import NO_REVISION, REGISTRY, Change
from sirocco.protocol.router.queries.live_queries import LiveQueries


@dataclass(slots=True)
class RegistryRepair:
    """What the newest records of one owned registry partition hold.

    Attributes:
        partition: of the registry.
        epoch: of the ownership.
        live: the queries.
        hidden: live queries whose newest record is void, until they are republished.
        places: query → offset of its definition, for those republished; for all others it is
            their revision.
    """

    partition: int
    epoch: int
    live: LiveQueries
    hidden: dict[int, None] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)

    def place(self, handle: int) -> int:
        """Returns the offset of a live query's definition; `NO_REVISION` when there is none."""
        place = self.places.get(handle)
        return self.live.revision(handle) if place is None else place

    def places_of(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the offsets of the definitions of live queries, i8[q], by row.

        In any thread; of changes meanwhile it may miss some.
        """
        places: NDArray[np.int64] = self.live.revisions[rows]
        if again := self.places.copy():
            own = zip(self.live.handles[rows].tolist(), places.tolist(), strict=True)
            places = np.array([again.get(handle, place) for handle, place in own], np.int64)
        return places

    def note_void(self, change: Change) -> None:
        """Notes that the newest record of a query is void."""
        # Also where it holds the truth: a reader of the compacted log must be able to trust it.
        self.hidden[change.handle] = None

    def note_valid(self, offset: int, change: Change) -> None:
        """Notes that the newest record of a query holds what is in force."""
        self.hidden.pop(change.handle, None)
        if change.is_republished and change.query is not None:
            self.places[change.handle] = offset
        else:
            self.places.pop(change.handle, None)

    def note_many(self, handles: NDArray[np.uint64]) -> None:
        """The same for many queries, none of them republished."""
        if self.hidden or self.places:
            for handle in handles.tolist():
                self.hidden.pop(handle, None)
                self.places.pop(handle, None)

    def republish(self, offset: int, change: Change) -> list[Effect]:
        """Republishes the version in force of a query whose newest record is void.

        Args:
            offset: of the definition in force.
            change: the record there.
        """
        handle = change.handle
        if handle not in self.hidden or self.place(handle) != offset:
            return []
        del self.hidden[handle]
        revision = self.live.revision(handle)
        record = replace(change, expected_revision=revision, epoch=self.epoch, is_republished=True)
        return [Append(REGISTRY, self.partition, record)]

    def republish_removals(self, in_doubt: Container[int]) -> list[Effect]:
        """Republishes that removed queries are removed, where a void record claims otherwise.

        Args:
            in_doubt: queries that may or may not be removed.
        """
        effects: list[Effect] = []
        for handle in list(self.hidden):
            if self.live.revision(handle) != NO_REVISION or handle in in_doubt:
                continue
            del self.hidden[handle]
            denial = Change(
                handle=handle,
                query=None,
                subscriber="",
                start_ms=0,
                expected_revision=NO_REVISION,
                digest=0,
                epoch=self.epoch,
                is_republished=True,
            )
            effects.append(Append(REGISTRY, self.partition, denial))
        return effects

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        return {
            "unsaid": np.array(list(self.hidden), np.uint64),
            "said_again": np.array(list(self.places), np.uint64),
            "places": np.array(list(self.places.values()), np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one of an older version may lack it."""
        if "unsaid" in state:
            self.hidden = dict.fromkeys(state["unsaid"].tolist())
            republished = state["said_again"].tolist()
            self.places = dict(zip(republished, state["places"].tolist(), strict=True))
