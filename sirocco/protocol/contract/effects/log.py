"""Records that the log hands in, appending, and where Kafka partitions are read from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.messages import Message
from sirocco.protocol.contract.plain_queries import ChangeColumns, ChangeRecords


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of an owned Kafka partition; of `ChangeRecords` several, `offset` is the first."""

    topic: str
    partition: int
    offset: int
    message: Message | ChangeRecords


@dataclass(frozen=True, slots=True)
class Polled:
    """The records of one poll: in order for each Kafka partition, interleaved between them."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class EndsFound:
    """The answer to `FindEnds`: i8[n], the offset that the next record of each would have had."""

    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Append:
    """Append a record; failure ends the process."""

    topic: str
    partition: int
    message: Message


@dataclass(frozen=True, slots=True)
class AppendChanges:
    """Append changes to a Kafka partition of `registry`, a record each."""

    partition: int
    changes: ChangeColumns


@dataclass(frozen=True, slots=True)
class Follow:
    """Read a Kafka partition from an offset."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Stop reading a Kafka partition; no more of its records are handed in."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Find the ends of the first Kafka partitions of a topic; answered by `EndsFound`.

    Everything that was in them at the request is before these ends.
    """

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Barrier. No process will read anything below the offset again."""

    topic: str
    partition: int
    before_offset: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Write a record to `dead-letters`, with the reason; no machine takes it."""

    topic: str
    partition: int
    offset: int
    message: Message
    reason: str
