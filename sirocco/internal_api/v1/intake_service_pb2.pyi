from google.protobuf import empty_pb2 as _empty_pb2
from sirocco_api.v1 import columns_pb2 as _columns_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TakeRequest(_message.Message):
    __slots__ = ("session", "first_number", "span", "acknowledged_to", "received_ms", "objects", "number_deltas")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_TO_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_DELTAS_FIELD_NUMBER: _ClassVar[int]
    session: int
    first_number: int
    span: int
    acknowledged_to: int
    received_ms: int
    objects: _columns_pb2.ObjectColumns
    number_deltas: bytes
    def __init__(self, session: _Optional[int] = ..., first_number: _Optional[int] = ..., span: _Optional[int] = ..., acknowledged_to: _Optional[int] = ..., received_ms: _Optional[int] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., number_deltas: _Optional[bytes] = ...) -> None: ...

class SwitchRequest(_message.Message):
    __slots__ = ("map_version",)
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    def __init__(self, map_version: _Optional[int] = ...) -> None: ...

class TrackRequest(_message.Message):
    __slots__ = ("key", "registry_partition", "epoch")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    key: str
    registry_partition: int
    epoch: int
    def __init__(self, key: _Optional[str] = ..., registry_partition: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class TrackOnlyRequest(_message.Message):
    __slots__ = ("registry_partition", "epoch", "keys")
    REGISTRY_PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    registry_partition: int
    epoch: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, registry_partition: _Optional[int] = ..., epoch: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class SummariseRequest(_message.Message):
    __slots__ = ("registry_partition", "epoch", "keywords", "slots", "begins", "ends", "is_withdrawn")
    REGISTRY_PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    IS_WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    registry_partition: int
    epoch: int
    keywords: bytes
    slots: bytes
    begins: bool
    ends: bool
    is_withdrawn: bool
    def __init__(self, registry_partition: _Optional[int] = ..., epoch: _Optional[int] = ..., keywords: _Optional[bytes] = ..., slots: _Optional[bytes] = ..., begins: bool = ..., ends: bool = ..., is_withdrawn: bool = ...) -> None: ...
