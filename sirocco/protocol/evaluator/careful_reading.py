"""Reads records that may end their reader piece by piece, and skips those that did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sirocco.protocol.contract.columns import NO_EVENTS
from sirocco.protocol.contract.control_records import Attempted, Skipped
from sirocco.protocol.contract.effects import Append, Effect, SetAside
from sirocco.protocol.contract.messages import (
    CONTROL,
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    NO_TERMS,
    SLOTS,
    Installed,
    Routed,
)
from sirocco.protocol.contract.poison_trials import DEATHS_MAX, Span, Trial
from sirocco.protocol.contract.positions import NO_INTERVALS

Records = list[tuple[int, Routed | Installed]]


# The records during which an owner ended are split into this many pieces. Each costs a round trip
# through `control`, some ten milliseconds; with fewer, more owners end before the record is found.
PIECES = 64


@dataclass(slots=True)
class _CarefulSlot:
    """One slot that is read carefully.

    Attributes:
        until: the offset where that ends.
        log_end: where its log ended when it was loaded: no owner has ended after that.
        in_pieces: in pieces, while read records are held; otherwise all at once, after the
            declaration was read back.
        declared: the declaration that is not read back yet.
        held: its records, and those that were read after them.
    """

    until: int
    log_end: int
    in_pieces: bool
    declared: Attempted | None = None
    held: Records = field(default_factory=list)


class CarefulReading:
    """The slots that an evaluator reads carefully: whole ones, or one at a time in pieces."""

    def __init__(self) -> None:
        self._slots: dict[int, _CarefulSlot] = {}
        # The latest declaration of each slot, until the next one.
        self._attempted: dict[int, Attempted] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def attempted(self) -> list[Attempted]:
        """The declarations by which others will suspect records if this process ends."""
        return list(self._attempted.values())

    @property
    def turn(self) -> int | None:
        """The slot whose turn it is, of those that are taken in pieces."""
        return next((slot for slot, state in self._slots.items() if state.in_pieces), None)

    def waits(self, slot: int) -> bool:
        """Whether records of a slot are taken only after a declaration of them was read back."""
        state = self._slots.get(slot)
        if state is None:
            return False
        declared = state.declared
        return state.in_pieces or (declared is not None and declared.begin < declared.end)

    def begin(self, slot: int, epoch: int, offset: int, log_end: int, trial: Trial) -> list[Effect]:
        """Begins to read a slot carefully.

        Args:
            slot: its number.
            epoch: of the ownership.
            offset: of the first record that is taken.
            log_end: where its log ended when it was loaded: no owner has ended after that.
            trial: what is known of it.

        Returns:
            The declaration to append before anything is read; nothing if it is taken in pieces.
        """
        if trial.has_suspects:
            self._slots[slot] = _CarefulSlot(trial.suspects[1], log_end, in_pieces=True)
            return []
        self._slots[slot] = _CarefulSlot(log_end, log_end, in_pieces=False)
        return [self._declare(slot, epoch, offset, log_end)]

    def needs_records(self, slot: int) -> bool:
        """Whether it is a slot's turn, and it has no records."""
        state = self._slots[slot]
        return slot == self.turn and state.declared is None and not state.held

    def attempt(self, slot: int, epoch: int, trial: Trial, records: Records) -> list[Effect]:
        """Takes the next records of a slot that wants some; declares its next piece."""
        self._slots[slot].held = records
        effects: list[Effect] = []
        if trial.poison is not None:
            effects.append(Append(CONTROL, 0, Skipped(SLOTS, slot, trial.poison)))
        return effects + self.next_piece(slot, epoch, trial)

    def next_piece(self, slot: int, epoch: int, trial: Trial) -> list[Effect]:
        """Declares the next piece of the held records, if there is to be one."""
        state = self._slots[slot]
        if not state.held or not state.in_pieces:
            return []
        begin = state.held[0][0]
        end = _piece_end(begin, trial.suspects)
        last = max(offset for offset, _ in state.held if offset < end)
        return [self._declare(slot, epoch, begin, last + 1)]

    def drop(self, slot: int) -> bool:
        """Drops the held records of a slot; returns whether there were any, to be read again."""
        state = self._slots[slot]
        had_some, state.held = bool(state.held), []
        return had_some

    def read_back(self, declaration: Attempted) -> Records | None:
        """Returns the piece to take after its declaration was read; None if it was not awaited.

        It is empty if the slot is to be read now, or its careful reading is over.
        """
        state = self._slots.get(declaration.partition)
        if state is None or state.declared != declaration:
            return None
        state.declared = None
        piece = [record for record in state.held if record[0] < declaration.end]
        state.held = state.held[len(piece) :]
        return piece

    def note_taken(self, slot: int, epoch: int, offset: int) -> list[Effect]:
        """Notes that all up to an offset was taken; declares it if careful reading is over."""
        state = self._slots.get(slot)
        if state is None or offset < state.until or state.declared is not None:
            return []
        if state.in_pieces and offset < state.log_end:
            # The former owner ended before it came to the rest; that may hold another such record.
            state.until, state.in_pieces = state.log_end, False
            return [self._declare(slot, epoch, offset, state.log_end)]
        # It is over when this is read back: a process that lost the slot learns that before.
        return [self._declare(slot, epoch, offset, offset)]

    def end(self, slot: int) -> None:
        """Ends the careful reading of a slot."""
        self._slots.pop(slot, None)
        self._attempted.pop(slot, None)

    def _declare(self, slot: int, epoch: int, begin: int, end: int) -> Append:
        declared = Attempted(SLOTS, slot, epoch, begin, end)
        self._slots[slot].declared = self._attempted[slot] = declared
        return Append(CONTROL, 0, declared)


def without_skipped(slot: int, records: Records, skipped: set[int]) -> tuple[Records, list[Effect]]:
    """Empties the skipped records of a slot; returns all records, and effects that set those aside.

    Their intervals stay: otherwise records after them would be dropped as after a gap.
    """
    why = f"{DEATHS_MAX} evaluators in a row ended while processing it"
    kept: Records = []
    aside: list[Effect] = []
    for offset, message in records:
        if offset in skipped:
            aside.append(SetAside(SLOTS, slot, offset, message, why))
            kept.append((offset, _emptied(message)))
        else:
            kept.append((offset, message))
    return kept, aside


def _emptied(message: Routed | Installed) -> Routed:
    version, intervals = 0, NO_INTERVALS
    if isinstance(message, Routed):
        version, intervals = message.map_version, message.intervals
    return Routed(
        map_version=version,
        intervals=intervals,
        objects=NO_OBJECTS,
        events=NO_EVENTS,
        positions=NO_POSITIONS,
        interval_rows=NO_ROWS,
        terms=NO_TERMS,
    )


def _piece_end(begin: int, suspects: Span) -> int:
    """Returns the end of the piece that begins at an offset."""
    first, last = suspects
    if begin < first:
        return first
    return max(begin + 1, min(last, begin + -(-(last - first) // PIECES)))
