"""Adds fingerprints of query ids to the state of a checkpoint from before they existed.

Only the registry holds the ids; the first newer version reads it once more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sirocco.model.query import fingerprint_of
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router.queries.live_queries import UNKNOWN, definition_places


def are_missing(state: State) -> bool:
    """Whether the state of a registry partition lacks the fingerprints of its queries."""
    return "handles" in state and "fingerprints" not in state


def with_fingerprints(state: State, changes: Iterable[tuple[int, Change]]) -> State:
    """Adds the missing fingerprints.

    Args:
        state: of a registry partition.
        changes: its records before the offset of the state, with their offsets.
    """
    places = definition_places(state)
    found = {
        change.handle: fingerprint_of(change.query.id)
        for offset, change in changes
        if change.query is not None and places.get(change.handle) == offset
    }
    fingerprints = [found.get(handle, UNKNOWN) for handle in places]
    return {**state, "fingerprints": np.array(fingerprints, np.uint64)}
