from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Error(_message.Message):
    __slots__ = ("code", "message", "field", "retry_after_ms", "earliest_cursor", "earliest_ms", "missing_slots")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_CURSOR_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_MS_FIELD_NUMBER: _ClassVar[int]
    MISSING_SLOTS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    field: str
    retry_after_ms: int
    earliest_cursor: str
    earliest_ms: int
    missing_slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., earliest_cursor: _Optional[str] = ..., earliest_ms: _Optional[int] = ..., missing_slots: _Optional[_Iterable[int]] = ...) -> None: ...
