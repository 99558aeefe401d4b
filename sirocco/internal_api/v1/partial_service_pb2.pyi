from google.protobuf import empty_pb2 as _empty_pb2
from sirocco_api.v1 import columns_pb2 as _columns_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MergeRequest(_message.Message):
    __slots__ = ("intervals", "objects", "events", "positions", "interval_rows", "queries", "matches", "steps")
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_ROWS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    intervals: _columns_pb2.IntervalColumns
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    positions: bytes
    interval_rows: bytes
    queries: _columns_pb2.QueryNameColumns
    matches: _columns_pb2.MatchColumns
    steps: _columns_pb2.StepColumns
    def __init__(self, intervals: _Optional[_Union[_columns_pb2.IntervalColumns, _Mapping]] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., positions: _Optional[bytes] = ..., interval_rows: _Optional[bytes] = ..., queries: _Optional[_Union[_columns_pb2.QueryNameColumns, _Mapping]] = ..., matches: _Optional[_Union[_columns_pb2.MatchColumns, _Mapping]] = ..., steps: _Optional[_Union[_columns_pb2.StepColumns, _Mapping]] = ...) -> None: ...
