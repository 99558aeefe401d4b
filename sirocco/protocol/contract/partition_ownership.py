"""The life of an owned Kafka partition inside a process, the same for all services.

    granted ──Load──▶ loading ──Loaded──▶ owned ──another's grant──▶ gone
                         └────────another's grant────────▶ gone

A machine asks `Holdings.control` what a record of `control` means for it, and then changes its own
state: it loads what it gained and drops what it lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    MapActivated,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import Append, Discard, Effect, Load, Loaded, Sweep, Unfollow
from sirocco.protocol.contract.messages import CONTROL


def checkpoint_prefix(topic: str, partition: int) -> str:
    """Returns the common prefix of the names of all checkpoints of a Kafka partition."""
    return f"checkpoints/{topic}/{partition:05}/"


def checkpoint_name(topic: str, partition: int, offset: int, epoch: int) -> str:
    """Returns the name of a checkpoint in the archive; names sort as offsets do."""
    return f"{checkpoint_prefix(topic, partition)}{offset:016}-{epoch:012}"


class Phase(Enum):
    """The phase of an ownership."""

    LOADING = "loading"
    OWNED = "owned"


@dataclass(slots=True)
class Holding:
    """One Kafka partition that was granted to this process.

    Attributes:
        load_epoch: epoch of the last `Load` requested; the result of an earlier one is stale.
    """

    epoch: int
    phase: Phase
    load_epoch: int


@dataclass(slots=True)
class Holdings:
    """The Kafka partitions of certain topics that this process owns.

    Attributes:
        member: this process.
        topics: the topics whose grants concern it.
        view: what is in force.
        held: (topic, Kafka partition) → holding.
    """

    member: str
    topics: frozenset[str]
    view: ControlView = field(default_factory=ControlView)
    held: dict[tuple[str, int], Holding] = field(default_factory=dict)
    _former: dict[tuple[str, int], str] = field(default_factory=dict)

    def control(
        self, offset: int, declaration: Declaration
    ) -> tuple[list[Effect], list[tuple[str, int]]]:
        """Takes a record of `control`.

        Returns:
            The effects (loads of what was gained, unfollows of what was lost) and the Kafka
            partitions that were lost, whose state the machine drops.
        """
        if isinstance(declaration, CheckpointTaken):
            return self._checkpoint_taken(offset, declaration), []
        if not self.view.apply(offset, declaration):
            return [], []
        if not isinstance(declaration, Granted | MapActivated | MapPrepared | MapSwitched):
            return [], []
        return self._reconcile()

    def _checkpoint_taken(self, offset: int, declaration: CheckpointTaken) -> list[Effect]:
        key = declaration.topic, declaration.partition
        before = self.view.checkpoints.get(key)
        applied = self.view.apply(offset, declaration)
        if before is None or key not in self.held:
            return []
        if not applied:
            # An older checkpoint of a former owner is now the newest record of its subject, and
            # compaction would keep it instead of the one that counts: republish that one.
            is_lesser = declaration.offset < before.offset
            return [Append(CONTROL, 0, before)] if is_lesser else []
        # The previous checkpoint is kept: a process that has not read this record may be loading
        # it.
        former = self._former.get(key)
        self._former[key] = before.name
        if former is None:
            # The first checkpoint of this ownership removes those that former owners left or wrote
            # without declaring before they died; nothing else would remove them.
            return [Sweep(checkpoint_prefix(*key), before.name)]
        return [Discard(former)]

    def _reconcile(self) -> tuple[list[Effect], list[tuple[str, int]]]:
        # Nothing can be routed or matched before there is a map: grants wait for it.
        if self.view.map_version == 0:
            return [], []
        effects: list[Effect] = []
        lost: list[tuple[str, int]] = []
        for key, ownership in self.view.owners.items():
            if key[0] not in self.topics:
                continue
            holding = self.held.get(key)
            if ownership.member == self.member:
                if holding is not None:
                    # Granted again without a loss in between: nothing to repeat.
                    holding.epoch = ownership.epoch
                    continue
                self.held[key] = Holding(ownership.epoch, Phase.LOADING, ownership.epoch)
                effects.append(self._load(key, ownership.epoch))
            elif holding is not None:
                del self.held[key]
                self._former.pop(key, None)
                lost.append(key)
                effects.append(Unfollow(*key))
        return effects, lost

    def reload(self, topic: str, partition: int) -> list[Effect]:
        """Restarts an owned Kafka partition from its newest checkpoint."""
        holding = self.held[topic, partition]
        holding.phase = Phase.LOADING
        return [Unfollow(topic, partition), self._load((topic, partition), holding.load_epoch)]

    def _load(self, key: tuple[str, int], epoch: int) -> Load:
        newest = self.view.checkpoints.get(key)
        name, reached = (newest.name, newest.offset) if newest else ("", 0)
        # Records that may end their reader are taken in pieces, without waiting in between.
        trial = self.view.trials.get(key)
        return Load(*key, epoch, name, reached, is_whole=trial is not None and trial.has_suspects)

    def loaded(self, event: Loaded) -> bool:
        """Takes a load if it is still wanted; from then on the Kafka partition is owned."""
        if not self.is_wanted(event):
            return False
        self.held[event.topic, event.partition].phase = Phase.OWNED
        return True

    def is_wanted(self, event: Loaded) -> bool:
        """Whether a load is still awaited."""
        holding = self.held.get((event.topic, event.partition))
        if holding is None or holding.phase is not Phase.LOADING:
            return False
        # Lost and granted again meanwhile: other owners may have continued from what this load
        # read.
        return event.epoch == holding.load_epoch

    def owns(self, topic: str, partition: int) -> bool:
        """Whether a Kafka partition is owned and loaded."""
        holding = self.held.get((topic, partition))
        return holding is not None and holding.phase is Phase.OWNED

    def owned(self, topic: str) -> list[int]:
        """Returns the owned and loaded Kafka partitions of a topic, ascending."""
        return sorted(
            partition
            for (name, partition), holding in self.held.items()
            if name == topic and holding.phase is Phase.OWNED
        )

    @property
    def ready(self) -> bool:
        """Whether everything granted is loaded (nothing granted is ready too)."""
        return all(holding.phase is Phase.OWNED for holding in self.held.values())
