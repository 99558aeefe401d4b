"""SSTD's balancer: PM, then FM, then FG (SSTD 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.placement import Placement, added, imbalance, placed
from sirocco.schemes.balance.base.plans import draft_loads, map_plan, moves_plan, no_change, pays
from sirocco.schemes.balance.base.reallocation import (
    Units,
    full,
    leaf_units,
    partial,
    place_leaves,
    slot_units,
)
from sirocco.schemes.balance.base.view import LeafLoads, Plan, View
from sirocco.schemes.balance.base.work import Cost, work
from sirocco.schemes.balance.sstd.query_mix import QueryMix
from sirocco.schemes.balance.sstd.tree import adjust_tree
from sirocco.schemes.workload.allocation import karmarkar_karp
from sirocco.schemes.workload.cost import HANDLING_SHARE

Method = Callable[[Units], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class SstdSettings:
    """Parameters of section 5.

    Attributes:
        threshold: λ, the greatest Lmax / Lmin. The paper tried 2 to 10 without much difference and
            chose 6; at 6 one of four evaluators may have two thirds of all load, and at 2 the
            busiest of eight still had 1.7 times the mean. Equal to σ of PS2Stream's balancer.
        epsilon: ε, the greatest discrepancy ĥ up to which space is split.
        query_price: Cost of copying a standing query, in the unit of `cost`.
        cost: Measure for comparing workers. The paper's is `workloads`.
    """

    threshold: float = 1.5
    epsilon: float = 0.5
    query_price: float = 0.0
    cost: Cost = work


class Sstd:
    """Chooses the cheapest method that restores balance.

    The paper's worker is our evaluator; its load is the work of its leaves instead of the paper's
    equation 2: see `work`. The paper reallocates leaves; ours are in slots. Changing a slot's owner
    does not affect routers, while changing a leaf's slot needs a new map. So PM and FM are tried
    with slots first and then with leaves. Past objects stay where they are in both cases, as in the
    paper.
    """

    name = "sstd"

    def __init__(self, settings: SstdSettings | None = None) -> None:
        self._settings = settings or SstdSettings()

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`. Without a sample leaves are split into equal quarters."""
        placement = placed(view, self._settings.cost(view.loads))
        threshold = self._settings.threshold
        unchanged = no_change(placement, view.memory)
        if imbalance(placement.loads) <= threshold:
            return unchanged
        best = unchanged
        for plan, loads in self._options(placement):
            if not pays(placement, plan, self._settings.query_price):
                continue
            if imbalance(loads) <= threshold:
                return plan
            if plan.maximum_after < best.maximum_after:
                best = plan
        return best

    def _options(self, placement: Placement) -> Iterator[tuple[Plan, NDArray[np.float64]]]:
        """Yields plans, the cheapest first, with the resulting loads."""
        memory, evaluators = placement.view.memory, len(placement.view.evaluators)
        by_slot = slot_units(placement)
        for name, method in (("PM", partial), ("FM", full)):
            machine = method(by_slot)
            plan = moves_plan(placement, machine, memory, name)
            yield plan, added(by_slot.load, machine, evaluators)
        for name, method in (("PM of leaves", partial), ("FM of leaves", full)):
            draft = Draft(placement.view, placement.cost)
            self._reallocate(placement, draft, method)
            yield map_plan(placement, draft, memory, name), draft_loads(placement, draft)
        draft = Draft(placement.view, placement.cost)
        mix = QueryMix(placement.view)
        adjust_tree(draft, mix, self._settings.epsilon, lambda one: self._fits(placement, one))
        self._reallocate(placement, draft, full)
        yield map_plan(placement, draft, memory, "FG"), draft_loads(placement, draft)

    def _fits(self, placement: Placement, draft: Draft) -> bool:
        """Whether Karmarkar-Karp balances the draft's leaves."""
        load = np.array([draft[number].load for number in draft])
        machines = len(sorted_distinct(placement.machine_of_slot))
        # If the heaviest leaf alone is too much, no division helps: differencing a thousand leaves
        # is the most expensive part of a round, and a round may try it often.
        rest = float(load.sum() - load.max())
        if float(load.max()) * (machines - 1) > self._settings.threshold * rest:
            return False
        subset_of = karmarkar_karp(load, machines).astype(np.int64)
        return imbalance(added(load, subset_of, machines)) <= self._settings.threshold

    @staticmethod
    def _reallocate(placement: Placement, draft: Draft, method: Method) -> None:
        place_leaves(placement, draft, method(leaf_units(placement, draft)))


def workloads(loads: LeafLoads) -> NDArray[np.float64]:
    """Returns the workload of each leaf from the measurements (equation 2), f8[leaves].

    For each object, the probability that a random query checks it, estimated as the share of the
    standing queries in its leaf, plus its handling as in `handling_of`.
    """
    standing = float(loads.queries.sum())
    reach = loads.queries / standing if standing else np.zeros(len(loads.queries))
    seen = loads.objects * reach
    objects = float(loads.objects.sum())
    mean = float(seen.sum()) / objects if objects else 0.0
    handling = HANDLING_SHARE * mean if mean > 0 else 1.0
    return seen + handling * loads.objects
