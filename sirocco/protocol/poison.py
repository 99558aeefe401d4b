"""Records that end whoever takes them: how they are found out, and passed over.

What cannot be read is put aside by its reader. A record that can be read may still end the process
that takes it: by a defect of a kernel, or for want of memory. Its successor begins at the same
checkpoint, comes to the same record, and ends as well, and with it the work on all else that it
owned; so would all, one after the other.

So who begins where others have begun and ended is careful: it says in `control` which records it is
about to take (`Attempted`), and takes them once it has read that back. Who follows knows then amid
which its predecessor ended, and attempts these in pieces, down to single ones. A record amid which
`DEATHS_MAX` owners in a row ended is skipped; that stands in `control` as well (`Skipped`), so that
everybody takes the log without it.

Of a process one slot at a time is attempted: it would otherwise end amid records of several, of
which one alone is to blame.
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

# Into how many pieces the log behind a checkpoint is cut, by the first who is careful. Each costs a
# trip through `control`: as many for each of a dozen slots are a second of a fail-over, which most
# often has nothing to do with any record.
PIECES = 8

# The same for those amid which such an owner ended: now there is something to be found.
PIECES_OF_SUSPECTS = 64


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
        return self.ends > 1

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
        until: where the log ended when it was loaded: nobody has ended behind that.
        piece: records that are attempted at once while none are suspected.
        declared: what was said to be attempted, and is not taken yet.
        held: those records.
    """

    until: int
    piece: int
    declared: Attempted | None = None
    held: Records = field(default_factory=list)

    def piece_end(self, begin: int, trial: Trial) -> int:
        """Up to where records are attempted at once that begin at an offset."""
        first, last = trial.suspects
        if first == last:
            return begin + self.piece
        if begin < first:
            return first
        if begin >= last:
            return max(self.until, begin + 1)
        return min(last, begin + _share(last - first, PIECES_OF_SUSPECTS))


class Careful:
    """The slots that an evaluator takes carefully: one after the other, piece by piece."""

    def __init__(self) -> None:
        self._slots: dict[int, _Care] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def turn(self) -> int | None:
        """The slot whose turn it is."""
        return next(iter(self._slots), None)

    @property
    def attempted(self) -> Attempted | None:
        """The records that this process is amid, if it said so."""
        return None if self.turn is None else self._slots[self.turn].declared

    def begin(self, slot: int, offset: int, until: int) -> None:
        """A slot is taken carefully from here on, up to an offset."""
        self._slots[slot] = _Care(until, _share(until - offset, PIECES))

    def attempt(
        self, slot: int, epoch: int, trial: Trial, records: Records
    ) -> tuple[list[Effect], bool]:
        """Says which of the next records of a slot are taken next.

        Returns:
            What is to be said, and whether records are left that have to be read again.
        """
        care = self._slots[slot]
        if slot != self.turn or care.declared is not None:
            return [], True
        effects: list[Effect] = []
        if trial.poison is not None:
            effects.append(Append(CONTROL, 0, Skipped(SLOTS, slot, trial.poison)))
        end = care.piece_end(records[0][0], trial)
        care.held = [record for record in records if record[0] < end]
        begin, end = care.held[0][0], care.held[-1][0] + 1
        effects.append(self._declare(slot, epoch, begin, end))
        return effects, len(care.held) < len(records)

    def read_back(self, declaration: Attempted) -> Records | None:
        """What is to be taken now that `control` has it; None: nobody waited for that."""
        care = self._slots.get(declaration.partition)
        if care is None or care.declared != declaration:
            return None
        care.declared, held, care.held = None, care.held, []
        return held

    def taken(self, slot: int, epoch: int, offset: int) -> list[Effect]:
        """All up to an offset was taken; says so if that was all that asked for care."""
        if offset < self._slots[slot].until:
            return []
        # It is over when this is read back: whoever has lost the slot by then learns it before.
        return [self._declare(slot, epoch, offset, offset)]

    def end(self, slot: int) -> None:
        """No more care is taken of a slot."""
        self._slots.pop(slot, None)

    def _declare(self, slot: int, epoch: int, begin: int, end: int) -> Append:
        declared = Attempted(SLOTS, slot, epoch, begin, end)
        self._slots[slot].declared = declared
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


def _share(count: int, pieces: int) -> int:
    return max(1, -(-count // pieces))
