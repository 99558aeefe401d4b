"""The records of the topic `control`, as frozen values: ownership, maps, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaderElected:
    """`control`: a coordinator leads from here on; the record's offset is its term."""

    member: str


@dataclass(frozen=True, slots=True)
class Granted:
    """`control`: a Kafka partition of a topic has an owner from here on.

    The record's offset is the epoch of the ownership; `term` that of the leader that appends it.
    `has_ended`: the former owner is not alive any more, and may have ended by a record that it
    took.
    """

    term: int
    topic: str
    partition: int
    member: str
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class MapActivated:
    """`control`: the partition map in force from here on."""

    term: int
    version: int
    partition_map: bytes


@dataclass(frozen=True, slots=True)
class MapPrepared:
    """`control`: the map that is to follow the one in force.

    Without bytes: there is no map with a version number of this parity.
    """

    term: int
    version: int
    partition_map: bytes


@dataclass(frozen=True, slots=True)
class MapCopied:
    """`control`: all live queries of a registry partition are placed as a map wants them."""

    partition: int
    version: int
    epoch: int


@dataclass(frozen=True, slots=True)
class MapSwitched:
    """`control`: a prepared map is in force from here on."""

    term: int
    version: int


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """`control`: the state of an owned Kafka partition at `offset` is safe in the archive.

    `map_version`: the map in force at that offset of `intake` or `registry`; 0 elsewhere.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    name: str
    map_version: int = 0


@dataclass(frozen=True, slots=True)
class Attempted:
    """`control`: the owner of a Kafka partition is about to take the records [begin, end).

    It has taken all before them. Declared where former owners have ended; see `poison_trials`.
    """

    topic: str
    partition: int
    epoch: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """`control`: no process takes the record at `offset`: owners in a row ended during it."""

    topic: str
    partition: int
    offset: int


Declaration = (
    LeaderElected
    | Granted
    | MapActivated
    | MapPrepared
    | MapCopied
    | MapSwitched
    | CheckpointTaken
    | Attempted
    | Skipped
)


def subject_of(declaration: Declaration) -> str:
    """Returns the subject of a declaration; `control` keeps the newest of each subject."""
    match declaration:
        case LeaderElected():
            subject = "leader"
        case Granted(_, topic, partition):
            subject = f"owner/{topic}/{partition}"
        case MapActivated():
            subject = "map"
        case MapPrepared(_, version):
            # The one in force and the one before or after it are both needed.
            subject = f"map/{version % 2}"
        case MapSwitched():
            subject = "map/switched"
        case MapCopied(partition):
            subject = f"map/copied/{partition}"
        case CheckpointTaken(topic, partition):
            subject = f"checkpoint/{topic}/{partition}"
        case Attempted(topic, partition):
            subject = f"attempted/{topic}/{partition}"
        case Skipped(topic, partition, offset):
            subject = f"skipped/{topic}/{partition}/{offset}"
    return subject
