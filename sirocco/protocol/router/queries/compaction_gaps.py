"""What compaction has taken out of a topic that is read: which offsets, and what is in doubt so."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from sirocco.protocol.contract.messages import Change


@dataclass(slots=True)
class Missing:
    """Ranges of offsets that were passed over in reading; noted in ascending order.

    A broker's log has no gaps of its own where no transactions are used: what is missing was
    replaced by a newer record of the same key.
    """

    _begins: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._begins)

    def note(self, begin: int, end: int) -> None:
        """The offsets from `begin` to before `end` are missing."""
        self._begins.append(begin)
        self._ends.append(end)

    def holds(self, offset: int) -> bool:
        """Whether an offset is missing."""
        place = bisect_right(self._begins, offset) - 1
        return place >= 0 and offset < self._ends[place]

    def reaches_behind(self, offset: int) -> bool:
        """Whether some greater offset is missing."""
        return bool(self._ends) and self._ends[-1] > offset + 1

    def forget(self) -> None:
        """Nothing that is read from here on was replaced by anything."""
        self._begins.clear()
        self._ends.clear()


@dataclass(slots=True)
class Doubt:
    """A query of which it is not known which version is in force.

    A change that does not follow the version that is known may have replaced a missing one, or may
    have come in vain. What follows it tells, since it names what it replaces. Until then nobody is
    told: slots take no earlier version again.

    Attributes:
        revision: of the version that is believed to be in force; `NO_REVISION` for none.
        possible: other revisions that may be.
        told: the change by which that is so, and where; None while it is as it was.
    """

    revision: int
    possible: set[int] = field(default_factory=set)
    told: tuple[int, Change] | None = None

    def believe(self, revision: int, told: tuple[int, Change]) -> None:
        """A change follows what may be in force."""
        self.revision, self.told = revision, told
