from sirocco_api.v1 import errors_pb2 as _errors_pb2
from sirocco_api.v1 import query_pb2 as _query_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterQueryRequest(_message.Message):
    __slots__ = ("query", "start_ms", "past_ms")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    query: _query_pb2.Query
    start_ms: int
    past_ms: int
    def __init__(self, query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., start_ms: _Optional[int] = ..., past_ms: _Optional[int] = ...) -> None: ...

class RegisterQueryResponse(_message.Message):
    __slots__ = ("revision", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateQueryRequest(_message.Message):
    __slots__ = ("query", "start_ms", "past_ms")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    query: _query_pb2.Query
    start_ms: int
    past_ms: int
    def __init__(self, query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., start_ms: _Optional[int] = ..., past_ms: _Optional[int] = ...) -> None: ...

class UpdateQueryResponse(_message.Message):
    __slots__ = ("revision", "warnings")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class UnregisterQueryRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class UnregisterQueryResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class GetQueryRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetQueryResponse(_message.Message):
    __slots__ = ("registered_query",)
    REGISTERED_QUERY_FIELD_NUMBER: _ClassVar[int]
    registered_query: RegisteredQuery
    def __init__(self, registered_query: _Optional[_Union[RegisteredQuery, _Mapping]] = ...) -> None: ...

class ListQueriesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "subscriber")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    subscriber: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., subscriber: _Optional[str] = ...) -> None: ...

class ListQueriesResponse(_message.Message):
    __slots__ = ("registered_queries", "next_page_token")
    REGISTERED_QUERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    registered_queries: _containers.RepeatedCompositeFieldContainer[RegisteredQuery]
    next_page_token: str
    def __init__(self, registered_queries: _Optional[_Iterable[_Union[RegisteredQuery, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RegisterQueriesRequest(_message.Message):
    __slots__ = ("queries", "start_ms", "past_ms")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[_query_pb2.Query]
    start_ms: int
    past_ms: int
    def __init__(self, queries: _Optional[_Iterable[_Union[_query_pb2.Query, _Mapping]]] = ..., start_ms: _Optional[int] = ..., past_ms: _Optional[int] = ...) -> None: ...

class RegisterQueriesResponse(_message.Message):
    __slots__ = ("results", "warnings")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RegistrationResult]
    warnings: _containers.RepeatedCompositeFieldContainer[RowWarnings]
    def __init__(self, results: _Optional[_Iterable[_Union[RegistrationResult, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[RowWarnings, _Mapping]]] = ...) -> None: ...

class UpdateQueriesRequest(_message.Message):
    __slots__ = ("queries", "start_ms", "past_ms")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[_query_pb2.Query]
    start_ms: int
    past_ms: int
    def __init__(self, queries: _Optional[_Iterable[_Union[_query_pb2.Query, _Mapping]]] = ..., start_ms: _Optional[int] = ..., past_ms: _Optional[int] = ...) -> None: ...

class UpdateQueriesResponse(_message.Message):
    __slots__ = ("results", "warnings")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RegistrationResult]
    warnings: _containers.RepeatedCompositeFieldContainer[RowWarnings]
    def __init__(self, results: _Optional[_Iterable[_Union[RegistrationResult, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[RowWarnings, _Mapping]]] = ...) -> None: ...

class UnregisterQueriesRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class UnregisterQueriesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RegistrationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RegistrationResult, _Mapping]]] = ...) -> None: ...

class RegistrationResult(_message.Message):
    __slots__ = ("revision", "error")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    error: _errors_pb2.Error
    def __init__(self, revision: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class RowWarnings(_message.Message):
    __slots__ = ("row", "warnings")
    ROW_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    row: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, row: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisteredQuery(_message.Message):
    __slots__ = ("query", "revision", "start_ms", "start_given")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    START_GIVEN_FIELD_NUMBER: _ClassVar[int]
    query: _query_pb2.Query
    revision: int
    start_ms: int
    start_given: bool
    def __init__(self, query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., revision: _Optional[int] = ..., start_ms: _Optional[int] = ..., start_given: bool = ...) -> None: ...
