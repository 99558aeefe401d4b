"""The evaluator: owns slots, matches their objects against their queries, reports to mergers.

A slot's log holds its objects and its query changes in one order. A poll's records of a slot are
taken together: changes carry the position from which they hold, so that they never split a batch,
and the index is asked once for all objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.index.store.store import StoreLimits
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TextAnalyser
from sirocco.protocol.contract.control_records import Attempted, CheckpointTaken
from sirocco.protocol.contract.effects import (
    Append,
    Compute,
    Computed,
    ControlRead,
    Discard,
    Draining,
    Effect,
    Event,
    Follow,
    Loaded,
    LoadSlices,
    Polled,
    SaveCheckpoint,
    SaveRequest,
    SlicesLoaded,
    Sweep,
    Tick,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.messages import NOT_COPIED, PARTIALS, SLOTS, Installed, Routed
from sirocco.protocol.contract.partition_ownership import Holdings, checkpoint_name
from sirocco.protocol.contract.poison_trials import Trial
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.evaluator.careful_reading import CarefulReading, Records, without_skipped
from sirocco.protocol.evaluator.limits import LIMITS, EvaluatorLimits
from sirocco.protocol.evaluator.load.leaf_counts import Counted, LeafCounts
from sirocco.protocol.evaluator.reports.match_records import Report, marks
from sirocco.protocol.evaluator.reports.partial_records import Reports, founds
from sirocco.protocol.evaluator.slot.archived_slices import slice_names, slice_prefix
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.knn_radii import KnnRadii


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSettings:
    """Settings that all evaluators of a cluster share.

    Attributes:
        retention_ms: how long objects stay in memory for searches; None without limit, 0 keeps
            none.
        store_bytes_max: memory for the objects of a process; beyond it the oldest that the
            archive has are dropped. While those that the archive lacks exceed it, nothing more is
            read. None without limit.
        archive_ms: how long objects stay in the archive; None without limit.
        store_limits: sizes that control the stores of objects.
        counts_leaves: whether objects are counted by leaf, for the coordinator to balance loads.
        hashing: numbers the terms of queries and objects.
        limits: how much an evaluator does at once, and how often.
    """

    intake_partitions: int
    partials_partitions: int
    retention_ms: int | None = None
    store_bytes_max: int | None = None
    archive_ms: int | None = None
    store_limits: StoreLimits | None = None
    counts_leaves: bool = False
    hashing: TermHashing = WIRE_TERMS
    limits: EvaluatorLimits = LIMITS


class EvaluatorMachine:
    """Takes events and returns effects: `step(event, now_ms) -> effects`."""

    def __init__(self, member: str, settings: EvaluatorSettings) -> None:
        self.holdings = Holdings(member, frozenset({SLOTS}))
        self.slots: dict[int, Slot] = {}
        # Slots with more steps due than a turn takes; they take no records before the last step.
        self.stepping: set[int] = set()
        self.objects_total = 0
        self.matches_total = 0
        # Intervals that slots have dropped, also slots that have left: see `positions.Reached`.
        self.repeats_total = 0
        self.gaps_total = 0
        # The slots whose former owners ended while they processed the next records.
        self.careful_reading = CarefulReading()
        self._settings = settings
        self._limits = limits = settings.limits
        # One for all slots: its memory is in the processor's cache from one to the next.
        self._analyser = TextAnalyser()
        self._counts = LeafCounts(limits) if settings.counts_leaves else None
        self._marked_ms = 0
        self._marks_are_due = False
        self._saved_ms = 0
        self._tidied_ms = 0
        # Slots that are not read until the archive has their objects.
        self._paused: set[int] = set()
        # Slots whose checkpoints are due early: the archive lacks much of their objects.
        self._early_saves: set[int] = set()
        # Slots of which more was read than they could take; it will be read again.
        self._deferred: set[int] = set()
        # Slots whose checkpoints were requested while they could not be saved.
        self._requested_saves: set[int] = set()
        # What is to be sent to slots about knn queries.
        self._radii: list[KnnRadii] = []

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""
        match event:
            case Polled():
                return self._polled(event)
            case Tick():
                return self._tick(now_ms)
            case ControlRead():
                return self._control(event)
            case Loaded():
                return self._loaded(event, now_ms)
            case SlicesLoaded():
                return self._slices_loaded(event)
            case Computed():
                return self._computed(event)
            case SaveRequest(slots):
                return self._save_some(slots, now_ms)
            case Draining():
                return self._save_some(tuple(self.slots), now_ms)
            case _:
                raise TypeError(f"an evaluator takes no {type(event).__name__}")

    def deadline_ms(self) -> int | None:
        """Returns 0 while steps wait for the next turn; what a poll brings is reported at once."""
        return None if self._next_stepping() is None else 0

    @property
    def searchable(self) -> dict[int, Slot]:
        """The slots that have taken all that their log held when they were taken over."""
        return {number: slot for number, slot in self.slots.items() if not slot.is_catching_up}

    @property
    def is_complete(self) -> bool:
        """Whether everything granted is here, past objects as well."""
        # Other threads ask.
        slots = list(self.slots.values())
        return self.holdings.ready and not any(slot.past.lacks_slices for slot in slots)

    @property
    def is_paused(self) -> bool:
        """Whether reading is paused because the archive lacks too much of what is in memory."""
        return bool(self._paused)

    def leaf_counts(self, *, ends_round: bool) -> Counted | None:
        """Returns the counts by leaf of the last round; None where there was none."""
        if self._counts is None:
            return None
        return self._counts.last_round(self.searchable, ends_round=ends_round)

    def leaf_counts_so_far(self) -> Counted | None:
        """Returns the objects counted by leaf so far in the present round."""
        return None if self._counts is None else self._counts.current_round(self.searchable)

    def _polled(self, event: Polled) -> list[Effect]:
        by_slot: dict[int, Records] = {}
        for entry in event.entries:
            if self.holdings.owns(SLOTS, entry.partition):
                assert isinstance(entry.message, Routed | Installed)
                if isinstance(entry.message, Routed) and not len(entry.message.objects):
                    self._marks_are_due = True
                by_slot.setdefault(entry.partition, []).append((entry.offset, entry.message))
        reports: Reports = []
        effects: list[Effect] = []
        steps_left = self._limits.turn_steps_max
        for number, records in by_slot.items():
            if number in self.stepping:
                effects += self._defer(number)
            elif self.careful_reading.waits(number):
                effects += self._attempt(number, records)
            else:
                steps_before = self.slots[number].steps_total
                found, more = self._take(number, records, steps_left)
                steps_left -= self.slots[number].steps_total - steps_before
                reports += found
                effects += [*more, *self._note_taken(number)]
        if self._radii:
            self._share_radii()
        return self._appends_of(reports) + effects

    def _take(self, number: int, records: Records, steps_max: int) -> tuple[Reports, list[Effect]]:
        """Makes a slot take the next records of its log."""
        slot, effects = self.slots[number], list[Effect]()
        if skipped := self._trial(number).skipped:
            records, effects = without_skipped(number, records, skipped)
        repeats, gaps = slot.reached.repeats, slot.reached.gaps
        found = slot.take(records, steps_max)
        if slot.radii is not None and len(self.slots) > 1:
            self._radii.append(slot.radii)
        self.repeats_total += slot.reached.repeats - repeats
        self.gaps_total += slot.reached.gaps - gaps
        if slot.is_stepping:
            self.stepping.add(number)
        if slot.offset <= records[-1][0]:
            effects += self._defer(number)
        for report in found:
            if isinstance(report, Report):
                self.objects_total += report.objects_total
                self.matches_total += len(report.object_rows)
        if self._counts is not None:
            self._count(self._counts, slot, records, found)
        return found, effects + self._next_job(number)

    def _share_radii(self) -> None:
        """Sends all slots the radii of knn queries that any of them has shrunk since the last time.

        They report less only after a slot has reported what its radius is made of: the log has
        their records in this order.
        """
        radii = KnnRadii.joined(self._radii)
        self._radii.clear()
        for slot in self.slots.values():
            slot.standing.draw_in(radii)

    def _note_taken(self, number: int) -> list[Effect]:
        """Reports it if a slot has taken all records that required care."""
        return self.careful_reading.note_taken(
            number, self._epoch(number), self.slots[number].offset
        )

    def _defer(self, number: int) -> list[Effect]:
        if number in self._deferred:
            return []
        self._deferred.add(number)
        return [Unfollow(SLOTS, number)]

    def _resume_reading(self, number: int) -> list[Effect]:
        """Resumes reading a slot that was passed over."""
        if number not in self._deferred:
            return []
        self._deferred.discard(number)
        # Paused slots are read when there is room.
        is_paused = number in self._paused
        return [] if is_paused else [Follow(SLOTS, number, self.slots[number].offset)]

    # --- where owners before this one have ended

    def _trial(self, number: int) -> Trial:
        return self.holdings.view.trials[SLOTS, number]

    def _epoch(self, number: int) -> int:
        return self.holdings.held[SLOTS, number].epoch

    def _known(self, number: int) -> tuple[int, Trial]:
        """Returns the epoch of a slot, and the records during which its former owners ended."""
        return self._epoch(number), self._trial(number)

    def _attempt(self, number: int, records: Records) -> list[Effect]:
        """Declares which records a slot takes next, or reads them again later."""
        if not self.careful_reading.needs_records(number):
            return self._defer(number)
        return self.careful_reading.attempt(number, *self._known(number), records)

    def _read_back(self, declaration: Attempted) -> list[Effect]:
        """Takes the records of an attempt, once `control` has shown its declaration."""
        records = self.careful_reading.read_back(declaration)
        if records is None:
            return []
        number = declaration.partition
        if declaration.begin == declaration.end:
            return self._end_careful_reading(number)
        found, effects = (
            self._take(number, records, self._limits.turn_steps_max) if records else ([], [])
        )
        effects += self._note_taken(number)
        is_stepping = number in self.stepping
        more = [] if is_stepping else self.careful_reading.next_piece(number, *self._known(number))
        if not more and self.careful_reading.drop(number):
            effects += self._defer(number)
        if not is_stepping:
            effects += [*more, *self._resume_careful_reading(number)]
        return self._appends_of(found) + effects

    def _end_careful_reading(self, number: int) -> list[Effect]:
        """Ends the careful reading of a slot; the next slot that needs it follows."""
        self.careful_reading.end(number)
        if number in self.slots:
            # A successor need not begin where this owner did.
            self._requested_saves.add(number)
        return self._resume_careful_reading(number)

    def _resume_careful_reading(self, number: int) -> list[Effect]:
        """Resumes reading a slot that needs no declaration first, and the slot whose turn it is."""
        turn, effects = self.careful_reading.turn, list[Effect]()
        if turn is not None and self.careful_reading.needs_records(turn):
            effects += self._resume_reading(turn)
        if number in self.slots and not self.careful_reading.waits(number):
            effects += self._resume_reading(number)
        return effects

    def _continue_steps(self) -> list[Effect]:
        """Takes some of the steps that are due; slots that are farthest behind come first."""
        reports: Reports = []
        resumed: list[Effect] = []
        # Mergers wait for the time of all slots, also of those without anything to report.
        self._marks_are_due |= bool(self.stepping)
        steps_left = self._limits.turn_steps_max
        while steps_left > 0 and (slot := self._next_stepping()) is not None:
            begin = slot.steps_total
            found = slot.continue_steps()
            reports += found
            self.matches_total += sum(len(r.object_rows) for r in found if isinstance(r, Report))
            steps_left -= slot.steps_total - begin
            if not slot.is_stepping:
                self.stepping.discard(slot.number)
                resumed += self._resume_reading(slot.number)
        return self._appends_of(reports) + resumed

    def _next_stepping(self) -> Slot | None:
        """Returns the slot that is farthest behind with its steps, of those that can take some."""
        stepping = (self.slots[number] for number in self.stepping)
        able = (slot for slot in stepping if not slot.awaits_slices)
        return min(able, key=lambda each: each.reported_ms, default=None)

    @staticmethod
    def _count(
        counts: LeafCounts,
        slot: Slot,
        records: Records,
        found: Reports,
    ) -> None:
        for offset, message in records:
            if offset >= slot.offset:
                break
            if isinstance(message, Installed) and message.copied_at == NOT_COPIED:
                counts.arrived(slot.number, len(message.revisions))
        for report in found:
            if isinstance(report, Report) and report.batch is not None:
                counts.take(slot.number, report.batch, report.object_rows)
                # It would keep the terms in memory as long as the records made of it.
                report.batch = None

    def _tick(self, now_ms: int) -> list[Effect]:
        effects = self._continue_steps()
        if self._marks_are_due and now_ms - self._marked_ms >= self._limits.mark_interval_ms:
            self._marked_ms, self._marks_are_due = now_ms, False
            for slot in self.slots.values():
                slot.expire()
            effects += self._mark(list(self.slots.values()))
        if now_ms - self._tidied_ms >= self._limits.tidy_interval_ms:
            self._tidied_ms = now_ms
            effects += self._tidy()
        if now_ms - self._saved_ms >= self._limits.checkpoint_spacing_ms:
            due = self._most_due(now_ms)
            if due is not None:
                self._saved_ms = now_ms
                effects += self._save(due, now_ms)
        return effects

    def _most_due(self, now_ms: int) -> Slot | None:
        """Returns the slot to be saved now; None if none is due."""
        limits = self._limits
        interval_ms = limits.checkpoint_interval_ms // (len(self.slots) or 1)
        # Slots saved early do not delay the turns of others.
        is_time = bool(self._early_saves) or now_ms - self._saved_ms >= interval_ms
        due = [
            slot
            for slot in self.slots.values()
            if slot.offset > slot.saved_offset
            and self._may_save(slot)
            and (
                (is_time and now_ms - slot.saved_ms >= limits.checkpoint_interval_ms)
                or slot.number in self._requested_saves
                or slot.queries.unsaved >= limits.checkpoint_changes
                or (slot.number in self._early_saves and not slot.past.manifest.is_saving)
            )
        ]
        return min(due, key=lambda slot: slot.saved_ms, default=None)

    def _save_some(self, numbers: tuple[int, ...], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for number in numbers:
            slot = self.slots.get(number)
            if slot is None or slot.offset <= slot.saved_offset:
                continue
            if self._may_save(slot):
                effects += self._save(slot, now_ms)
            else:
                self._requested_saves.add(number)
        return effects

    def _may_save(self, slot: Slot) -> bool:
        """Whether a slot is between two records that it takes without care, and is complete."""
        is_busy = slot.number in self.stepping or slot.number in self.careful_reading
        return not is_busy and not slot.past.lacks_slices

    def _mark(self, slots: list[Slot]) -> list[Effect]:
        if not slots:
            return []
        reports = [slot.report() for slot in slots]
        return [
            Append(PARTIALS, target, mark)
            for target, mark in marks(reports, self._settings.partials_partitions)
        ]

    def _control(self, event: ControlRead) -> list[Effect]:
        effects, lost = self.holdings.control(event.offset, event.declaration)
        for _, partition in lost:
            self.slots.pop(partition, None)
            self._paused.discard(partition)
            self.stepping.discard(partition)
            self._deferred.discard(partition)
            self._requested_saves.discard(partition)
            if partition in self.careful_reading:
                effects += self._end_careful_reading(partition)
        if self._counts is not None and (known := self.holdings.view.map_in_force):
            self._counts.use(known)
        declaration = event.declaration
        if isinstance(declaration, Attempted):
            effects += self._read_back(declaration)
        if (
            isinstance(declaration, CheckpointTaken)
            and declaration.topic == SLOTS
            and self.holdings.owns(SLOTS, declaration.partition)
        ):
            slot = self.slots[declaration.partition]
            # A former owner's checkpoint may be ahead of what this process has read.
            before = min(declaration.offset, slot.offset)
            effects.append(Truncate(SLOTS, declaration.partition, before))
            effects += self._written(slot, declaration)
        return effects

    def _written(self, slot: Slot, taken: CheckpointTaken) -> list[Effect]:
        """Takes notice of a checkpoint in the archive, this owner's or a former one's."""
        if self.holdings.view.checkpoints[SLOTS, slot.number] == taken:
            return [Discard(name) for name in slot.past.manifest.durable(taken.name)]
        slot.past.manifest.superseded(taken.name)
        return []

    def _loaded(self, event: Loaded, now_ms: int) -> list[Effect]:
        if not self.holdings.loaded(event):
            return []
        settings = self._settings
        slot = Slot(
            event.partition,
            settings.partials_partitions,
            settings.store_limits,
            settings.hashing,
            self._analyser,
            report_steps_max=self._limits.report_steps_max,
            gap_ms=self._limits.gap_ms,
            standing_limits=self._limits.standing,
        )
        slot.open(event.offset, event.log_end, settings.intake_partitions, now_ms)
        slot.queries.definitions = event.definitions
        if event.state is not None:
            restore_slot(slot, event.state, event.slices)
        for other in self.slots.values():
            other.standing.knn.send_again()
        self.slots[event.partition] = slot
        self._paused.discard(event.partition)
        self.stepping.discard(event.partition)
        self._deferred.discard(event.partition)
        begun: list[Effect] = []
        trial, number = self._trial(event.partition), event.partition
        if trial.is_suspected and event.offset < event.log_end:
            epoch = self._epoch(number)
            begun = self.careful_reading.begin(number, epoch, event.offset, event.log_end, trial)
        if begun:
            # It is read after its declaration was read back.
            self._deferred.add(number)
        else:
            begun.append(Follow(SLOTS, number, event.offset))
        if slot.past.lacks_slices:
            assert event.state is not None
            names = tuple(slice_names(number, event.state))
            begun.append(LoadSlices(number, event.epoch, names))
        return begun + self._next_job(number)

    def _slices_loaded(self, event: SlicesLoaded) -> list[Effect]:
        """Completes a slot: it can be searched, and what waited for its past continues."""
        number = event.slot
        if not self._is_of_load(number, event.epoch):
            return []
        self.slots[number].past.complete(event.slices)
        effects = self._next_job(number)
        if number not in self.stepping and not self.careful_reading.waits(number):
            effects += self._resume_reading(number)
        return effects

    def _is_of_load(self, number: int, epoch: int) -> bool:
        """Whether a slot is here as loaded under an epoch: not lost, nor granted anew, since."""
        is_here = self.holdings.owns(SLOTS, number)
        return is_here and self.holdings.held[SLOTS, number].load_epoch == epoch

    def _next_job(self, number: int) -> list[Effect]:
        """Starts a job, if one is due: sealing a full slice, or merging many slices."""
        job = self.slots[number].past.next_job()
        if job is None:
            return []
        return [Compute((SLOTS, number, self.holdings.held[SLOTS, number].load_epoch), job)]

    def _computed(self, event: Computed) -> list[Effect]:
        _, number, epoch = event.key
        # Else the store is another.
        if not self._is_of_load(number, epoch):
            return []
        self.slots[number].past.worked(event.result)
        return self._next_job(number)

    def _tidy(self) -> list[Effect]:
        settings = self._settings
        effects: list[Effect] = []
        for slot in self.slots.values():
            if slot.past.lacks_slices:
                continue
            if settings.retention_ms is not None:
                slot.forget(settings.retention_ms)
            if settings.store_bytes_max is not None:
                slot.evict(settings.store_bytes_max // len(self.slots))
            if settings.archive_ms is not None and slot.time_ms != NO_TIME_MS:
                effects += self._forget(slot, slot.time_ms - settings.archive_ms)
        return effects + self._pause()

    @staticmethod
    def _forget(slot: Slot, before_ms: int) -> list[Effect]:
        """Deletes slices from the archive that are too old, and those that no checkpoint names."""
        names = slot.past.manifest.forget(before_ms)
        if not names:
            return []
        discards: list[Effect] = [Discard(name) for name in names]
        # Owners that ended may have written slices that no checkpoint in force names.
        first = slot.past.manifest.first_name
        return discards if first is None else [*discards, Sweep(slice_prefix(slot.number), first)]

    def _pause(self) -> list[Effect]:
        """Pauses reading while memory is full of unarchived objects; resumes at half of the limit.

        What is published meanwhile waits in the log, and routers accept only as much as may wait
        there. Objects that the archive gets only after more is read do not count: reading would
        never resume.
        """
        limit = self._settings.store_bytes_max
        if limit is None:
            return []
        waiting = {
            n: each.past.unarchived_bytes for n, each in self.slots.items() if each.is_archiving
        }
        # If every slot is below this, all together are below half of the limit.
        share = limit // (2 * len(self.slots)) if self.slots else limit
        self._early_saves = {number for number, bytes_ in waiting.items() if bytes_ > share}
        if sum(waiting.values()) > limit:
            # Slots read carefully continue: otherwise what former owners had taken is never saved.
            new = self.slots.keys() - self._paused - set(self.careful_reading)
            self._paused |= new
            return [Unfollow(SLOTS, number) for number in sorted(new - self._deferred)]
        if sum(waiting.values()) > limit // 2:
            return []
        resumed, self._paused = sorted(self._paused - self._deferred), set()
        return [Follow(SLOTS, number, self.slots[number].offset) for number in resumed]

    def _save(self, slot: Slot, now_ms: int) -> list[Effect]:
        self._early_saves.discard(slot.number)
        self._requested_saves.discard(slot.number)
        # A successor assumes that all earlier results were sent to every target: marks come first.
        effects = self._mark([slot])
        epoch = self._epoch(slot.number)
        name = checkpoint_name(SLOTS, slot.number, slot.offset, epoch)
        spans, new_slices = slot.past.manifest.begin_save(
            name, slot.past.store.slices, slot.limits.full_rows
        )
        state = slot_state(slot, now_ms, spans)
        effects.append(
            SaveCheckpoint(
                topic=SLOTS,
                partition=slot.number,
                epoch=epoch,
                offset=slot.offset,
                state=state,
                slices=tuple(new_slices),
            )
        )
        return effects

    def _appends_of(self, reports: Reports) -> list[Effect]:
        records = founds(reports, self._limits.records)
        return [Append(PARTIALS, target, found) for target, found in records]
