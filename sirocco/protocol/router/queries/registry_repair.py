"""What is in force is said again, where the newest record of a query does not say it.

What is void may be the newest record of its query, the one that compaction keeps. So the owner says
again what is in force (docs/adr/0005): the newest record of a query tells the truth, or will soon.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

import numpy as np

from sirocco.protocol.contract.effects import Append, Effect, State
from sirocco.protocol.contract.messages import NO_REVISION, REGISTRY, Change
from sirocco.protocol.router.queries.live_queries import LiveQueries


@dataclass(slots=True)
class Restating:
    """What the newest records of one owned registry partition say.

    Attributes:
        partition: of the registry.
        epoch: of the ownership.
        live: the queries.
        unsaid: live queries whose newest record is void, until what is in force is said again.
        places: where the definitions of queries stand that have been said again; those of all
            others stand at their revision.
    """

    partition: int
    epoch: int
    live: LiveQueries
    unsaid: dict[int, None] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)

    def place(self, handle: int) -> int:
        """The offset of the definition of a live query; `NO_REVISION` when there is none."""
        place = self.places.get(handle)
        return self.live.revision(handle) if place is None else place

    def hear_void(self, change: Change) -> None:
        """The newest record of a query is void."""
        # Also where it says the truth: whoever reads what compaction left has to believe it.
        self.unsaid[change.handle] = None

    def hear_valid(self, offset: int, change: Change) -> None:
        """The newest record of a query says what is in force."""
        self.unsaid.pop(change.handle, None)
        if change.is_restated and change.query is not None:
            self.places[change.handle] = offset
        else:
            self.places.pop(change.handle, None)

    def restate(self, offset: int, change: Change) -> list[Effect]:
        """Says again what is in force of a query whose newest record is void.

        Args:
            offset: where the definition in force stands.
            change: what is there.
        """
        handle = change.handle
        if handle not in self.unsaid or self.place(handle) != offset:
            return []
        del self.unsaid[handle]
        revision = self.live.revision(handle)
        again = replace(change, expected_revision=revision, epoch=self.epoch, is_restated=True)
        return [Append(REGISTRY, self.partition, again)]

    def deny(self, in_doubt: Container[int]) -> list[Effect]:
        """Says again of queries that are gone that they are, where a void record says otherwise.

        Args:
            in_doubt: queries of which it is not known whether they are gone.
        """
        effects: list[Effect] = []
        for handle in list(self.unsaid):
            if self.live.revision(handle) != NO_REVISION or handle in in_doubt:
                continue
            del self.unsaid[handle]
            denial = Change(handle, None, "", 0, NO_REVISION, 0, self.epoch, is_restated=True)
            effects.append(Append(REGISTRY, self.partition, denial))
        return effects

    def state(self) -> State:
        """For a checkpoint."""
        return {
            "unsaid": np.array(list(self.unsaid), np.uint64),
            "said_again": np.array(list(self.places), np.uint64),
            "places": np.array(list(self.places.values()), np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one from before anything was said again has none."""
        if "unsaid" in state:
            self.unsaid = dict.fromkeys(state["unsaid"].tolist())
            said_again = state["said_again"].tolist()
            self.places = dict(zip(said_again, state["places"].tolist(), strict=True))
