from sirocco_api.v1 import errors_pb2 as _errors_pb2
from sirocco_api.v1 import query_pb2 as _query_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChangeAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_ACTION_UNSPECIFIED: _ClassVar[ChangeAction]
    CHANGE_ACTION_REGISTER: _ClassVar[ChangeAction]
    CHANGE_ACTION_UPDATE: _ClassVar[ChangeAction]
    CHANGE_ACTION_UNREGISTER: _ClassVar[ChangeAction]
CHANGE_ACTION_UNSPECIFIED: ChangeAction
CHANGE_ACTION_REGISTER: ChangeAction
CHANGE_ACTION_UPDATE: ChangeAction
CHANGE_ACTION_UNREGISTER: ChangeAction

class ApplyChangesRequest(_message.Message):
    __slots__ = ("partition", "changes", "deadline_ms")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    changes: _containers.RepeatedCompositeFieldContainer[WantedChange]
    deadline_ms: int
    def __init__(self, partition: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[WantedChange, _Mapping]]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class WantedChange(_message.Message):
    __slots__ = ("action", "query", "start_ms", "past_ms", "start_given")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    START_GIVEN_FIELD_NUMBER: _ClassVar[int]
    action: ChangeAction
    query: _query_pb2.Query
    start_ms: int
    past_ms: int
    start_given: bool
    def __init__(self, action: _Optional[_Union[ChangeAction, str]] = ..., query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., start_ms: _Optional[int] = ..., past_ms: _Optional[int] = ..., start_given: bool = ...) -> None: ...

class ApplyChangesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ChangeResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ChangeResult, _Mapping]]] = ...) -> None: ...

class ChangeResult(_message.Message):
    __slots__ = ("revision", "error")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    error: _errors_pb2.Error
    def __init__(self, revision: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class ReadQueriesRequest(_message.Message):
    __slots__ = ("partition", "id", "from_offset", "page_size", "subscriber", "id_prefix")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    partition: int
    id: str
    from_offset: int
    page_size: int
    subscriber: str
    id_prefix: str
    def __init__(self, partition: _Optional[int] = ..., id: _Optional[str] = ..., from_offset: _Optional[int] = ..., page_size: _Optional[int] = ..., subscriber: _Optional[str] = ..., id_prefix: _Optional[str] = ...) -> None: ...

class CountQueriesRequest(_message.Message):
    __slots__ = ("partition", "id_prefix", "handles", "fingerprints", "amounts_of")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_OF_FIELD_NUMBER: _ClassVar[int]
    partition: int
    id_prefix: str
    handles: _containers.RepeatedScalarFieldContainer[int]
    fingerprints: _containers.RepeatedScalarFieldContainer[int]
    amounts_of: str
    def __init__(self, partition: _Optional[int] = ..., id_prefix: _Optional[str] = ..., handles: _Optional[_Iterable[int]] = ..., fingerprints: _Optional[_Iterable[int]] = ..., amounts_of: _Optional[str] = ...) -> None: ...

class CountQueriesResponse(_message.Message):
    __slots__ = ("queries", "live_handles", "bytes", "live_fingerprints", "steps_per_s", "live_bytes", "live_steps_per_s")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    LIVE_HANDLES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LIVE_FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_S_FIELD_NUMBER: _ClassVar[int]
    LIVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIVE_STEPS_PER_S_FIELD_NUMBER: _ClassVar[int]
    queries: int
    live_handles: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    live_fingerprints: _containers.RepeatedScalarFieldContainer[int]
    steps_per_s: float
    live_bytes: _containers.RepeatedScalarFieldContainer[int]
    live_steps_per_s: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, queries: _Optional[int] = ..., live_handles: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., live_fingerprints: _Optional[_Iterable[int]] = ..., steps_per_s: _Optional[float] = ..., live_bytes: _Optional[_Iterable[int]] = ..., live_steps_per_s: _Optional[_Iterable[float]] = ...) -> None: ...

class ReadQueriesResponse(_message.Message):
    __slots__ = ("queries", "next_offset")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[StoredQuery]
    next_offset: int
    def __init__(self, queries: _Optional[_Iterable[_Union[StoredQuery, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class StoredQuery(_message.Message):
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
