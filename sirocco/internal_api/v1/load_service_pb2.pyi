from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TellLoadsRequest(_message.Message):
    __slots__ = ("ends_round", "slots_only")
    ENDS_ROUND_FIELD_NUMBER: _ClassVar[int]
    SLOTS_ONLY_FIELD_NUMBER: _ClassVar[int]
    ends_round: bool
    slots_only: bool
    def __init__(self, ends_round: bool = ..., slots_only: bool = ...) -> None: ...

class TellLoadsResponse(_message.Message):
    __slots__ = ("map_version", "slots", "leaves", "objects", "met", "faded", "queries", "arrivals", "query_bytes")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    FADED_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_FIELD_NUMBER: _ClassVar[int]
    QUERY_BYTES_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    slots: _containers.RepeatedScalarFieldContainer[int]
    leaves: bytes
    objects: bytes
    met: bytes
    faded: bytes
    queries: bytes
    arrivals: bytes
    query_bytes: bytes
    def __init__(self, map_version: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., leaves: _Optional[bytes] = ..., objects: _Optional[bytes] = ..., met: _Optional[bytes] = ..., faded: _Optional[bytes] = ..., queries: _Optional[bytes] = ..., arrivals: _Optional[bytes] = ..., query_bytes: _Optional[bytes] = ...) -> None: ...

class TellDetailsRequest(_message.Message):
    __slots__ = ("map_version", "leaves")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    leaves: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, map_version: _Optional[int] = ..., leaves: _Optional[_Iterable[int]] = ...) -> None: ...

class TellDetailsResponse(_message.Message):
    __slots__ = ("details",)
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    details: _containers.RepeatedCompositeFieldContainer[LeafDetail]
    def __init__(self, details: _Optional[_Iterable[_Union[LeafDetail, _Mapping]]] = ...) -> None: ...

class LeafDetail(_message.Message):
    __slots__ = ("leaf", "columns", "rows")
    LEAF_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    leaf: int
    columns: LeafAxis
    rows: LeafAxis
    def __init__(self, leaf: _Optional[int] = ..., columns: _Optional[_Union[LeafAxis, _Mapping]] = ..., rows: _Optional[_Union[LeafAxis, _Mapping]] = ...) -> None: ...

class LeafAxis(_message.Message):
    __slots__ = ("borders", "statistics", "met")
    BORDERS_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    borders: bytes
    statistics: bytes
    met: bytes
    def __init__(self, borders: _Optional[bytes] = ..., statistics: _Optional[bytes] = ..., met: _Optional[bytes] = ...) -> None: ...

class TellSampleRequest(_message.Message):
    __slots__ = ("objects_max", "queries_max")
    OBJECTS_MAX_FIELD_NUMBER: _ClassVar[int]
    QUERIES_MAX_FIELD_NUMBER: _ClassVar[int]
    objects_max: int
    queries_max: int
    def __init__(self, objects_max: _Optional[int] = ..., queries_max: _Optional[int] = ...) -> None: ...

class TellSampleResponse(_message.Message):
    __slots__ = ("objects", "queries", "lon", "lat", "term_offsets", "terms", "event_keys", "boxes", "keyword_offsets", "keywords", "handles")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    LON_FIELD_NUMBER: _ClassVar[int]
    LAT_FIELD_NUMBER: _ClassVar[int]
    TERM_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    EVENT_KEYS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    objects: float
    queries: float
    lon: bytes
    lat: bytes
    term_offsets: bytes
    terms: bytes
    event_keys: bytes
    boxes: bytes
    keyword_offsets: bytes
    keywords: bytes
    handles: bytes
    def __init__(self, objects: _Optional[float] = ..., queries: _Optional[float] = ..., lon: _Optional[bytes] = ..., lat: _Optional[bytes] = ..., term_offsets: _Optional[bytes] = ..., terms: _Optional[bytes] = ..., event_keys: _Optional[bytes] = ..., boxes: _Optional[bytes] = ..., keyword_offsets: _Optional[bytes] = ..., keywords: _Optional[bytes] = ..., handles: _Optional[bytes] = ...) -> None: ...

class SaveSlotsRequest(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slots: _Optional[_Iterable[int]] = ...) -> None: ...

class SaveSlotsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WarmSlotsRequest(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slots: _Optional[_Iterable[int]] = ...) -> None: ...

class WarmSlotsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
