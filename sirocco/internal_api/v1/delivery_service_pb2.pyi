from google.protobuf import empty_pb2 as _empty_pb2
from sirocco_api.v1 import columns_pb2 as _columns_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliverRequest(_message.Message):
    __slots__ = ("objects", "events", "queries", "matches", "match_offsets", "lists", "list_offsets")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    MATCH_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    LIST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    queries: _columns_pb2.QueryNameColumns
    matches: _columns_pb2.MatchColumns
    match_offsets: bytes
    lists: _columns_pb2.ListColumns
    list_offsets: bytes
    def __init__(self, objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., queries: _Optional[_Union[_columns_pb2.QueryNameColumns, _Mapping]] = ..., matches: _Optional[_Union[_columns_pb2.MatchColumns, _Mapping]] = ..., match_offsets: _Optional[bytes] = ..., lists: _Optional[_Union[_columns_pb2.ListColumns, _Mapping]] = ..., list_offsets: _Optional[bytes] = ...) -> None: ...

class ProgressRequest(_message.Message):
    __slots__ = ("input_offset", "slot_positions", "slot_times_ms", "has_lists")
    INPUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SLOT_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SLOT_TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_LISTS_FIELD_NUMBER: _ClassVar[int]
    input_offset: int
    slot_positions: bytes
    slot_times_ms: bytes
    has_lists: bool
    def __init__(self, input_offset: _Optional[int] = ..., slot_positions: _Optional[bytes] = ..., slot_times_ms: _Optional[bytes] = ..., has_lists: bool = ...) -> None: ...
