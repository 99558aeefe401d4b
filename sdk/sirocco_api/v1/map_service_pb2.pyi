from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MapChangePhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MAP_CHANGE_PHASE_UNSPECIFIED: _ClassVar[MapChangePhase]
    MAP_CHANGE_PHASE_NONE: _ClassVar[MapChangePhase]
    MAP_CHANGE_PHASE_COPYING: _ClassVar[MapChangePhase]
    MAP_CHANGE_PHASE_SWITCHING: _ClassVar[MapChangePhase]
    MAP_CHANGE_PHASE_RETIRING: _ClassVar[MapChangePhase]
MAP_CHANGE_PHASE_UNSPECIFIED: MapChangePhase
MAP_CHANGE_PHASE_NONE: MapChangePhase
MAP_CHANGE_PHASE_COPYING: MapChangePhase
MAP_CHANGE_PHASE_SWITCHING: MapChangePhase
MAP_CHANGE_PHASE_RETIRING: MapChangePhase

class ProposeMapRequest(_message.Message):
    __slots__ = ("partition_map",)
    PARTITION_MAP_FIELD_NUMBER: _ClassVar[int]
    partition_map: bytes
    def __init__(self, partition_map: _Optional[bytes] = ...) -> None: ...

class ProposeMapResponse(_message.Message):
    __slots__ = ("map_version",)
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    def __init__(self, map_version: _Optional[int] = ...) -> None: ...

class DescribeMapChangeRequest(_message.Message):
    __slots__ = ("partition_map",)
    PARTITION_MAP_FIELD_NUMBER: _ClassVar[int]
    partition_map: bool
    def __init__(self, partition_map: bool = ...) -> None: ...

class DescribeMapChangeResponse(_message.Message):
    __slots__ = ("map_version", "phase", "next_version", "waiting", "partitions", "partition_map")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    NEXT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_MAP_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    phase: MapChangePhase
    next_version: int
    waiting: _containers.RepeatedScalarFieldContainer[int]
    partitions: int
    partition_map: bytes
    def __init__(self, map_version: _Optional[int] = ..., phase: _Optional[_Union[MapChangePhase, str]] = ..., next_version: _Optional[int] = ..., waiting: _Optional[_Iterable[int]] = ..., partitions: _Optional[int] = ..., partition_map: _Optional[bytes] = ...) -> None: ...
