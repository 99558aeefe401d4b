from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeclareRequest(_message.Message):
    __slots__ = ("leader_elected", "granted", "map_activated", "checkpoint_taken", "map_prepared", "map_copied", "map_switched", "attempted", "skipped")
    LEADER_ELECTED_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    MAP_ACTIVATED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    MAP_PREPARED_FIELD_NUMBER: _ClassVar[int]
    MAP_COPIED_FIELD_NUMBER: _ClassVar[int]
    MAP_SWITCHED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    leader_elected: LeaderElected
    granted: Granted
    map_activated: MapActivated
    checkpoint_taken: CheckpointTaken
    map_prepared: MapPrepared
    map_copied: MapCopied
    map_switched: MapSwitched
    attempted: Attempted
    skipped: Skipped
    def __init__(self, leader_elected: _Optional[_Union[LeaderElected, _Mapping]] = ..., granted: _Optional[_Union[Granted, _Mapping]] = ..., map_activated: _Optional[_Union[MapActivated, _Mapping]] = ..., checkpoint_taken: _Optional[_Union[CheckpointTaken, _Mapping]] = ..., map_prepared: _Optional[_Union[MapPrepared, _Mapping]] = ..., map_copied: _Optional[_Union[MapCopied, _Mapping]] = ..., map_switched: _Optional[_Union[MapSwitched, _Mapping]] = ..., attempted: _Optional[_Union[Attempted, _Mapping]] = ..., skipped: _Optional[_Union[Skipped, _Mapping]] = ...) -> None: ...

class LeaderElected(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: str
    def __init__(self, member: _Optional[str] = ...) -> None: ...

class Granted(_message.Message):
    __slots__ = ("term", "topic", "partition", "member", "has_ended")
    TERM_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    HAS_ENDED_FIELD_NUMBER: _ClassVar[int]
    term: int
    topic: str
    partition: int
    member: str
    has_ended: bool
    def __init__(self, term: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., member: _Optional[str] = ..., has_ended: bool = ...) -> None: ...

class MapActivated(_message.Message):
    __slots__ = ("term", "version", "partition_map")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_MAP_FIELD_NUMBER: _ClassVar[int]
    term: int
    version: int
    partition_map: bytes
    def __init__(self, term: _Optional[int] = ..., version: _Optional[int] = ..., partition_map: _Optional[bytes] = ...) -> None: ...

class CheckpointTaken(_message.Message):
    __slots__ = ("topic", "partition", "epoch", "offset", "name", "map_version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    epoch: int
    offset: int
    name: str
    map_version: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., offset: _Optional[int] = ..., name: _Optional[str] = ..., map_version: _Optional[int] = ...) -> None: ...

class MapPrepared(_message.Message):
    __slots__ = ("term", "version", "partition_map")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_MAP_FIELD_NUMBER: _ClassVar[int]
    term: int
    version: int
    partition_map: bytes
    def __init__(self, term: _Optional[int] = ..., version: _Optional[int] = ..., partition_map: _Optional[bytes] = ...) -> None: ...

class MapCopied(_message.Message):
    __slots__ = ("partition", "version", "epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: int
    version: int
    epoch: int
    def __init__(self, partition: _Optional[int] = ..., version: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class MapSwitched(_message.Message):
    __slots__ = ("term", "version")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    term: int
    version: int
    def __init__(self, term: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Attempted(_message.Message):
    __slots__ = ("topic", "partition", "epoch", "begin", "end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    epoch: int
    begin: int
    end: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Skipped(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
