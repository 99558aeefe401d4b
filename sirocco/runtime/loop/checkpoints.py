"""States of owned Kafka partitions: loaded when they are granted, saved while they are owned."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.checkpoint import CorruptCheckpoint, read_state, state_pieces
from sirocco.codec.slices import CorruptSlice, read_rows, read_slice, write_slice
from sirocco.index.store.slices import SealedSlice
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import ANALYSIS
from sirocco.protocol.contract.control_records import CheckpointTaken
from sirocco.protocol.contract.effects import (
    EndsFound,
    FindEnds,
    Load,
    Loaded,
    LoadSlices,
    SaveCheckpoint,
    SlicesLoaded,
    Sweep,
)
from sirocco.protocol.contract.messages import DELIVERIES, PARTIALS, REGISTRY, SLOTS
from sirocco.protocol.contract.partition_ownership import checkpoint_name
from sirocco.protocol.contract.query_words import is_former
from sirocco.protocol.evaluator.slot.archived_slices import slice_names
from sirocco.protocol.router.queries import (
    former_analysis,
    former_identities,
    member_declarations,
)
from sirocco.runtime.loop.limits import LOOP, LoopLimits
from sirocco.runtime.loop.progress import last_progress, merger_start
from sirocco.runtime.loop.registry_reader import read_changes
from sirocco.runtime.loop.registry_texts import RegistryTexts
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.retries import RETRY_MS_MIN
from sirocco.telemetry.logging import event
from sirocco.transport.archive import Archive
from sirocco.transport.errors import BlobExists, BlobNotFound, TransportUnavailable
from sirocco.transport.log import Log

logger = logging.getLogger(__name__)

# What is read from the archive and the log, again until it succeeds.
Fetch: TypeAlias = Load | LoadSlices | FindEnds

# In the place of a topic: the slices of a slot, which are loaded beside its log.
SLICES = "slices"

# How long loaded slices wait for the grant of their slot. It follows within seconds, or, for slots
# that move together, within the coordinator's `WARMING_TOGETHER_MS`, or not at all.
WARM_MS = 60_000

# Errors of a state without a second copy in the archive or the log: a blob that is missing or
# damaged, an offset that the log does not have. It may be restored (docs/guides/runbooks.md).
UNUSABLE = (BlobNotFound, CorruptCheckpoint, CorruptSlice)


class Saves:
    """Keeps the newest save of each Kafka partition, and which of them failed; no I/O.

    A failed one is due again until it succeeds or a newer one is begun.
    """

    def __init__(self, limits: LoopLimits = LOOP) -> None:
        self._again_ms = limits.save_again_ms
        self._newest: dict[tuple[str, int], SaveCheckpoint] = {}
        self._failed: set[tuple[str, int]] = set()
        # When those failed that are not being tried again now.
        self._failed_ms: dict[tuple[str, int], int] = {}

    @property
    def failed(self) -> int:
        """Number of Kafka partitions whose last save failed."""
        return len(self._failed)

    def begun(self, save: SaveCheckpoint) -> None:
        """Notes that a save is being tried."""
        self._newest[save.topic, save.partition] = save
        self._failed_ms.pop((save.topic, save.partition), None)

    def ended(self, save: SaveCheckpoint, is_safe: bool, now_ms: int) -> None:
        """Notes that a save was written, or could not be."""
        at = save.topic, save.partition
        if self._newest.get(at) is not save:
            return
        if is_safe:
            del self._newest[at]
            self._failed.discard(at)
        else:
            self._failed.add(at)
            self._failed_ms[at] = now_ms

    def lost(self, topic: str, partition: int) -> None:
        """Drops a save whose partition has a new owner, which continues from what is saved."""
        at = topic, partition
        self._newest.pop(at, None)
        self._failed.discard(at)
        self._failed_ms.pop(at, None)

    def due(self, now_ms: int) -> list[SaveCheckpoint]:
        """Returns the saves to be tried again now."""
        return [
            self._newest[at]
            for at, failed_ms in self._failed_ms.items()
            if now_ms - failed_ms >= self._again_ms
        ]


class Loads:
    """Keeps which loads are still wanted, and when failed ones are due again; no I/O.

    A failed one is due again, after growing pauses, until it succeeds, a newer one of the same
    partition is begun, or its result is not needed any more. The same holds for `FindEnds`.
    """

    def __init__(self, limits: LoopLimits = LOOP) -> None:
        self._again_ms_max = limits.load_again_ms_max
        self._newest: dict[tuple[str, int | None], Fetch] = {}
        self._pause_ms: dict[tuple[str, int | None], float] = {}
        # When those are to be tried again that are not being tried now.
        self._due_ms: dict[tuple[str, int | None], float] = {}
        # Those whose state is there but unusable.
        self._unusable: dict[tuple[str, int | None], Load | LoadSlices] = {}

    @property
    def unusable_total(self) -> int:
        """Number of Kafka partitions that wait because their state is missing or damaged."""
        return len(self._unusable)

    def unusable(self, load: Load | LoadSlices, now_ms: int) -> None:
        """Notes that the loaded state is unusable; it is tried again, in case it is restored."""
        at = subject(load)
        self._unusable[at] = load
        self._due_ms[at] = now_ms + self._again_ms_max

    def newer(self, taken: CheckpointTaken) -> Load | None:
        """Returns the load of a checkpoint that a former owner has declared, if one is needed."""
        load = self._unusable.get((taken.topic, taken.partition))
        if not isinstance(load, Load) or taken.offset <= load.offset:
            return None
        return replace(load, name=taken.name, offset=taken.offset)

    def begun(self, load: Fetch) -> None:
        """Notes that a load is being tried for the first time."""
        at = subject(load)
        self._unusable.pop(at, None)
        self._newest[at] = load
        self._pause_ms[at] = RETRY_MS_MIN
        self._due_ms.pop(at, None)

    def is_wanted(self, load: Fetch) -> bool:
        """Whether its result is still needed."""
        return self._newest.get(subject(load)) is load

    def failed(self, load: Fetch, now_ms: int) -> None:
        """Notes that a wanted load could not be done now."""
        at = subject(load)
        pause_ms = self._pause_ms[at]
        # The jitter spreads the retries of loads that failed together.
        self._due_ms[at] = now_ms + random.uniform(0.5, 1.0) * pause_ms
        self._pause_ms[at] = min(2 * pause_ms, self._again_ms_max)

    def ended(self, topic: str, partition: int | None) -> None:
        """Notes that a load was done, or is not needed any more."""
        at = topic, partition
        self._newest.pop(at, None)
        self._pause_ms.pop(at, None)
        self._due_ms.pop(at, None)
        self._unusable.pop(at, None)

    def due(self, now_ms: int) -> list[Fetch]:
        """Returns the loads to be tried again now."""
        due = [at for at, due_ms in self._due_ms.items() if now_ms >= due_ms]
        for at in due:
            del self._due_ms[at]
        return [self._newest[at] for at in due]


def subject(load: Fetch) -> tuple[str, int | None]:
    """Returns its topic and Kafka partition, None for all partitions."""
    match load:
        case LoadSlices(slot):
            return SLICES, slot
        case Load(topic, partition):
            return topic, partition
        case FindEnds(topic):
            return topic, None


class WarmSlices:
    """Slices of slots that will be granted; any thread may call."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[SealedSlice, int]] = {}

    def holds(self, name: str) -> bool:
        """Whether a slice is here."""
        return name in self._kept

    def put(self, name: str, slice_: SealedSlice, now_ms: int) -> None:
        """Keeps a slice for a while."""
        self._kept[name] = slice_, now_ms

    def take(self, name: str) -> SealedSlice | None:
        """Returns a slice, and keeps it no more; None if it is not here."""
        return self._kept.pop(name, (None, 0))[0]

    def drop_unused(self, now_ms: int) -> None:
        """Drops what nobody has taken in time."""
        for name, (_, since_ms) in list(self._kept.items()):
            if now_ms - since_ms > WARM_MS:
                self._kept.pop(name, None)


