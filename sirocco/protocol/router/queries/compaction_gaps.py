"""Offsets that compaction has removed from a topic, and queries that are in doubt because of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from sirocco.protocol.contract.messages import Change


@dataclass(slots=True)
class CompactionGaps:
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

    def has_after(self, offset: int) -> bool:
        """Whether some greater offset is missing."""
        return bool(self._ends) and self._ends[-1] > offset + 1

    def forget(self) -> None:
        """Drops all gaps: they do not matter for records read from here on."""
        self._begins.clear()
        self._ends.clear()


# A change in force as slots are sent it: with its revision, or for a removal with its offset.
LoggedChange = tuple[int, Change]

# Changes of a query in doubt that are kept. Earlier ones have reached the slots long ago: the
# former owner sent them, and ended during the last ones. A client that registers and removes a
# query a thousand times a second would fill the memory with an hour of that.
POSSIBLE_MAX = 64


@dataclass(slots=True)
class Doubt:
    """A query whose version in force is unknown.

    A change that does not follow the known version may have replaced a missing one, or may be void.
    The record after it shows that, since it names what it replaces. Until then nothing is sent:
    slots do not take an earlier version again.

    Attributes:
        revision: of the version that is believed to be in force; `NO_REVISION` for none.
        in_force: the last changes that lead to it from the known version, or from a missing one.
            All are sent when it is known: one in between may have ended a version whose end is
            to be reported.
        possible: other revisions that may be in force, with the changes that lead to them.
    """

    revision: int
    in_force: list[LoggedChange] = field(default_factory=list)
    possible: dict[int, list[LoggedChange]] = field(default_factory=dict)

    def keep(self) -> None:
        """Notes that what is believed so far stays possible."""
        self.possible[self.revision] = self.in_force

    def accept(self, revision: int, in_force: LoggedChange) -> None:
        """Takes a change that follows a version that may be in force."""
        expected = in_force[1].expected_revision
        leading = self.in_force if expected == self.revision else self.possible.get(expected, [])
        # A republished change replaces the one that it repeats.
        self.in_force = [*(each for each in leading if each[0] != in_force[0]), in_force][
            -POSSIBLE_MAX:
        ]
        self.revision = revision
