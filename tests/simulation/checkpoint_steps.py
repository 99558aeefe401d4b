"""Checkpoints written to the archive blob by blob, with time for faults between two blobs.

What is written, and in which order, is the runtime's own code; only the waits are the simulator's.
So a process may end, pause or find no room in the middle of a checkpoint. The written part stays:
the process in a later try, or its successor, must write the same blob under the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sirocco.codec.checkpoint import read_state
from sirocco.protocol.contract.control_records import CheckpointTaken
from sirocco.protocol.contract.effects import SaveCheckpoint
from sirocco.protocol.contract.messages import CONTROL, SLOTS
from sirocco.protocol.evaluator.slot.archived_slices import slice_names
from sirocco.runtime.loop.checkpoints import Checkpoints, Saves
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.memory_log import MemoryLog
from tests.simulation.log import SimLog
from tests.simulation.store import SimArchive

if TYPE_CHECKING:
    from tests.simulation.node import Node

Blobs = deque[tuple[str, bytes]]


class Recorder(MemoryArchive):
    """Records the writes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs: Blobs = deque()

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        """See `Archive.write`."""
        self.blobs.append((name, b"".join(contents)))


class Saver:
    """The checkpoints of one process that are being written.

    Args:
        node: the process.
        later: schedules work beside its loop, after a delay in ms.
        declare: declares a checkpoint in `control`, in the loop.
    """

    def __init__(
        self,
        node: Node,
        later: Callable[[float, Callable[[], None]], None],
        declare: Callable[[CheckpointTaken], None],
    ) -> None:
        self._node = node
        self._later = later
        self._declare = declare
        self._saves = Saves()
        self._strike: tuple[int, Callable[[], None]] | None = None

    @property
    def _now_ms(self) -> int:
        return int(self._node.scheduler.now_ms)

    def save(self, effect: SaveCheckpoint) -> None:
        """Begins to write a checkpoint; called in the loop."""
        self._saves.begun(effect)

        def begin() -> None:
            recorder = Recorder()
            taken = Checkpoints(MemoryLog(), recorder).save(effect)
            if self._node.parts.planted.declares_early:
                self._declare(taken)
            self._write(effect, taken, recorder.blobs)

        self._wait(begin)

    def save_again(self) -> None:
        """Begins again with a checkpoint that found no room; called in the loop."""
        for effect in self._saves.due(self._now_ms):
            self.save(effect)

    def arm(self, blobs: int, strike: Callable[[], None]) -> None:
        """Calls back right after some further blobs: in the middle of a checkpoint."""
        self._strike = self._strike or (blobs, strike)

    def heal(self) -> None:
        """Removes pending callbacks."""
        self._strike = None

    def _write(self, effect: SaveCheckpoint, taken: CheckpointTaken, blobs: Blobs) -> None:
        """Writes the next blob of a checkpoint."""
        archive, planted = self._node.parts.archive, self._node.parts.planted
        is_full = self._now_ms < archive.full_until_ms
        if is_full and not planted.forgets_failures:
            self._node.post(lambda: self._saves.ended(effect, False, self._now_ms))
            return
        name, contents = blobs.popleft()
        if not is_full:
            archive.write(name, contents)
        if blobs:
            self._wait(lambda: self._write(effect, taken, blobs))
        else:
            self._node.post(lambda: self._written(effect, taken))
        if self._strike is not None:
            left, strike = self._strike
            self._strike = (left - 1, strike) if left > 1 else None
            if left <= 1:
                strike()

    def _written(self, effect: SaveCheckpoint, taken: CheckpointTaken) -> None:
        self._saves.ended(effect, True, self._now_ms)
        if not self._node.parts.planted.declares_early:
            self._declare(taken)

    def _wait(self, action: Callable[[], None]) -> None:
        node = self._node
        self._later(node.scheduler.between(*node.parts.log.delays.archive) / 2, action)


def unreadable(log: SimLog, archive: SimArchive) -> list[str]:
    """Returns the blobs that valid checkpoints need, but the archive lacks."""
    counting: dict[tuple[str, int], CheckpointTaken] = {}
    for stored in log.partition(CONTROL, 0).records:
        taken = stored.message
        if isinstance(taken, CheckpointTaken):
            key = taken.topic, taken.partition
            if key not in counting or taken.offset > counting[key].offset:
                counting[key] = taken
    missing: list[str] = []
    for (topic, partition), taken in counting.items():
        names = [taken.name]
        if topic == SLOTS and taken.name in archive.blobs:
            names += slice_names(partition, read_state(archive.blobs[taken.name]))
        missing += [name for name in names if name not in archive.blobs]
    return missing
