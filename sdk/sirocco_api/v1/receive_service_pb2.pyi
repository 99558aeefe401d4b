from sirocco_api.v1 import columns_pb2 as _columns_pb2
from sirocco_api.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReceiveManyRequest(_message.Message):
    __slots__ = ("streams",)
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[NumberedReceive]
    def __init__(self, streams: _Optional[_Iterable[_Union[NumberedReceive, _Mapping]]] = ...) -> None: ...

class NumberedReceive(_message.Message):
    __slots__ = ("number", "request")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    request: ReceiveRequest
    def __init__(self, number: _Optional[int] = ..., request: _Optional[_Union[ReceiveRequest, _Mapping]] = ...) -> None: ...

class ReceiveManyResponse(_message.Message):
    __slots__ = ("streams",)
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[NumberedReceived]
    def __init__(self, streams: _Optional[_Iterable[_Union[NumberedReceived, _Mapping]]] = ...) -> None: ...

class NumberedReceived(_message.Message):
    __slots__ = ("number", "response", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    response: ReceiveResponse
    error: _errors_pb2.Error
    def __init__(self, number: _Optional[int] = ..., response: _Optional[_Union[ReceiveResponse, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("cursor", "objects", "events", "queries", "matches", "lists", "highlights", "list_highlights")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    HIGHLIGHTS_FIELD_NUMBER: _ClassVar[int]
    LIST_HIGHLIGHTS_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    queries: _columns_pb2.QueryNameColumns
    matches: _columns_pb2.MatchColumns
    lists: _columns_pb2.ListColumns
    highlights: _columns_pb2.HighlightColumns
    list_highlights: _columns_pb2.HighlightColumns
    def __init__(self, cursor: _Optional[str] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., queries: _Optional[_Union[_columns_pb2.QueryNameColumns, _Mapping]] = ..., matches: _Optional[_Union[_columns_pb2.MatchColumns, _Mapping]] = ..., lists: _Optional[_Union[_columns_pb2.ListColumns, _Mapping]] = ..., highlights: _Optional[_Union[_columns_pb2.HighlightColumns, _Mapping]] = ..., list_highlights: _Optional[_Union[_columns_pb2.HighlightColumns, _Mapping]] = ...) -> None: ...
