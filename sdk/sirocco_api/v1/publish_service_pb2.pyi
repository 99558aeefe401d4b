from sirocco_api.v1 import columns_pb2 as _columns_pb2
from sirocco_api.v1 import errors_pb2 as _errors_pb2
from sirocco_api.v1 import trace_pb2 as _trace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdvanceTimeRequest(_message.Message):
    __slots__ = ("time_ms",)
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    def __init__(self, time_ms: _Optional[int] = ...) -> None: ...

class AdvanceTimeResponse(_message.Message):
    __slots__ = ("position_token",)
    POSITION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    position_token: str
    def __init__(self, position_token: _Optional[str] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("session", "first_number", "acknowledged_to", "objects", "trace")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_TO_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    session: int
    first_number: int
    acknowledged_to: int
    objects: _columns_pb2.ObjectColumns
    trace: _trace_pb2.TraceContext
    def __init__(self, session: _Optional[int] = ..., first_number: _Optional[int] = ..., acknowledged_to: _Optional[int] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., trace: _Optional[_Union[_trace_pb2.TraceContext, _Mapping]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("acknowledged_to", "rejections", "position_token")
    ACKNOWLEDGED_TO_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    POSITION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    acknowledged_to: int
    rejections: _containers.RepeatedCompositeFieldContainer[Rejection]
    position_token: str
    def __init__(self, acknowledged_to: _Optional[int] = ..., rejections: _Optional[_Iterable[_Union[Rejection, _Mapping]]] = ..., position_token: _Optional[str] = ...) -> None: ...

class PublishNumberedRequest(_message.Message):
    __slots__ = ("session", "first_number", "acknowledged_to", "objects", "number_deltas", "trace")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_TO_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_DELTAS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    session: int
    first_number: int
    acknowledged_to: int
    objects: _columns_pb2.ObjectColumns
    number_deltas: bytes
    trace: _trace_pb2.TraceContext
    def __init__(self, session: _Optional[int] = ..., first_number: _Optional[int] = ..., acknowledged_to: _Optional[int] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., number_deltas: _Optional[bytes] = ..., trace: _Optional[_Union[_trace_pb2.TraceContext, _Mapping]] = ...) -> None: ...

class PublishNumberedResponse(_message.Message):
    __slots__ = ("acknowledged_to", "rejections", "position_token")
    ACKNOWLEDGED_TO_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    POSITION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    acknowledged_to: int
    rejections: _containers.RepeatedCompositeFieldContainer[Rejection]
    position_token: str
    def __init__(self, acknowledged_to: _Optional[int] = ..., rejections: _Optional[_Iterable[_Union[Rejection, _Mapping]]] = ..., position_token: _Optional[str] = ...) -> None: ...

class Rejection(_message.Message):
    __slots__ = ("number", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    error: _errors_pb2.Error
    def __init__(self, number: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