class Checkpoints:
    """Reads and writes the archive; every method may take long, and is called in any thread.

    All raise `Unavailable` when the archive or the log cannot be reached.
    """

    def __init__(self, log: Log, archive: Archive, hashing: TermHashing = WIRE_TERMS) -> None:
        """Reads and writes; `hashing` numbers the terms of slices that are read."""
        self._log = log
        self._archive = archive
        self._hashing = hashing
        self._warm = WarmSlices()
        self._texts = RegistryTexts(log)

    def fetch(self, effect: Fetch) -> Loaded | SlicesLoaded | EndsFound:
        """Returns what was asked for."""
        match effect:
            case Load():
                return self.load(effect)
            case LoadSlices(slot, epoch, names):
                return SlicesLoaded(slot, epoch, self._slices(names))
            case FindEnds():
                return self.ends(effect)

    def load(self, effect: Load) -> Loaded:
        """Returns the newest state of a Kafka partition, and the offset to continue from."""
        topic, partition, epoch = effect.topic, effect.partition, effect.epoch
        if topic == PARTIALS:
            return self._load_merger(effect)
        low, end = self._log.bounds(topic, partition)
        log_end = end if topic == SLOTS else 0
        if not effect.name:
            return Loaded(
                topic=topic,
                partition=partition,
                epoch=epoch,
                offset=0,
                state=None,
                slices=(),
                log_end=log_end,
                # Its first records may be of former routers.
                definitions=self._texts.read() if low < log_end else None,
            )
        _check_offset(effect.offset, low, end, topic, partition)
        state = read_state(self._archive.read(effect.name))
        if topic == REGISTRY:
            # Checkpoints of earlier releases.
            if former_identities.are_missing(state):
                changes = read_changes(self._log, partition, 0, effect.offset)
                state = former_identities.with_fingerprints(state, changes)
            if member_declarations.are_missing(state):
                changes = read_changes(self._log, partition, 0, effect.offset)
                state = member_declarations.with_members(state, changes)
            if former_analysis.is_due(state):
                changes = read_changes(self._log, partition, 0, effect.offset)
                state = former_analysis.with_analysis(state, changes)
        is_former_slot = topic == SLOTS and is_former(state, ANALYSIS)
        names = slice_names(partition, state) if topic == SLOTS else []
        return Loaded(
            topic=topic,
            partition=partition,
            epoch=epoch,
            offset=effect.offset,
            state=state,
            slices=self._slices(names) if effect.is_whole or not names else None,
            log_end=log_end,
            definitions=self._texts.read() if is_former_slot else None,
        )

    def warm(self, taken: CheckpointTaken) -> None:
        """Reads the slices of a slot's checkpoint, to have them when it is granted."""
        state = read_state(self._archive.read(taken.name))
        for name in slice_names(taken.partition, state):
            if not self._warm.holds(name):
                self._warm.put(name, self._slice(name), monotonic_ms())

    def drop_unused(self) -> None:
        """Drops slices of slots that were not granted after all."""
        self._warm.drop_unused(monotonic_ms())

    def _slices(self, names: Sequence[str]) -> tuple[SealedSlice, ...]:
        return tuple(map(self._slice, names))

    def _slice(self, name: str) -> SealedSlice:
        warm = self._warm.take(name)
        return read_slice(self._archive.read(name), self._hashing) if warm is None else warm

    def _load_merger(self, effect: Load) -> Loaded:
        found = last_progress(self._log, effect.partition)
        _, end = self._log.bounds(DELIVERIES, effect.partition)
        low, partials_end = self._log.bounds(PARTIALS, effect.partition)
        checkpoint = None
        if effect.name:
            checkpoint = read_state(self._archive.read(effect.name)), effect.offset
            _check_offset(effect.offset, 0, partials_end, PARTIALS, effect.partition)
        if found is not None:
            _check_offset(found.input_offset, 0, partials_end, PARTIALS, effect.partition)
        progress = None if found is None else (found, end)
        offset, state = merger_start(progress, checkpoint, low)
        return Loaded(
            topic=effect.topic,
            partition=effect.partition,
            epoch=effect.epoch,
            offset=offset,
            state=state,
        )

    def ends(self, effect: FindEnds) -> EndsFound:
        """Returns how far the logs of some Kafka partitions go."""
        ends = [self._log.bounds(effect.topic, p)[1] for p in range(effect.partitions)]
        return EndsFound(np.array(ends, np.int64))

    def save(self, effect: SaveCheckpoint) -> CheckpointTaken:
        """Writes a state; returns the record to declare for it."""
        name = checkpoint_name(effect.topic, effect.partition, effect.offset, effect.epoch)
        # Slices first: a state that can be loaded finds all that it names.
        for slice_name, slice_ in effect.slices:
            self._save_slice(slice_name, slice_)
        self._archive.write(name, *state_pieces(effect.state))
        return CheckpointTaken(
            effect.topic,
            effect.partition,
            effect.epoch,
            effect.offset,
            name,
            effect.map_version,
        )

    def _save_slice(self, name: str, slice_: SealedSlice) -> None:
        contents = write_slice(slice_)
        try:
            self._archive.write(name, contents)
        except BlobExists:
            # Owners of another release write the same objects in other bytes. One of them had
            # written it when it ended, or when it lost the slot.
            if not np.array_equal(_events(self._archive.read(name)), _events(contents)):
                raise

    def tried(self, effect: SaveCheckpoint) -> CheckpointTaken | None:
        """As `save`; None, and a line in the log, where the archive does not take it now."""
        try:
            return self.save(effect)
        except TransportUnavailable as error:
            extra = event(
                "checkpoint_not_saved",
                topic=effect.topic,
                partition=effect.partition,
                offset=effect.offset,
                reason=str(error),
            )
            logger.warning("checkpoint not saved; trying again", extra=extra)
            return None

    def sweep(self, effect: Sweep) -> None:
        """Deletes blobs that nobody will load any more."""
        for name in self._archive.list(effect.prefix):
            if name < effect.before_name:
                self._archive.delete(name)

    def discard(self, name: str) -> None:
        """Deletes one blob."""
        self._archive.delete(name)


def _check_offset(offset: int, low: int, end: int, topic: str, partition: int) -> None:
    """Refuses a state for an offset that the log does not have: continuing there would be a gap.

    Raises:
        CorruptCheckpoint: It is before the first record, or after the last.
    """
    if not low <= offset <= end:
        raise CorruptCheckpoint(
            f"stands for offset {offset} of {topic}/{partition}, the log has {low} to {end}"
        )


def _events(contents: bytes | memoryview) -> NDArray[np.uint64]:
    """The objects of a written slice: u8[3, n] of place in the slot, session, number; by place."""
    rows = read_rows(contents)
    events = np.stack([rows.seqs.astype(np.uint64), rows.sessions, rows.numbers])
    return events[:, np.argsort(rows.seqs)]
