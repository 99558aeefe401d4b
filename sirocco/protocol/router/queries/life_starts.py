"""Where the lives of queries began that have been changed since.

A change goes on from the version before: what subscribers were told of that one holds. A query that
was removed, or whose lifetime was over, and that is registered again begins anew. Slots that pass
over versions in between know it by the revision with which the life began.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sirocco.index.base.kinds import KIND_RANGE, kind_number
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NO_REVISION, Change


@dataclass(slots=True)
class Lives:
    """Of one registry partition, and of queries alone of which something is remembered."""

    _sinces: dict[int, int] = field(default_factory=dict)

    def since(self, handle: int, revision: int) -> int:
        """The revision with which the life of a query began that has a revision now."""
        return self._sinces.get(handle, revision)

    def learn(self, change: Change) -> None:
        """A change is in force."""
        if (
            change.since != NO_REVISION
            and change.query is not None
            and kind_number(change.query) != KIND_RANGE
        ):
            self._sinces[change.handle] = change.since
        elif self._sinces:
            self._sinces.pop(change.handle, None)

    def state(self) -> State:
        """For a checkpoint."""
        return {
            "life.handles": np.array(list(self._sinces), np.uint64),
            "life.sinces": np.array(list(self._sinces.values()), np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one of a version before has none."""
        if "life.handles" in state:
            pairs = zip(state["life.handles"].tolist(), state["life.sinces"].tolist(), strict=True)
            self._sinces = dict(pairs)
