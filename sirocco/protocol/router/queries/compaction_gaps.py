"""Which offsets compaction has removed from a topic, and which queries are in doubt therefore."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from sirocco.protocol.contract.messages import Change


@dataclass(slots=True)
class Missing:
    """Ranges of offsets that were missing in reading; noted in ascending order.

    A broker's log has no other gaps where no transactions are used: a missing record was replaced
    by a newer one of the same key.
    """

    _begins: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._begins)

    def note(self, begin: int, end: int) -> None:
        """Notes that the offsets [begin, end) are missing."""
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
        """Drops all gaps: they do not matter for records read from here on."""
        self._begins.clear()
        self._ends.clear()


@dataclass(slots=True)
class Doubt:
    """A query whose version in force is unknown.

    A change that does not follow the known version may have replaced a missing one, or may be void.
    The record after it shows that, since it names what it replaces. Until then nothing is sent:
    slots do not take an earlier version again.

    Attributes:
        revision: of the version that is believed to be in force; `NO_REVISION` for none.
        possible: other revisions that may be.
        told: the change to send for it, with its offset; None while the known version stays.
    """

    revision: int
    possible: set[int] = field(default_factory=set)
    told: tuple[int, Change] | None = None

    def believe(self, revision: int, told: tuple[int, Change]) -> None:
        """Takes a change that follows a version that may be in force."""
        self.revision, self.told = revision, told
