"""What is in force, as read from the topic `control` (rule R4).

Every process reads all of `control` and keeps one of these views. Two views that have read the same
records are equal. Only they decide who owns what, which map is in force, which checkpoint counts.
The topic is compacted: the newest record of each subject (an ownership, a checkpoint, the map, the
leader) is all that a process needs that starts later.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.control_records import (
    Attempted,
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
    Skipped,
)
from sirocco.protocol.contract.messages import REGISTRY
from sirocco.protocol.contract.poison_trials import Trial
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import from_bytes


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a Kafka partition, and the offset of its grant in `control`."""

    member: str
    epoch: int


@dataclass(frozen=True, slots=True)
class KnownMap:
    """The map in force, the one before it, or the one prepared to follow."""

    data: bytes
    partition_map: PartitionMap = field(compare=False, repr=False)


@dataclass(slots=True, kw_only=True)
class ControlView:
    """The state after a prefix of `control`.

    Attributes:
        next_offset: after the last record applied.
        term: offset of the LeaderElected in force; -1 before the first.
        leader: its member.
        owners: (topic, Kafka partition) → ownership.
        maps: by version, the newest two: the one in force, and the one before or the one to follow.
        switched: the version that was last declared to be in force.
        copied: registry partition → version of the map that all its live queries were copied for.
        has_changed: whether a map was ever prepared to follow another.
        checkpoints: (topic, Kafka partition) → the newest one.
        trials: (topic, Kafka partition) → the records during which its owners ended. It may differ
            for processes that read less of it in a compacted log: they isolate a record later.
    """

    next_offset: int = 0
    term: int = -1
    leader: str = ""
    owners: dict[tuple[str, int], Ownership] = field(default_factory=dict)
    maps: dict[int, KnownMap] = field(default_factory=dict)
    switched: int = 0
    copied: dict[int, int] = field(default_factory=dict)
    has_changed: bool = False
    checkpoints: dict[tuple[str, int], CheckpointTaken] = field(default_factory=dict)
    trials: dict[tuple[str, int], Trial] = field(
        default_factory=lambda: defaultdict(Trial), compare=False
    )

    @property
    def map_version(self) -> int:
        """Returns the version of the map in force; 0 before the first."""
        return max((version for version in self.maps if version <= self.switched), default=0)

    @property
    def partition_map(self) -> bytes:
        """Returns the bytes of the map in force; empty before the first."""
        return self.maps[self.map_version].data if self.map_version else b""

    @property
    def map_in_force(self) -> PartitionMap | None:
        """Returns the map in force; None before the first."""
        return self.maps[self.map_version].partition_map if self.map_version else None

    @property
    def prepared(self) -> int:
        """Returns the version of the map that is prepared to follow; 0 when there is none."""
        return max((version for version in self.maps if version > self.switched), default=0)

    def lagging(self, topic: str, partitions: int, version: int) -> list[int]:
        """Returns the Kafka partitions whose newest checkpoint is of an earlier map."""
        return [
            partition
            for partition in range(partitions)
            if (newest := self.checkpoints.get((topic, partition))) is None
            or newest.map_version < version
        ]

    def apply(self, offset: int, declaration: Declaration) -> bool:
        """Takes the next record; returns whether it changed anything."""
        self.next_offset = offset + 1
        match declaration:
            case LeaderElected(member):
                self.term, self.leader = offset, member
                return True
            case Granted():
                return self._granted(offset, declaration)
            case MapActivated(term):
                return self._in_force(term, offset) and self._activated(declaration)
            case MapPrepared(term):
                return self._in_force(term, offset) and self._prepared(declaration)
            case MapSwitched():
                return self._switched(offset, declaration)
            case MapCopied():
                return self._copied(declaration)
            case CheckpointTaken():
                return self._saved(declaration)
            case Attempted():
                return self._attempted(declaration)
            case Skipped():
                return self._skipped(declaration)

    def _granted(self, offset: int, declaration: Granted) -> bool:
        if not self._in_force(declaration.term, offset):
            return False
        key, member = (declaration.topic, declaration.partition), declaration.member
        former = self.owners.get(key)
        self.owners[key] = Ownership(member, offset)
        if former is not None and former.member != member:
            self.trials[key].granted(former.epoch, has_ended=declaration.has_ended)
        return True

    def _saved(self, declaration: CheckpointTaken) -> bool:
        # A checkpoint of any owner, also a former one, is the true state at its offset: so the one
        # with the greatest offset counts.
        key = declaration.topic, declaration.partition
        newest = self.checkpoints.get(key)
        if newest is not None and declaration.offset <= newest.offset:
            return False
        self.checkpoints[key] = declaration
        self.trials[key].saved(declaration.offset)
        return True

    def _attempted(self, declaration: Attempted) -> bool:
        key = declaration.topic, declaration.partition
        owner = self.owners.get(key)
        if owner is None or owner.epoch != declaration.epoch:
            return False
        self.trials[key].attempts(declaration)
        return True

    def _skipped(self, declaration: Skipped) -> bool:
        key = declaration.topic, declaration.partition
        newest = self.checkpoints.get(key)
        if newest is not None and declaration.offset < newest.offset:
            return False
        self.trials[key].skipped.add(declaration.offset)
        return True

    def _switched(self, offset: int, declaration: MapSwitched) -> bool:
        if not self._in_force(declaration.term, offset) or declaration.version <= self.switched:
            return False
        self.switched = declaration.version
        return True

    def _activated(self, declaration: MapActivated) -> bool:
        if declaration.version <= self.map_version or not self._keep(declaration):
            return False
        if not self.has_changed:
            self.maps = {declaration.version: self.maps[declaration.version]}
        self.switched = max(self.switched, declaration.version)
        return True

    def _prepared(self, declaration: MapPrepared) -> bool:
        version = declaration.version
        if version in self.maps or version < max(self.maps, default=0) - 1:
            return False
        if not version or not self._keep(declaration):
            return False
        self.has_changed = True
        # It follows a map in force. A process that starts here may not read that: compaction keeps
        # only the newest `MapSwitched`.
        self.switched = max(self.switched, version - 1)
        return True

    def _keep(self, declaration: MapActivated | MapPrepared) -> bool:
        try:
            known = KnownMap(declaration.partition_map, read_map(declaration))
        except InvalidArgument:
            # The result is the same in every process: the map before it stays in force.
            return False
        self.maps[declaration.version] = known
        for version in sorted(self.maps)[:-2]:
            del self.maps[version]
        return True

    def _copied(self, declaration: MapCopied) -> bool:
        partition, version = declaration.partition, declaration.version
        owner = self.owners.get((REGISTRY, partition))
        # Slots may have ignored the copies of a former owner; its successor sends newer ones.
        if owner is not None and declaration.epoch < owner.epoch:
            return False
        if version <= self.copied.get(partition, 0):
            return False
        self.copied[partition] = version
        return True

    def _in_force(self, term: int, offset: int) -> bool:
        # A term is the offset of an earlier election; no leader wrote a record with a later one.
        if term >= offset:
            return False
        # A former leader that resumes may still write; its records are void. A greater term than
        # any seen belongs to a leader whose election was compacted away by a later one's.
        if term < self.term:
            return False
        self.term = term
        return True


def read_map(declaration: MapActivated | MapPrepared) -> PartitionMap:
    """Returns the map of a declaration.

    Raises:
        InvalidArgument: The map is unusable: the bytes are damaged, it is of another version than
            declared, or of a scheme that does not exist.
    """
    found = from_bytes(declaration.partition_map)
    scheme_named(found.scheme)
    if found.version != declaration.version:
        raise InvalidArgument(
            f"the map is of version {found.version}, declared as {declaration.version}",
            field="partition_map.version",
        )
    return found
