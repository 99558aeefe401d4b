"""States of owned Kafka partitions and slices of slots: loading, saving and deleting them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.model.query import Query

# The state of one owned Kafka partition, as named columns.
State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The answer to `Load`: the newest state of the Kafka partition; None if it has none.

    `offset` is where reading continues; `slices` are those that the state names (`slice_names`),
    None if they were not read: `LoadSlices` asks for them; `log_end` is how far the log of a slot
    reached then: before that it cannot be searched; `definitions` are queries that an earlier
    analysis may have read otherwise, by handle and revision, where it may have made the state.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    state: State | None
    slices: tuple[SealedSlice, ...] | None = ()
    log_end: int = 0
    definitions: Mapping[tuple[int, int], Query] | None = None


@dataclass(frozen=True, slots=True)
class SlicesLoaded:
    """The answer to `LoadSlices`: all of them, in the order of their names."""

    slot: int
    epoch: int
    slices: tuple[SealedSlice, ...]


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """These slots are about to be handed over: save checkpoints of them."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Fetch the newest state of a Kafka partition; answered by `Loaded`.

    `name` is the checkpoint's name in the archive (empty: none was ever taken), `offset` its
    offset. For `partials` there is no checkpoint: the state is the last `Progress` in the twin.
    `is_whole` asks for the slices of a slot as well, which take longer than the rest.
    """

    topic: str
    partition: int
    epoch: int
    name: str
    offset: int
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class LoadSlices:
    """Fetch slices of a slot from the archive, while it is read; answered by `SlicesLoaded`."""

    slot: int
    epoch: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    """Barrier. Write slices and state to the archive, then declare the state in `control`.

    `slices` are those of a slot's objects that are not in the archive yet, by name; `map_version`
    is declared with it.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    state: State
    slices: tuple[tuple[str, SealedSlice], ...] = ()
    map_version: int = 0


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a checkpoint or slice from the archive that no process will load any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """Delete everything under a prefix in the archive that sorts before a name.

    This removes files whose names no process knows any more: checkpoints of processes that died.
    """

    prefix: str
    before_name: str
