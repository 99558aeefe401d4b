"""The revisions at which changed queries began.

An update continues the version before: its notifications stay valid. A query that was removed, or
whose lifetime was over, begins anew when registered again. A slot that skips versions recognises
this by the revision at which the query began.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_RANGE, kind_number
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NO_REVISION, Change


@dataclass(slots=True)
class LifeStarts:
    """The begins of one registry partition's queries, of those alone for which results are kept."""

    _sinces: dict[int, int] = field(default_factory=dict)

    def since(self, handle: int, revision: int) -> int:
        """Returns the revision at which a query began, given its revision now."""
        return self._sinces.get(handle, revision)

    def sinces(
        self, handles: NDArray[np.uint64], revisions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Returns i8[n], `since` of many queries."""
        if not self._sinces:
            return revisions
        known = map(self.since, handles.tolist(), revisions.tolist())
        return np.fromiter(known, np.int64, len(handles))

    def learn(self, change: Change) -> None:
        """Takes a change in force."""
        if (
            change.since != NO_REVISION
            and change.query is not None
            and kind_number(change.query) != KIND_RANGE
        ):
            self._sinces[change.handle] = change.since
        elif self._sinces:
            self._sinces.pop(change.handle, None)

    def knows(self, handles: NDArray[np.uint64]) -> bool:
        """Whether a change of one of these queries would be noted, though its columns are plain."""
        return bool(self._sinces) and not self._sinces.keys().isdisjoint(handles.tolist())

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        return {
            "life.handles": np.array(list(self._sinces), np.uint64),
            "life.sinces": np.array(list(self._sinces.values()), np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one of an older version has none."""
        if "life.handles" in state:
            pairs = zip(state["life.handles"].tolist(), state["life.sinces"].tolist(), strict=True)
            self._sinces = dict(pairs)
