"""Reads a query from its JSON members; an error names the member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from sirocco.model.attributes import Filter
from sirocco.model.durations import format_duration, parse_duration_ms
from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import Expression
from sirocco.model.geometry import Region, parse_point, parse_radius_m, parse_region
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.members import (
    read_choice,
    read_flag,
    read_integer,
    read_mapping,
    read_number,
    read_sequence,
    read_string,
    refuse_unknown,
    required,
    shown,
)
from sirocco.model.objects import FIXED_MEMBERS
from sirocco.model.query.kinds import (
    ENDED,
    EVENTS,
    HALF_LIFE_MS,
    MODES,
    RANKED_STEP_MS,
    Event,
    KnnQuery,
    Mode,
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    Weights,
)
from sirocco.model.text import is_pair, terms_of

_COMMON = frozenset({"id", "kind", "mode", "where", "ttl", "window", "events"})
_MEMBERS = {
    "range": _COMMON | {"region", "text", "fold", "highlight", "track", "dwell", "leave_after"},
    "knn": _COMMON | {"point", "k", "text", "fold", "highlight"},
    "terms": _COMMON | {"region", "text", "fold", "k", "step"},
    "ranked": _COMMON
    | {"point", "radius_m", "k", "keywords", "weights", "half_life", "step", "highlight"},
}
_KINDS = tuple(_MEMBERS)
_WEIGHTS = ("text", "space", "time")


def parse_query(value: object, *, limits: Limits = DEFAULT_LIMITS) -> Query:
    """Reads a query from its JSON members.

    Raises:
        InvalidArgument: A member is unknown, missing, of the wrong type or out of range; `field`
            is its path.
    """
    members = read_mapping(value, "query")
    kind = read_choice(required(members, "kind", "kind"), "kind", _KINDS)
    refuse_unknown(members, _MEMBERS[kind])
    reader = _Reader(members, limits)
    if kind == "range":
        return reader.range()
    if kind == "knn":
        return reader.knn()
    return reader.terms() if kind == "terms" else reader.ranked()


class _Reader:
    """Reads the members of one query."""

    def __init__(self, members: Mapping[str, Any], limits: Limits) -> None:
        self._members = members
        self._limits = limits
        self._id = read_string(required(members, "id", "id"), "id", bytes_max=limits.id_bytes)
        mode = read_choice(required(members, "mode", "mode"), "mode", MODES)
        self._mode: Mode = "continuous" if mode == "continuous" else "snapshot"

    def range(self) -> RangeQuery:
        track, events = self._track()
        return RangeQuery(
            id=self._id,
            mode=self._mode,
            region=self._region(),
            expression=self._expression(),
            where=self._where(),
            ttl_ms=self._ttl_ms(),
            window_ms=self._duration_ms("window"),
            track=track,
            events=events,
            highlight=self._highlight(),
            dwell_ms=self._wait_ms("dwell"),
            leave_after_ms=self._wait_ms("leave_after"),
        )

    def knn(self) -> KnnQuery:
        if self._mode == "continuous":
            self._refuse("window", "objects of a continuous knn query do not expire")
        lon, lat = self._point()
        return KnnQuery(
            id=self._id,
            mode=self._mode,
            lon=lon,
            lat=lat,
            k=self._k(),
            expression=self._expression(),
            where=self._where(),
            ttl_ms=self._ttl_ms(),
            window_ms=self._duration_ms("window"),
            events=self._own_events(),
            highlight=self._highlight(),
        )

    def terms(self) -> TermsQuery:
        window_ms = self._duration_ms("window")
        step_ms = self._step_ms(window_ms)
        if self._mode == "continuous" and step_ms is None:
            raise InvalidArgument("is missing", field="step")
        return TermsQuery(
            id=self._id,
            mode=self._mode,
            k=self._k(),
            region=self._region(),
            expression=self._expression(),
            where=self._where(),
            ttl_ms=self._ttl_ms(),
            window_ms=window_ms,
            step_ms=step_ms,
            events=self._own_events(),
        )

    def ranked(self) -> RankedQuery:
        lon, lat = self._point()
        radius_m = parse_radius_m(self._members)
        if radius_m == 0:
            raise InvalidArgument("must be more than 0: the score divides by it", field="radius_m")
        window_ms = self._duration_ms("window")
        step_ms = self._step_ms(window_ms, default_ms=RANKED_STEP_MS)
        half_life_ms = self._duration_ms("half_life", least_ms=1)
        return RankedQuery(
            id=self._id,
            mode=self._mode,
            lon=lon,
            lat=lat,
            radius_m=radius_m,
            k=self._k(),
            keywords=self._keywords(),
            weights=self._weights(),
            half_life_ms=HALF_LIFE_MS if half_life_ms is None else half_life_ms,
            where=self._where(),
            ttl_ms=self._ttl_ms(),
            window_ms=window_ms,
            step_ms=step_ms,
            events=self._own_events(),
            highlight=self._highlight(of="keywords"),
        )

    def _refuse(self, name: str, why: str) -> None:
        if name in self._members:
            raise InvalidArgument(why, field=name)

    def _duration_ms(self, name: str, *, least_ms: int = 0) -> int | None:
        if name not in self._members:
            return None
        duration_ms = parse_duration_ms(self._members[name], name, limits=self._limits)
        if duration_ms < least_ms:
            raise InvalidArgument("must be longer than nothing", field=name)
        return duration_ms

    def _ttl_ms(self) -> int | None:
        if self._mode == "snapshot":
            self._refuse("ttl", "a snapshot has no lifetime")
        return self._duration_ms("ttl", least_ms=1)

    def _step_ms(self, window_ms: int | None, default_ms: int | None = None) -> int | None:
        if self._mode == "snapshot":
            self._refuse("step", "a snapshot is evaluated once")
            return None
        step_ms = self._duration_ms("step", least_ms=1)
        step_ms = default_ms if step_ms is None else step_ms
        if step_ms == default_ms:
            # It may be longer than the window, because the client need not have given it.
            return step_ms
        if step_ms is not None and window_ms is not None and step_ms > window_ms:
            raise InvalidArgument(
                f"{format_duration(step_ms)} is longer than the window: objects between windows "
                "would never be looked at",
                field="step",
            )
        return step_ms

    def _region(self) -> Region | None:
        if "region" not in self._members:
            return None
        return parse_region(self._members["region"], limits=self._limits)

    def _expression(self) -> Expression | None:
        fold = read_flag(self._members.get("fold", False), "fold")
        if "text" not in self._members:
            if fold:
                raise InvalidArgument("needs `text`, whose accents are not to matter", field="fold")
            return None
        source = read_string(
            self._members["text"], "text", bytes_max=self._limits.expression_bytes, empty=True
        )
        return Expression.parse(source, "text", limits=self._limits, fold=fold)

    def _highlight(self, of: str = "text") -> bool:
        highlight = read_flag(self._members.get("highlight", False), "highlight")
        if highlight and of not in self._members:
            raise InvalidArgument(f"needs `{of}`, whose words are to be shown", field="highlight")
        if highlight and self._mode == "snapshot":
            self._refuse("highlight", "it is for notifications; `explain` shows the words, too")
        return highlight

    def _where(self) -> Filter | None:
        if "where" not in self._members:
            return None
        where = Filter.parse(self._members["where"], limits=self._limits)
        size = len(orjson.dumps(where.canonical()))
        if size > self._limits.where_bytes:
            raise InvalidArgument(
                f"has {size} bytes as JSON, the limit is {self._limits.where_bytes}", field="where"
            )
        return where if where.conditions else None

    def _k(self) -> int:
        value = required(self._members, "k", "k")
        return read_integer(value, "k", least=1, greatest=self._limits.k)

    def _point(self) -> tuple[float, float]:
        return parse_point(required(self._members, "point", "point"), "point")

    def _track(self) -> tuple[str | None, tuple[Event, ...]]:
        if self._mode == "snapshot":
            self._refuse("track", "only continuous queries follow a value")
        if "track" not in self._members:
            return None, self._own_events()
        track = read_string(self._members["track"], "track", bytes_max=self._limits.id_bytes)
        if track in FIXED_MEMBERS:
            raise InvalidArgument(
                f"{track} is no attribute of objects: no notification would ever be sent",
                field="track",
            )
        if "events" not in self._members:
            return track, ("enter", "exit")
        return track, self._events()

    def _wait_ms(self, name: str) -> int | None:
        if "track" not in self._members:
            self._refuse(name, "is for tracked values: it needs `track`")
        return self._duration_ms(name, least_ms=1)

    def _own_events(self) -> tuple[Event, ...]:
        """Returns the events of the query itself, without a tracked value."""
        if self._mode == "snapshot":
            self._refuse("events", "a snapshot is answered once")
        events = self._events() if "events" in self._members else ()
        if any(event != ENDED for event in events):
            raise InvalidArgument(
                f"{events[0]} is reported for tracked values: it needs `track`", field="events"
            )
        return events

    def _events(self) -> tuple[Event, ...]:
        listed = read_sequence(self._members["events"], "events")
        chosen = {read_choice(e, f"events[{i}]", EVENTS) for i, e in enumerate(listed)}
        if not chosen:
            raise InvalidArgument("must not be empty", field="events")
        return tuple(event for event in EVENTS if event in chosen)

    def _keywords(self) -> tuple[str, ...]:
        values = read_sequence(required(self._members, "keywords", "keywords"), "keywords")
        terms: set[str] = set()
        for i, value in enumerate(values[: self._limits.keywords + 1]):
            field = f"keywords[{i}]"
            word = read_string(value, field, bytes_max=self._limits.expression_bytes)
            found = [word] if self._limits.forgives_marks and is_pair(word) else terms_of(word)
            if not found:
                raise InvalidArgument(
                    f"{shown(value)} holds no letter, digit or emoji", field=field
                )
            terms.update(found)
        if not 1 <= len(terms) <= self._limits.keywords:
            raise InvalidArgument(
                f"{len(terms)} terms, must be 1 to {self._limits.keywords}", field="keywords"
            )
        return tuple(sorted(terms))

    def _weights(self) -> Weights:
        if "weights" not in self._members:
            return Weights()
        members = read_mapping(self._members["weights"], "weights")
        refuse_unknown(members, frozenset(_WEIGHTS), "weights.")
        text, space, time = (
            read_number(
                required(members, name, f"weights.{name}"), f"weights.{name}", least=0, greatest=1
            )
            for name in _WEIGHTS
        )
        # Scores are rounded to 1e-9, so a smaller deviation of the sum is not visible.
        if abs(text + space + time - 1) > 1e-9:
            raise InvalidArgument(f"sum to {text + space + time!r}, not to 1", field="weights")
        return Weights(text, space, time)
