"""The kinds of queries, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sirocco.model.attributes import Filter
from sirocco.model.expression import Expression
from sirocco.model.geometry import Region

Mode = Literal["continuous", "snapshot"]
Event = Literal["enter", "exit", "inside", "ended"]

MODES: tuple[Mode, ...] = ("continuous", "snapshot")
EVENTS: tuple[Event, ...] = ("enter", "exit", "inside", "ended")
ENDED: Event = "ended"

# Defaults fixed by the public contract.
RANKED_STEP_MS = 10_000
HALF_LIFE_MS = 86_400_000

# An object may be ahead of a ranked search's clock, and scores better than a new one; only so far
# that a score still has its nine digits.
HALF_LIVES_AHEAD_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the parts of a ranked score; they sum to 1."""

    text: float = 1 / 3
    space: float = 1 / 3
    time: float = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeQuery:
    """All objects that satisfy region, text and attributes; None is no restriction.

    Attributes:
        track: Attribute whose values are tracked; None: objects are reported singly.
        events: Reported events of a tracked value, and of the query itself, in the order of
            `EVENTS`.
        highlight: Whether notifications say where the words stand that matched.
        dwell_ms: How long a tracked value must be inside before it has entered; None: at once.
        leave_after_ms: How long one must be outside before it has left; None: at once.
    """

    id: str
    mode: Mode
    region: Region | None = None
    expression: Expression | None = None
    where: Filter | None = None
    ttl_ms: int | None = None
    window_ms: int | None = None
    track: str | None = None
    events: tuple[Event, ...] = ()
    highlight: bool = False
    dwell_ms: int | None = None
    leave_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnnQuery:
    """The k nearest objects that satisfy text and attributes.

    Attributes:
        events: Reported events of the query itself.
        highlight: Whether notifications say where the words stand of what enters the list.
    """

    id: str
    mode: Mode
    lon: float
    lat: float
    k: int
    expression: Expression | None = None
    where: Filter | None = None
    ttl_ms: int | None = None
    window_ms: int | None = None
    events: tuple[Event, ...] = ()
    highlight: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsQuery:
    """The k most frequent terms of the objects that satisfy region, text and attributes."""

    id: str
    mode: Mode
    k: int
    region: Region | None = None
    expression: Expression | None = None
    where: Filter | None = None
    ttl_ms: int | None = None
    window_ms: int | None = None
    step_ms: int | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuery:
    """The k best objects by text, distance and age.

    Attributes:
        keywords: Distinct terms in code point order, at least one.
        step_ms: Time between evaluations; None in a snapshot.
        highlight: As of a `KnnQuery`, of keywords.
    """

    id: str
    mode: Mode
    lon: float
    lat: float
    radius_m: float
    k: int
    keywords: tuple[str, ...]
    weights: Weights = Weights()
    half_life_ms: int = HALF_LIFE_MS
    where: Filter | None = None
    ttl_ms: int | None = None
    window_ms: int | None = None
    step_ms: int | None = None
    events: tuple[Event, ...] = ()
    highlight: bool = False


Query: TypeAlias = RangeQuery | KnnQuery | TermsQuery | RankedQuery


def kind_of(query: Query) -> str:
    """Returns `range`, `knn`, `terms` or `ranked`."""
    match query:
        case RangeQuery():
            return "range"
        case KnnQuery():
            return "knn"
        case TermsQuery():
            return "terms"
        case RankedQuery():
            return "ranked"
