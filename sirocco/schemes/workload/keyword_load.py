"""The load of a leaf that keywords lead to (PS2Stream IV.A, Definition 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Load = TypeVar("Load", float, NDArray[np.float64])

# What it costs to check an object against all queries of a sample at once, in handlings of an
# object (c2 = 1). The paper leaves its constants open; `HANDLING_SHARE` of the other cost model
# says the same of the running system.
CHECKING_SHARE = 1.0

# What it costs to install a query and later to remove it, each in handlings of an object: rows
# of a record like objects. A query comes and goes once while a sample's objects arrive.
INSERTION_SHARE = 0.5
DELETION_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class LoadCosts:
    """The constants of Definition 1.

    Attributes:
        check: c1, to check one object against one query.
        handling: c2, to handle one object.
        insertion: c3, to install one query.
        deletion: c4, to remove one query.
    """

    check: float
    handling: float = 1.0
    insertion: float = INSERTION_SHARE
    deletion: float = DELETION_SHARE

    @property
    def update(self) -> float:
        """c3 + c4: each query of a sample is installed and removed once."""
        return self.insertion + self.deletion

    def load(self, objects: Load, homes: Load, seekers: Load, keyed: Load, unkeyed: Load) -> Load:
        """Returns the load of a leaf, or of many leaves at once.

        Definition 1 multiplies all objects that are sent by all queries. Two things are told
        apart here. An object is checked against the keyed queries only if it holds a key of one
        of them: the others find no list to look into (IV.C calls these keys H2). And it is
        checked against queries without keys only at home, since those stand in every leaf.

        Args:
            objects: Objects sent to the leaf.
            homes: Those that are at home there.
            seekers: Those that hold a key of a query of the leaf.
            keyed: Queries that are led to the leaf by their key.
            unkeyed: Queries that stand in every leaf of the place.
        """
        checks = seekers * keyed + homes * unkeyed
        return self.check * checks + self.handling * objects + self.update * (keyed + unkeyed)


def costs_for(queries: int) -> LoadCosts:
    """Returns the costs for a sample with so many queries."""
    return LoadCosts(CHECKING_SHARE / max(queries, 1))
