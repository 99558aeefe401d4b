"""Tornado's balancer: the operations of most relief that pay for their transfer (Tornado 4)."""

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
        query_price: β, cost of the transfer of a query, in checks of a query (equation 5).
        leaves_max: Examined leaves of the most loaded evaluator. In Tornado there is one;
            operations on the lightest ones relieve it least.
        operations_max: Operations of one plan. Halving a leaf until all of n evaluators have a part
            of it takes n - 1, and some shifts then even out the rest.
    """

    query_price: float = 1.0
    leaves_max: int = 4
    operations_max: int = 16


class Tornado:
    """Chooses among split/merge and the three shifts, one operation after another.

    In Tornado an evaluator is a leaf. Here it holds several, so the cost of an evaluator is that of
    all its leaves, and an operation moves load from a leaf of the most loaded one to a leaf of
    another. The transfer in two steps (4.5), cells first and then routers, is part of every map
    change: queries are copied before the switch is recorded.

    Operations concern two or three evaluators, and in Tornado each pair does its own (4.3). Here a
    map change costs the same for any number of leaves, and takes seconds. So a plan contains
    several operations, each based on the loads left by the previous ones.
    """

    name = "tornado"

    def __init__(self, settings: TornadoSettings | None = None) -> None:
        self._settings = settings or TornadoSettings()

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`. Requests the details of the heaviest leaves that it may split."""
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
        """Applies the best operation of the most loaded evaluator; returns its name.

        The shifted part joins a leaf that cannot be split in the same plan. So a shift that leaves
        an evaluator overloaded is tried after the operations of others, even if it is the best by
        itself.
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
        """Returns the operations with Cr > Ct, the greatest Cr first; shifts are estimates."""
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
    """Returns the evaluators whose relief can pay: those to which operations can apply."""
    loads = placement.loads
    excess = loads - loads.mean()
    return [one for one in range(len(loads)) if excess[one] > least_gain(placement, one)]


def _is_even(placement: Placement) -> bool:
    """Whether even a perfect balance would not pay: then no evaluator is asked for details."""
    return int(placement.loads.argmax()) not in _overloaded(placement)
