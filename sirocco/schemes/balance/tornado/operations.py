"""Tornado's two operations, priced: split/merge and shift (Tornado 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.detail_parts import part_of
from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.neighbours import Border, Neighbourhood
from sirocco.schemes.balance.base.placement import Placement
from sirocco.schemes.balance.base.plans import draft_loads, least_gain_of
from sirocco.schemes.balance.base.view import LeafDetail
from sirocco.schemes.balance.base.work import work_profile
from sirocco.schemes.workload.spatial_aggregates import Aggregates, Cut
from sirocco.schemes.workload.swarm_statistics import AxisStatistics

# Pairs of light leaves considered for the merge while another leaf is split. In Tornado, where a
# leaf is an evaluator, the lightest pair is the best; if evaluators have several leaves, the
# lightest pair may be on busy ones.
PAIRS_MAX = 16

# A leaf's cost in whole units for comparing splits on both axes: coarse enough that sums which
# should be equal are equal, fine enough to distinguish halves to a millionth.
PROFILE_UNITS = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Strip:
    """The part that a split removes from a leaf.

    Attributes:
        axis: 0: the split is between columns, 1: between rows.
        at: Columns or rows before the split.
        first_moves: Whether the part before the split moves.
        cost: Cost of the moving part.
        queries: Standing queries in it.
        kept_queries: Standing queries in the rest.
    """

    axis: int
    at: int
    first_moves: bool
    cost: float
    queries: float
    kept_queries: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, or its estimate.

    Attributes:
        reason: Its name.
        reduction: Cr: how far the greatest cost of the evaluators involved falls.
        queries: Queries that are transferred; times β this is Ct.
        leaf: The overloaded leaf.
        border: For a shift: its border.
        strip: The moving part; None: unknown until the operation is chosen (4.3).
        pair: For split/merge: the leaf that absorbs the other, and the other.
        slot: For split/merge: the slot that receives the moving half.
    """

    reason: str
    reduction: float
    queries: float
    leaf: int
    border: Border | None = None
    strip: Strip | None = None
    pair: tuple[int, int] | None = None
    slot: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Data of a leaf of the draft beside its cost.

    Attributes:
        met: The part of the cost for queries met.
        objects: Objects of the round.
        detail: Its aggregates; None: it cannot be split.
    """

    met: float
    objects: float
    detail: LeafDetail | None


class Costs:
    """Costs of a draft's leaves and of the evaluators that hold them.

    Attributes:
        placement, draft: See there.
        loads: f8[evaluators], predicted for the draft.
    """

    def __init__(self, placement: Placement, draft: Draft) -> None:
        self.placement, self.draft = placement, draft
        self.loads = placement.loads
        self._loads: list[float] = self.loads.tolist()
        view_loads, details = placement.view.loads, placement.view.details
        self._known = {
            number: Known(met, objects, details.get(leaf.id))
            for number, (leaf, met, objects) in enumerate(
                zip(
                    placement.view.map.leaves,
                    view_loads.met.tolist(),
                    view_loads.objects.tolist(),
                    strict=True,
                )
            )
        }

    def detail(self, leaf: int) -> LeafDetail | None:
        """Returns the aggregates of a leaf: reported ones, or those derived from the split leaf."""
        return self._known[leaf].detail

    def profile(self, leaf: int, detail: LeafDetail, axis: int) -> NDArray[np.float64]:
        """Returns the cost of each column (axis 0) or row of a leaf, see `work_profile`."""
        return work_profile(detail, axis, self.draft[leaf].load, self._known[leaf].met)

    def queries(self, leaf: int) -> float:
        """Returns the number of standing queries in a leaf."""
        view_loads = self.placement.view.loads.queries
        sources = self.draft[leaf].sources.items()
        return float(sum(share * view_loads[source] for source, share in sources))

    def machine(self, leaf: int) -> int:
        """Returns the evaluator of a leaf."""
        return int(self.placement.machine_of_slot[self.draft[leaf].slot])

    def spare_slot(self) -> int:
        """Returns the lightest slot of the least loaded evaluator that has one."""
        machine_of_slot = self.placement.machine_of_slot
        slots = np.zeros(len(machine_of_slot))
        for number in self.draft:
            slots[self.draft[number].slot] += self.draft[number].load
        return int(np.lexsort((slots, self.loads[machine_of_slot]))[0])

    def least_gain(self, machine: int) -> float:
        """Returns the minimum relief of an evaluator that pays, see `plans`."""
        own = [number for number in self.draft if self.machine(number) == machine]
        cost = np.array([self.draft[number].load for number in own])
        return least_gain_of(cost, np.array([self._known[number].objects for number in own]))

    def reduction(self, changes: dict[int, float]) -> float:
        """Returns Cr (equation 4).

        Args:
            changes: Evaluator → growth of its cost.
        """
        before = max([self._loads[machine] for machine in changes])
        after = max([self._loads[machine] + change for machine, change in changes.items()])
        return before - after

    def split(self, leaf: int, strip: Strip, detail: LeafDetail) -> int:
        """Splits a leaf of the draft; returns the number of the moving part."""
        borders = (detail.grid.x_borders, detail.grid.y_borders)[strip.axis]
        cost, standing = self.draft[leaf].load, self.queries(leaf)
        # Not negative: sums of parts differ from the whole by rounding.
        kept = max(cost - strip.cost, 0.0)
        parts = [(strip.cost, strip.queries), (kept, strip.kept_queries)]
        if not strip.first_moves:
            parts.reverse()
        share = [min(queries / standing, 1.0) if standing > 0 else 1.0 for _, queries in parts]
        loads = (parts[0][0], parts[1][0])
        at = float(borders[strip.at])
        halves = self.draft.split(leaf, strip.axis, at, loads, (share[0], share[1]))
        whole = self._known.pop(leaf)
        for half, load, is_first in zip(halves, loads, (True, False), strict=True):
            part = load / cost if cost > 0 else 0.0
            own = part_of(detail, strip.axis, strip.at, is_first=is_first)
            self._known[half] = Known(part * whole.met, part * whole.objects, own)
        return halves[0] if strip.first_moves else halves[1]

    def merge(self, kept: int, other: int) -> None:
        """Joins a leaf of the draft with another, in the slot of the first."""
        joint = self.draft.merge((kept, other), self.draft[kept].slot)
        parts = self._known.pop(kept), self._known.pop(other)
        met, objects = sum(part.met for part in parts), sum(part.objects for part in parts)
        # Two leaves have no columns and rows in common.
        self._known[joint] = Known(met, objects, None)

    def count(self) -> None:
        """Computes the loads of evaluators again, after a change of the draft."""
        self.loads = draft_loads(self.placement, self.draft)
        self._loads = self.loads.tolist()


def strip_of(
    detail: LeafDetail, profile: NDArray[np.float64], axis: int, at: int, first_moves: bool
) -> Strip:
    """Returns the part that a split removes from a leaf, only from its aggregates.

    Args:
        detail: The leaf's aggregates.
        profile: f8[c], its cost by column or row, see `Costs.profile`.
        axis, at, first_moves: See `Strip`.
    """
    before, after = (max(float(part.sum()), 0.0) for part in (profile[:at], profile[at:]))
    statistics = (detail.statistics.columns, detail.statistics.rows)[axis]
    first, second = _queries(statistics, at)
    if first_moves:
        return Strip(axis, at, True, before, first, second)
    return Strip(axis, at, False, after, second, first)


def _queries(statistics: AxisStatistics, at: int) -> tuple[float, float]:
    """Returns how many queries overlap the cells before a split, and those after it."""
    before = float(statistics.queries[at - 1])
    after = float(statistics.queries[-1]) - before + float(statistics.spans[at])
    return before, after


def splits(
    costs: Costs, pairs: Sequence[tuple[int, int]], leaf: int, detail: LeafDetail
) -> Iterator[Operation]:
    """Yields split/merge operations (Figure 3).

    The leaf is split where its halves cost the same; two light neighbours Y and Z become one in Y's
    slot, and the moving half takes the place of Z, so that the number of leaves stays. Halves are
    optimal for equation 4 if a leaf is an evaluator. If evaluators have several leaves, the best
    split leaves both evaluators with the same load, and the half may move to the least loaded of
    all: evaluators with light neighbours need not be those with room.

    Args:
        costs: Costs and the draft.
        pairs: See `light_pairs`.
        leaf, detail: The leaf to split.
    """
    strips = Strips(detail, (costs.profile(leaf, detail, 0), costs.profile(leaf, detail, 1)))
    own, spare = costs.machine(leaf), costs.spare_slot()
    for pair in islice((pair for pair in pairs if leaf not in pair), PAIRS_MAX):
        for y, z in (pair, pair[::-1]):
            taker, freed = costs.machine(y), costs.machine(z)
            merged, moved = costs.draft[z].load, costs.queries(z)
            for slot in dict.fromkeys((costs.draft[z].slot, spare)):
                to = int(costs.placement.machine_of_slot[slot])
                if to == taker and to != freed:
                    continue
                wanted = float(costs.loads[own] - costs.loads[to]) / 2
                if to == freed:
                    wanted += merged / 2
                for strip in strips.about(wanted):
                    changes = dict.fromkeys((own, taker, freed, to), 0.0)
                    changes[own] -= strip.cost
                    changes[taker] += merged
                    changes[freed] -= merged
                    changes[to] += strip.cost
                    queries, reduction = strip.queries + moved, costs.reduction(changes)
                    yield Operation(
                        reason="split/merge",
                        reduction=reduction,
                        queries=queries,
                        leaf=leaf,
                        border=None,
                        strip=strip,
                        pair=(y, z),
                        slot=slot,
                    )


class Strips:
    """The strips of a leaf's splits, cached because many operations request the same ones.

    Args:
        detail: The leaf's aggregates.
        profiles: f8[c], its cost by column, and f8[c] by row.
    """

    def __init__(
        self, detail: LeafDetail, profiles: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> None:
        self._detail, self._profiles = detail, profiles
        self._kept: dict[tuple[int, int, bool], Strip] = {}
        self._about: dict[float, tuple[Strip, ...]] = {}
        self._split_loads = [
            (axis, first_moves, split_by_cuts(profile, first_moves))
            for axis, profile in enumerate(profiles)
            if len(profile) > 1
            for first_moves in (True, False)
        ]
        cut = _best_cut(*profiles)
        self._halves = [] if cut is None else [(cut.axis, cut.at, each) for each in (True, False)]

    def about(self, wanted: float) -> tuple[Strip, ...]:
        """Returns both sides of the most even split, and the strips that cost about `wanted`.

        The latter along either axis, from either side. Nothing if no split is possible.
        """
        if wanted not in self._about:
            keys = [
                (axis, nearest(split_loads, wanted), first)
                for axis, first, split_loads in self._split_loads
            ]
            of_all = dict.fromkeys([*self._halves, *keys])
            self._about[wanted] = tuple(self._strip(*key) for key in of_all)
        return self._about[wanted]

    def _strip(self, axis: int, at: int, first_moves: bool) -> Strip:
        key = axis, at, first_moves
        if key not in self._kept:
            self._kept[key] = strip_of(self._detail, self._profiles[axis], axis, at, first_moves)
        return self._kept[key]


def light_pairs(costs: Costs, near: Neighbourhood) -> list[tuple[int, int]]:
    """Returns the pairs of leaves that share a whole side, the lightest first."""
    return sorted(near.pairs(), key=_pair_cost(costs))


def _pair_cost(costs: Costs) -> Callable[[tuple[int, int]], tuple[float, tuple[int, int]]]:
    return lambda pair: (costs.draft[pair[0]].load + costs.draft[pair[1]].load, pair)


def _best_cut(columns: NDArray[np.float64], rows: NDArray[np.float64]) -> Cut | None:
    """Returns the split of least difference; whole numbers keep sums of both axes comparable."""
    scale = PROFILE_UNITS / max(float(columns.sum()), np.finfo(np.float64).tiny)
    whole = [np.rint(profile * scale).astype(np.int64) for profile in (columns, rows)]
    return Aggregates(*whole).best_cut()


def corner_shifts(
    costs: Costs, near: Neighbourhood, leaf: int, detail: LeafDetail
) -> Iterator[Operation]:
    """Yields corner shifts: only one split is possible, so the leaf knows all costs (Fig. 4c)."""
    own = costs.machine(leaf)
    for corner in near.corners(leaf):
        other = costs.machine(corner.border.neighbour)
        if other == own:
            continue
        axis = 1 - corner.border.axis
        at = cell_at(detail, axis, corner.at)
        if at is None:
            continue
        profile = costs.profile(leaf, detail, axis)
        strip = strip_of(detail, profile, axis, at, corner.first_moves)
        reduction = costs.reduction({own: -strip.cost, other: strip.cost})
        yield Operation(
            reason="corner shift",
            reduction=reduction,
            queries=strip.queries,
            leaf=leaf,
            border=corner.border,
            strip=strip,
        )


def shifts(costs: Costs, near: Neighbourhood, leaf: int) -> Iterator[Operation]:
    """Yields horizontal and vertical shifts, estimated without the leaf's aggregates (4.3).

    The best shift leaves both evaluators with half of their sum; queries are assumed to be evenly
    distributed in the leaf. A leaf cannot give more than it has.
    """
    own, cost = costs.machine(leaf), costs.draft[leaf].load
    if cost <= 0:
        return
    for border in near.whole_borders(leaf):
        other = costs.machine(border.neighbour)
        if other == own:
            continue
        given = min(wanted_shift(costs, leaf, border), cost)
        queries = costs.queries(leaf) * given / cost
        # Figure 4: a horizontal shift is across a shared horizontal boundary.
        reason = "vertical shift" if border.axis == 0 else "horizontal shift"
        reduction = costs.reduction({own: -given, other: given})
        yield Operation(
            reason=reason, reduction=reduction, queries=queries, leaf=leaf, border=border
        )


def wanted_shift(costs: Costs, leaf: int, border: Border) -> float:
    """Returns the cost that a shift should move: cost(A) - (cost(A) + cost(B)) / 2."""
    own, other = costs.machine(leaf), costs.machine(border.neighbour)
    return max(float(costs.loads[own] - costs.loads[other]) / 2, 0.0)


def exact_shift(costs: Costs, operation: Operation, detail: LeafDetail) -> Operation | None:
    """Returns a shift with its split, which the evaluators compute once it is chosen (4.3).

    The split whose strip is nearest to the wanted cost; None for a single row.
    """
    border, leaf = operation.border, operation.leaf
    if border is None:
        return None
    profile = costs.profile(leaf, detail, border.axis)
    if len(profile) < 2:
        return None
    at = nearest_cut(profile, wanted_shift(costs, leaf, border), border.is_before)
    strip = strip_of(detail, profile, border.axis, at, border.is_before)
    changes = {costs.machine(leaf): -strip.cost, costs.machine(border.neighbour): strip.cost}
    reduction = costs.reduction(changes)
    return Operation(
        reason=operation.reason,
        reduction=reduction,
        queries=strip.queries,
        leaf=leaf,
        border=border,
        strip=strip,
    )


def nearest_cut(profile: NDArray[np.float64], wanted: float, first_moves: bool) -> int:
    """Returns the number of columns or rows before the split that removes a wanted cost.

    Args:
        profile: f8[c], c ≥ 2, cost by column or row.
        wanted: Cost that should move.
        first_moves: Whether the part before the split moves.
    """
    return nearest(split_by_cuts(profile, first_moves), wanted)


def split_by_cuts(profile: NDArray[np.float64], first_moves: bool) -> NDArray[np.float64]:
    """Returns the cost that each split removes, f8[c - 1]; see `nearest_cut`."""
    before = np.cumsum(profile)[:-1]
    return before if first_moves else float(profile.sum()) - before


def nearest(split_loads: NDArray[np.float64], wanted: float) -> int:
    """Returns the number of columns or rows before the split that removes about `wanted`."""
    return int(np.abs(split_loads - wanted).argmin()) + 1


def cell_at(detail: LeafDetail, axis: int, degrees: float) -> int | None:
    """Returns the columns or rows before a coordinate; None if no inner border is there."""
    borders = (detail.grid.x_borders, detail.grid.y_borders)[axis]
    at = int(np.searchsorted(borders, degrees))
    is_border = 0 < at < len(borders) - 1 and borders[at] == degrees
    return at if is_border else None


def apply(costs: Costs, operation: Operation, detail: LeafDetail) -> None:
    """Applies an operation to the draft.

    Args:
        costs: Costs and the draft.
        operation: The operation with its strip.
        detail: Detail of its leaf.
    """
    if operation.strip is None:
        raise AssertionError("an estimate cannot be applied")
    moving = costs.split(operation.leaf, operation.strip, detail)
    if operation.pair is not None:
        y, z = operation.pair
        costs.merge(y, z)
        costs.draft.put(moving, operation.slot)
    elif operation.border is not None:
        costs.merge(operation.border.neighbour, moving)
    costs.count()
