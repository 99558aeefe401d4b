"""The merger owns Kafka partitions of `partials` and writes their twins in `deliveries` (rule R5).

Reports of evaluators are accepted by interval: a match counts once, however often and from
whichever evaluator it arrives. Matches are written in windows. One transaction holds the deliveries
of a window and, as its last record, the progress that they stand for. A successor fences the
predecessor, reads the last progress, and continues from there. One record may change so many lists
that their deliveries should not be held in memory together: they are written in parts of the
transaction while the rest is made.

Answers that are lists (`live_lists`) need a checkpoint as well. It is saved from time to time, at
the offset of a committed transaction. A successor rereads, without output, from there up to the
last progress, and then knows what was sent. The first checkpoint is empty, and is in force before
the first list is sent; without lists there is none. A merger that finds a progress with lists but
no usable checkpoint has read less of `control` than the writer of that progress, perhaps because it
was suspended. It may own nothing by now, and waits for more records of `control`. `partials` is
truncated below the newest checkpoint, or below the progress if there is no checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.columns import MatchColumns
from sirocco.protocol.contract.control_records import CheckpointTaken
from sirocco.protocol.contract.effects import (
    Committed,
    ControlRead,
    Draining,
    Effect,
    EndsFound,
    Event,
    Fence,
    Fenced,
    FindEnds,
    Follow,
    Load,
    Loaded,
    Polled,
    SaveCheckpoint,
    Tick,
    Transact,
    Truncate,
    Unfollow,
    Written,
)
from sirocco.protocol.contract.messages import (
    DELIVERIES,
    PARTIALS,
    REGISTRY,
    SLOTS,
    Found,
    Message,
    Progress,
)
from sirocco.protocol.contract.partition_ownership import Holdings
from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
    ROW_BITS,
    Intervals,
    Reached,
    object_begin,
)
from sirocco.protocol.merger.knn_lists import KnnLists
from sirocco.protocol.merger.limits import LIMITS, RETAINED_BYTES_MAX, STEP_BYTES_MAX, MergerLimits
from sirocco.protocol.merger.live_lists import LiveLists
from sirocco.protocol.merger.query_ends import QueryEnds
from sirocco.protocol.merger.query_versions import Versions
from sirocco.protocol.merger.state_pieces import InTurns, at_once
from sirocco.protocol.merger.step_merge import StepMerges
from sirocco.protocol.merger.window import MERGE_WEIGHT, Window, bytes_of, weight_of

__all__ = ["MergerMachine", "MergerSettings", "Window"]


@dataclass(frozen=True, slots=True)
class MergerSettings:
    """Settings that all mergers of a cluster share.

    Attributes:
        slots: number of slots; a step is complete when the time of each has passed it.
        retained_bytes_max: bytes that each Kafka partition of `deliveries` keeps at least for slow
            subscribers, and at most twice as much; slower ones get a typed error.
        step_bytes_max: bytes of steps that wait for slots, in each Kafka partition.
        limits: how much a merger keeps and sends at once, and how often.
    """

    slots: int
    retained_bytes_max: int = RETAINED_BYTES_MAX
    step_bytes_max: int = STEP_BYTES_MAX
    limits: MergerLimits = LIMITS


class MergerMachine:
    """The merger as a state machine: `step(event, now_ms) -> effects`."""

    def __init__(self, member: str, settings: MergerSettings) -> None:
        self.holdings = Holdings(member, frozenset({PARTIALS}))
        self.windows: dict[int, Window] = {}
        self.matches_total = 0
        self.repeats_total = 0
        self._settings = settings
        self._limits = settings.limits
        self._transactions = 0
        self._turns = 0
        # Kafka partition → checkpoint asked for last; the second for those that need a newer one.
        self._requested_checkpoints: dict[int, str] = {}
        self._lacking: dict[int, str] = {}
        self._forgot_ms = 0
        # Registry partition → offset of its checkpoint when the ends of slots were asked for; None
        # while no such question is open.
        self._floors: dict[int, int] | None = None

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""
        match event:
            case Polled():
                self._polled(event)
                self._work()
                return self._write(now_ms) + self._read()
            case Tick():
                self._work()
                return self._write(now_ms) + self._forget(now_ms) + self._read()
            case EndsFound():
                return self._settle(event)
            case Committed():
                return self._committed(event, now_ms) + self._read()
            case Written():
                return self._part_written(event, now_ms) + self._read()
            case Fenced():
                return self._fenced(event)
            case ControlRead():
                return self._control(event)
            case Loaded():
                return self._loaded(event, now_ms)
            case Draining():
                return self._drain(now_ms)
            case _:
                raise TypeError(f"a merger takes no {type(event).__name__}")

    def deadline_ms(self) -> int | None:
        """When the next window is due, or 0 while records wait for the next turn.

        None while nothing waits or all windows are being written.
        """
        if any(self._has_work(window) for window in self.windows.values()):
            return 0
        waiting = (
            window.written_ms + self._limits.window_ms
            for window in self.windows.values()
            if window.has_content and not window.committing and not window.is_held
        )
        return min(waiting, default=None)

    # --- records

    def _polled(self, event: Polled) -> None:
        for entry in event.entries:
            window = self.windows.get(entry.partition)
            if window is None or not isinstance(entry.message, Found):
                continue
            window.add(entry.offset, entry.message)

    def _work(self) -> None:
        """Takes records, as far as a turn goes; windows that have waited longest come first."""
        busy = [window for window in self.windows.values() if self._has_work(window)]
        if not busy:
            return
        self._turns += 1
        busy.sort(key=lambda window: window.worked)
        left = self._limits.turn_weight_max
        for i, window in enumerate(busy):
            if left <= 0:
                return
            window.worked = self._turns
            left -= self._work_on(window, max(1, left // (len(busy) - i)))

    def _work_on(self, window: Window, weight_max: int) -> int:
        """Takes records of a window, up to a weight; returns the weight of what it took."""
        weight = 0
        while weight < weight_max and self._has_work(window):
            if window.saving is not None:
                weight += window.save_some(weight_max - weight)
                continue
            # Also before a record: it may change lists for which candidates are collected.
            if window.is_merging or (not window.lists.is_completing and window.begin_merging()):
                window.merge_some(self._limits.records)
                weight += MERGE_WEIGHT
                continue
            if not window.lists.is_completing:
                offset, found = window.pop()
                self._take(window, offset, found)
                weight += weight_of(found)
            if window.lists.is_completing:
                weight += window.lists.complete(max(1, weight_max - weight))
            if window.is_replaying:
                continue
            if window.lists.ends.has_output and not window.begin_merging():
                # The end of a query is sent after its matches so far and before everything later.
                window.close_all(self._limits.records)
            elif window.lists.is_completing:
                window.close_steps(self._limits.records)
        if window.is_replaying and not window.begin_merging():
            window.lists.flush(sends=False)
        return weight

    def _has_work(self, window: Window) -> bool:
        """Whether records are to be taken, or lists made, and these have room."""
        is_full = window.closed_bytes > self._limits.waiting_bytes_max
        return window.has_work and not (is_full and (window.committing or window.is_held))

    def _take(self, window: Window, offset: int, found: Found) -> None:
        if window.is_replaying and offset >= window.written_offset:
            window.lists.flush(sends=False)
            window.is_replaying = False
        window.input_offset = offset + 1
        times_ms, sources = window.reached.times_ms, found.intervals.sources.tolist()
        before_ms = np.array([times_ms.get(slot, NO_TIME_MS) for slot in sources], np.int64)
        objects_from = _objects_from(window.reached, found.intervals)
        fresh_from = window.reached.accept(found.intervals)
        part = self._fresh(window, found, fresh_from, objects_from, before_ms)
        window.lists.advance(window.reached, found.intervals)
        if part is not None and not window.is_replaying:
            window.parts.append(part)
            window.bytes_waiting += bytes_of(part)

    def _fresh(
        self,
        window: Window,
        found: Found,
        fresh_from: NDArray[np.int64],
        objects_from: NDArray[np.int64],
        before_ms: NDArray[np.int64],
    ) -> Found | None:
        """Returns what to send of a record as it is; None when there is nothing."""
        is_plain = found.steps is None and found.queries.specs is None
        if is_plain and not len(found.matches):
            return None
        is_fresh = (found.positions >= fresh_from[found.interval_rows])[found.matches.objects]
        fresh = int(is_fresh.sum())
        if not window.is_replaying:
            window.matches += fresh
            self.matches_total += fresh
            self.repeats_total += len(is_fresh) - fresh
        if is_plain:
            if fresh == len(is_fresh):
                return found if fresh else None
            rows = np.flatnonzero(is_fresh)
        else:
            rows = window.lists.take(
                found, is_fresh, fresh_from, objects_from, window.reached, before_ms
            )
        if not len(rows):
            return None
        matches = found.matches.take(rows)
        # Objects and names without a match are left out when it is written.
        return Found(
            intervals=found.intervals,
            objects=found.objects,
            events=found.events,
            positions=found.positions,
            interval_rows=found.interval_rows,
            queries=found.queries,
            matches=MatchColumns(matches.objects, matches.queries, matches.changes),
        )

    # --- windows

    def _write(self, now_ms: int, *, is_last: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for partition, window in self.windows.items():
            if window.committing:
                continue
            effects += self._save(partition, window)
            if window.is_held:
                effects += self._base(partition, window, now_ms)
            elif self._is_due(window, now_ms, is_last) and not window.begin_merging():
                effects.append(self._close(partition, window, now_ms, is_last))
            elif window.closed_bytes > self._limits.waiting_bytes_max:
                # What is left to be made of the last record may be ten times as much.
                effects.append(self._transact(partition, window, window.take_closed()))
        return effects

    def _read(self) -> list[Effect]:
        """Stops reading where too much waits to be sent, and resumes where that was written."""
        effects: list[Effect] = []
        for partition, window in self.windows.items():
            bytes_held = window.unread_bytes + window.bytes_outgoing
            # It is read again when half of that is gone, so as not to begin again for each record.
            is_full = bytes_held > self._limits.waiting_bytes_max >> window.is_full
            if is_full and not window.is_full:
                effects.append(Unfollow(PARTIALS, partition))
            elif window.is_full and not is_full:
                effects.append(Follow(PARTIALS, partition, window.read_offset))
            window.is_full = is_full
        return effects

    def _no_lists(self) -> LiveLists:
        limits = self._limits
        return LiveLists(
            slots=self._settings.slots,
            knn=KnnLists(limits=limits),
            steps=StepMerges(bytes_max=self._settings.step_bytes_max, limits=limits),
            versions=Versions(ends_max=limits.ended_versions_max),
            ends=QueryEnds(bytes_max=limits.ends_bytes_max),
        )

    def _base(self, partition: int, window: Window, now_ms: int) -> list[Effect]:
        """Saves the first checkpoint: a successor starts there if no other was saved."""
        if window.is_based:
            return []
        window.is_based, window.saved_ms = True, now_ms
        window.saved = at_once(self._state(self._no_lists(), window.progress))
        return self._save(partition, window)

    def _is_due(self, window: Window, now_ms: int, at_once: bool) -> bool:
        # The progress of a record says that all is sent that it completes.
        is_completing = window.lists.is_completing or window.is_merging
        if window.input_offset <= window.written_offset or is_completing:
            return False
        if at_once or window.matches >= self._limits.window_matches_max:
            return True
        if window.bytes_outgoing > self._limits.waiting_bytes_max:
            return True
        if window.has_content:
            return now_ms - window.written_ms >= self._limits.window_ms
        return now_ms - window.written_ms >= self._limits.progress_interval_ms

    def _close(self, partition: int, window: Window, now_ms: int, is_last: bool) -> Transact:
        messages = window.take_messages(self._limits.records)
        window.progress = _progress(window.input_offset, window.reached, window.lists.is_live)
        messages.append(window.progress)
        window.matches, window.bytes_waiting = 0, 0
        window.written_ms = now_ms
        if self._is_save_due(window, now_ms) or (is_last and window.durable_offset >= 0):
            window.saving = self._state(window.lists, window.progress)
            window.saved_ms, window.saved_changes = now_ms, window.lists.changes
        return self._transact(partition, window, messages, is_last=True)

    def _transact(
        self, partition: int, window: Window, messages: list[Message], *, is_last: bool = False
    ) -> Transact:
        """Writes a transaction, its last part, or another one."""
        is_first = not window.begun
        if is_first:
            self._transactions += 1
            window.begun = self._transactions
        window.committing = window.begun
        return Transact(partition, window.begun, tuple(messages), is_first, is_last)

    def _part_written(self, event: Written, now_ms: int) -> list[Effect]:
        window = self.windows.get(event.partition)
        if window is None or window.committing != event.number:
            return []
        window.committing = 0
        window.begun_bytes += event.bytes_total
        return self._write(now_ms)

    def _is_save_due(self, window: Window, now_ms: int) -> bool:
        is_quiet, limits = window.lists.changes == window.saved_changes, self._limits
        interval_ms = (
            limits.quiet_checkpoint_interval_ms if is_quiet else limits.checkpoint_interval_ms
        )
        return window.durable_offset >= 0 and now_ms - window.saved_ms >= interval_ms

    def _committed(self, event: Committed, now_ms: int) -> list[Effect]:
        window = self.windows.get(event.partition)
        if window is None or window.committing != event.number:
            return []
        window.committing = window.begun = 0
        effects = self._save(event.partition, window)
        if not window.lists.is_live and window.durable_offset < 0:
            window.floor_offset = window.written_offset
            effects.append(Truncate(PARTIALS, event.partition, window.floor_offset))
        bytes_total, window.begun_bytes = event.bytes_total + window.begun_bytes, 0
        window.retained.append((event.end_offset, bytes_total))
        window.retained_bytes += bytes_total
        before = 0
        # The newest window stays, however large: a successor starts from its progress.
        while (
            window.retained_bytes > 2 * self._settings.retained_bytes_max
            and len(window.retained) > 1
        ):
            before, size = window.retained.popleft()
            window.retained_bytes -= size
        if before:
            effects.append(Truncate(DELIVERIES, event.partition, before))
        return effects + self._write(now_ms)

    def _save(self, partition: int, window: Window) -> list[Effect]:
        """Saves a state that is complete, and whose transaction is committed."""
        if window.saved is None:
            return []
        state, window.saved = window.saved, None
        epoch = self.holdings.held[PARTIALS, partition].epoch
        return [
            SaveCheckpoint(
                topic=PARTIALS,
                partition=partition,
                epoch=epoch,
                offset=window.written_offset,
                state=state,
            )
        ]

    def _drain(self, now_ms: int) -> list[Effect]:
        # No turn comes any more in which the rest of a state could be made.
        self._finish_saving()
        effects = self._write(now_ms, is_last=True)
        self._finish_saving()
        return effects

    def _finish_saving(self) -> None:
        for window in self.windows.values():
            while window.saving is not None:
                window.save_some(self._limits.turn_weight_max)

    def _state(self, lists: LiveLists, progress: Progress) -> InTurns:
        """Makes what is known at the offset of a progress; nothing may change it meanwhile."""
        state = yield from lists.state_in_turns(
            self._limits.saved_rows_max, self._limits.saved_bytes_max
        )
        return {
            **state,
            "reached.slots": progress.slots.astype(np.int64),
            "reached.positions": progress.positions,
            "reached.times_ms": progress.times_ms,
        }

    # --- versions that ended

    def _forget(self, now_ms: int) -> list[Effect]:
        """Forgets what has ended in all slots, and asks how far the logs of slots are."""
        if now_ms - self._forgot_ms < self._limits.forget_interval_ms:
            return []
        self._forgot_ms = now_ms
        for window in self.windows.values():
            if window.saving is None:
                window.lists.forget(window.reached)
        if self._floors is not None:
            return []
        floors = {
            partition: taken.offset
            for (topic, partition), taken in self.holdings.view.checkpoints.items()
            if topic == REGISTRY
        }
        if not any(window.lists.versions.may_settle(floors) for window in self.windows.values()):
            return []
        self._floors = floors
        return [FindEnds(SLOTS, self._settings.slots)]

    def _settle(self, event: EndsFound) -> list[Effect]:
        assert self._floors is not None
        for window in self.windows.values():
            window.lists.versions.settle(self._floors, event.ends << ROW_BITS)
        self._floors = None
        return []

    # --- ownership

    def _fenced(self, event: Fenced) -> list[Effect]:
        window = self.windows.get(event.partition)
        if window is None or window.committing != event.number:
            return []
        # According to `control`, as far as it was read, this process is the owner. Either that is
        # out of date and the next records say so. Or a suspended process has fenced with an old
        # grant and is gone by now: then only this process continues, from the last progress.
        del self.windows[event.partition]
        return self._after_fences(self.holdings.reload(PARTIALS, event.partition))

    def _control(self, event: ControlRead) -> list[Effect]:
        effects, lost = self.holdings.control(event.offset, event.declaration)
        for _, partition in lost:
            self.windows.pop(partition, None)
            self._lacking.pop(partition, None)
        declaration = event.declaration
        if isinstance(declaration, CheckpointTaken) and declaration.topic == PARTIALS:
            effects += self._checkpoint_taken(declaration)
            effects += self._republish(declaration.partition)
        return self._after_fences(effects)

    def _checkpoint_taken(self, declaration: CheckpointTaken) -> list[Effect]:
        window = self.windows.get(declaration.partition)
        # A former owner's may arrive late, when `partials` is already truncated below a later
        # progress. It was empty: an owner that sends lists has read of its checkpoint before.
        if window is None or declaration.offset < window.floor_offset:
            return []
        window.durable_offset = max(window.durable_offset, declaration.offset)
        # A former owner's checkpoint may be ahead of what this process has read.
        before = min(declaration.offset, window.input_offset)
        return [Truncate(PARTIALS, declaration.partition, before)]

    def _republish(self, partition: int) -> list[Effect]:
        """Loads a partition that lacked a checkpoint, once a newer one is known."""
        newest = self.holdings.view.checkpoints.get((PARTIALS, partition))
        tried = self._lacking.get(partition)
        if tried is None or newest is None or newest.name == tried:
            return []
        del self._lacking[partition]
        return self.holdings.reload(PARTIALS, partition)

    def _after_fences(self, effects: list[Effect]) -> list[Effect]:
        fenced: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Load):
                # The predecessor's last transaction must have ended before its progress is read.
                fenced.append(Fence(effect.partition))
                self._requested_checkpoints[effect.partition] = effect.name
            fenced.append(effect)
        return fenced

    def _loaded(self, event: Loaded, now_ms: int) -> list[Effect]:
        if not self.holdings.is_wanted(event):
            return []
        state = event.state or {}
        if "has_lists" in state and state["has_lists"][0] and "reached.slots" not in state:
            self._lacking[event.partition] = self._requested_checkpoints[event.partition]
            return self._after_fences(self._republish(event.partition))
        self.holdings.loaded(event)
        progress = _progress(event.offset, Reached())
        if "slots" in state:
            progress = Progress(
                int(state["input_offset"][0]),
                state["slots"].astype(np.uint32),
                state["positions"],
                state["times_ms"],
            )
        window = Window(
            input_offset=event.offset,
            read_offset=event.offset,
            reached=_reached(progress),
            lists=self._no_lists(),
            progress=progress,
            written_ms=now_ms,
            floor_offset=event.offset,
            saved_ms=now_ms,
            is_replaying=event.offset < progress.input_offset,
        )
        if "reached.slots" in state:
            window.lists.restore(state)
            slots, positions, times_ms = (
                state[f"reached.{name}"] for name in ("slots", "positions", "times_ms")
            )
            window.reached = _reached(Progress(event.offset, slots, positions, times_ms))
            window.durable_offset = event.offset
        newest = self.holdings.view.checkpoints.get((PARTIALS, event.partition))
        if newest is not None and newest.offset >= window.floor_offset:
            window.durable_offset = newest.offset
        if "end" in state:
            # The size of what predecessors left is unknown: it counts as full, and is truncated
            # when as much again has been written.
            window.retained.append((int(state["end"][0]), self._settings.retained_bytes_max))
            window.retained_bytes = self._settings.retained_bytes_max
        self.windows[event.partition] = window
        return [Follow(PARTIALS, event.partition, event.offset)]


def _objects_from(reached: Reached, intervals: Intervals) -> NDArray[np.int64]:
    """Returns i8[k], where the object begins that each slot has come to, before the intervals.

    For an interval after a gap it is beyond all its rows.
    """
    positions = [reached.positions.get(slot, 0) for slot in intervals.sources.tolist()]
    before = np.array(positions, np.int64)
    return np.where(intervals.begins <= before, object_begin(before), np.iinfo(np.int64).max)


def _progress(input_offset: int, reached: Reached, has_lists: bool = False) -> Progress:
    slots = sorted(reached.positions.keys() | reached.times_ms.keys())
    return Progress(
        input_offset,
        np.array(slots, np.uint32),
        np.array([reached.positions.get(slot, 0) for slot in slots], np.int64),
        np.array([reached.times_ms.get(slot, NO_TIME_MS) for slot in slots], np.int64),
        has_lists,
    )


def _reached(progress: Progress) -> Reached:
    slots, times_ms = progress.slots.tolist(), progress.times_ms.tolist()
    return Reached(
        dict(zip(slots, progress.positions.tolist(), strict=True)),
        {
            slot: time_ms
            for slot, time_ms in zip(slots, times_ms, strict=True)
            if time_ms != NO_TIME_MS
        },
    )
