"""Planted bugs: the simulator must find each, or it would find none of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from sirocco.index.standing.delayed_starts import DelayedStarts
from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import Bounds, Condition
from sirocco.index.store.terms_search import TermCounts
from sirocco.index.store.window_term_counts import WindowTermCounts
from sirocco.protocol.contract.effects import Effect, Loaded
from sirocco.protocol.contract.messages import NEVER_MS, NOT_COPIED, Found, Installed, IntakeObjects
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals, Reached, position_of
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.machine import EvaluatorMachine
from sirocco.protocol.evaluator.reports import partial_records
from sirocco.protocol.evaluator.reports.step_records import StepReport
from sirocco.protocol.evaluator.slot import checkpoint as slot_checkpoint
from sirocco.protocol.evaluator.slot.query_changes import Changed, QueryChanges
from sirocco.protocol.evaluator.slot.removed_queries import RemovedQueries
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing import definitions
from sirocco.protocol.evaluator.standing.step_schedule import StepIndex, StepQuery
from sirocco.protocol.merger.first_step_barrier import FirstStepBarrier
from sirocco.protocol.merger.knn_lists import KnnLists
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.machine import MergerMachine
from sirocco.protocol.merger.step_merge import StepMerges
from sirocco.protocol.router.objects import slot_records
from sirocco.protocol.router.objects.followed_members import FollowedMembers
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.protocol.router.objects.publish_sessions import SessionTable
from sirocco.protocol.router.queries.change_requests import PendingRequests
from sirocco.protocol.router.queries.change_validation import ChangeValidation
from sirocco.protocol.router.queries.install_records import Installs
from sirocco.runtime.limits import ProcessLimits
from tests.simulation import world
from tests.simulation.limits import limits_of
from tests.simulation.node import SOUND, Planted


@dataclass(frozen=True, slots=True)
class Plant:
    """One planted bug.

    Attributes:
        name: the bug.
        profile: the faults that reveal it.
        patches: (class or module, name, the replacement).
        shell: bugs of the shell.
        first_seed: where the search begins: few worlds before it meet the bug.
    """

    name: str
    profile: str
    patches: tuple[tuple[object, str, Any], ...] = ()
    shell: Planted = SOUND
    first_seed: int = 0

    def planted(self) -> ExitStack:
        """Plants the bug while the context is open."""
        stack = ExitStack()
        for owner, name, wrong in self.patches:
            stack.enter_context(patch.object(owner, name, wrong))
        return stack


def _installed_as_begun(
    self: Installs, slot: int, chosen: NDArray[np.int64], gone: list[tuple[int, int]]
) -> Installed:
    reported = _installed(self, slot, chosen, gone)
    return replace(reported, begins_ms=None) if self._copied_at != NOT_COPIED else reported


def _accept_with_gaps(self: Reached, intervals: Intervals) -> NDArray[np.int64]:
    filled = np.array(
        [
            min(begin, self.positions.get(source, 0))
            for source, begin in zip(
                intervals.sources.tolist(), intervals.begins.tolist(), strict=True
            )
        ],
        np.int64,
    )
    return _accept(self, Intervals(intervals.sources, filled, intervals.ends, intervals.times_ms))


def _accept_all(self: Reached, intervals: Intervals) -> NDArray[np.int64]:
    fresh_from = _accept(self, intervals)
    return np.minimum(fresh_from, intervals.begins)


def _take_with_gaps(self: SessionTable, record: IntakeObjects, received_ms: int) -> int:
    state = self.state()
    known = dict(zip(state["sessions"].tolist(), state["numbers"].tolist(), strict=True))
    last = known.get(record.session, record.acknowledged_to)
    if record.first_number > last + 1:
        fill = IntakeObjects(
            session=record.session,
            first_number=last + 1,
            span=record.first_number - last - 1,
            acknowledged_to=0,
            received_ms=record.received_ms,
            objects=record.objects.slice(0, 0),
            number_deltas=np.empty(0, np.uint32),
        )
        _take(self, fill, received_ms)
    return _take(self, record, received_ms)


def _take_repeats(self: SessionTable, record: IntakeObjects, received_ms: int) -> int:
    return min(0, _take(self, record, received_ms))


def _load_without_positions(self: MergerMachine, event: Loaded, now_ms: int) -> list[Effect]:
    state = None
    if event.state is not None:
        nothing = np.empty(0, np.int64)
        state = {**event.state, "slots": nothing, "positions": nothing, "times_ms": nothing}
    loaded = Loaded(
        topic=event.topic,
        partition=event.partition,
        epoch=event.epoch,
        offset=event.offset,
        state=state,
    )
    return _merger_loaded(self, loaded, now_ms)


def _install_all(
    self: QueryChanges, offset: int, message: Installed, floor: int, changed: Changed
) -> None:
    for family, rows in self.standing.names.find(message.names.handles)[0]:
        self.standing.end(family, rows[rows >= 0], offset)
    removed, self.removed = self.removed, RemovedQueries()
    _slot_install(self, offset, message, 0, changed)
    self.removed = removed


def _remove_without_memory(
    self: QueryChanges, offset: int, message: Installed, changed: Changed
) -> None:
    _slot_remove(self, offset, message, changed)
    self.removed = RemovedQueries()


def _any_change(self: ChangeValidation, changes: list[Any], offset: int) -> list[Any]:
    return changes


def _from_memory(
    self: PendingRequests, asked: list[Any], *, is_current: bool = False
) -> list[Effect]:
    return _consider(self, asked, is_current=True)


# --- bugs in lists, steps, the past and tracked values


def _load_and_send(self: MergerMachine, event: Loaded, now_ms: int) -> list[Effect]:
    effects = _merger_loaded(self, event, now_ms)
    for window in self.windows.values():
        window.is_replaying = False
    return effects


def _due_at_its_time(self: StepIndex, time_ms: int, at_most: int) -> list[tuple[int, StepQuery]]:
    return _take_due(self, time_ms + 1, at_most)


def _take_with_times(self: Slot, records: list[Any], steps_max: int) -> list[Any]:
    reports = _slot_take(self, records, steps_max)
    for report in reports:
        report.time_ms = reports[-1].time_ms
    return reports


def _time_with_the_first(report: StepReport, limits: RecordLimits) -> Iterator[tuple[int, Found]]:
    for number, (target, record) in enumerate(_step_founds(report, limits)):
        if number == 0 and report.time_ms != NO_TIME_MS:
            intervals = record.intervals
            times_ms = np.full(len(intervals), report.time_ms, np.int64)
            yield target, replace(record, intervals=replace(intervals, times_ms=times_ms))
        else:
            yield target, record


def _advance_with_the_first(self: LiveLists, reached: Reached, intervals: Intervals) -> None:
    if reached.times_ms:
        self.steps.complete(max(reached.times_ms.values()))


def _answer_late(self: Slot, changed: Changed, pinned: int) -> list[Any]:
    self.entered_late += changed.history_requests  # type: ignore[attr-defined]
    return _tell(self, replace(changed, history_requests=[]), pinned)


def _take_and_answer(self: Slot, records: list[Any], steps_max: int) -> list[Any]:
    self.entered_late = []  # type: ignore[attr-defined]
    *reports, last = _slot_take(self, records, steps_max)
    late = Changed(self.entered_late)  # type: ignore[attr-defined]
    reported = _tell(self, late, position_of(self.offset))
    if reported:
        reported[-1].time_ms, last.time_ms = last.time_ms, NO_TIME_MS
    return [*reports, last, *reported]


def _keep_what_left(
    self: WindowTermCounts, view: StoreView, condition: Condition, bounds: Bounds
) -> TermCounts:
    former = self._bounds.arrival_from_ms
    return _slide(self, view, condition, Bounds(former, bounds.arrival_to_ms))


def _state_from_the_first_step(self: StepIndex, rows: NDArray[np.int32]) -> dict[str, Any]:
    state = _steps_state(self, rows)
    steps_ms = np.array([self.queries[row].step_ms for row in rows.tolist()], np.int64)
    return {**state, "next_ms": state["starts_ms"] + steps_ms}


def _never_goes_on(
    self: QueryChanges, message: Installed, changed: NDArray[Any], family: int, rows: NDArray[Any]
) -> NDArray[np.bool_]:
    return np.zeros(len(rows), np.bool_)


def _always_goes_on(
    self: QueryChanges, message: Installed, changed: NDArray[Any], family: int, rows: NDArray[Any]
) -> NDArray[np.bool_]:
    return np.ones(len(rows), np.bool_)


def _follow_installed_alone(
    self: QueryChanges, rows: NDArray[np.int32], expires_ms: NDArray[np.int64]
) -> None:
    # A restored slot has yet to read changes.
    if self.unsaved:
        _follow_lifetimes(self, rows, expires_ms)


def _drop_the_former(self: KnnLists, row: int) -> None:
    self._lists["counts"][row] = 0


def _without_grace(seed: int, checkpoints_ms: int) -> ProcessLimits:
    limits = limits_of(seed, checkpoints_ms)
    return replace(limits, router=replace(limits.router, expiry_grace_ms=0))


_follow_lifetimes = QueryChanges.follow_lifetimes
_take_due = StepIndex.take_due
_next_ms = StepIndex.next_ms
_step_founds = partial_records.step_founds  # type: ignore[attr-defined]
_tell = Slot._report_changes
_slot_take = Slot.take
_steps_state = StepIndex.state
_slide = WindowTermCounts._slide

_consider = PendingRequests._consider
_accept = Reached.accept
_take = SessionTable.take
_merger_loaded = MergerMachine._loaded
_slot_install = QueryChanges._install_queries
_slot_remove = QueryChanges._remove_queries
_installed = Installs._installed

# Against the rules of docs/explanation/guarantees.md and what depends on them; found within
# seconds to a minute.
PLANTS = (
    Plant(
        "an interval with a gap before it is accepted",
        "refuse",
        ((Reached, "accept", _accept_with_gaps),),
    ),
    Plant("repeats are not trimmed", "zombie", ((Reached, "accept", _accept_all),)),
    Plant(
        "no marks precede a router's checkpoint",
        "kill-router",
        ((IntakeRouter, "marks", lambda self, partitions: []),),
    ),
    Plant(
        "no marks precede an evaluator's checkpoint",
        "kill-evaluator",
        ((EvaluatorMachine, "_mark", lambda self, *args: []),),
    ),
    Plant(
        "numbers of a session are accepted after a gap",
        "refuse",
        ((SessionTable, "take", _take_with_gaps),),
        first_seed=3,
    ),
    Plant(
        "resent numbers of a session are accepted again",
        "zombie",
        ((SessionTable, "take", _take_repeats),),
    ),
    Plant(
        "a merger forgets positions at a take-over",
        "kill-merger",
        ((MergerMachine, "_loaded", _load_without_positions),),
        first_seed=3,
    ),
    Plant(
        "a merger does not fence its predecessor",
        "fenced",
        (),
        Planted(never_fences=True),
        first_seed=5,
    ),
    Plant(
        "a slot ignores the revisions of queries",
        "moving",
        ((QueryChanges, "_install_queries", _install_all),),
        first_seed=6,
    ),
    Plant(
        "changes of queries are valid whatever they replace",
        "moving",
        ((ChangeValidation, "validate", _any_change),),
    ),
    Plant(
        "an owner of queries answers from memory",
        "kill-router",
        ((PendingRequests, "_consider", _from_memory),),
    ),
    Plant(
        "an ended query is removed at once",
        "gaps",
        ((world, "limits_of", _without_grace),),
        first_seed=6,
    ),
    Plant(
        "a merger that was fenced under an old grant waits for ever",
        "fenced",
        ((MergerMachine, "_fenced", lambda self, event: []),),
        first_seed=56,
    ),
    Plant(
        "checkpoints and answers do not wait for appends",
        "restart",
        (),
        Planted(skips_barriers=True),
    ),
    Plant(
        "objects are acknowledged before the log has them",
        "kill-router",
        (),
        Planted(acknowledges_early=True),
        first_seed=15,
    ),
)


def _take_shrunk_too_far(
    self: KnnIndex, rows: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    rows, bounds_mm = _take_shrunk(self, rows)
    return rows, bounds_mm // 2


_take_shrunk = KnnIndex.take_shrunk


def _forget_at_once(self: MergerMachine, now_ms: int) -> list[Effect]:
    for window in self.windows.values():
        versions = window.lists.versions
        versions.settle(dict.fromkeys(range(99), NEVER_MS), np.empty(0, np.int64))
        for key in versions.forget(np.empty(0, np.int64), NEVER_MS):
            window.lists.steps.drop(key)
    return []


# Bugs in lists, steps, the past, and versions.
LIST_PLANTS = (
    Plant(
        "a window of several slots keeps what has left it",
        "steps",
        ((WindowTermCounts, "_slide", _keep_what_left),),
    ),
    Plant(
        "a step is evaluated at its time and not past it",
        "ticks",
        (
            (StepIndex, "take_due", _due_at_its_time),
            (StepIndex, "next_ms", property(lambda self: _next_ms.__get__(self) - 1)),
        ),
    ),
    Plant(
        "a record carries a slot's time before the reports that belong to it",
        "kill-evaluator",
        ((Slot, "take", _take_with_times),),
    ),
    Plant(
        "the first record of a split step carries the time",
        "slow",
        ((partial_records, "step_founds", _time_with_the_first),),
    ),
    Plant(
        "a slot that is evaluating steps reports the time after them",
        "outage",
        ((Slot, "reported_ms", property(lambda self: self.time_ms)),),
    ),
    Plant(
        "a slot that is evaluating steps marks them as reported",
        "outage",
        ((Slot, "reported_upto", property(lambda self: position_of(self.offset))),),
    ),
    Plant(
        "a merger sends a step when the first slot has passed it",
        "calm",
        ((LiveLists, "advance", _advance_with_the_first),),
    ),
    Plant(
        "a merger forgets its nearest lists at a take-over",
        "kill-merger",
        ((KnnLists, "restore", lambda self, state: None),),
    ),
    Plant(
        "slots share a smaller radius than that of k objects",
        "calm",
        ((KnnIndex, "take_shrunk", _take_shrunk_too_far),),
    ),
    Plant(
        "a merger sends again what its predecessor sent after the checkpoint",
        "kill-merger",
        ((MergerMachine, "_loaded", _load_and_send),),
    ),
    Plant(
        "a slot repeats its steps after a take-over",
        "steps",
        ((StepIndex, "state", _state_from_the_first_step),),
    ),
    Plant(
        "a version ends and its later steps are still sent",
        "moving",
        ((StepMerges, "end", lambda self, spec, query, slot, time_ms: None),),
        first_seed=127,
    ),
    Plant(
        "the first step over the past is sent before all slots have reported it",
        "steps",
        ((FirstStepBarrier, "begin", lambda self, key, count, now_ms: None),),
        first_seed=136,
    ),
    Plant(
        "the first step over the past is sent when one slot has reported it",
        "steps",
        ((FirstStepBarrier, "end", lambda self, key, slot: key in self),),
        first_seed=136,
    ),
    Plant(
        "versions with the same question count as one",
        "moving",
        ((definitions, "versioned_spec", lambda text, revision: text),),
    ),
    Plant(
        "a merger forgets an ended version before all slots have reached its end",
        "gaps",
        ((MergerMachine, "_forget", _forget_at_once),),
    ),
    Plant(
        "the past is answered after the batch",
        "calm",
        ((Slot, "_report_changes", _answer_late), (Slot, "take", _take_and_answer)),
    ),
    Plant(
        "an update forgets which objects are inside",
        "moving",
        ((QueryChanges, "_are_continued", _never_goes_on),),
    ),
    Plant(
        "a query registered again takes over which objects are inside",
        "trackers",
        ((QueryChanges, "_are_continued", _always_goes_on),),
        first_seed=7,
    ),
    Plant(
        "no exit is reported of objects inside a query that ends",
        "moving",
        ((Slot, "_report_exits", lambda self, left, pinned: []),),
    ),
    Plant(
        "a slot forgets at a take-over when lifetimes end",
        "kill-evaluator",
        ((QueryChanges, "follow_lifetimes", _follow_installed_alone),),
        first_seed=217,
    ),
    Plant(
        "a merger forgets the list of the former version",
        "moving",
        ((KnnLists, "_mark_former", _drop_the_former),),
    ),
    Plant(
        "a router forgets at a take-over which members are tracked",
        "kill-router",
        ((FollowedMembers, "restore", lambda self, state: None),),
    ),
    Plant(
        "a record ends between an object and its copies",
        "calm",
        ((slot_records, "_is_copy", lambda routed, row: False),),
    ),
    Plant(
        "a slot forgets removals at once",
        "forgetting",
        ((QueryChanges, "_remove_queries", _remove_without_memory),),
    ),
    Plant(
        "objects before the begin of a query count",
        "beginnings",
        ((DelayedStarts, "hidden", lambda self, arrival_ms: nullcontext()),),
    ),
    Plant(
        "a slot forgets at a take-over which queries have not begun",
        "beginnings",
        ((slot_checkpoint, "_restore_waiting", lambda standing, state: None),),
    ),
    Plant(
        "queries copied for a change of the map count as begun",
        "beginnings",
        ((Installs, "_installed", _installed_as_begun),),
    ),
)
