"""States of owned Kafka partitions: loaded when they are granted, saved while they are owned."""

from __future__ import annotations

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.slices import read_slice, write_slice
from sirocco.protocol.effects import Load, Loaded, SaveCheckpoint, Sweep
from sirocco.protocol.messages import DELIVERIES, PARTIALS, SLOTS, CheckpointTaken
from sirocco.protocol.owned import checkpoint_name
from sirocco.protocol.shelf import slice_names
from sirocco.runtime.progress import last_progress, merger_start
from sirocco.transport.archive import Archive
from sirocco.transport.log import Log


class Checkpoints:
    """Reads and writes the archive; every method may take long, and is called in any thread.

    All raise `Unavailable` when the archive or the log cannot be reached.
    """

    def __init__(self, log: Log, archive: Archive) -> None:
        self._log = log
        self._archive = archive

    def load(self, effect: Load) -> Loaded:
        """Returns the newest state of a Kafka partition and where reading goes on."""
        topic, partition, epoch = effect.topic, effect.partition, effect.epoch
        if topic == PARTIALS:
            return self._load_merger(effect)
        log_end = self._log.bounds(topic, partition)[1] if topic == SLOTS else 0
        if not effect.name:
            return Loaded(topic, partition, epoch, 0, None, (), log_end)
        state = read_state(self._archive.read(effect.name))
        names = slice_names(partition, state) if topic == SLOTS else ()
        slices = tuple(read_slice(self._archive.read(name)) for name in names)
        return Loaded(topic, partition, epoch, effect.offset, state, slices, log_end)

    def _load_merger(self, effect: Load) -> Loaded:
        found = last_progress(self._log, effect.partition)
        _, end = self._log.bounds(DELIVERIES, effect.partition)
        low, _ = self._log.bounds(PARTIALS, effect.partition)
        checkpoint = None
        if effect.name:
            checkpoint = read_state(self._archive.read(effect.name)), effect.offset
        progress = None if found is None else (found, end)
        offset, state = merger_start(progress, checkpoint, low)
        return Loaded(effect.topic, effect.partition, effect.epoch, offset, state)

    def save(self, effect: SaveCheckpoint) -> CheckpointTaken:
        """Writes a state; returns what is to be declared of it."""
        name = checkpoint_name(effect.topic, effect.partition, effect.offset, effect.epoch)
        # Slices first: a state that can be loaded finds all that it names.
        for slice_name, slice_ in effect.slices:
            self._archive.write(slice_name, write_slice(slice_))
        self._archive.write(name, write_state(effect.state))
        return CheckpointTaken(
            effect.topic,
            effect.partition,
            effect.epoch,
            effect.offset,
            name,
            effect.map_version,
        )

    def sweep(self, effect: Sweep) -> None:
        """Deletes what nobody will load any more."""
        for name in self._archive.list(effect.prefix):
            if name < effect.before_name:
                self._archive.delete(name)

    def discard(self, name: str) -> None:
        """Deletes one blob."""
        self._archive.delete(name)
