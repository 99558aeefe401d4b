from sirocco_api.v1 import columns_pb2 as _columns_pb2
from sirocco_api.v1 import errors_pb2 as _errors_pb2
from sirocco_api.v1 import query_pb2 as _query_pb2
from sirocco_api.v1 import trace_pb2 as _trace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchManyRequest(_message.Message):
    __slots__ = ("searches", "kept")
    SEARCHES_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    searches: _containers.RepeatedCompositeFieldContainer[NumberedSearch]
    kept: bool
    def __init__(self, searches: _Optional[_Iterable[_Union[NumberedSearch, _Mapping]]] = ..., kept: bool = ...) -> None: ...

class NumberedSearch(_message.Message):
    __slots__ = ("number", "search")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    number: int
    search: SearchRequest
    def __init__(self, number: _Optional[int] = ..., search: _Optional[_Union[SearchRequest, _Mapping]] = ...) -> None: ...

class SearchManyResponse(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[NumberedResponse]
    def __init__(self, responses: _Optional[_Iterable[_Union[NumberedResponse, _Mapping]]] = ...) -> None: ...

class NumberedResponse(_message.Message):
    __slots__ = ("number", "response", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    response: SearchResponse
    error: _errors_pb2.Error
    def __init__(self, number: _Optional[int] = ..., response: _Optional[_Union[SearchResponse, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("query", "now_ms", "position_token", "allow_partial", "timeout_ms", "trace")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ALLOW_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    query: _query_pb2.Query
    now_ms: int
    position_token: str
    allow_partial: bool
    timeout_ms: int
    trace: _trace_pb2.TraceContext
    def __init__(self, query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., now_ms: _Optional[int] = ..., position_token: _Optional[str] = ..., allow_partial: bool = ..., timeout_ms: _Optional[int] = ..., trace: _Optional[_Union[_trace_pb2.TraceContext, _Mapping]] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("objects", "events", "values", "terms", "end")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    values: bytes
    terms: TermCountColumns
    end: SearchEnd
    def __init__(self, objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., values: _Optional[bytes] = ..., terms: _Optional[_Union[TermCountColumns, _Mapping]] = ..., end: _Optional[_Union[SearchEnd, _Mapping]] = ...) -> None: ...

class TermCountColumns(_message.Message):
    __slots__ = ("terms", "term_offsets", "counts")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    TERM_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    terms: bytes
    term_offsets: bytes
    counts: bytes
    def __init__(self, terms: _Optional[bytes] = ..., term_offsets: _Optional[bytes] = ..., counts: _Optional[bytes] = ...) -> None: ...

class SearchEnd(_message.Message):
    __slots__ = ("now_ms", "slots", "missing_slots", "warnings")
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MISSING_SLOTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    slots: int
    missing_slots: _containers.RepeatedScalarFieldContainer[int]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, now_ms: _Optional[int] = ..., slots: _Optional[int] = ..., missing_slots: _Optional[_Iterable[int]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...
