"""A cluster in virtual time: evaluators of a core each, moves of slots, changes of the map.

Queues and measured costs decide what is served and how long it takes; the real maps and their
routing arrays decide the destinations. A change takes the steps of
docs/explanation/balancing.md and ADR 19:

    slots   the next owners load past objects, and checkpoints are written, while their owners
            continue ─▶ grant ─▶ the next owners load them; until then these slots are not served
    map     queries whose leaves change are sent to their slots under either map ─▶ the map is in
            force ─▶ queries leave slots that no longer need them; only the work for it delays
            anything
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity.backlog import Backlog
from benchmarks.adaptivity.change_times import Settling
from benchmarks.adaptivity.costs import Costs
from benchmarks.adaptivity.round_reports import Round
from benchmarks.adaptivity.routing import Routed, kept_shares, route
from benchmarks.adaptivity.scenes import Scene
from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.protocol.coordinator.assignment import settled
from sirocco.protocol.coordinator.balance_rounds import ClusterState
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.workload.swarm_statistics import KEPT_SHARE
from sirocco.services.router.admission import LIMITS

# The resolution of time and delays: the coordinator's requests take as long.
TICK_S = 0.01

# How long objects wait in routers until they are records of slots (DESIGN 8: 10 to 50 ms); at least
# the tick of their arrival.
HELD_S = 0.02

# Between looks at slow changes: shares of groups, queries that start and end.
LOOK_S = 1.0

# Objects a second that a front takes; there are this many fronts (`router.admission`).
FRONT_RATE = 300_000

# The early rate relative to the later one: so that a map made without the data can be balanced
# before anything is measured, without a backlog from that time.
QUIET_SHARE = 0.2

# The routers that report arrivals: one reports what all together would.
ROUTERS = ("router",)

# Copies of queries are spread over the copying time.
PIECES = 20

# Objects in memory of all evaluators, spread over slots as objects arrive. The next owner of a slot
# loads its share of them; objects that evaluators have matched meanwhile are not added.
STORED = 6_000_000

# Past objects are loaded in threads that step back for matching, but they need some CPU time: half
# of it, where an evaluator has anything else to do.
LOADING_SHARE = 0.5


@dataclass(slots=True, kw_only=True)
class Course:
    """The results of a run; f8 by second.

    Attributes:
        offered, done: Objects.
        busy: f8[seconds, evaluators], CPU seconds.
        products: Of finished objects, each times the queries of its slot: SWARM's units of work.
        delays: See `Backlog`.
        moved_slots, copied_queries, sent_queries: By all changes; queries that were new in a slot,
            and all pairs of a query and a slot that were sent.
        loaded_queries: In checkpoints that were loaded.
        paused_s: Of each moved slot, how long it was not served.
        warmed_s: Of each decision that moves slots, how long past objects were loaded before.
    """

    offered: NDArray[np.float64]
    done: NDArray[np.float64]
    busy: NDArray[np.float64]
    products: NDArray[np.float64]
    delays: NDArray[np.float64]
    moved_slots: int = 0
    copied_queries: int = 0
    sent_queries: int = 0
    loaded_queries: int = 0
    paused_s: list[float] = field(default_factory=list)
    warmed_s: list[float] = field(default_factory=list)


class Cluster:
    """The evaluators and the work under way.

    Args:
        scene: The workload.
        partition_map: The first map.
        evaluators: Number of evaluators.
        rate: Objects offered in a second.
        costs, settling: The costs of work and of changes.
        seed: Of random arrivals.
        tick_s: Resolution of time.
        counts: Whether evaluators count their work by leaf.
    """

    def __init__(
        self,
        scene: Scene,
        partition_map: PartitionMap,
        evaluators: int,
        rate: float,
        costs: Costs,
        settling: Settling,
        seed: int,
        *,
        tick_s: float = TICK_S,
        counts: bool = True,
    ) -> None:
        self.scene, self.costs, self.settling = scene, costs, settling
        self.members = tuple(f"evaluator-{number}" for number in range(evaluators))
        slots = partition_map.slots
        first = settled(dict.fromkeys(range(slots), ""), self.members, ())
        number = {member: place for place, member in enumerate(self.members)}
        self.owner = np.array([number[first[slot]] for slot in range(slots)])
        self.routed: Routed = route(scene, partition_map)
        self.now_s, self.tick = 0.0, 0
        self.phase, self.is_granting = ChangePhase.NONE, False
        self.tick_s = tick_s
        self._look_ticks = round(LOOK_S / tick_s)
        self._held_ticks = max(round(HELD_S / tick_s) - 1, 0)
        rows = round(scene.seconds / tick_s)
        self.backlog = Backlog(rows, slots, tick_s)
        # Random arrivals do not depend on the cluster's behaviour.
        is_quiet = np.arange(rows) * tick_s < scene.quiet_s
        offered = rate * tick_s * np.where(is_quiet, QUIET_SHARE, 1.0)
        self._offers = np.random.default_rng(seed).poisson(offered)
        self._rng = np.random.default_rng(seed + 1)
        self._counts = counts
        self._room = -(-rate // FRONT_RATE) * LIMITS.under_way_bytes_max / costs.object_bytes
        self._debts: list[deque[_Debt]] = [deque() for _ in self.members]
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._is_loading = np.zeros(slots, np.bool_)
        self._lost_s = np.zeros(slots)
        self._up_to_date = np.zeros(slots, np.int64)
        self._worked_s = np.zeros(slots)
        self._saved_at_s = np.zeros(slots)
        seconds = int(np.ceil(scene.seconds)) + 1
        by_second = np.zeros(seconds)
        self.course = Course(
            offered=by_second,
            done=by_second.copy(),
            busy=np.zeros((seconds, evaluators)),
            products=by_second.copy(),
            delays=self.backlog.delays,
        )
        self.standing = scene.standing(0.0)
        self._queries_change = deque(scene.changes_s().tolist())
        self._begin_round()
        self._faded = np.zeros((evaluators, len(partition_map.leaves)))
        self._done = np.zeros(slots)
        # The objects that routers have sent to each leaf by the map in force.
        self.sent = np.zeros(len(partition_map.leaves))
        # The waiting and the finished objects that arrived under the former map.
        self._stale, self._done_stale, self._stale_total = (np.zeros(slots) for _ in range(3))
        self.take_up(0.0)
        self._stale_by_group = np.zeros_like(self._by_group)

    # --- time

    @property
    def is_over(self) -> bool:
        """Whether the scene has ended."""
        return self.tick >= len(self._offers)

    @property
    def waiting(self) -> float:
        """Objects that were offered and are not finished, admitted or not."""
        return self.backlog.waiting + float(self._offers[self.backlog.rows : self.tick].sum())

    def step(self) -> None:
        """Runs one tick: due events happen, evaluators serve, fronts admit."""
        begin_s = self.now_s
        while self._due and self._due[0][0] <= begin_s:
            heapq.heappop(self._due)[2]()
        if self.tick % self._look_ticks == 0:
            self.take_up(begin_s)
        second = int(begin_s)
        self._serve(begin_s, second)
        self.course.offered[second] += self._offers[self.tick]
        self.tick += 1
        self.now_s = self.tick * self.tick_s
        held = self.tick - self._held_ticks
        while self.backlog.rows < held and self.backlog.under_way() < self._room:
            self._let_in(int(self._offers[self.backlog.rows]))

    def end(self) -> Course:
        """Counts the objects that still wait; returns the results."""
        self.backlog.end()
        for row in range(self.backlog.rows, len(self._offers)):
            self.backlog.note_outside(row, float(self._offers[row]))
        return self.course

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Schedules an event."""
        heapq.heappush(self._due, (self.now_s + seconds, next(self._order), act))

    def owe(self, evaluator: int, seconds: float, done: Callable[[], None] | None = None) -> None:
        """Adds work that an evaluator does before it serves on."""
        self._debts[evaluator].append(_Debt(seconds, done))

    # --- objects

    def take_up(self, at_s: float) -> None:
        """Applies changes: of queries, shares of groups, costs."""
        self._add_up()
        self._register(at_s)
        scene, routed = self.scene, self.routed
        shares = scene.shares(at_s)
        present = scene.present(self.standing)
        # f8[groups, leaves]: for an object of the mixture, its share at each leaf.
        self._by_group = shares[:, None] * routed.shares
        self._leaf_hits = np.einsum("m,mcl,c->l", shares, routed.hits, present)
        slot_of_leaf = routed.map.slot_of_leaf
        slots = routed.map.slots
        by_leaf = self._by_group.sum(0)
        self._copies = float(by_leaf.sum())
        by_slot = np.bincount(slot_of_leaf, by_leaf, slots)
        self._slot_share = by_slot / by_slot.sum()
        of_slot = by_slot[slot_of_leaf]
        # f8[leaves]: shares of the objects of a slot.
        self._leaf_share = np.divide(
            by_leaf, of_slot, out=np.zeros_like(by_leaf), where=of_slot > 0
        )
        hits = np.bincount(slot_of_leaf, self._leaf_hits, slots)
        self._slot_hits = hits / np.maximum(by_slot, 1e-300)
        self.queries = routed.queries_of_slots(self.standing)
        self._cost_s = self.costs.taking_s(np.ones(slots), self.queries, self._slot_hits)

    def mean_cost_s(self) -> float:
        """Returns the present CPU seconds of an object, all its copies together."""
        return float((self._slot_share * self._cost_s).sum()) * self._copies

    def _let_in(self, objects: int) -> None:
        copies = self._rng.multinomial(round(objects * self._copies), self._slot_share)
        self.sent += copies[self.routed.map.slot_of_leaf] * self._leaf_share
        # If an object has several copies each counts as a part of it.
        self.backlog.let_in(copies / self._copies, copies * self._cost_s)

    def _serve(self, begin_s: float, second: int) -> None:
        spent_s = np.array([self._pay(debts, self.tick_s) for debts in self._debts])
        served_by = np.where(self._is_loading, -1, self.owner)
        used_s, done = self.backlog.serve(served_by, begin_s + spent_s, self.tick_s - spent_s)
        self._done += done
        stale = np.minimum(done, self._stale)
        self._stale -= stale
        self._done_stale += stale
        self._worked_s += done * self._copies * self._cost_s
        self.course.done[second] += done.sum()
        self.course.products[second] += float(done @ self.queries)
        self.course.busy[second] += spent_s + used_s

    @staticmethod
    def _pay(debts: deque[_Debt], budget_s: float) -> float:
        spent_s = 0.0
        while debts and spent_s < budget_s:
            part = min(debts[0].seconds, budget_s - spent_s)
            debts[0].seconds -= part
            spent_s += part
            if debts[0].seconds > 0:
                break
            done = debts.popleft().done
            if done is not None:
                done()
        return spent_s

    # --- queries

    def _register(self, at_s: float) -> None:
        """Queries start and end; each has a cost in each of its slots."""
        changed = False
        while self._queries_change and self._queries_change[0] <= at_s:
            self._queries_change.popleft()
            changed = True
        if not changed:
            return
        before, self.standing = self.standing, self.scene.standing(at_s)
        new = self.routed.queries_of_slots(self.standing & ~before)
        removed = self.routed.queries_of_slots(before & ~self.standing)
        self._arrived += new
        self._owe_slots(new * self.costs.insert_s + removed * self.costs.remove_s)

    def _owe_slots(self, seconds: NDArray[np.float64]) -> None:
        for evaluator, own_s in enumerate(
            np.bincount(self.owner, seconds, len(self.members)).tolist()
        ):
            if own_s:
                self.owe(evaluator, own_s)

    # --- what is counted

    def _begin_round(self) -> None:
        evaluators, leaves = len(self.members), len(self.routed.map.leaves)
        self._counted = np.zeros((evaluators, len(self.scene.pools), leaves))
        self._met = np.zeros((evaluators, leaves))
        self._arrived = np.zeros(self.routed.map.slots)

    def _add_up(self) -> None:
        """Counts by leaf the work since the last look, with the slot's present mixture of leaves.

        Objects of the former map count where they still belong (`LeafCounts._add_up`).
        """
        if not self._counts or not self._done.any():
            return
        total = self._slot_share * self._copies
        self._count(self._done - self._done_stale, total, self._by_group)
        self._count(self._done_stale, self._stale_total, self._stale_by_group)
        self._done[:] = self._done_stale[:] = 0.0

    def _count(
        self,
        done: NDArray[np.float64],
        total: NDArray[np.float64],
        by_group: NDArray[np.float64],
    ) -> None:
        """Counts the work of slots by leaf.

        Args:
            done: f8[slots], objects.
            total: f8[slots], for an object of the mixture, its share at each slot.
            by_group: f8[groups, leaves], the part of that counted in each leaf.
        """
        if not done.any():
            return
        slot_of_leaf = self.routed.map.slot_of_leaf
        part = np.divide(done * self._copies, total, out=np.zeros(len(done)), where=total > 0)
        of_leaf, evaluators = part[slot_of_leaf], self.owner[slot_of_leaf]
        leaves = np.arange(len(slot_of_leaf))
        self._counted[evaluators, :, leaves] += (by_group * of_leaf).T
        whole = self._by_group.sum(0)
        kept = np.divide(by_group.sum(0), whole, out=np.zeros(len(whole)), where=whole > 0)
        self._met[evaluators, leaves] += self._leaf_hits * kept * of_leaf

    def end_round(self) -> dict[str, Round]:
        """Returns the counts of each evaluator; another round begins."""
        self._add_up()
        self._faded = KEPT_SHARE * self._faded + self._counted.sum(1)
        found = self.round_so_far()
        self._begin_round()
        return found

    def round_so_far(self) -> dict[str, Round]:
        """Returns the counts of each evaluator in the present round."""
        self._add_up()
        return {
            member: Round(self._counted[e], self._met[e], self._faded[e], self._arrived)
            for e, member in enumerate(self.members)
        }

    # --- what the coordinator sees and does

    def look(self) -> ClusterState:
        """Returns the knowledge of the coordinator's machine."""
        owners = tuple(self.members[owner] for owner in self.owner.tolist())
        return ClusterState(
            leading=True,
            phase=self.phase,
            map=self.routed.map,
            owners=owners,
            evaluators=self.members,
            is_granting=self.is_granting,
            routers=ROUTERS,
        )

    def slots_of(self, evaluator: int) -> tuple[int, ...]:
        """Returns the slots that an evaluator owns and serves up to date."""
        mine = np.flatnonzero((self.owner == evaluator) & ~self._is_loading).tolist()
        return tuple(s for s in mine if self.backlog.head(s) >= self._up_to_date[s])

    def warm(self, slots: Mapping[int, list[int]], warmed: Callable[[], None]) -> None:
        """Makes the next owners (evaluator → slots) load past objects, at their cost."""
        seconds = {
            taker: float(self._slot_share[own].sum()) * STORED * self.costs.slice_s
            for taker, own in slots.items()
        }
        self.course.warmed_s.append(max(seconds.values(), default=0.0) / LOADING_SHARE)
        piece_s = LOADING_SHARE * self.tick_s
        ticks = int(np.ceil(max(seconds.values(), default=0.0) / piece_s))
        for tick in range(ticks):
            for taker, all_s in seconds.items():
                if (left_s := all_s - tick * piece_s) > 0:
                    work = partial(self.owe, taker, min(piece_s, left_s))
                    self.after(tick * self.tick_s, work)
        self.after(ticks * self.tick_s, warmed)

    def save(self, slots: list[int], saved: Callable[[], None]) -> None:
        """Makes owners write checkpoints, at their cost."""
        waiting = [len(slots)]

        def end() -> None:
            waiting[0] -= 1
            if not waiting[0]:
                self.after(self.settling.save_s, saved)

        for slot in slots:
            self._saved_at_s[slot] = self._worked_s[slot]
            self.owe(int(self.owner[slot]), self.queries[slot] * self.costs.save_s, end)

    def move(self, moves: Mapping[int, int]) -> None:
        """Moves slots: slot → evaluator."""
        self.is_granting = True
        self.after(self.settling.grant_s, lambda: self._granted(moves))

    def _granted(self, moves: Mapping[int, int]) -> None:
        self.take_up(self.now_s)
        self.is_granting = False
        for slot, evaluator in moves.items():
            self.owner[slot] = evaluator
            self._is_loading[slot] = True
            self._lost_s[slot] = self.now_s
            self.course.moved_slots += 1
            self.course.loaded_queries += int(self.queries[slot])
            # Objects matched after the checkpoint are matched again, without notifications.
            again_s = self._worked_s[slot] - self._saved_at_s[slot]
            work_s = self.queries[slot] * self.costs.load_s + again_s
            self.after(self.settling.begin_s, self._loads(slot, evaluator, work_s))

    def _loads(self, slot: int, evaluator: int, seconds: float) -> Callable[[], None]:
        def loaded() -> None:
            self._is_loading[slot] = False
            self._up_to_date[slot] = self.backlog.rows
            self.course.paused_s.append(self.now_s - float(self._lost_s[slot]))

        return lambda: self.owe(evaluator, seconds, loaded)

    def change_map(self, partition_map: PartitionMap) -> None:
        """Starts a change of the map; queries whose leaves change are sent to their slots."""
        self.phase = ChangePhase.COPYING
        following = route(self.scene, partition_map)
        present, wanted = self.routed.held(), following.held()
        slots = partition_map.slots
        new = np.setdiff1d(wanted, present, assume_unique=True)
        removed = np.setdiff1d(present, wanted, assume_unique=True)
        standing = self.standing
        new, removed = new[standing[new // slots]], removed[standing[removed // slots]]
        concerned = np.zeros(len(standing), np.bool_)
        # Where words decide, too, it is not known which queries a change leaves alone (ADR 38).
        concerned[:] = bool(partition_map.text_nodes or self.routed.map.text_nodes)
        concerned[new // slots] = concerned[removed // slots] = True
        concerned &= standing
        again = present[concerned[present // slots]]
        self.course.copied_queries += len(new)
        self.course.sent_queries += len(new) + len(again)
        work_s = np.bincount(new % slots, minlength=slots) * self.costs.insert_s
        work_s += np.bincount(again % slots, minlength=slots) * self.costs.repeat_s
        copying_s = self.settling.look_s * float(standing.sum())
        copying_s += self.settling.copy_s * float(concerned.sum())
        for piece in range(PIECES):
            self.after(copying_s * piece / PIECES, lambda: self._owe_slots(work_s / PIECES))
        trims = np.bincount(removed % slots, minlength=slots).astype(np.float64)
        trimming_s = trims * self.costs.remove_s
        self.after(self.settling.prepare_s + copying_s, lambda: self._switch(following, trimming_s))

    def _switch(self, following: Routed, trimming_s: NDArray[np.float64]) -> None:
        self._add_up()
        self._stale = self.backlog.waiting_by_slot()
        self._stale_total = self._slot_share * self._copies
        shares = self.scene.shares(self.now_s)
        self._stale_by_group = shares[:, None] * kept_shares(self.routed, following)
        self.routed = following
        # Evaluators restart their counts (`LeafCounts.use`).
        self._begin_round()
        self._faded = np.zeros((len(self.members), len(following.map.leaves)))
        self.sent = np.zeros(len(following.map.leaves))
        self.take_up(self.now_s)
        self.phase = ChangePhase.RETIRING
        self.after(self.settling.retire_s, lambda: self._retired(trimming_s))

    def _retired(self, trimming_s: NDArray[np.float64]) -> None:
        self._owe_slots(trimming_s)
        self.phase = ChangePhase.NONE


@dataclass(slots=True)
class _Debt:
    """Work that precedes objects, and the callback after it."""

    seconds: float
    done: Callable[[], None] | None
