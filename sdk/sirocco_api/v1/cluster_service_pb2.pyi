from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AwaitProcessedRequest(_message.Message):
    __slots__ = ("position_token", "routed")
    POSITION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ROUTED_FIELD_NUMBER: _ClassVar[int]
    position_token: str
    routed: bool
    def __init__(self, position_token: _Optional[str] = ..., routed: bool = ...) -> None: ...

class AwaitProcessedResponse(_message.Message):
    __slots__ = ("cursors",)
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cursors: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("leaves",)
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    leaves: bool
    def __init__(self, leaves: bool = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster", "map_version", "scheme", "leaf_count", "slot_count", "leader", "members", "ownerships", "leaves", "tenant", "open")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    LEAF_COUNT_FIELD_NUMBER: _ClassVar[int]
    SLOT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIPS_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    map_version: int
    scheme: str
    leaf_count: int
    slot_count: int
    leader: str
    members: _containers.RepeatedCompositeFieldContainer[Member]
    ownerships: _containers.RepeatedCompositeFieldContainer[Ownership]
    leaves: _containers.RepeatedCompositeFieldContainer[LeafDescription]
    tenant: str
    open: bool
    def __init__(self, cluster: _Optional[str] = ..., map_version: _Optional[int] = ..., scheme: _Optional[str] = ..., leaf_count: _Optional[int] = ..., slot_count: _Optional[int] = ..., leader: _Optional[str] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., ownerships: _Optional[_Iterable[_Union[Ownership, _Mapping]]] = ..., leaves: _Optional[_Iterable[_Union[LeafDescription, _Mapping]]] = ..., tenant: _Optional[str] = ..., open: bool = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("id", "service", "address", "http_address", "started_ms", "loads")
    class LoadsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    id: str
    service: str
    address: str
    http_address: str
    started_ms: int
    loads: _containers.ScalarMap[str, float]
    def __init__(self, id: _Optional[str] = ..., service: _Optional[str] = ..., address: _Optional[str] = ..., http_address: _Optional[str] = ..., started_ms: _Optional[int] = ..., loads: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Ownership(_message.Message):
    __slots__ = ("topic", "partition", "member", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    member: str
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., member: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class LeafDescription(_message.Message):
    __slots__ = ("id", "slot", "west", "south", "east", "north", "is_text", "objects")
    ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    WEST_FIELD_NUMBER: _ClassVar[int]
    SOUTH_FIELD_NUMBER: _ClassVar[int]
    EAST_FIELD_NUMBER: _ClassVar[int]
    NORTH_FIELD_NUMBER: _ClassVar[int]
    IS_TEXT_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    id: int
    slot: int
    west: float
    south: float
    east: float
    north: float
    is_text: bool
    objects: int
    def __init__(self, id: _Optional[int] = ..., slot: _Optional[int] = ..., west: _Optional[float] = ..., south: _Optional[float] = ..., east: _Optional[float] = ..., north: _Optional[float] = ..., is_text: bool = ..., objects: _Optional[int] = ...) -> None: ...
