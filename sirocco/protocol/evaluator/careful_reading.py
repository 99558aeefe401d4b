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


# Into how many pieces those are cut that an owner was amid when it ended. Each costs a trip through
# `control`, some ten milliseconds; with fewer it takes more owners that end to find the one record.
PIECES = 64


@dataclass(slots=True)
class _Care:
    """One slot that is taken carefully.

    Attributes:
        until: up to where.
        log_end: where its log ended when it was loaded: nobody has ended behind that.
        in_pieces: of records that are held meanwhile; else as they come, once that was read back.
        declared: what was said and is not read back yet.
        held: the records of it, and those that were read behind them.
    """

    until: int
    log_end: int
    in_pieces: bool
    declared: Attempted | None = None
    held: Records = field(default_factory=list)


class Careful:
    """The slots that an evaluator takes carefully: as a whole, or one after the other in pieces."""

    def __init__(self) -> None:
        self._slots: dict[int, _Care] = {}
        # What is attempted, from when it is said until more is said of that slot.
        self._attempted: dict[int, Attempted] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def attempted(self) -> list[Attempted]:
        """What others will take this process for amid, should it end."""
        return list(self._attempted.values())

    @property
    def turn(self) -> int | None:
        """The slot whose turn it is, of those that are taken in pieces."""
        return next((slot for slot, care in self._slots.items() if care.in_pieces), None)

    def waits(self, slot: int) -> bool:
        """Whether records of a slot are taken only once it was said, and read back, which."""
        care = self._slots.get(slot)
        if care is None:
            return False
        said = care.declared
        return care.in_pieces or (said is not None and said.begin < said.end)

    def begin(self, slot: int, epoch: int, offset: int, log_end: int, trial: Trial) -> list[Effect]:
        """A slot is taken carefully from an offset on.

        Args:
            slot: its number.
            epoch: of the ownership.
            offset: of the first record that is taken.
            log_end: where its log ended when it was loaded: nobody has ended behind that.
            trial: what is known of it.

        Returns:
            What is to be said before anything is read; nothing where it is taken in pieces.
        """
        first, last = trial.suspects
        if first < last:
            self._slots[slot] = _Care(last, log_end, in_pieces=True)
            return []
        self._slots[slot] = _Care(log_end, log_end, in_pieces=False)
        return [self._declare(slot, epoch, offset, log_end)]

    def wants(self, slot: int) -> bool:
        """Whether it is a slot's turn, and it has no records."""
        care = self._slots[slot]
        return slot == self.turn and care.declared is None and not care.held

    def attempt(self, slot: int, epoch: int, trial: Trial, records: Records) -> list[Effect]:
        """Says which of the next records of a slot that wants some are its next piece."""
        self._slots[slot].held = records
        effects: list[Effect] = []
        if trial.poison is not None:
            effects.append(Append(CONTROL, 0, Skipped(SLOTS, slot, trial.poison)))
        return effects + self.next_piece(slot, epoch, trial)

    def next_piece(self, slot: int, epoch: int, trial: Trial) -> list[Effect]:
        """Says which of the records that are held are the next piece, if there is to be one."""
        care = self._slots[slot]
        if not care.held or not care.in_pieces:
            return []
        begin = care.held[0][0]
        end = _piece_end(begin, trial.suspects)
        last = max(offset for offset, _ in care.held if offset < end)
        return [self._declare(slot, epoch, begin, last + 1)]

    def drop(self, slot: int) -> bool:
        """Lets go what is held of a slot; whether there was anything, which is to be read again."""
        care = self._slots[slot]
        had_some, care.held = bool(care.held), []
        return had_some

    def read_back(self, declaration: Attempted) -> Records | None:
        """The piece that is to be taken now that `control` has it; None: nobody waited for that.

        Empty where the slot is to be read now, or is through.
        """
        care = self._slots.get(declaration.partition)
        if care is None or care.declared != declaration:
            return None
        care.declared = None
        piece = [record for record in care.held if record[0] < declaration.end]
        care.held = care.held[len(piece) :]
        return piece

    def taken(self, slot: int, epoch: int, offset: int) -> list[Effect]:
        """All up to an offset was taken; says so if that was all that asked for care."""
        care = self._slots.get(slot)
        if care is None or offset < care.until or care.declared is not None:
            return []
        if care.in_pieces and offset < care.log_end:
            # Its owner ended before it came to the rest, in which there may be another one.
            care.until, care.in_pieces = care.log_end, False
            return [self._declare(slot, epoch, offset, care.log_end)]
        # It is over when this is read back: whoever has lost the slot by then learns it before.
        return [self._declare(slot, epoch, offset, offset)]

    def end(self, slot: int) -> None:
        """No more care is taken of a slot."""
        self._slots.pop(slot, None)
        self._attempted.pop(slot, None)

    def _declare(self, slot: int, epoch: int, begin: int, end: int) -> Append:
        declared = Attempted(SLOTS, slot, epoch, begin, end)
        self._slots[slot].declared = self._attempted[slot] = declared
        return Append(CONTROL, 0, declared)


def without(slot: int, records: Records, skipped: set[int]) -> tuple[Records, list[Effect]]:
    """Records of a slot without what is in those that are skipped, which are set aside.

    Their intervals stay: what comes behind them would be taken for behind a gap.
    """
    why = f"{DEATHS_MAX} evaluators in a row ended amid it"
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
    return Routed(version, intervals, NO_OBJECTS, NO_EVENTS, NO_POSITIONS, NO_ROWS, NO_TERMS)


def _piece_end(begin: int, suspects: Span) -> int:
    """Up to where records are attempted at once that begin at an offset."""
    first, last = suspects
    if begin < first:
        return first
    return max(begin + 1, min(last, begin + -(-(last - first) // PIECES)))
