"""What is in force, as read from the topic `control` (rule R4).

Every process reads all of `control` and keeps one of these views. Two views that have read the same
records are equal; nothing else decides who owns what, which map holds, or which checkpoint counts.
The topic is compacted: the newest record of each subject (an ownership, a checkpoint, the map, the
leader) is all that a process needs that starts later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sirocco.model.errors import InvalidArgument
from sirocco.protocol.messages import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
)
from sirocco.schemes.map import PartitionMap
from sirocco.schemes.map_bytes import from_bytes
from sirocco.schemes.scheme import scheme_named


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a Kafka partition, and since which record of `control`."""

    member: str
    epoch: int


@dataclass(slots=True)
class ControlView:
    """The state after a prefix of `control`.

    Attributes:
        next_offset: behind the last record applied.
        term: offset of the LeaderElected in force; -1 before the first.
        leader: its member.
        owners: (topic, Kafka partition) → ownership.
        map_version: of the map in force; 0 before the first.
        partition_map: its bytes.
        map_in_force: what they hold.
        checkpoints: (topic, Kafka partition) → the newest one.
    """

    next_offset: int = 0
    term: int = -1
    leader: str = ""
    owners: dict[tuple[str, int], Ownership] = field(default_factory=dict)
    map_version: int = 0
    partition_map: bytes = b""
    map_in_force: PartitionMap | None = field(default=None, compare=False, repr=False)
    checkpoints: dict[tuple[str, int], CheckpointTaken] = field(default_factory=dict)

    def apply(self, offset: int, declaration: Declaration) -> bool:
        """Takes the next record; returns whether it changed anything."""
        self.next_offset = offset + 1
        match declaration:
            case LeaderElected(member):
                self.term, self.leader = offset, member
                return True
            case Granted(term, topic, partition, member):
                if not self._in_force(term, offset):
                    return False
                self.owners[topic, partition] = Ownership(member, offset)
                return True
            case MapActivated(term, version, partition_map):
                if not self._in_force(term, offset) or version <= self.map_version:
                    return False
                try:
                    self.map_in_force = read_map(declaration)
                except InvalidArgument:
                    # The same for everybody: the map before it holds on.
                    return False
                self.map_version, self.partition_map = version, partition_map
                return True
            case CheckpointTaken(topic, partition, _epoch, reached):
                # Any owner's checkpoint is the true state at its offset, a former owner's too: so
                # the farthest one counts, whoever wrote it.
                newest = self.checkpoints.get((topic, partition))
                if newest is not None and reached <= newest.offset:
                    return False
                self.checkpoints[topic, partition] = declaration
                return True

    def _in_force(self, term: int, offset: int) -> bool:
        # A term is the place of an election further up; no leader has said what names another.
        if term >= offset:
            return False
        # A former leader that woke up may still write; its word is void. A greater term than any
        # seen belongs to a leader whose election was compacted away by a later one's.
        if term < self.term:
            return False
        self.term = term
        return True


def read_map(declaration: MapActivated) -> PartitionMap:
    """Returns the map that a declaration brings.

    Raises:
        InvalidArgument: Nobody can go by it: the bytes are damaged, it is of another version than
            declared, or of a scheme that does not exist.
    """
    found = from_bytes(declaration.partition_map)
    scheme_named(found.scheme)
    if found.version != declaration.version:
        raise InvalidArgument(
            f"the map is of version {found.version}, declared as {declaration.version}",
            field="map_activated.version",
        )
    return found
