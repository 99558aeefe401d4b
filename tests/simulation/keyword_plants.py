"""Planted bugs in maps that split the vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.standing.locators import LocatorTable
from sirocco.protocol.evaluator.standing.batch import Batch
from sirocco.protocol.router.queries import report_locators
from tests.simulation.plants import Plant


def _count_visits(
    self: LocatorTable,
    index: Any,
    object_rows: NDArray[np.int32],
    query_rows: NDArray[np.int32],
    homes: NDArray[np.bool_],
    *args: Any,
) -> NDArray[np.bool_]:
    return _counted(self, index, object_rows, query_rows, homes, *args) | ~homes[object_rows]


_counted = LocatorTable.counted

# Bugs concerning the home of each object; found within a few seconds.
HOME_PLANTS = (
    Plant(
        "an object is stored wherever it arrives",
        "calm",
        ((Batch, "own", Batch.present),),
        first_seed=5,
    ),
    Plant(
        "an object counts in the slot of any of its terms",
        "calm",
        ((LocatorTable, "counted", _count_visits),),
        first_seed=1,
    ),
    Plant(
        "an object counts in each slot where it matches a query",
        "calm",
        (
            (
                LocatorTable,
                "counted",
                lambda self, index, object_rows, *args: np.ones(len(object_rows), np.bool_),
            ),
        ),
        first_seed=1,
    ),
)

KEYWORD_PLANTS = (
    Plant(
        "a changed query gets a new locator",
        "rewording",
        ((report_locators, "_continued", lambda known, others, most: others),),
    ),
    Plant(
        "a slot forgets the locators of queries at a take-over",
        "kill-evaluator",
        ((LocatorTable, "get", lambda self, rows: [b""] * len(rows)),),
    ),
)
