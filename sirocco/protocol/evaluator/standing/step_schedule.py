"""Standing terms and ranked queries of a slot, evaluated at steps of the slot's time.

A step `at` is due when the slot's time is past it. Nothing that arrives later belongs to it, so the
store gives the same answer at any later time and in any process. The result is reported at the
position of the slot's log where the time passed the step, however many steps it passed there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import kind_number
from sirocco.index.store.sliding_term_counts import K_MAX, SlidingTermCounts
from sirocco.index.store.store_condition import Condition
from sirocco.index.store.term_codes import TermCodes
from sirocco.index.store.window_term_counts import TermRoom, WindowTermCounts
from sirocco.model.query import Query, RankedQuery, TermsQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.messages import NEVER_MS, NO_PAST
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.evaluator.standing.due_heap import push_due

if TYPE_CHECKING:
    from sirocco.index.store.ranked_search import RankedSearch

StepKind = TermsQuery | RankedQuery

_Next = tuple[int, int, int]

# Columns of a checkpoint.
_COLUMNS = ("handles", "starts_ms", "since_ms", "next_ms", "flags")


@dataclass(slots=True, kw_only=True)
class StepQuery:
    """One terms or ranked query.

    Attributes:
        row: its row.
        handle: of the query, which orders steps of one time equally in all evaluators.
        query: the outline of its definition.
        condition: region, text, filter; None before the first step after it was restored.
        ranked: its search of stores; None for a terms query, and before that step.
        start_ms: begin of its lifetime; steps count from here.
        since_ms: the oldest arrival that counts.
        next_ms: the next step.
        slot_count: how many slots hold it, by the registration; 0 where it was copied.
        is_sole: no other slot holds the query.
        is_home: this slot also reports empty steps of the query.
        live: not removed.
        kept: what a terms query keeps from step to step; None where each step is a search.
    """

    row: int
    handle: int
    query: StepKind
    condition: Condition | None
    ranked: RankedSearch | None
    start_ms: int
    since_ms: int
    next_ms: int
    slot_count: int
    is_sole: bool
    is_home: bool
    live: bool = True
    kept: SlidingTermCounts | WindowTermCounts | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether it is a ranked query."""
        return isinstance(self.query, RankedQuery)

    @property
    def step_ms(self) -> int:
        """The time between two steps."""
        assert self.query.step_ms is not None
        return self.query.step_ms

    @property
    def last_ms(self) -> int:
        """The latest time at which a step can be."""
        return NEVER_MS if self.query.ttl_ms is None else self.start_ms + self.query.ttl_ms

    def reporters(self, at_ms: int) -> int:
        """Returns how many slots report a step even if it is empty: the first over the past."""
        # Steps of other queries begin one step later.
        return self.slot_count if at_ms == self.start_ms else 0

    def from_ms(self, at_ms: int) -> int:
        """Returns the oldest arrival that a step counts.

        A ranked step is the search that could be made at its time, with a closed window. Windows of
        terms queries are half open, so that windows as long as a step share no object.
        """
        if self.query.window_ms is None:
            return self.since_ms
        oldest_ms = at_ms - self.query.window_ms
        return max(self.since_ms, oldest_ms + isinstance(self.query, TermsQuery))


