"""The members by which objects are followed, as of a position of an intake partition.

Clients choose members, a different one with each query if they like, so members that no query
tracks any more must be forgotten. The owner of a registry partition publishes each member that its
queries track before a registration is answered (`member_declarations`). From time to time it
publishes the full list: from there on no other member counts for that partition. What is known at a
record of the intake is therefore a function of the log before it.

An owner that was suspended may publish late what was true before. Members that it adds still count;
its full list does not, once its successor has published anything.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import TrackedMember, TrackedMemberSet


@dataclass(slots=True)
class _PartitionMembers:
    """What the owners of one registry partition have published.

    Attributes:
        members: that its queries track.
        epoch: the greatest of any owner that has published something.
    """

    members: set[str] = field(default_factory=set)
    epoch: int = -1


class FollowedMembers:
    """The members that queries track, as of a position of an intake partition.

    Args:
        partitions: of the registry.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = [_PartitionMembers() for _ in range(max(1, partitions))]

    @property
    def names(self) -> Set[str]:
        """Returns the members of all registry partitions."""
        return set().union(*(tracked.members for tracked in self._partitions))

    def add(self, record: TrackedMember) -> None:
        """Adds a member that queries track from here on."""
        if record.partition is None or record.partition >= len(self._partitions):
            # A router of an older version names no partition: all get it until they publish full
            # lists.
            for tracked in self._partitions:
                tracked.members.add(record.key)
            return
        tracked = self._partitions[record.partition]
        tracked.epoch = max(tracked.epoch, record.epoch)
        tracked.members.add(record.key)

    def keep(self, record: TrackedMemberSet) -> bool:
        """Replaces the members of a partition from here on; returns whether the record counts."""
        if record.partition >= len(self._partitions):
            return False
        tracked = self._partitions[record.partition]
        # A former owner that was suspended does not know later registrations.
        if record.epoch < tracked.epoch:
            return False
        tracked.members, tracked.epoch = set(record.keys), record.epoch
        return True

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        counts = [len(tracked.members) for tracked in self._partitions]
        epochs = [tracked.epoch for tracked in self._partitions]
        keys = [key.encode() for tracked in self._partitions for key in sorted(tracked.members)]
        every = sorted(name.encode() for name in self.names)
        return {
            # For older versions.
            "track_keys": np.frombuffer(b"\0".join(every), np.uint8),
            "track_key_ends": np.cumsum([len(key) + 1 for key in every], dtype=np.int64) - 1,
            "members.parts": np.array([epochs, counts], np.int64),
            **packed("members.names", keys),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        if "members.parts" not in state or state["members.parts"].shape[1] != len(self._partitions):
            for key in _of_before(state):
                self.add(TrackedMember(key))
            return
        keys = iter(unpacked("members.names", state))
        epochs, counts = state["members.parts"].tolist()
        for tracked, epoch, count in zip(self._partitions, epochs, counts, strict=True):
            tracked.epoch = epoch
            tracked.members = {next(keys).decode() for _ in range(count)}


def _of_before(state: State) -> list[str]:
    """Returns the members in a checkpoint of an older version."""
    joined = state["track_keys"].tobytes()
    if "track_key_ends" in state:
        ends = state["track_key_ends"].tolist()
        begins = [0, *(end + 1 for end in ends[:-1])]
        bounds = zip(begins, ends, strict=True) if ends else ()
        return [joined[begin:end].decode() for begin, end in bounds]
    return joined.decode().split("\0") if joined else []
