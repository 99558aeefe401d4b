"""How far a partition of another log was published: what may be committed, and where to resume.

No I/O. The number of a record is its offset + 1, so that "every number up to n" and "the next
offset is n" are the same. A commit holds, beside the offset, the session of the partition and the
number up to which it is known to be published. The next reader publishes under the same numbers,
and routers drop what they have. A commit without these was made by others: somebody has set the
group back or ahead. A new session then begins, so that what is read again is published again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Numbers that may be skipped at once: a request has no room for more than twice that. It happens
# only where the log has deleted what was not read.
_SKIP_MAX = 1 << 30

# Form of what is written into a commit.
_METADATA = re.compile(r"sirocco1 ([0-9a-f]{16}) ([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the reading of a partition continues.

    Attributes:
        position: The next offset; everything before it is published or put aside.
        session: The publishing session.
        number: Every number up to this one was acknowledged in it, or never used; ≤ `position`.
    """

    position: int
    session: int
    number: int

    @property
    def metadata(self) -> str:
        """What is committed beside the position."""
        return f"sirocco1 {self.session:016x} {self.number}"


def place_of(
    committed: int, metadata: str | None, low: int, high: int, *, earliest: bool, new_session: int
) -> Place:
    """Returns where to go on.

    Args:
        committed: The committed offset, below 0 if there is none.
        metadata: What was committed beside it.
        low: The first offset that there is.
        high: The offset of the next record that is written.
        earliest: Whether to begin with the oldest record, where nothing is committed.
        new_session: A random number, should a new session begin.
    """
    if committed > high:
        # Another topic of the same name: offsets say nothing about it.
        committed = low
        metadata = None
    if committed < 0:
        committed = low if earliest else high
        metadata = None
    found = _METADATA.fullmatch(metadata or "")
    if found is None:
        return Place(committed, new_session, committed)
    number = int(found[2])
    if number > committed or max(committed, low) - number > _SKIP_MAX:
        return Place(committed, new_session, committed)
    return Place(committed, int(found[1], 16), number)


class PartitionProgress:
    """The progress of one partition.

    Attributes:
        read_to: The offset after the last record that was read.
        published_to: The number of the last object that was handed to the publisher.
        committed: The place that was committed last.
    """

    def __init__(self, begin: Place) -> None:
        self.committed = begin
        self.read_to = begin.position
        self.published_to = begin.number
        # Offsets of records on their way to the dead letters.
        self._aside: set[int] = set()

    def read(self, upto: int) -> None:
        """Records that everything before an offset was read."""
        self.read_to = max(self.read_to, upto)

    def published(self, number: int) -> None:
        """Records that an object was handed to the publisher."""
        self.published_to = number

    def put_aside(self, offset: int) -> None:
        """Records that a record is on its way to the dead letters."""
        self._aside.add(offset)

    def is_aside(self, offset: int) -> None:
        """Records that the dead letters have it."""
        self._aside.discard(offset)

    def place(self, acknowledged: int) -> Place:
        """Returns what may be committed.

        Args:
            acknowledged: Every object up to this number is acknowledged.
        """
        done = self.read_to if acknowledged >= self.published_to else acknowledged
        position = min([done, *self._aside])
        position = max(position, self.committed.position)
        return Place(position, self.committed.session, min(acknowledged, position))
