"""Brings the state of a registry partition from an earlier analysis of texts up to date.

What it holds of the texts is what identifies equal queries, and the keywords for which objects are
sent. Both are made anew from the definitions, which are read once more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sirocco.index.routing.keyword_slots import ANY_TERM
from sirocco.model.query import digest_of_query
from sirocco.model.text import ANALYSIS
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.contract.query_words import (
    definition_key,
    is_former,
    may_read_otherwise,
)

STALE = "summary.is_stale"


def is_due(state: State) -> bool:
    """Whether an earlier analysis made the state of a registry partition."""
    return "handles" in state and is_former(state, ANALYSIS)


def with_analysis(state: State, changes: Iterable[tuple[int, Change]]) -> State:
    """Returns the state by this analysis.

    Args:
        state: of a registry partition.
        changes: its records before the offset of the state, with their offsets.
    """
    handles = state["handles"].tolist()
    keys = zip(handles, state["revisions"].tolist(), strict=True)
    rows = {key: row for row, key in enumerate(keys)}
    digests = state["digests"].copy()
    renewed: list[int] = []
    for offset, change in changes:
        row = rows.get(definition_key(offset, change))
        if row is not None and change.query is not None and may_read_otherwise(change.query):
            digests[row] = digest_of_query(change.query, change.subscriber)
            renewed.append(row)
    made = {**state, "digests": digests, "analysis": np.array([ANALYSIS], np.int64)}
    if not renewed or "summary.said" not in state:
        return made
    # Which keywords represent them by the present analysis is unknown.
    firsts, several = state["summary.keys"].copy(), state["summary.several"]
    firsts[renewed] = ANY_TERM
    kept = ~np.isin(several[:, 0], np.array(renewed, np.uint64))
    said = np.array([0, int(state["summary.said"][1])], np.int64)
    return {
        **made,
        "summary.keys": firsts,
        "summary.several": several[kept],
        "summary.said": said,
        STALE: np.ones(1, np.int64),
    }
