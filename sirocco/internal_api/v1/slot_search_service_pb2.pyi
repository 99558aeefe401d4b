from sirocco_api.v1 import columns_pb2 as _columns_pb2
from sirocco_api.v1 import errors_pb2 as _errors_pb2
from sirocco_api.v1 import query_pb2 as _query_pb2
from sirocco_api.v1 import trace_pb2 as _trace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlotState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOT_STATE_UNSPECIFIED: _ClassVar[SlotState]
    SLOT_STATE_MORE: _ClassVar[SlotState]
    SLOT_STATE_DONE: _ClassVar[SlotState]
    SLOT_STATE_MOVED: _ClassVar[SlotState]
SLOT_STATE_UNSPECIFIED: SlotState
SLOT_STATE_MORE: SlotState
SLOT_STATE_DONE: SlotState
SLOT_STATE_MOVED: SlotState

class SearchSlotsRequest(_message.Message):
    __slots__ = ("question", "ask", "more", "stop", "takes_groups", "others")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    TAKES_GROUPS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    question: int
    ask: SlotQuestion
    more: MoreParts
    stop: StopQuestion
    takes_groups: bool
    others: _containers.RepeatedCompositeFieldContainer[OtherRequest]
    def __init__(self, question: _Optional[int] = ..., ask: _Optional[_Union[SlotQuestion, _Mapping]] = ..., more: _Optional[_Union[MoreParts, _Mapping]] = ..., stop: _Optional[_Union[StopQuestion, _Mapping]] = ..., takes_groups: bool = ..., others: _Optional[_Iterable[_Union[OtherRequest, _Mapping]]] = ...) -> None: ...

class OtherRequest(_message.Message):
    __slots__ = ("question", "ask", "more", "stop")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    question: int
    ask: SlotQuestion
    more: MoreParts
    stop: StopQuestion
    def __init__(self, question: _Optional[int] = ..., ask: _Optional[_Union[SlotQuestion, _Mapping]] = ..., more: _Optional[_Union[MoreParts, _Mapping]] = ..., stop: _Optional[_Union[StopQuestion, _Mapping]] = ...) -> None: ...

class SlotQuestion(_message.Message):
    __slots__ = ("query", "slots", "now_ms", "from_ms", "upto_ms", "position_token", "timeout_ms", "radius_m", "answers", "parts", "nearby", "takes_numbers", "leftovers_of", "listed", "trace")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UPTO_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NEARBY_FIELD_NUMBER: _ClassVar[int]
    TAKES_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    LEFTOVERS_OF_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    query: _query_pb2.Query
    slots: bytes
    now_ms: int
    from_ms: int
    upto_ms: int
    position_token: str
    timeout_ms: int
    radius_m: float
    answers: int
    parts: int
    nearby: bytes
    takes_numbers: bool
    leftovers_of: int
    listed: int
    trace: _trace_pb2.TraceContext
    def __init__(self, query: _Optional[_Union[_query_pb2.Query, _Mapping]] = ..., slots: _Optional[bytes] = ..., now_ms: _Optional[int] = ..., from_ms: _Optional[int] = ..., upto_ms: _Optional[int] = ..., position_token: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., radius_m: _Optional[float] = ..., answers: _Optional[int] = ..., parts: _Optional[int] = ..., nearby: _Optional[bytes] = ..., takes_numbers: bool = ..., leftovers_of: _Optional[int] = ..., listed: _Optional[int] = ..., trace: _Optional[_Union[_trace_pb2.TraceContext, _Mapping]] = ...) -> None: ...

class MoreParts(_message.Message):
    __slots__ = ("parts", "terms")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    parts: int
    terms: bytes
    def __init__(self, parts: _Optional[int] = ..., terms: _Optional[bytes] = ...) -> None: ...

class StopQuestion(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SearchSlotsResponse(_message.Message):
    __slots__ = ("question", "slots", "states", "row_ends", "objects", "events", "distances_m", "terms", "ranked", "error", "is_last", "is_waiting", "map_version", "leftovers", "takes_groups", "others")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    ROW_ENDS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    DISTANCES_M_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    RANKED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    IS_WAITING_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEFTOVERS_FIELD_NUMBER: _ClassVar[int]
    TAKES_GROUPS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    question: int
    slots: bytes
    states: bytes
    row_ends: bytes
    objects: _columns_pb2.ObjectColumns
    events: _columns_pb2.EventColumns
    distances_m: bytes
    terms: TermSumColumns
    ranked: RankedColumns
    error: _errors_pb2.Error
    is_last: bool
    is_waiting: bool
    map_version: int
    leftovers: _containers.RepeatedCompositeFieldContainer[Leftovers]
    takes_groups: bool
    others: _containers.RepeatedCompositeFieldContainer[SearchSlotsResponse]
    def __init__(self, question: _Optional[int] = ..., slots: _Optional[bytes] = ..., states: _Optional[bytes] = ..., row_ends: _Optional[bytes] = ..., objects: _Optional[_Union[_columns_pb2.ObjectColumns, _Mapping]] = ..., events: _Optional[_Union[_columns_pb2.EventColumns, _Mapping]] = ..., distances_m: _Optional[bytes] = ..., terms: _Optional[_Union[TermSumColumns, _Mapping]] = ..., ranked: _Optional[_Union[RankedColumns, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., is_last: bool = ..., is_waiting: bool = ..., map_version: _Optional[int] = ..., leftovers: _Optional[_Iterable[_Union[Leftovers, _Mapping]]] = ..., takes_groups: bool = ..., others: _Optional[_Iterable[_Union[SearchSlotsResponse, _Mapping]]] = ...) -> None: ...

class Leftovers(_message.Message):
    __slots__ = ("slot", "epoch", "map_version", "leaves", "archived_upto_ms")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_UPTO_MS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    epoch: int
    map_version: int
    leaves: bytes
    archived_upto_ms: int
    def __init__(self, slot: _Optional[int] = ..., epoch: _Optional[int] = ..., map_version: _Optional[int] = ..., leaves: _Optional[bytes] = ..., archived_upto_ms: _Optional[int] = ...) -> None: ...

class TermSumColumns(_message.Message):
    __slots__ = ("hashes", "counts", "texts", "text_offsets", "numbering", "rest")
    HASHES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NUMBERING_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    hashes: bytes
    counts: bytes
    texts: bytes
    text_offsets: bytes
    numbering: int
    rest: int
    def __init__(self, hashes: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., texts: _Optional[bytes] = ..., text_offsets: _Optional[bytes] = ..., numbering: _Optional[int] = ..., rest: _Optional[int] = ...) -> None: ...

class RankedColumns(_message.Message):
    __slots__ = ("objects", "tokens", "holders", "token_counts", "frequencies")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FREQUENCIES_FIELD_NUMBER: _ClassVar[int]
    objects: int
    tokens: int
    holders: bytes
    token_counts: bytes
    frequencies: bytes
    def __init__(self, objects: _Optional[int] = ..., tokens: _Optional[int] = ..., holders: _Optional[bytes] = ..., token_counts: _Optional[bytes] = ..., frequencies: _Optional[bytes] = ...) -> None: ...
