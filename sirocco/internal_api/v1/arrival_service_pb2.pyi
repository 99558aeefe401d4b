from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class TellArrivalsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TellArrivalsResponse(_message.Message):
    __slots__ = ("map_version", "leaves", "objects")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    leaves: bytes
    objects: bytes
    def __init__(self, map_version: _Optional[int] = ..., leaves: _Optional[bytes] = ..., objects: _Optional[bytes] = ...) -> None: ...
