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

from dataclasses import dataclass, field

from sirocco.protocol.contract.control_records import Attempted

Span = tuple[int, int]

NOWHERE: Span = (0, 0)

# Owners in a row that have to end amid one record, and that alone. One may have been killed by
# chance just then; two in a row within the milliseconds that a record takes are no chance.
DEATHS_MAX = 2


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
