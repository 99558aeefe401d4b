"""SSTD's balancer with one of its methods alone, as the paper compares them (SSTD 7.6)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.placement import Placement
from sirocco.schemes.balance.base.view import Plan
from sirocco.schemes.balance.sstd.balancer import Sstd

NAMES = ("PM", "FM", "FG")


class OneMethod(Sstd):
    """Removes all options except those of one method, with slots or with leaves."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def _options(self, placement: Placement) -> Iterator[tuple[Plan, NDArray[np.float64]]]:
        for plan, loads in super()._options(placement):
            # A plan without moves has no reason.
            if plan.reason.startswith(self._method):
                yield plan, loads


def methods() -> Iterator[tuple[str, OneMethod]]:
    """Yields each method's balancer."""
    for name in NAMES:
        yield f"{name} alone", OneMethod(name)