class StepIndex:
    """The terms and ranked queries of one slot; rows are reused after `reclaim`."""

    def __init__(self, hashing: TermHashing = WIRE_TERMS) -> None:
        """Creates an empty one, for a store whose terms `hashing` numbers."""
        self.queries: dict[int, StepQuery] = {}
        # Row → supplies the condition of a query that was restored, until its first step.
        self._unread: dict[int, Callable[[], Condition]] = {}
        self._hashing = hashing
        self._codes = TermCodes()
        self._room = TermRoom()
        # (time, handle, row) of next steps, the earliest first: of terms, and of ranked queries.
        self._heaps: tuple[list[_Next], list[_Next]] = ([], [])
        self._free: list[int] = []
        self._dead: list[tuple[int, int]] = []
        self._end = 0

    def insert(
        self,
        queries: list[StepKind],
        handles: NDArray[np.uint64],
        conditions: list[Condition],
        starts_ms: NDArray[np.int64],
        past_ms: NDArray[np.int64],
        slot_counts: NDArray[np.uint32],
        homes: NDArray[np.bool_],
    ) -> NDArray[np.int32]:
        """Adds queries; returns their rows."""
        rows = []
        for i, query in enumerate(queries):
            start_ms, past = int(starts_ms[i]), int(past_ms[i])
            row = self._free.pop() if self._free else self._extend()
            assert query.step_ms is not None
            # A query that asks for the past gets an answer at once, not a step later.
            next_ms = start_ms + query.step_ms if past == NO_PAST else start_ms
            since_ms = start_ms if past == NO_PAST else max(start_ms - past, NO_TIME_MS)
            self._put(
                StepQuery(
                    row=row,
                    handle=int(handles[i]),
                    query=query,
                    condition=conditions[i],
                    ranked=self._ranked_of(query, conditions[i]),
                    start_ms=start_ms,
                    since_ms=since_ms,
                    next_ms=next_ms,
                    slot_count=int(slot_counts[i]),
                    is_sole=int(slot_counts[i]) == 1,
                    is_home=bool(homes[i]),
                )
            )
            rows.append(row)
        return np.array(rows, np.int32)

    def _put(self, entry: StepQuery) -> None:
        self.queries[entry.row] = entry
        if entry.kept is None:
            entry.kept = self._kept_of(entry)
        self._push(entry)

    def complete(self, entry: StepQuery) -> bool:
        """Reads the condition of a query if that was not done yet; returns whether it was due.

        A client chooses how long it takes, up to 25 ms. A slot that is restored has thousands.
        """
        read = self._unread.pop(entry.row, None)
        if read is None:
            return False
        entry.condition = read()
        entry.ranked = self._ranked_of(entry.query, entry.condition)
        if entry.kept is None:
            entry.kept = self._kept_of(entry)
        return True

    def _ranked_of(self, query: StepKind, condition: Condition) -> RankedSearch | None:
        # The outline has no filter.
        is_ranked = isinstance(query, RankedQuery)
        return (
            ranked_of(replace(query, where=condition.where), self._hashing) if is_ranked else None
        )

    def _kept_of(self, entry: StepQuery) -> SlidingTermCounts | WindowTermCounts | None:
        if not entry.is_sole:
            return shared_kept_of(entry.query, self._room)
        if entry.condition is None:
            return None
        return kept_of(entry.query, entry.condition, self._codes)

    def _push(self, entry: StepQuery) -> None:
        if entry.next_ms <= entry.last_ms:
            heap = self._heaps[entry.is_ranked]
            due = entry.next_ms, entry.handle, entry.row
            push_due(heap, due, len(self.queries), self._is_current)

    def _is_current(self, due: _Next) -> bool:
        """Whether it is the next step of a query; a row that is used again has another one."""
        at_ms, handle, row = due
        entry = self.queries.get(row)
        return (
            entry is not None
            and entry.live
            and entry.handle == handle
            and at_ms == entry.next_ms <= entry.last_ms
        )

    def kind_of(self, row: int) -> int:
        """Returns the kind of a query."""
        return kind_number(self.queries[row].query)

    def share(self, rows: NDArray[np.int32]) -> None:
        """Marks queries that other slots hold, too."""
        for row in rows.tolist():
            entry = self.queries[row]
            if not entry.is_sole:
                continue
            entry.is_sole = False
            # All terms must be reported from now on, and so have to be counted.
            _drop_kept(entry)
            entry.kept = self._kept_of(entry)

    def forward(self, rows: NDArray[np.int32], time_ms: int) -> None:
        """Skips the steps before a time: no object here counts for them."""
        for row in rows.tolist():
            entry = self.queries[row]
            # The slots that hold the past objects report them.
            entry.slot_count = 0
            if entry.next_ms < time_ms:
                entry.next_ms += -((entry.next_ms - time_ms) // entry.step_ms) * entry.step_ms
                self._put(entry)

    @property
    def next_ms(self) -> int:
        """The earliest step of all; `NEVER_MS` without any."""
        terms, ranked = self._heaps
        return min(terms[0][0] if terms else NEVER_MS, ranked[0][0] if ranked else NEVER_MS)

    @property
    def oldest_ms(self) -> int:
        """The oldest arrival that a step to come may count; `NEVER_MS` without any."""
        live = (entry for entry in self.queries.values() if entry.live)
        return min((entry.from_ms(entry.next_ms) for entry in live), default=NEVER_MS)

    @property
    def bytes_total(self) -> int:
        """Memory of what queries keep of their windows, bytes."""
        kept = sum(e.kept.bytes_total for e in self.queries.values() if e.kept is not None)
        return kept + self._codes.bytes_total

    def take_due(self, time_ms: int, at_most: int) -> list[tuple[int, StepQuery]]:
        """Takes the next steps before a time, each once, in the same order in all evaluators.

        The candidates that a slot names for a ranked step depend on how its objects are divided
        into slices, so a successor may need more records for them, or fewer. So all terms steps
        come first: their records then have the same positions in every process.
        """
        due: list[tuple[int, StepQuery]] = []
        for heap in self._heaps:
            while heap and heap[0][0] < time_ms and len(due) < at_most:
                at_ms, _, row = step = heapq.heappop(heap)
                if not self._is_current(step):
                    continue
                entry = self.queries[row]
                due.append((at_ms, entry))
                entry.next_ms = at_ms + entry.step_ms
                self._push(entry)
        return due

    def remove(self, rows: NDArray[np.int32], position: int) -> None:
        """Ends queries: they have no steps from here on."""
        for row in rows.tolist():
            self.queries[row].live = False
            self._unread.pop(row, None)
            _drop_kept(self.queries[row])
            self._dead.append((position, row))

    def reclaim(self, position: int) -> int:
        """Frees ended rows, whose names no record needs any more."""
        if not self._dead:
            return 0
        kept = [(at, row) for at, row in self._dead if at > position]
        freed = [row for at, row in self._dead if at <= position]
        for row in freed:
            del self.queries[row]
        self._free += freed
        self._dead = kept
        return len(freed)

    def expire(self, now_ms: int) -> NDArray[np.int32]:
        """Returns rows whose last step is over."""
        ended = [
            row
            for row, entry in self.queries.items()
            if entry.live and entry.next_ms > entry.last_ms and entry.last_ms < now_ms
        ]
        return np.array(ended, np.int32)

    def state(self, rows: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        """Returns what a checkpoint keeps of live rows besides names, in the given order."""
        entries = [self.queries[row] for row in rows.tolist()]
        return {
            "starts_ms": np.array([e.start_ms for e in entries], np.int64),
            "since_ms": np.array([e.since_ms for e in entries], np.int64),
            "next_ms": np.array([e.next_ms for e in entries], np.int64),
            "slot_counts": np.array([e.slot_count for e in entries], np.int64),
            "flags": np.array([e.is_sole | e.is_home << 1 for e in entries], np.uint8),
        }

    def restore(
        self,
        queries: list[StepKind],
        conditions: Sequence[Callable[[], Condition]],
        state: dict[str, NDArray[Any]],
    ) -> NDArray[np.int32]:
        """Takes the queries of a checkpoint; the index must be empty.

        Args:
            queries: their outlines.
            conditions: each is called at the first step of its query.
            state: as `state` returns it, with their handles.
        """
        columns = zip(
            *(state[name].tolist() for name in _COLUMNS),
            # An older version has none.
            state.get("slot_counts", np.zeros(len(queries), np.int64)).tolist(),
            strict=True,
        )
        for i, (handle, start_ms, since_ms, next_ms, flags, slot_count) in enumerate(columns):
            is_sole, is_home = bool(flags & 1), bool(flags & 2)
            row = self._extend()
            self._unread[row] = conditions[i]
            self._put(
                StepQuery(
                    row=row,
                    handle=handle,
                    query=queries[i],
                    condition=None,
                    ranked=None,
                    start_ms=start_ms,
                    since_ms=since_ms,
                    next_ms=next_ms,
                    slot_count=slot_count,
                    is_sole=is_sole,
                    is_home=is_home,
                )
            )
        return np.arange(len(queries), dtype=np.int32)

    def _extend(self) -> int:
        self._end += 1
        return self._end - 1


def _drop_kept(entry: StepQuery) -> None:
    if entry.kept is not None:
        entry.kept.forget()
        entry.kept = None


def kept_of(query: Query, condition: Condition, codes: TermCodes) -> SlidingTermCounts | None:
    """Returns what a query keeps from step to step; None where that is of no use."""
    if not isinstance(query, TermsQuery) or query.k > K_MAX:
        return None
    if condition.conjunctions or not condition.is_exact:
        return None
    # Windows that do not overlap have nothing in common.
    overlaps = query.window_ms is None or (query.step_ms or 0) < query.window_ms
    return SlidingTermCounts(query.k, codes) if overlaps else None


def shared_kept_of(query: Query, room: TermRoom) -> WindowTermCounts | None:
    """As `kept_of`, of a query that several slots hold."""
    if not isinstance(query, TermsQuery):
        return None
    # Else what enters and leaves is no less than the window.
    overlaps = query.window_ms is None or 2 * (query.step_ms or 0) < query.window_ms
    return WindowTermCounts(room) if overlaps else None


def ranked_of(query: Query, hashing: TermHashing = WIRE_TERMS) -> RankedSearch | None:
    """Returns the search of a ranked query by `hashing`'s terms; None for another kind."""
    if not isinstance(query, RankedQuery):
        return None
    # A quarter of all kernel compilation is for this kind alone, which many clusters never use.
    from sirocco.index.store.ranked_search import RankedSearch  # noqa: PLC0415

    return RankedSearch(query, hashing)
