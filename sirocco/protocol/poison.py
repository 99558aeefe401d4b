"""Records that end whoever takes them: how they are found out, and passed over.

What cannot be read is put aside by its reader. A record that can be read may still end the process
that takes it: by a defect of a kernel, or for want of memory. Its successor begins at the same
checkpoint, comes to the same record, and ends as well, and with it the work on all else that it
owned; so would all, one after the other.

So who begins where another has ended is careful: it says in `control` which records it is about to
take (`Attempted`), all that the log held then, and takes them when it has read that back. Who
follows knows then amid which its predecessor ended, and attempts these in pieces, down to single
ones. A record amid which `DEATHS_MAX` owners in a row ended is skipped; that stands in `control` as
well (`Skipped`), so that everybody takes the log without it.

Of a process one slot at a time is attempted in pieces: it would otherwise end amid pieces of
several, of which one alone is to blame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sirocco.protocol.columns import NO_EVENTS
from sirocco.protocol.declarations import Attempted, Skipped
from sirocco.protocol.effects import Append, Effect, SetAside
from sirocco.protocol.messages import (
    CONTROL,
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    NO_TERMS,
    SLOTS,
    Installed,
    Routed,
)
from sirocco.protocol.positions import NO_INTERVALS

Records = list[tuple[int, Routed | Installed]]
Span = tuple[int, int]

NOWHERE: Span = (0, 0)

# Owners in a row that have to end amid one record, and that alone. One may have been killed by
# chance just then; two in a row within the milliseconds that a record takes are no chance.
DEATHS_MAX = 2

# Into how many pieces those are cut that an owner was amid when it ended. Each costs a trip through
# `control`, some ten milliseconds; with fewer it takes more owners that end to find the one record.
PIECES = 64


@dataclass(slots=True)
class Trial:
    """What `control` says of the records of a Kafka partition behind its newest checkpoint.

    Attributes:
        ends: how many owners have ended since.
        epoch: of the owner that has attempted records last.
        attempted: which, from and to; empty when it is through with them.
        suspects: those that an owner was amid when it ended, the last that did.
        deaths: how many owners in a row ended amid just these.
        skipped: offsets of records that nobody takes.
    """

    ends: int = 0
    epoch: int = -1
    attempted: Span = NOWHERE
    suspects: Span = NOWHERE
    deaths: int = 0
    skipped: set[int] = field(default_factory=set)

    @property
    def is_suspected(self) -> bool:
        """Whether an owner has to be careful: another has ended that began where it does."""
        return self.ends > 0

    @property
    def poison(self) -> int | None:
        """The record that is to be skipped, if it is known by now which."""
        begin, end = self.suspects
        is_one = end == begin + 1 and begin not in self.skipped
        return begin if is_one and self.deaths >= DEATHS_MAX else None

    def granted(self, former_epoch: int, *, has_ended: bool) -> None:
        """Another owner begins; the one before has ended, or goes on without it."""
        begin, end = self.attempted
        is_amid = begin < end and self.epoch == former_epoch
        if has_ended and is_amid:
            self.deaths = self.deaths + 1 if self.attempted == self.suspects else 1
            self.suspects = self.attempted
        self.ends += has_ended
        self.attempted = NOWHERE

    def attempts(self, declaration: Attempted) -> None:
        """The owner is about to take records, and has taken all before them."""
        self.epoch, self.attempted = declaration.epoch, (declaration.begin, declaration.end)
        if declaration.begin >= self.suspects[1]:
            self.suspects, self.deaths = NOWHERE, 0

    def saved(self, offset: int) -> None:
        """The newest checkpoint is at an offset from now on."""
        self.ends = 0
        self.skipped = {each for each in self.skipped if each >= offset}
        if self.suspects[1] <= offset:
            self.suspects, self.deaths = NOWHERE, 0


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
