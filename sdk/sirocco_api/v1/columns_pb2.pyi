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
    __slots__ = ("objects", "queries", "changes", "distances_m")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DISTANCES_M_FIELD_NUMBER: _ClassVar[int]
    objects: bytes
    queries: bytes
    changes: bytes
    distances_m: bytes
    def __init__(self, objects: _Optional[bytes] = ..., queries: _Optional[bytes] = ..., changes: _Optional[bytes] = ..., distances_m: _Optional[bytes] = ...) -> None: ...

class HighlightColumns(_message.Message):
    __slots__ = ("matches", "starts", "ends", "terms", "names")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    matches: bytes
    starts: bytes
    ends: bytes
    terms: bytes
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, matches: _Optional[bytes] = ..., starts: _Optional[bytes] = ..., ends: _Optional[bytes] = ..., terms: _Optional[bytes] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryNameColumns(_message.Message):
    __slots__ = ("handles", "ids", "id_offsets", "subscriber_rows", "subscribers", "specs")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ID_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_ROWS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    SPECS_FIELD_NUMBER: _ClassVar[int]
    handles: bytes
    ids: bytes
    id_offsets: bytes
    subscriber_rows: bytes
    subscribers: _containers.RepeatedScalarFieldContainer[str]
    specs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, handles: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., id_offsets: _Optional[bytes] = ..., subscriber_rows: _Optional[bytes] = ..., subscribers: _Optional[_Iterable[str]] = ..., specs: _Optional[_Iterable[str]] = ...) -> None: ...

class StepColumns(_message.Message):
    __slots__ = ("queries", "at_ms", "positions", "interval_rows", "entry_offsets", "terms", "term_offsets", "counts", "totals", "holder_offsets", "holders", "candidate_offsets", "candidates", "token_counts", "distances_m", "frequencies", "slot_counts")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_ROWS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    TERM_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    DISTANCES_M_FIELD_NUMBER: _ClassVar[int]
    FREQUENCIES_FIELD_NUMBER: _ClassVar[int]
    SLOT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    queries: bytes
    at_ms: bytes
    positions: bytes
    interval_rows: bytes
    entry_offsets: bytes
    terms: bytes
    term_offsets: bytes
    counts: bytes
    totals: bytes
    holder_offsets: bytes
    holders: bytes
    candidate_offsets: bytes
    candidates: bytes
    token_counts: bytes
    distances_m: bytes
    frequencies: bytes
    slot_counts: bytes
    def __init__(self, queries: _Optional[bytes] = ..., at_ms: _Optional[bytes] = ..., positions: _Optional[bytes] = ..., interval_rows: _Optional[bytes] = ..., entry_offsets: _Optional[bytes] = ..., terms: _Optional[bytes] = ..., term_offsets: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., totals: _Optional[bytes] = ..., holder_offsets: _Optional[bytes] = ..., holders: _Optional[bytes] = ..., candidate_offsets: _Optional[bytes] = ..., candidates: _Optional[bytes] = ..., token_counts: _Optional[bytes] = ..., distances_m: _Optional[bytes] = ..., frequencies: _Optional[bytes] = ..., slot_counts: _Optional[bytes] = ...) -> None: ...

class ListColumns(_message.Message):
    __slots__ = ("queries", "at_ms", "entry_offsets", "values", "names", "name_offsets", "ids", "sessions", "numbers", "objects", "removed_offsets", "removed_ids", "removed_names", "removed_name_offsets", "partial", "ended")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NAME_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_IDS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NAMES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NAME_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    queries: bytes
    at_ms: bytes
    entry_offsets: bytes
    values: bytes
    names: bytes
    name_offsets: bytes
    ids: bytes
    sessions: bytes
    numbers: bytes
    objects: bytes
    removed_offsets: bytes
    removed_ids: bytes
    removed_names: bytes
    removed_name_offsets: bytes
    partial: bytes
    ended: bytes
    def __init__(self, queries: _Optional[bytes] = ..., at_ms: _Optional[bytes] = ..., entry_offsets: _Optional[bytes] = ..., values: _Optional[bytes] = ..., names: _Optional[bytes] = ..., name_offsets: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., sessions: _Optional[bytes] = ..., numbers: _Optional[bytes] = ..., objects: _Optional[bytes] = ..., removed_offsets: _Optional[bytes] = ..., removed_ids: _Optional[bytes] = ..., removed_names: _Optional[bytes] = ..., removed_name_offsets: _Optional[bytes] = ..., partial: _Optional[bytes] = ..., ended: _Optional[bytes] = ...) -> None: ...
