"""Queries as typed values, and their conversion to and from messages.

The server checks that values are in range, once for all clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Self, TypeAlias

from sirocco_api.v1 import query_pb2 as pb
from sirocco_api.v1.query_service_pb2 import RegisteredQuery as RegisteredQueryMessage

from sirocco_client.base.durations import read_duration_ms
from sirocco_client.base.members import read_flag, read_integer, read_number, shown
from sirocco_client.errors import Internal, InvalidArgument, SiroccoError
from sirocco_client.queries.regions import Region, read_region, write_region

Mode = Literal["continuous", "snapshot"]
Duration: TypeAlias = "str | timedelta"

_MODES: dict[str, pb.QueryMode] = {
    "continuous": pb.QUERY_MODE_CONTINUOUS,
    "snapshot": pb.QUERY_MODE_SNAPSHOT,
}
_MODE_NAMES: dict[int, Mode] = {
    pb.QUERY_MODE_CONTINUOUS: "continuous",
    pb.QUERY_MODE_SNAPSHOT: "snapshot",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeQuery:
    """All objects of a region whose text and attributes satisfy conditions.

    Attributes:
        id: Name of the query; a search needs none.
        subscriber: Receives the notifications. A subscriber may have many queries; a search needs
            none.
        region: None: the whole world.
        text: Boolean expression such as `(coffee AND free) OR pizza`; None: any text.
        fold: Whether accents do not matter: then `zurich` finds `Zürich`, and the other way round.
        where: Attribute filters such as `{"status": "open", "size": {"gte": 3}}`.
        ttl: Lifetime such as "72h" or a timedelta; None: no end.
        mode: "continuous" reports each new matching object; "snapshot" is for searches.
        window: Maximum age of objects, for snapshots. None: any age.
        track: Attribute whose values are tracked (a vehicle's number, for example); None: no
            tracking.
        events: Events to report: "enter", "inside", "exit" of a tracked value; "ended" of the query
            itself, with or without `track`.
        highlight: Whether notifications hold the places of the words of `text` that matched
            (`Notification.highlights`).
        dwell: How long a tracked value must be inside, without a break, before "enter" is reported;
            None: not at all.
        leave_after: How long it must be outside before "exit" is reported; None: not at all.
    """

    id: str = ""
    subscriber: str = ""
    region: Region | None = None
    text: str | None = None
    fold: bool = False
    where: Mapping[str, Any] | None = None
    ttl: Duration | None = None
    mode: Mode = "continuous"
    window: Duration | None = None
    track: str | None = None
    events: tuple[str, ...] = ()
    highlight: bool = False
    dwell: Duration | None = None
    leave_after: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnnQuery:
    """The k nearest objects whose text and attributes satisfy conditions.

    Attributes:
        id, subscriber, text, fold, where, ttl: As of a `RangeQuery`.
        events: "ended" or none.
        lon, lat: The point, degrees (WGS 84).
        k: How many objects, at least 1.
        mode: "continuous" reports changes of the k nearest objects so far.
        window: Maximum age of objects, for snapshots only.
        highlight: Whether notifications hold the places of the words of `text` in what enters the
            list (`KnnChange.highlights`).
    """

    id: str = ""
    subscriber: str = ""
    lon: float
    lat: float
    k: int
    text: str | None = None
    fold: bool = False
    where: Mapping[str, Any] | None = None
    ttl: Duration | None = None
    mode: Mode = "continuous"
    window: Duration | None = None
    events: tuple[str, ...] = ()
    highlight: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsQuery:
    """The k most frequent terms of the objects that satisfy conditions.

    Attributes:
        id, subscriber, region, text, fold, where, ttl: As of a `RangeQuery`.
        events: "ended" or none.
        k: How many terms, at least 1.
        mode: "continuous" reports the list at each step.
        window: Maximum age of the counted objects. None: any age.
        step: Time between two lists; required for a continuous query, at most the window.
    """

    id: str = ""
    subscriber: str = ""
    k: int
    region: Region | None = None
    text: str | None = None
    fold: bool = False
    where: Mapping[str, Any] | None = None
    ttl: Duration | None = None
    mode: Mode = "continuous"
    window: Duration | None = None
    step: Duration | None = None
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the parts of a ranked score; they sum to 1."""

    text: float = 1 / 3
    space: float = 1 / 3
    time: float = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuery:
    """The k best objects by text, distance and age.

    Attributes:
        id, subscriber, where, ttl: As of a `RangeQuery`.
        events: "ended" or none.
        lon, lat, radius_m: Objects count within this distance of this point (degrees, WGS 84).
        k: How many objects, at least 1.
        keywords: An object must contain at least one.
        weights: None: a third each.
        half_life: Time in which the age part of the score halves. None: a day.
        mode: "continuous" reports the list at a step at which it has changed.
        window: Maximum age of the objects. None: any age.
        step: Time between evaluations of a continuous query. None: 10 s. At most the window, unless
            it is 10 s.
        highlight: Whether notifications hold the places of the keywords in what enters the list
            (`RankedChange.highlights`).
    """

    id: str = ""
    subscriber: str = ""
    lon: float
    lat: float
    radius_m: float
    k: int
    keywords: tuple[str, ...]
    weights: Weights | None = None
    half_life: Duration | None = None
    where: Mapping[str, Any] | None = None
    ttl: Duration | None = None
    mode: Mode = "continuous"
    window: Duration | None = None
    step: Duration | None = None
    events: tuple[str, ...] = ()
    highlight: bool = False


Query: TypeAlias = RangeQuery | KnnQuery | TermsQuery | RankedQuery


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query as the cluster stores it.

    Attributes:
        query: The query.
        revision: Grows with each change to it.
        start_ms: When its lifetime begins, epoch ms.
        start_given: Whether the registration named `start_ms`; then earlier objects do not match.
            Otherwise `start_ms` is when a router received the registration, and the order of
            registration and objects decides.
    """

    query: Query
    revision: int
    start_ms: int
    start_given: bool = False


@dataclass(frozen=True, slots=True)
class QueryPage:
    """Some of the registered queries.

    Attributes:
        queries: The queries; a page may hold fewer than asked for, or none, and others follow.
        next_page_token: Asks for the page after it; empty after the last one.
    """

    queries: tuple[RegisteredQuery, ...]
    next_page_token: str


class Registration(int):
    """Result of `register` and `update`: the query's revision, with warnings.

    Attributes:
        warnings: What the query probably does not mean as it is written, in words; such as `and` in
            small letters, which is a word. Usually none.
    """

    warnings: tuple[str, ...]

    def __new__(cls, revision: int, warnings: Iterable[str] = ()) -> Self:
        """Creates one."""
        made = super().__new__(cls, revision)
        made.warnings = tuple(warnings)
        return made

    @property
    def revision(self) -> int:
        """As in `RegisteredQuery`."""
        return int(self)


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """Result for one query of a bulk change.

    Attributes:
        id: The query's.
        revision: As in `RegisteredQuery`; 0 if it was refused.
        error: Why it was refused; None on success.
        warnings: As of a `Registration`. Of one request the server names the first thousand queries
            that have any.
    """

    id: str
    revision: int
    error: SiroccoError | None
    warnings: tuple[str, ...] = ()


def write_query(query: Query) -> pb.Query:
    """Returns the message of a query.

    Raises:
        InvalidArgument: A member has a wrong type or form; `field` names it.
    """
    if not isinstance(query, Query):
        raise InvalidArgument(f"{type(query).__name__} is no query", field="query")
    if not isinstance(query.mode, str) or query.mode not in _MODES:
        raise InvalidArgument(f"{shown(query.mode)} is none of {', '.join(_MODES)}", field="mode")
    message = pb.Query(mode=_MODES[query.mode])
    _set(message, "id", query.id)
    _set(message, "subscriber", query.subscriber)
    if isinstance(query, RangeQuery):
        _write_range(message.range, query)
    elif isinstance(query, KnnQuery):
        _write_knn(message.knn, query)
    elif isinstance(query, TermsQuery):
        _write_terms(message.terms, query)
    else:
        _write_ranked(message.ranked, query)
    if query.events != ():
        _write_events(message, query.events)
    if not isinstance(query, RankedQuery):
        message.fold = read_flag(query.fold, "fold")
    if query.where is not None:
        _write_where(message, query.where)
    if query.ttl is not None:
        message.ttl_ms = read_duration_ms(query.ttl, "ttl")
    if query.window is not None:
        message.window_ms = read_duration_ms(query.window, "window")
    return message


def _write_events(message: pb.Query, events: tuple[str, ...]) -> None:
    try:
        getattr(message, str(message.WhichOneof("kind"))).events.extend(events)
    except (TypeError, ValueError):
        raise InvalidArgument("must be valid strings", field="events") from None


def _write_where(message: pb.Query, where: Mapping[str, Any]) -> None:
    try:
        members = dict(where)
        if not all(isinstance(name, str) for name in members):
            # JSON's writer would turn them into strings.
            raise TypeError("names of attributes are strings")
        message.where = json.dumps(members, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"cannot be written as JSON: {error}", field="where") from None


def _write_range(kind: pb.RangeKind, query: RangeQuery) -> None:
    # Sets the kind even if the query has no condition.
    kind.SetInParent()
    _write_text(kind, query.text)
    if query.region is not None:
        write_region(kind.region, query.region)
    if query.track is not None:
        _set_some(kind, "track", query.track)
    kind.highlight = read_flag(query.highlight, "highlight")
    if query.dwell is not None:
        kind.dwell_ms = read_duration_ms(query.dwell, "dwell")
    if query.leave_after is not None:
        kind.leave_after_ms = read_duration_ms(query.leave_after, "leave_after")


def _write_knn(kind: pb.KnnKind, query: KnnQuery) -> None:
    kind.lon, kind.lat = _point(query)
    kind.k = read_integer(query.k, "k")
    _write_text(kind, query.text)
    kind.highlight = read_flag(query.highlight, "highlight")


def _write_terms(kind: pb.TermsKind, query: TermsQuery) -> None:
    kind.k = read_integer(query.k, "k")
    _write_text(kind, query.text)
    if query.region is not None:
        write_region(kind.region, query.region)
    if query.step is not None:
        kind.step_ms = read_duration_ms(query.step, "step")


def _write_ranked(kind: pb.RankedKind, query: RankedQuery) -> None:
    kind.lon, kind.lat = _point(query)
    kind.radius_m = read_number(query.radius_m, "radius_m")
    kind.k = read_integer(query.k, "k")
    if isinstance(query.keywords, str):
        # Its letters would become keywords.
        raise InvalidArgument("must be several strings", field="keywords")
    try:
        kind.keywords.extend(query.keywords)
    except (TypeError, ValueError):
        raise InvalidArgument("must be valid strings", field="keywords") from None
    if query.weights is not None:
        for name in ("text", "space", "time"):
            value = read_number(getattr(query.weights, name, None), f"weights.{name}")
            setattr(kind.weights, name, value)
    if query.half_life is not None:
        kind.half_life_ms = read_duration_ms(query.half_life, "half_life")
    if query.step is not None:
        kind.step_ms = read_duration_ms(query.step, "step")
    kind.highlight = read_flag(query.highlight, "highlight")


def _write_text(kind: pb.RangeKind | pb.KnnKind | pb.TermsKind, text: str | None) -> None:
    if text is not None:
        _set_some(kind, "text", text)


def _point(query: KnnQuery | RankedQuery) -> tuple[float, float]:
    return read_number(query.lon, "point.lon"), read_number(query.lat, "point.lat")


def _set(message: Any, name: str, value: object) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError):
        # ValueError: a string with lone surrogates is not Unicode text.
        raise InvalidArgument(f"{shown(value)} is no valid string", field=name) from None


def _set_some(message: Any, name: str, value: object) -> None:
    if value == "":
        # On the wire, empty means "no condition", which is another query.
        raise InvalidArgument("must not be empty", field=name)
    _set(message, name, value)


def read_query(message: pb.Query) -> Query:
    """Returns the query of a message; its durations are `timedelta`.

    Raises:
        InvalidArgument: This client does not know its kind.
        Internal: One of its members is malformed.
    """
    name = message.WhichOneof("kind") or ""
    if name not in _READERS:
        raise InvalidArgument(f"query {message.id!r:.60} is of an unknown kind", field="kind")
    try:
        return _READERS[name](
            message,
            id=message.id,
            subscriber=message.subscriber,
            where=json.loads(message.where) if message.where else None,
            ttl=_duration(message, "ttl_ms"),
            mode=_MODE_NAMES.get(message.mode, "continuous"),
            window=_duration(message, "window_ms"),
            events=tuple(getattr(message, name).events),
        )
    except (ValueError, OverflowError, RecursionError) as error:
        raise Internal(f"query {message.id!r:.60} of a response is damaged: {error}") from None


def _read_range(message: pb.Query, **shared: Any) -> RangeQuery:
    kind = message.range
    return RangeQuery(
        region=read_region(kind.region) if kind.HasField("region") else None,
        text=kind.text or None,
        fold=message.fold,
        track=kind.track or None,
        highlight=kind.highlight,
        dwell=_duration(kind, "dwell_ms"),
        leave_after=_duration(kind, "leave_after_ms"),
        **shared,
    )


def _read_knn(message: pb.Query, **shared: Any) -> KnnQuery:
    kind = message.knn
    return KnnQuery(
        lon=kind.lon,
        lat=kind.lat,
        k=kind.k,
        text=kind.text or None,
        fold=message.fold,
        highlight=kind.highlight,
        **shared,
    )


def _read_terms(message: pb.Query, **shared: Any) -> TermsQuery:
    kind = message.terms
    return TermsQuery(
        k=kind.k,
        region=read_region(kind.region) if kind.HasField("region") else None,
        text=kind.text or None,
        fold=message.fold,
        step=_duration(kind, "step_ms"),
        **shared,
    )


def _read_ranked(message: pb.Query, **shared: Any) -> RankedQuery:
    kind, weights = message.ranked, message.ranked.weights
    return RankedQuery(
        lon=kind.lon,
        lat=kind.lat,
        radius_m=kind.radius_m,
        k=kind.k,
        keywords=tuple(kind.keywords),
        weights=(
            Weights(weights.text, weights.space, weights.time) if kind.HasField("weights") else None
        ),
        half_life=_duration(kind, "half_life_ms"),
        step=_duration(kind, "step_ms"),
        highlight=kind.highlight,
        **shared,
    )


_READERS: dict[str, Callable[..., Query]] = {
    "range": _read_range,
    "knn": _read_knn,
    "terms": _read_terms,
    "ranked": _read_ranked,
}


def _duration(message: Any, name: str) -> timedelta | None:
    return timedelta(milliseconds=getattr(message, name)) if message.HasField(name) else None


def read_registered(message: RegisteredQueryMessage) -> RegisteredQuery:
    """Returns the registered query of a message; raises as `read_query`."""
    return RegisteredQuery(
        read_query(message.query), message.revision, message.start_ms, message.start_given
    )
