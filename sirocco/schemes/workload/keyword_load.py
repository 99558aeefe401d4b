"""The load of a leaf to which keywords lead (PS2Stream IV.A, Definition 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Load = TypeVar("Load", float, NDArray[np.float64])

# Cost of checking an object against all queries of a sample at once, relative to the handling of an
# object (c2 = 1). The paper leaves its constants open; `HANDLING_SHARE` of the other cost model
# expresses the same fact of the running system.
CHECKING_SHARE = 1.0

# Cost of installing a query, and of removing it, each relative to the handling of an object: rows
# of a record, like objects. A query is installed and removed once while a sample's objects arrive.
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

        Definition 1 multiplies all sent objects by all queries. Two cases differ here. An object is
        checked against the keyed queries only if it contains a key of one of them: otherwise there
        is no list to check (IV.C calls these keys H2). And it is checked against queries without
        keys only at home, since those are in every leaf.

        Args:
            objects: Objects sent to the leaf.
            homes: Those whose home is the leaf.
            seekers: Those with a key of a query of the leaf.
            keyed: Queries sent to the leaf by their key.
            unkeyed: Queries that are in every leaf of the place.
        """
        checks = seekers * keyed + homes * unkeyed
        return self.check * checks + self.handling * objects + self.update * (keyed + unkeyed)


def costs_for(queries: int) -> LoadCosts:
    """Returns the costs for a sample with this many queries."""
    return LoadCosts(CHECKING_SHARE / max(queries, 1))
