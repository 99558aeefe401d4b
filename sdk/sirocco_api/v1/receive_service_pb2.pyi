from sirocco_api.v1 import columns_pb2 as _columns_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReceiveRequest(_message.Message):
    __slots__ = ("open", "credit")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    open: Open
    credit: Credit
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("subscriber", "cursor", "from_earliest", "matches", "joined")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    FROM_EARLIEST_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    subscriber: str
    cursor: str
    from_earliest: bool
    matches: int
    joined: bool
    def __init__(self, subscriber: _Optional[str] = ..., cursor: _Optional[str] = ..., from_earliest: bool = ..., matches: _Optional[int] = ..., joined: bool = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("matches",)
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    matches: int
    def __init__(self, matches: _Optional[int] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("cursor", "objects", "events", "queries", "matches", "lists", "highlights")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    HIGHLIGHTS_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    queries: _columns_pb2.QueryNameColumns
    matches: _columns_pb2.MatchColumns
    lists: _columns_pb2.ListColumns
    highlights: _columns_pb2.HighlightColumns
    def __init__(self, cursor: _Optional[str] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., queries: _Optional[_Union[_columns_pb2.QueryNameColumns, _Mapping]] = ..., matches: _Optional[_Union[_columns_pb2.MatchColumns, _Mapping]] = ..., lists: _Optional[_Union[_columns_pb2.ListColumns, _Mapping]] = ..., highlights: _Optional[_Union[_columns_pb2.HighlightColumns, _Mapping]] = ...) -> None: ...
