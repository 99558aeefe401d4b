from google.protobuf import empty_pb2 as _empty_pb2
from sirocco_api.v1 import columns_pb2 as _columns_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RouteRequest(_message.Message):
    __slots__ = ("map_version", "intervals", "objects", "events", "positions", "interval_rows", "terms", "term_offsets", "token_counts", "term_counts", "track_keys", "tracks", "track_values", "further_rows", "further_tracks", "further_values", "homes", "via", "least_map_version")
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_ROWS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    TERM_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TERM_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TRACK_KEYS_FIELD_NUMBER: _ClassVar[int]
    TRACKS_FIELD_NUMBER: _ClassVar[int]
    TRACK_VALUES_FIELD_NUMBER: _ClassVar[int]
    FURTHER_ROWS_FIELD_NUMBER: _ClassVar[int]
    FURTHER_TRACKS_FIELD_NUMBER: _ClassVar[int]
    FURTHER_VALUES_FIELD_NUMBER: _ClassVar[int]
    HOMES_FIELD_NUMBER: _ClassVar[int]
    VIA_FIELD_NUMBER: _ClassVar[int]
    LEAST_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    map_version: int
    intervals: _columns_pb2.IntervalColumns
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    positions: bytes
    interval_rows: bytes
    terms: bytes
    term_offsets: bytes
    token_counts: bytes
    term_counts: bytes
    track_keys: _containers.RepeatedScalarFieldContainer[str]
    tracks: bytes
    track_values: bytes
    further_rows: bytes
    further_tracks: bytes
    further_values: bytes
    homes: bytes
    via: bytes
    least_map_version: int
    def __init__(self, map_version: _Optional[int] = ..., intervals: _Optional[_Union[_columns_pb2.IntervalColumns, _Mapping]] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., positions: _Optional[bytes] = ..., interval_rows: _Optional[bytes] = ..., terms: _Optional[bytes] = ..., term_offsets: _Optional[bytes] = ..., token_counts: _Optional[bytes] = ..., term_counts: _Optional[bytes] = ..., track_keys: _Optional[_Iterable[str]] = ..., tracks: _Optional[bytes] = ..., track_values: _Optional[bytes] = ..., further_rows: _Optional[bytes] = ..., further_tracks: _Optional[bytes] = ..., further_values: _Optional[bytes] = ..., homes: _Optional[bytes] = ..., via: _Optional[bytes] = ..., least_map_version: _Optional[int] = ...) -> None: ...

class InstallRequest(_message.Message):
    __slots__ = ("registry_partition", "floor", "names", "revisions", "expires_ms", "conjunction_offsets", "positive_offsets", "positive_terms", "negative_offsets", "negative_terms", "box_offsets", "boxes", "shapes", "circles", "ring_offsets", "vertex_offsets", "vertices", "filters", "filter_offsets", "removed", "removed_revisions", "kinds", "starts_ms", "past_ms", "slot_counts", "homes", "locators", "locator_offsets", "copied_at", "begins_ms", "words", "word_offsets", "positive_word_rows", "negative_word_rows", "sinces", "asks_end", "ended", "ended_revisions", "ended_by", "ended_is_over")
    REGISTRY_PARTITION_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    CONJUNCTION_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_TERMS_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_TERMS_FIELD_NUMBER: _ClassVar[int]
    BOX_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    CIRCLES_FIELD_NUMBER: _ClassVar[int]
    RING_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    VERTEX_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    FILTER_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    STARTS_MS_FIELD_NUMBER: _ClassVar[int]
    PAST_MS_FIELD_NUMBER: _ClassVar[int]
    SLOT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    HOMES_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    LOCATOR_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COPIED_AT_FIELD_NUMBER: _ClassVar[int]
    BEGINS_MS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    WORD_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WORD_ROWS_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_WORD_ROWS_FIELD_NUMBER: _ClassVar[int]
    SINCES_FIELD_NUMBER: _ClassVar[int]
    ASKS_END_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ENDED_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    ENDED_IS_OVER_FIELD_NUMBER: _ClassVar[int]
    registry_partition: int
    floor: int
    names: _columns_pb2.QueryNameColumns
    revisions: bytes
    expires_ms: bytes
    conjunction_offsets: bytes
    positive_offsets: bytes
    positive_terms: bytes
    negative_offsets: bytes
    negative_terms: bytes
    box_offsets: bytes
    boxes: bytes
    shapes: bytes
    circles: bytes
    ring_offsets: bytes
    vertex_offsets: bytes
    vertices: bytes
    filters: bytes
    filter_offsets: bytes
    removed: bytes
    removed_revisions: bytes
    kinds: bytes
    starts_ms: bytes
    past_ms: bytes
    slot_counts: bytes
    homes: bytes
    locators: bytes
    locator_offsets: bytes
    copied_at: int
    begins_ms: bytes
    words: bytes
    word_offsets: bytes
    positive_word_rows: bytes
    negative_word_rows: bytes
    sinces: bytes
    asks_end: bytes
    ended: _columns_pb2.QueryNameColumns
    ended_revisions: bytes
    ended_by: bytes
    ended_is_over: bytes
    def __init__(self, registry_partition: _Optional[int] = ..., floor: _Optional[int] = ..., names: _Optional[_Union[_columns_pb2.QueryNameColumns, _Mapping]] = ..., revisions: _Optional[bytes] = ..., expires_ms: _Optional[bytes] = ..., conjunction_offsets: _Optional[bytes] = ..., positive_offsets: _Optional[bytes] = ..., positive_terms: _Optional[bytes] = ..., negative_offsets: _Optional[bytes] = ..., negative_terms: _Optional[bytes] = ..., box_offsets: _Optional[bytes] = ..., boxes: _Optional[bytes] = ..., shapes: _Optional[bytes] = ..., circles: _Optional[bytes] = ..., ring_offsets: _Optional[bytes] = ..., vertex_offsets: _Optional[bytes] = ..., vertices: _Optional[bytes] = ..., filters: _Optional[bytes] = ..., filter_offsets: _Optional[bytes] = ..., removed: _Optional[bytes] = ..., removed_revisions: _Optional[bytes] = ..., kinds: _Optional[bytes] = ..., starts_ms: _Optional[bytes] = ..., past_ms: _Optional[bytes] = ..., slot_counts: _Optional[bytes] = ..., homes: _Optional[bytes] = ..., locators: _Optional[bytes] = ..., locator_offsets: _Optional[bytes] = ..., copied_at: _Optional[int] = ..., begins_ms: _Optional[bytes] = ..., words: _Optional[bytes] = ..., word_offsets: _Optional[bytes] = ..., positive_word_rows: _Optional[bytes] = ..., negative_word_rows: _Optional[bytes] = ..., sinces: _Optional[bytes] = ..., asks_end: _Optional[bytes] = ..., ended: _Optional[_Union[_columns_pb2.QueryNameColumns, _Mapping]] = ..., ended_revisions: _Optional[bytes] = ..., ended_by: _Optional[bytes] = ..., ended_is_over: _Optional[bytes] = ...) -> None: ...
