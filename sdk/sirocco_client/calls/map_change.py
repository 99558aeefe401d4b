"""Progress of a change of the partition map."""

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
    """Progress of a change of the map at one moment.

    Attributes:
        map_version: Number of the partition map in force.
        phase: `none`; `copying` queries to their places in the next map; `switching` objects to the
            next map, which is then in force; `retiring` queries from their former places.
        next_version: Number of the map that the change leads to, 0 without a change.
        waiting: Kafka partitions that have not finished the phase.
        partitions: Kafka partitions in all.
        partition_map: Bytes of the map in force, if requested.
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
