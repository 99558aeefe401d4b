from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeBalanceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeBalanceResponse(_message.Message):
    __slots__ = ("is_on", "balancer", "at_ms", "round_ms", "map_version", "imbalance", "state", "slots", "leaves", "decisions", "proposal", "moves_total", "map_changes_total")
    IS_ON_FIELD_NUMBER: _ClassVar[int]
    BALANCER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    IMBALANCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    MOVES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MAP_CHANGES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    is_on: bool
    balancer: str
    at_ms: int
    round_ms: int
    map_version: int
    imbalance: float
    state: str
    slots: _containers.RepeatedCompositeFieldContainer[SlotLoad]
    leaves: _containers.RepeatedCompositeFieldContainer[LeafLoad]
    decisions: _containers.RepeatedCompositeFieldContainer[BalanceDecision]
    proposal: BalanceDecision
    moves_total: int
    map_changes_total: int
    def __init__(self, is_on: bool = ..., balancer: _Optional[str] = ..., at_ms: _Optional[int] = ..., round_ms: _Optional[int] = ..., map_version: _Optional[int] = ..., imbalance: _Optional[float] = ..., state: _Optional[str] = ..., slots: _Optional[_Iterable[_Union[SlotLoad, _Mapping]]] = ..., leaves: _Optional[_Iterable[_Union[LeafLoad, _Mapping]]] = ..., decisions: _Optional[_Iterable[_Union[BalanceDecision, _Mapping]]] = ..., proposal: _Optional[_Union[BalanceDecision, _Mapping]] = ..., moves_total: _Optional[int] = ..., map_changes_total: _Optional[int] = ...) -> None: ...

class SlotLoad(_message.Message):
    __slots__ = ("slot", "owner", "share", "objects_per_s", "matches_per_s", "queries")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MATCHES_PER_S_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    owner: str
    share: float
    objects_per_s: float
    matches_per_s: float
    queries: float
    def __init__(self, slot: _Optional[int] = ..., owner: _Optional[str] = ..., share: _Optional[float] = ..., objects_per_s: _Optional[float] = ..., matches_per_s: _Optional[float] = ..., queries: _Optional[float] = ...) -> None: ...

class LeafLoad(_message.Message):
    __slots__ = ("leaf", "slot", "share", "objects_per_s", "matches_per_s", "queries")
    LEAF_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MATCHES_PER_S_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    leaf: int
    slot: int
    share: float
    objects_per_s: float
    matches_per_s: float
    queries: float
    def __init__(self, leaf: _Optional[int] = ..., slot: _Optional[int] = ..., share: _Optional[float] = ..., objects_per_s: _Optional[float] = ..., matches_per_s: _Optional[float] = ..., queries: _Optional[float] = ...) -> None: ...

class BalanceDecision(_message.Message):
    __slots__ = ("at_ms", "reason", "moves", "map_version", "maximum_before", "maximum_after", "moved_queries", "seconds", "outcome")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_BEFORE_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_AFTER_FIELD_NUMBER: _ClassVar[int]
    MOVED_QUERIES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    reason: str
    moves: int
    map_version: int
    maximum_before: float
    maximum_after: float
    moved_queries: float
    seconds: float
    outcome: str
    def __init__(self, at_ms: _Optional[int] = ..., reason: _Optional[str] = ..., moves: _Optional[int] = ..., map_version: _Optional[int] = ..., maximum_before: _Optional[float] = ..., maximum_after: _Optional[float] = ..., moved_queries: _Optional[float] = ..., seconds: _Optional[float] = ..., outcome: _Optional[str] = ...) -> None: ...
