"""Finds and skips records that end every process that takes them.

A record that cannot be read is set aside by its reader. A record that can be read may still end the
process that takes it: by a defect of a kernel, or for want of memory. Its successor starts at the
same checkpoint, reaches the same record, and ends as well, with all other work that it owned; so
would all, one after the other.

So an owner that starts where another has ended is careful: it declares in `control` which records
it is about to take (`Attempted`), all that the log held then, and takes them when it has read that
back. Its successor then knows during which records it ended, and attempts these in pieces, down to
single ones. A record during which `DEATHS_MAX` owners in a row ended is skipped; that is declared
in `control` as well (`Skipped`), so that all processes take the log without it.

A process attempts only one slot at a time in pieces: otherwise it would end during pieces of
several slots, of which only one is the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sirocco.protocol.contract.control_records import Attempted

Span = tuple[int, int]

NOWHERE: Span = (0, 0)

# Owners in a row that must end during one single record. One may have been killed by chance just
# then; two in a row within the milliseconds that a record takes are no chance.
DEATHS_MAX = 2


@dataclass(slots=True)
class Trial:
    """What `control` holds of the records of a Kafka partition after its newest checkpoint.

    Attributes:
        ends: how many owners have ended since.
        epoch: of the owner that has attempted records last.
        attempted: which, from and to; empty when it is through with them.
        suspects: those during which the last owner that ended did so.
        deaths: how many owners in a row ended during just these.
        skipped: offsets of records that no process takes.
    """

    ends: int = 0
    epoch: int = -1
    attempted: Span = NOWHERE
    suspects: Span = NOWHERE
    deaths: int = 0
    skipped: set[int] = field(default_factory=set)

    @property
    def is_suspected(self) -> bool:
        """Whether an owner must be careful: another has ended that started at its position."""
        return self.ends > 0

    @property
    def has_suspects(self) -> bool:
        """Whether an owner has ended during records that are known."""
        return self.suspects[0] < self.suspects[1]

    @property
    def poison(self) -> int | None:
        """The record to be skipped; None while it is not known."""
        begin, end = self.suspects
        is_one = end == begin + 1 and begin not in self.skipped
        return begin if is_one and self.deaths >= DEATHS_MAX else None

    def granted(self, former_epoch: int, *, has_ended: bool) -> None:
        """Takes a grant to another owner; the one before has ended, or continues without it."""
        begin, end = self.attempted
        is_interrupted = begin < end and self.epoch == former_epoch
        if has_ended and is_interrupted:
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
        """Takes the offset of the newest checkpoint."""
        self.ends = 0
        self.skipped = {each for each in self.skipped if each >= offset}
        if self.suspects[1] <= offset:
            self.suspects, self.deaths = NOWHERE, 0
