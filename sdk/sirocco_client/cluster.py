"""What the cluster looks like now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sirocco_api.v1.cluster_service_pb2 import DescribeClusterResponse


@dataclass(frozen=True, slots=True)
class Member:
    """One running process of a service.

    Attributes:
        id: Its name in the cluster.
        service: "router", "evaluator", "merger" or "coordinator".
        address: host:port of its gRPC.
        http_address: host:port of its health and metrics.
        started_ms: Epoch ms.
        loads: Figures of the last seconds by name, for example "objects_per_s".
    """

    id: str
    service: str
    address: str
    http_address: str
    started_ms: int
    loads: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a Kafka partition of a topic ("intake", "registry", "slots" or "partials")."""

    topic: str
    partition: int
    member: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """One piece of space of the map in force.

    Attributes:
        id: Number of the leaf.
        slot: Where it is held.
        west, south, east, north: Degrees.
        is_text: Whether it takes only some of its box's objects, by their text.
        objects: How many objects the asked router has sent to it since that router started.
    """

    id: int
    slot: int
    west: float
    south: float
    east: float
    north: float
    is_text: bool
    objects: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster at one moment.

    Attributes:
        cluster: Its name.
        map_version: Number of the partition map in force.
        scheme: How that map was cut.
        leaf_count: Leaves of the map.
        slot_count: Slots of the cluster.
        leader: Id of the leading coordinator, empty while there is none.
        members: Running processes.
        ownerships: Who owns what.
        leaves: The map's, if asked for.
    """

    cluster: str
    map_version: int
    scheme: str
    leaf_count: int
    slot_count: int
    leader: str
    members: tuple[Member, ...]
    ownerships: tuple[Ownership, ...]
    leaves: tuple[Leaf, ...]

    def addresses(self, service: str) -> tuple[str, ...]:
        """Returns where the processes of a service listen."""
        return tuple(each.address for each in self.members if each.service == service)


def read_cluster(message: DescribeClusterResponse) -> ClusterDescription:
    """Returns the description of a message."""
    return ClusterDescription(
        cluster=message.cluster,
        map_version=message.map_version,
        scheme=message.scheme,
        leaf_count=message.leaf_count,
        slot_count=message.slot_count,
        leader=message.leader,
        members=tuple(
            Member(
                each.id,
                each.service,
                each.address,
                each.http_address,
                each.started_ms,
                dict(each.loads),
            )
            for each in message.members
        ),
        ownerships=tuple(
            Ownership(each.topic, each.partition, each.member, each.epoch)
            for each in message.ownerships
        ),
        leaves=tuple(
            Leaf(
                each.id,
                each.slot,
                each.west,
                each.south,
                each.east,
                each.north,
                each.is_text,
                each.objects,
            )
            for each in message.leaves
        ),
    )
