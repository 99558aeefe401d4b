from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ObjectColumns(_message.Message):
    __slots__ = ("count", "ids", "lon", "lat", "ts_ms", "text", "text_offsets", "names", "name_offsets", "attributes", "attribute_offsets")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LON_FIELD_NUMBER: _ClassVar[int]
    LAT_FIELD_NUMBER: _ClassVar[int]
    TS_MS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NAME_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    count: int
    ids: bytes
    lon: bytes
    lat: bytes
    ts_ms: bytes
    text: bytes
    text_offsets: bytes
    names: bytes
    name_offsets: bytes
    attributes: bytes
    attribute_offsets: bytes
    def __init__(self, count: _Optional[int] = ..., ids: _Optional[bytes] = ..., lon: _Optional[bytes] = ..., lat: _Optional[bytes] = ..., ts_ms: _Optional[bytes] = ..., text: _Optional[bytes] = ..., text_offsets: _Optional[bytes] = ..., names: _Optional[bytes] = ..., name_offsets: _Optional[bytes] = ..., attributes: _Optional[bytes] = ..., attribute_offsets: _Optional[bytes] = ...) -> None: ...

class EventColumns(_message.Message):
    __slots__ = ("sessions", "numbers", "arrivals_ms")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_MS_FIELD_NUMBER: _ClassVar[int]
    sessions: bytes
    numbers: bytes
    arrivals_ms: bytes
    def __init__(self, sessions: _Optional[bytes] = ..., numbers: _Optional[bytes] = ..., arrivals_ms: _Optional[bytes] = ...) -> None: ...

class IntervalColumns(_message.Message):
    __slots__ = ("sources", "begins", "ends", "times_ms")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    sources: bytes
    begins: bytes
    ends: bytes
    times_ms: bytes
    def __init__(self, sources: _Optional[bytes] = ..., begins: _Optional[bytes] = ..., ends: _Optional[bytes] = ..., times_ms: _Optional[bytes] = ...) -> None: ...

class MatchColumns(_message.Message):
    __slots__ = ("objects", "queries")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    objects: bytes
    queries: bytes
    def __init__(self, objects: _Optional[bytes] = ..., queries: _Optional[bytes] = ...) -> None: ...

class QueryNameColumns(_message.Message):
    __slots__ = ("handles", "ids", "id_offsets", "subscriber_rows", "subscribers")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ID_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_ROWS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    handles: bytes
    ids: bytes
    id_offsets: bytes
    subscriber_rows: bytes
    subscribers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, handles: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., id_offsets: _Optional[bytes] = ..., subscriber_rows: _Optional[bytes] = ..., subscribers: _Optional[_Iterable[str]] = ...) -> None: ...
