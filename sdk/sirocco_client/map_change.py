"""How far a change of the partition map has come."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco_api.v1 import map_service_pb2 as pb

_PHASES = {
    pb.MAP_CHANGE_PHASE_NONE: "none",
    pb.MAP_CHANGE_PHASE_COPYING: "copying",
    pb.MAP_CHANGE_PHASE_SWITCHING: "switching",
    pb.MAP_CHANGE_PHASE_RETIRING: "retiring",
}


@dataclass(frozen=True, slots=True)
class MapChange:
    """A change of the map at one moment.

    Attributes:
        map_version: Number of the partition map in force.
        phase: `none`; `copying` queries to where the next map wants them; `switching` objects to
            the next map, which is in force then; `retiring` queries where it does not want them.
        next_version: Number of the map that the change leads to, 0 without a change.
        waiting: How many Kafka partitions the phase waits for.
        partitions: Of how many.
        partition_map: Bytes of the map in force, if asked for.
    """

    map_version: int
    phase: str
    next_version: int
    waiting: int
    partitions: int
    partition_map: bytes


def read_map_change(message: pb.DescribeMapChangeResponse) -> MapChange:
    """Returns the description of a message."""
    return MapChange(
        message.map_version,
        _PHASES.get(message.phase, "unknown"),
        message.next_version,
        len(message.waiting),
        message.partitions,
        message.partition_map,
    )
