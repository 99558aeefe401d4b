"""The present state of the cluster."""

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
        address: host:port of its gRPC server.
        http_address: host:port of its health and metrics server.
        started_ms: Epoch ms.
        loads: Measurements of the last seconds by name, for example "objects_per_s".
    """

    id: str
    service: str
    address: str
    http_address: str
    started_ms: int
    loads: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a Kafka partition of a topic ("intake", "registry", "slots" or "partials")."""

    topic: str
    partition: int
    member: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One part of the space of the map in force.

    Attributes:
        id: Number of the leaf.
        slot: The slot that holds it.
        west, south, east, north: Degrees.
        is_text: Whether it receives only some objects of its box, by their text.
        objects: Objects that the answering router has sent to it since it started.
    """

    id: int
    slot: int
    west: float
    south: float
    east: float
    north: float
    is_text: bool
    objects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster at one moment.

    Attributes:
        cluster: Its name.
        map_version: Number of the partition map in force.
        scheme: Scheme that built the map.
        leaf_count: Number of leaves of the map.
        slot_count: Number of slots of the cluster.
        leader: Id of the leading coordinator, empty if there is none.
        members: Running processes.
        ownerships: Owners of Kafka partitions.
        leaves: Leaves of the map, if requested.
        tenant: Whose token the call had; empty for the operator's, and where there are none.
        is_open: Whether the cluster has no tokens.
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
    tenant: str = ""
    is_open: bool = False

    def addresses(self, service: str) -> tuple[str, ...]:
        """Returns the addresses of the processes of a service."""
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
                id=each.id,
                slot=each.slot,
                west=each.west,
                south=each.south,
                east=each.east,
                north=each.north,
                is_text=each.is_text,
                objects=each.objects,
            )
            for each in message.leaves
        ),
        tenant=message.tenant,
        is_open=message.open,
    )
