from google.protobuf import empty_pb2 as _empty_pb2
from sirocco_api.v1 import query_pb2 as _query_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PrepareRequest(_message.Message):
    __slots__ = ("map_version",)
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    def __init__(self, map_version: _Optional[int] = ...) -> None: ...

class RetireRequest(_message.Message):
    __slots__ = ("map_version", "at_ms")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    at_ms: int
    def __init__(self, map_version: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("handle", "query", "start_ms", "expected_revision", "digest", "epoch", "past_ms", "restated", "locator", "start_given", "since")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    RESTATED_FIELD_NUMBER: _ClassVar[int]
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    START_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    query: _query_pb2.Query
    start_ms: int
    expected_revision: int
    digest: int
    epoch: int
    past_ms: int
    restated: bool
    locator: bytes
    start_given: bool
    since: int
    def __init__(self, handle: _Optional[int] = ..., query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., start_ms: _Optional[int] = ..., expected_revision: _Optional[int] = ..., digest: _Optional[int] = ..., epoch: _Optional[int] = ..., past_ms: _Optional[int] = ..., restated: bool = ..., locator: _Optional[bytes] = ..., start_given: bool = ..., since: _Optional[int] = ...) -> None: ...
