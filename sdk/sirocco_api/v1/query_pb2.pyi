from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUERY_MODE_UNSPECIFIED: _ClassVar[QueryMode]
    QUERY_MODE_CONTINUOUS: _ClassVar[QueryMode]
    QUERY_MODE_SNAPSHOT: _ClassVar[QueryMode]
QUERY_MODE_UNSPECIFIED: QueryMode
QUERY_MODE_CONTINUOUS: QueryMode
QUERY_MODE_SNAPSHOT: QueryMode

class Rectangle(_message.Message):
    __slots__ = ("west", "south", "east", "north")
    WEST_FIELD_NUMBER: _ClassVar[int]
    SOUTH_FIELD_NUMBER: _ClassVar[int]
    EAST_FIELD_NUMBER: _ClassVar[int]
    NORTH_FIELD_NUMBER: _ClassVar[int]
    west: float
    south: float
    east: float
    north: float
    def __init__(self, west: _Optional[float] = ..., south: _Optional[float] = ..., east: _Optional[float] = ..., north: _Optional[float] = ...) -> None: ...

class Circle(_message.Message):
    __slots__ = ("lon", "lat", "radius_m")
    LON_FIELD_NUMBER: _ClassVar[int]
    LAT_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    lon: float
    lat: float
    radius_m: float
    def __init__(self, lon: _Optional[float] = ..., lat: _Optional[float] = ..., radius_m: _Optional[float] = ...) -> None: ...

class Ring(_message.Message):
    __slots__ = ("coordinates",)
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    coordinates: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, coordinates: _Optional[_Iterable[float]] = ...) -> None: ...

class Polygon(_message.Message):
    __slots__ = ("rings",)
    RINGS_FIELD_NUMBER: _ClassVar[int]
    rings: _containers.RepeatedCompositeFieldContainer[Ring]
    def __init__(self, rings: _Optional[_Iterable[_Union[Ring, _Mapping]]] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("rect", "circle", "polygon")
    RECT_FIELD_NUMBER: _ClassVar[int]
    CIRCLE_FIELD_NUMBER: _ClassVar[int]
    POLYGON_FIELD_NUMBER: _ClassVar[int]
    rect: Rectangle
    circle: Circle
    polygon: Polygon
    def __init__(self, rect: _Optional[_Union[Rectangle, _Mapping]] = ..., circle: _Optional[_Union[Circle, _Mapping]] = ..., polygon: _Optional[_Union[Polygon, _Mapping]] = ...) -> None: ...

class RangeKind(_message.Message):
    __slots__ = ("region", "text", "track", "events", "highlight", "dwell_ms", "leave_after_ms")
    REGION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRACK_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HIGHLIGHT_FIELD_NUMBER: _ClassVar[int]
    DWELL_MS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    region: Region
    text: str
    track: str
    events: _containers.RepeatedScalarFieldContainer[str]
    highlight: bool
    dwell_ms: int
    leave_after_ms: int
    def __init__(self, region: _Optional[_Union[Region, _Mapping]] = ..., text: _Optional[str] = ..., track: _Optional[str] = ..., events: _Optional[_Iterable[str]] = ..., highlight: bool = ..., dwell_ms: _Optional[int] = ..., leave_after_ms: _Optional[int] = ...) -> None: ...

class KnnKind(_message.Message):
    __slots__ = ("lon", "lat", "k", "text", "events", "highlight")
    LON_FIELD_NUMBER: _ClassVar[int]
    LAT_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HIGHLIGHT_FIELD_NUMBER: _ClassVar[int]
    lon: float
    lat: float
    k: int
    text: str
    events: _containers.RepeatedScalarFieldContainer[str]
    highlight: bool
    def __init__(self, lon: _Optional[float] = ..., lat: _Optional[float] = ..., k: _Optional[int] = ..., text: _Optional[str] = ..., events: _Optional[_Iterable[str]] = ..., highlight: bool = ...) -> None: ...

class TermsKind(_message.Message):
    __slots__ = ("region", "text", "k", "step_ms", "events")
    REGION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    region: Region
    text: str
    k: int
    step_ms: int
    events: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, region: _Optional[_Union[Region, _Mapping]] = ..., text: _Optional[str] = ..., k: _Optional[int] = ..., step_ms: _Optional[int] = ..., events: _Optional[_Iterable[str]] = ...) -> None: ...

class RankedKind(_message.Message):
    __slots__ = ("lon", "lat", "radius_m", "k", "keywords", "weights", "half_life_ms", "step_ms", "events", "highlight")
    LON_FIELD_NUMBER: _ClassVar[int]
    LAT_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    HALF_LIFE_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HIGHLIGHT_FIELD_NUMBER: _ClassVar[int]
    lon: float
    lat: float
    radius_m: float
    k: int
    keywords: _containers.RepeatedScalarFieldContainer[str]
    weights: Weights
    half_life_ms: int
    step_ms: int
    events: _containers.RepeatedScalarFieldContainer[str]
    highlight: bool
    def __init__(self, lon: _Optional[float] = ..., lat: _Optional[float] = ..., radius_m: _Optional[float] = ..., k: _Optional[int] = ..., keywords: _Optional[_Iterable[str]] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ..., half_life_ms: _Optional[int] = ..., step_ms: _Optional[int] = ..., events: _Optional[_Iterable[str]] = ..., highlight: bool = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("text", "space", "time")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPACE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    text: float
    space: float
    time: float
    def __init__(self, text: _Optional[float] = ..., space: _Optional[float] = ..., time: _Optional[float] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("id", "subscriber", "mode", "range", "knn", "terms", "ranked", "where", "ttl_ms", "window_ms", "fold")
    ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    KNN_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    RANKED_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    FOLD_FIELD_NUMBER: _ClassVar[int]
    id: str
    subscriber: str
    mode: QueryMode
    range: RangeKind
    knn: KnnKind
    terms: TermsKind
    ranked: RankedKind
    where: str
    ttl_ms: int
    window_ms: int
    fold: bool
    def __init__(self, id: _Optional[str] = ..., subscriber: _Optional[str] = ..., mode: _Optional[_Union[QueryMode, str]] = ..., range: _Optional[_Union[RangeKind, _Mapping]] = ..., knn: _Optional[_Union[KnnKind, _Mapping]] = ..., terms: _Optional[_Union[TermsKind, _Mapping]] = ..., ranked: _Optional[_Union[RankedKind, _Mapping]] = ..., where: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., window_ms: _Optional[int] = ..., fold: bool = ...) -> None: ...
