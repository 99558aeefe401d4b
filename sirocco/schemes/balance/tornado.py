"""Tornado's balancer: the one operation of most relief that is worth its transfer (Tornado 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sirocco.schemes.balance.draft import Draft
from sirocco.schemes.balance.neighbours import Neighbourhood
from sirocco.schemes.balance.placement import Placement, placed
from sirocco.schemes.balance.planning import least_gain, map_plan, no_change
from sirocco.schemes.balance.tornado_operations import (
    Costs,
    Operation,
    apply,
    corner_shifts,
    exact_shift,
    shifts,
    splits,
)
from sirocco.schemes.balance.view import Plan, View
from sirocco.schemes.balance.work import work


@dataclass(frozen=True, slots=True)
class TornadoSettings:
    """Parameters of section 4.

    Attributes:
        query_price: β, what the transfer of a query costs, in looks at a query (equation 5).
        leaves_max: Leaves of the most loaded evaluator that are looked into. In Tornado there
            is one; the operations of the lightest relieve it least.
    """

    query_price: float = 1.0
    leaves_max: int = 4


class Tornado:
    """Chooses among split/merge and the three shifts, one operation a round.

    In Tornado an evaluator is a leaf. Here it holds several, so the cost of an evaluator is that
    of all its leaves, and an operation takes from a leaf of the most loaded one and gives to a
    leaf of another. The transfer in two steps (4.5), cells first and then routers, is what any
    change of the map does: queries are copied before a switch is recorded.
    """

    name = "tornado"

    def __init__(self, settings: TornadoSettings | None = None) -> None:
        self._settings = settings or TornadoSettings()

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`. Wants the details of the heaviest leaves it may cut."""
        placement = placed(view, work(view.loads))
        draft = Draft(view, placement.cost)
        costs = Costs(placement, draft)
        busiest = int(placement.loads.argmax())
        spatial = [number for number in draft if draft.is_spatial(number)]
        leaves = self._heaviest(costs, busiest, spatial)
        if not leaves or len(view.evaluators) < 2 or _is_even(placement):
            return no_change(placement, view.memory)
        ids = [view.map.leaves[leaf].id for leaf in leaves]
        wants = tuple(one for one in ids if one not in view.details)
        if wants:
            return no_change(placement, view.memory, wants)
        near = Neighbourhood((number, draft[number]) for number in spatial)
        for operation in self._ranked(costs, near, leaves, view):
            detail = view.details[view.map.leaves[operation.leaf].id]
            chosen = operation
            if operation.strip is None:
                exact = exact_shift(costs, operation, detail)
                if exact is None or not self._pays(costs, exact):
                    continue
                chosen = exact
            apply(costs, chosen, detail)
            return map_plan(placement, draft, view.memory, chosen.reason)
        return no_change(placement, view.memory)

    def _ranked(
        self, costs: Costs, near: Neighbourhood, leaves: list[int], view: View
    ) -> list[Operation]:
        """Returns the operations with Cr > Ct, the greatest Cr first; shifts as estimated."""
        found = [
            operation
            for leaf in leaves
            for operation in self._operations(costs, near, leaf, view)
            if self._pays(costs, operation)
        ]
        return sorted(found, key=lambda one: (-one.reduction, one.queries))

    def _pays(self, costs: Costs, operation: Operation) -> bool:
        price = self._settings.query_price * operation.queries
        least = least_gain(costs.placement, costs.machine(operation.leaf))
        return operation.reduction > max(price, least)

    @staticmethod
    def _operations(
        costs: Costs, near: Neighbourhood, leaf: int, view: View
    ) -> Iterator[Operation]:
        detail = view.details[view.map.leaves[leaf].id]
        yield from shifts(costs, near, leaf)
        yield from corner_shifts(costs, near, leaf, detail)
        yield from splits(costs, near, leaf, detail)

    def _heaviest(self, costs: Costs, machine: int, spatial: list[int]) -> list[int]:
        own = [leaf for leaf in spatial if costs.machine(leaf) == machine]
        own = [leaf for leaf in own if costs.draft[leaf].load > 0]
        return sorted(own, key=lambda leaf: (-costs.draft[leaf].load, leaf))[
            : self._settings.leaves_max
        ]


def _is_even(placement: Placement) -> bool:
    """Whether even a perfect balance would not pay: then no evaluator is asked anything."""
    loads = placement.loads
    return bool(loads.max() - loads.mean() <= least_gain(placement, int(loads.argmax())))
