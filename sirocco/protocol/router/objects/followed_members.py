"""By which members objects are followed, as an intake partition says it.

Clients choose members, with each query another one if they like, so what nobody tracks any more has
to be forgotten. The owner of a registry partition says of each member that its queries track it,
before a registration is answered (`tracking`), and now and then which members
they track at all: from there on no others count for that partition. What is known at a record of
the intake is therefore a function of the log before it.

An owner may stand still and say late what was true before. What it says that its queries track
counts all the same; that others are tracked no more does not, once its successor has said anything.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Tracked, TrackedOnly


@dataclass(slots=True)
class _Told:
    """What the owners of one registry partition have said.

    Attributes:
        members: that its queries track.
        epoch: the greatest of any that has said something.
    """

    members: set[str] = field(default_factory=set)
    epoch: int = -1


class FollowedMembers:
    """The members that queries track, as of a position of an intake partition.

    Args:
        partitions: of the registry.
    """

    def __init__(self, partitions: int) -> None:
        self._told = [_Told() for _ in range(max(1, partitions))]

    @property
    def names(self) -> Set[str]:
        """All of them."""
        return set().union(*(told.members for told in self._told))

    def add(self, said: Tracked) -> None:
        """Queries track a member from here on."""
        if said.partition is None or said.partition >= len(self._told):
            # A router of before does not say whose queries: all say in time which they track.
            for told in self._told:
                told.members.add(said.key)
            return
        told = self._told[said.partition]
        told.epoch = max(told.epoch, said.epoch)
        told.members.add(said.key)

    def keep(self, said: TrackedOnly) -> bool:
        """Queries track no others than these from here on; returns whether that counts."""
        if said.partition >= len(self._told):
            return False
        told = self._told[said.partition]
        # A former owner, which stood still, does not know what has been registered since.
        if said.epoch < told.epoch:
            return False
        told.members, told.epoch = set(said.keys), said.epoch
        return True

    def state(self) -> State:
        """For a checkpoint."""
        counts = [len(told.members) for told in self._told]
        epochs = [told.epoch for told in self._told]
        keys = [key.encode() for told in self._told for key in sorted(told.members)]
        every = sorted(name.encode() for name in self.names)
        return {
            # For versions before.
            "track_keys": np.frombuffer(b"\0".join(every), np.uint8),
            "track_key_ends": np.cumsum([len(key) + 1 for key in every], dtype=np.int64) - 1,
            "members.parts": np.array([epochs, counts], np.int64),
            **packed("members.names", keys),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        if "members.parts" not in state or state["members.parts"].shape[1] != len(self._told):
            for key in _of_before(state):
                self.add(Tracked(key))
            return
        keys = iter(unpacked("members.names", state))
        epochs, counts = state["members.parts"].tolist()
        for told, epoch, count in zip(self._told, epochs, counts, strict=True):
            told.epoch = epoch
            told.members = {next(keys).decode() for _ in range(count)}


def _of_before(state: State) -> list[str]:
    """The members in a checkpoint of a version before."""
    joined = state["track_keys"].tobytes()
    if "track_key_ends" in state:
        ends = state["track_key_ends"].tolist()
        begins = [0, *(end + 1 for end in ends[:-1])]
        bounds = zip(begins, ends, strict=True) if ends else ()
        return [joined[begin:end].decode() for begin, end in bounds]
    return joined.decode().split("\0") if joined else []
