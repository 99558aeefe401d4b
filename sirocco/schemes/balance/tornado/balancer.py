"""Tornado's balancer: the operations of most relief that are worth their transfer (Tornado 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.neighbours import Neighbourhood
from sirocco.schemes.balance.base.placement import Placement, placed
from sirocco.schemes.balance.base.plans import least_gain, map_plan, no_change
from sirocco.schemes.balance.base.view import LeafDetail, Plan, View
from sirocco.schemes.balance.base.work import work
from sirocco.schemes.balance.tornado.operations import (
    Costs,
    Operation,
    apply,
    corner_shifts,
    exact_shift,
    light_pairs,
    shifts,
    splits,
)


@dataclass(frozen=True, slots=True)
class TornadoSettings:
    """Parameters of section 4.

    Attributes:
        query_price: β, what the transfer of a query costs, in looks at a query (equation 5).
        leaves_max: Leaves of the most loaded evaluator that are looked into. In Tornado there
            is one; the operations of the lightest relieve it least.
        operations_max: Operations of one plan. Halving a leaf until all of n evaluators have a
            part of it takes n - 1, and some shifts then even out what halves leave.
    """

    query_price: float = 1.0
    leaves_max: int = 4
    operations_max: int = 16


class Tornado:
    """Chooses among split/merge and the three shifts, one operation after the other.

    In Tornado an evaluator is a leaf. Here it holds several, so the cost of an evaluator is that
    of all its leaves, and an operation takes from a leaf of the most loaded one and gives to a
    leaf of another. The transfer in two steps (4.5), cells first and then routers, is what any
    change of the map does: queries are copied before a switch is recorded.

    Operations concern two or three evaluators, and in Tornado each pair does its own (4.3). Here
    a change of the map costs the same however many leaves it concerns, and takes seconds. So a plan
    does one operation after the other, each judged by the loads that those before it leave.
    """

    name = "tornado"

    def __init__(self, settings: TornadoSettings | None = None) -> None:
        self._settings = settings or TornadoSettings()

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`. Wants the details of the heaviest leaves it may cut."""
        placement = placed(view, work(view.loads))
        costs = Costs(placement, Draft(view, placement.cost))
        if len(view.evaluators) < 2 or _is_even(placement):
            return no_change(placement, view.memory)
        wants = tuple(
            view.map.leaves[leaf].id
            for machine in _overloaded(placement)
            for leaf in self._heaviest(costs, machine)
            if costs.detail(leaf) is None
        )
        if wants:
            return no_change(placement, view.memory, wants)
        reasons = []
        for left in reversed(range(self._settings.operations_max)):
            reason = self._operate(costs, is_last=not left)
            if reason is None:
                break
            reasons.append(reason)
        if not reasons:
            return no_change(placement, view.memory)
        return map_plan(placement, costs.draft, view.memory, ", ".join(dict.fromkeys(reasons)))

    def _operate(self, costs: Costs, *, is_last: bool) -> str | None:
        """Does the best operation of the most loaded evaluator; returns its name.

        What a shift gives becomes part of a leaf that cannot be cut in the same plan. So one that
        leaves an evaluator with too much, by itself the best, comes behind those of others.
        """
        busiest = int(costs.loads.argmax())
        least = costs.least_gain(busiest)
        leaves = self._heaviest(costs, busiest)
        details = {leaf: detail for leaf in leaves if (detail := costs.detail(leaf)) is not None}
        ranked = self._ranked(costs, details, least)
        if not is_last:
            limit = float(costs.loads.max() - costs.loads.mean()) - least
            ranked.sort(key=lambda one: one.pair is None and one.reduction < limit)
        for operation in ranked:
            detail = details[operation.leaf]
            chosen = operation
            if operation.strip is None:
                exact = exact_shift(costs, operation, detail)
                if exact is None or not self._pays(exact, least):
                    continue
                chosen = exact
            apply(costs, chosen, detail)
            return chosen.reason
        return None

    def _ranked(
        self, costs: Costs, details: dict[int, LeafDetail], least: float
    ) -> list[Operation]:
        """Returns the operations with Cr > Ct, the greatest Cr first; shifts as estimated."""
        draft = costs.draft
        near = Neighbourhood(
            (number, draft[number]) for number in draft if draft.is_spatial(number)
        )
        pairs = light_pairs(costs, near)
        found = [
            operation
            for leaf, detail in details.items()
            for operation in self._operations(costs, near, pairs, leaf, detail)
            if self._pays(operation, least)
        ]
        return sorted(found, key=lambda one: (-one.reduction, one.queries))

    def _pays(self, operation: Operation, least: float) -> bool:
        return operation.reduction > max(self._settings.query_price * operation.queries, least)

    @staticmethod
    def _operations(
        costs: Costs,
        near: Neighbourhood,
        pairs: list[tuple[int, int]],
        leaf: int,
        detail: LeafDetail,
    ) -> Iterator[Operation]:
        yield from shifts(costs, near, leaf)
        yield from corner_shifts(costs, near, leaf, detail)
        yield from splits(costs, pairs, leaf, detail)

    def _heaviest(self, costs: Costs, machine: int) -> list[int]:
        draft = costs.draft
        own = [leaf for leaf in draft if costs.machine(leaf) == machine and draft.is_spatial(leaf)]
        own = [leaf for leaf in own if draft[leaf].load > 0]
        return sorted(own, key=lambda leaf: (-draft[leaf].load, leaf))[: self._settings.leaves_max]


def _overloaded(placement: Placement) -> list[int]:
    """Returns the evaluators whose relief can pay: those which operations can come to."""
    loads = placement.loads
    excess = loads - loads.mean()
    return [one for one in range(len(loads)) if excess[one] > least_gain(placement, one)]


def _is_even(placement: Placement) -> bool:
    """Whether even a perfect balance would not pay: then no evaluator is asked anything."""
    return int(placement.loads.argmax()) not in _overloaded(placement)
