"""Ranks objects by a figure, and checks a list that claims to be the first k.

A figure is rounded before objects are ordered by it, so the last bit of a floating-point number may
decide on which side of a rounding border it falls. `low` and `high` are the rounded figures if the
true value is a little lower or higher: nearly always they are the same, and the order is certain.
If they differ, both orders of two neighbours are correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tests.oracle.geometry import Floats
from tests.oracle.table import ObjectId, Objects, Rows, is_id

# Decimals of rounded figures, and their tolerance.
DISTANCE_DECIMALS, DISTANCE_TOLERANCE_M = 3, 0.001_001
SCORE_DECIMALS, SCORE_TOLERANCE = 9, 2.001e-9

# Bound of the floating-point errors of distances, metres.
DISTANCE_DOUBT_M = 1e-6


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ranking:
    """All objects that could be in a list, in order.

    Attributes:
        objects: The table of the rows.
        k: Greatest length of the list.
        rows: i8[n], the best first.
        values: f8[n], rounded figures: metres, or scores.
        low, high: f8[n], possible results of the rounding.
        decimals, tolerance: Of the figures in OUT.
        sign: 1 if the least figure is the best, -1 if the greatest is.
    """

    objects: Objects
    k: int
    rows: Rows
    values: Floats
    low: Floats
    high: Floats
    decimals: int
    tolerance: float
    sign: int

    @property
    def size(self) -> int:
        """The length of the list."""
        return min(self.k, len(self.rows))

    def listed(self) -> tuple[list[ObjectId], list[float]]:
        """Returns the ids and figures of the list."""
        ids = [self.objects.ids[row] for row in self.rows[: self.size].tolist()]
        return ids, self.values[: self.size].tolist()

    def difference(self, ids: Sequence[ObjectId], values: Sequence[float] | None) -> str | None:
        """Returns the error in a list, None if it is correct.

        Args:
            ids: The objects in it.
            values: Their figures; None to check only the ids.
        """
        if len(ids) != self.size:
            return f"names {len(ids)} objects instead of {self.size}"
        places: list[int] = []
        for found in self._places(ids):
            if isinstance(found, str):
                return found
            places.append(found)
        if values is not None and (fault := self._wrong_figure(ids, values, places)):
            return fault
        for before, behind in pairwise(places):
            if self._certain(behind, before):
                return f"{self._name(before)} stands before {self._name(behind)}"
        for other in sorted(set(range(max(places, default=0))) - set(places)):
            for place in places:
                if self._certain(other, place):
                    return f"{self._name(other)} is missing, {self._name(place)} is there"
        return None

    def _places(self, ids: Sequence[ObjectId]) -> list[int | str]:
        """Returns the place of each object of a list, or an error.

        The n-th object of an id is the n-th best.
        """
        position = np.full(len(self.objects), -1, np.int64)
        position[self.rows] = np.arange(len(self.rows))
        free: dict[ObjectId, list[int]] = {}
        places: list[int | str] = []
        for one in ids:
            if one not in free:
                rows = self.objects.rows_of.get(one, []) if is_id(one) else []
                free[one] = sorted(place for place in position[rows].tolist() if place >= 0)
            places.append(free[one].pop(0) if free[one] else f"{one!r} does not belong there")
        return places

    def _wrong_figure(
        self, ids: Sequence[ObjectId], values: Sequence[float], places: list[int]
    ) -> str | None:
        for one, value, place in zip(ids, values, places, strict=True):
            if not abs(value - self.values[place]) <= self.tolerance:
                return f"{one!r} has {value!r} instead of {self.values[place].item()!r}"
            if round(value, self.decimals) != value:
                return f"{one!r} has {value!r}, which is not rounded"
        keys = self.objects.keys[self.rows[places]].tolist()
        figures = [self.sign * value for value in values]
        for (a, b), (x, y) in zip(pairwise(figures), pairwise(keys), strict=True):
            if (a, x) > (b, y):
                return f"{self.sign * a!r} (id {x}) stands before {self.sign * b!r} (id {y})"
        return None

    def _certain(self, first: int, second: int) -> bool:
        """Returns whether the first place is certainly before the second."""
        worst = max(self.sign * bound[first] for bound in (self.low, self.high))
        best = min(self.sign * bound[second] for bound in (self.low, self.high))
        one, other = (self.objects.keys[self.rows[place]] for place in (first, second))
        return bool(worst < best or (worst == best and one < other))

    def _name(self, place: int) -> str:
        one = self.objects.ids[self.rows[place]]
        return f"{one!r} ({self.values[place].item()!r})"


def ranking(
    objects: Objects, k: int, rows: Rows, figures: tuple[Floats, Floats, Floats], *, is_score: bool
) -> Ranking:
    """Ranks objects.

    Args:
        objects: The table.
        k: Greatest length of a list.
        rows: i8[n], the objects.
        figures: f8[n] each, not rounded: of each object its figure, the least, the greatest.
        is_score: The greatest is the best, and figures are rounded as scores, not metres.
    """
    decimals = SCORE_DECIMALS if is_score else DISTANCE_DECIMALS
    sign = -1 if is_score else 1
    values, low, high = (np.round(figure, decimals) for figure in figures)
    order = np.lexsort((rows, objects.keys[rows], sign * values))
    return Ranking(
        objects=objects,
        k=k,
        rows=rows[order],
        values=values[order],
        low=low[order],
        high=high[order],
        decimals=decimals,
        tolerance=SCORE_TOLERANCE if is_score else DISTANCE_TOLERANCE_M,
        sign=sign,
    )
