"""Explains why an object satisfies a query or not, condition by condition.

The same functions decide about a condition as in matching (`contains`, `Conjunction.matches`,
`Condition.holds`). This module describes the result in words, and what would have to change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from sirocco.model.attributes import Condition, Filter, members_of
from sirocco.model.durations import format_duration
from sirocco.model.expression import Conjunction, Expression
from sirocco.model.folding.folded_terms import unmarked
from sirocco.model.geometry import Circle, Region, distance_m, round_mm
from sirocco.model.hints.places import Place, keyword_places, matched_places
from sirocco.model.objects import ObjectRow
from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery
from sirocco.model.region_distance import metres_outside
from sirocco.model.text import terms_of, tokens_of

_SIGNS = {"eq": "=", "gte": "≥", "gt": ">", "lte": "≤", "lt": "<", "in": "in"}


@dataclass(frozen=True, slots=True)
class Reason:
    """One condition of a query, and whether an object satisfies it.

    Attributes:
        name: `region`, `text`, `keywords`, `where`, `track`, `lifetime` or `window`.
        holds: Whether the object satisfies it.
        why: In words.
        details: The same for programs.
    """

    name: str
    holds: bool
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a query for an object.

    Attributes:
        outcome: `match`, `inside` (of a query that tracks a value), `candidate` (of a list),
            `counted` (its terms) or `no match`.
        reasons: All conditions that the query has.
        depends_on: Other things on which notifications depend; empty if none.
    """

    outcome: str
    reasons: tuple[Reason, ...]
    depends_on: str = ""

    @property
    def holds(self) -> bool:
        """Whether all conditions hold."""
        return all(reason.holds for reason in self.reasons)


def explain(
    query: Query,
    one: ObjectRow,
    *,
    arrival_ms: int,
    start_ms: int | None,
    is_start_given: bool = True,
) -> Verdict:
    """Evaluates a query for an object.

    Args:
        query: Of any kind.
        one: A valid object.
        arrival_ms: When it arrives, epoch ms.
        start_ms: When the lifetime of a continuous query began, None if it is not registered; for a
            snapshot the time of the search, None for the time of the arrival.
        is_start_given: Whether the registration named `start_ms`. Otherwise it is when a router
            received the registration, by its clock.
    """
    terms = terms_of(one.text)
    reasons = _place_reasons(query, one) + _text_reasons(query, one.text, terms)
    attributes = members_of(one.attributes)
    if query.where is not None:
        reasons.append(_where_reason(query.where, attributes))
    if isinstance(query, RangeQuery) and query.track is not None:
        reasons.append(_track_reason(query.track, attributes))
    if query.mode == "snapshot":
        reasons.append(_window_reason(query.window_ms, arrival_ms, start_ms))
    else:
        is_exact = is_start_given or isinstance(query, TermsQuery | RankedQuery)
        reasons.append(_lifetime_reason(query.ttl_ms, arrival_ms, start_ms, is_exact=is_exact))
    holds = all(reason.holds for reason in reasons)
    return Verdict(
        _outcome(query) if holds else "no match",
        tuple(reasons),
        _depends_on(query, one, set(terms), holds=holds),
    )


def _outcome(query: Query) -> str:
    match query:
        case RangeQuery():
            return "match" if query.track is None else "inside"
        case TermsQuery():
            return "counted"
        case KnnQuery() | RankedQuery():
            return "candidate"


# --- where


def _place_reasons(query: Query, one: ObjectRow) -> list[Reason]:
    match query:
        case KnnQuery():
            # The nearest may be anywhere: there is no condition.
            return []
        case RankedQuery():
            return [_region_reason(Circle(query.lon, query.lat, query.radius_m), one)]
        case RangeQuery() | TermsQuery():
            return [] if query.region is None else [_region_reason(query.region, one)]


def _region_reason(region: Region, one: ObjectRow) -> Reason:
    holds = bool(region.contains(np.array([one.lon]), np.array([one.lat]))[0])
    details: dict[str, Any] = {}
    why = "inside"
    if isinstance(region, Circle):
        distance = _distance_m(region.lon, region.lat, one)
        details["distance_m"] = distance
        why = f"{metres(distance)} from the centre, the radius is {metres(region.radius_m)}"
    if not holds:
        details["outside_m"] = metres_outside(region, one.lon, one.lat)
        outside = f"{metres(details['outside_m'])} outside"
        why = f"{outside}: {why}" if isinstance(region, Circle) else outside
    return Reason("region", holds, why, details)


def _distance_m(lon: float, lat: float, one: ObjectRow) -> float:
    return float(round_mm(distance_m(lon, lat, one.lon, one.lat)))


def metres(value: float) -> str:
    """Returns metres in readable form; small values include the millimetres that decide."""
    return f"{value:,.3f} m" if value < 100 else f"{value:,.0f} m"


# --- text


def _text_reasons(query: Query, text: str, terms: list[str]) -> list[Reason]:
    if isinstance(query, RankedQuery):
        return [_keywords_reason(query.keywords, text, terms)]
    return [] if query.expression is None else [_expression_reason(query.expression, text)]


def _expression_reason(expression: Expression, text: str) -> Reason:
    tokens = tokens_of(text)
    present = expression.present_in(text)
    verdicts = [_verdict(one, present) for one in expression.conjunctions]
    holds = any(one["holds"] for one in verdicts)
    details = {
        "terms": sorted(set(tokens)),
        "conjunctions": verdicts,
        "places": _places(matched_places(expression, text)),
    }
    if holds:
        why = next(words_of(one) for one in verdicts if one["holds"])
        return Reason("text", True, f"holds {why}", details)
    if len(verdicts) == 1:
        return Reason("text", False, _lack_of(verdicts[0]), details)
    return Reason("text", False, f"none of the {len(verdicts)} alternatives holds", details)


def _places(places: list[Place]) -> list[dict[str, Any]]:
    return [{"term": one.term, "start": one.start, "end": one.end} for one in places]


def _verdict(one: Conjunction, present: frozenset[str]) -> dict[str, Any]:
    return {
        "required": [unmarked(term) for term in one.positive],
        "forbidden": [unmarked(term) for term in one.negative],
        "missing": [unmarked(term) for term in one.positive if term not in present],
        "unwanted": [unmarked(term) for term in one.negative if term in present],
        "holds": one.matches(present),
    }


def words_of(conjunction: Mapping[str, Any]) -> str:
    """Returns an alternative of an expression in expression syntax."""
    forbidden = [f"NOT {term}" for term in conjunction["forbidden"]]
    return " AND ".join([*conjunction["required"], *forbidden])


def _lack_of(verdicts: Mapping[str, Any]) -> str:
    lacks = [f"lacks {', '.join(verdicts['missing'])}"] if verdicts["missing"] else []
    if verdicts["unwanted"]:
        lacks.append(f"has {', '.join(verdicts['unwanted'])}, which is forbidden")
    return " and ".join(lacks)


def alternative_words(verdicts: Mapping[str, Any]) -> str:
    """Describes how an object's terms satisfy an alternative, given as in `details`."""
    return f"{words_of(verdicts)}: {'holds' if verdicts['holds'] else _lack_of(verdicts)}"


def _keywords_reason(keywords: tuple[str, ...], text: str, terms: list[str]) -> Reason:
    present = set(terms)
    held = [keyword for keyword in keywords if keyword in present]
    details = {
        "terms": sorted(present),
        "held": held,
        "keywords": list(keywords),
        "places": _places(keyword_places(keywords, text)),
    }
    why = f"holds {', '.join(held)}" if held else f"holds none of {', '.join(keywords)}"
    return Reason("keywords", bool(held), why, details)


# --- attributes


def _where_reason(where: Filter, attributes: Mapping[str, Any]) -> Reason:
    failed = [
        {
            "attribute": one.attribute,
            "comparison": one.comparison,
            "value": attributes.get(one.attribute),
            "why": _failure(one, attributes),
        }
        for one in where.conditions
        if not one.holds(attributes.get(one.attribute))
    ]
    holds = where.matches(attributes)
    count = len(where.conditions)
    summary = "its condition holds" if count == 1 else f"all {count} conditions hold"
    why = summary if holds else "; ".join(str(one["why"]) for one in failed)
    return Reason("where", holds, why, {"failed": failed})


def _failure(one: Condition, attributes: Mapping[str, Any]) -> str:
    values = [operand.value for operand in one.operands]
    operand = values if one.comparison == "in" else values[0]
    required = f"{_SIGNS[one.comparison]} {json.dumps(operand, ensure_ascii=False)}"
    value = attributes.get(one.attribute)
    if value is None:
        is_null = one.attribute in attributes
        problem = "is null, which counts as missing" if is_null else "is missing"
        return f"{one.attribute} {problem}, required {required:.80}"
    if isinstance(value, dict | list):
        return f"{one.attribute} is no number, string or boolean, required {required:.80}"
    return f"{one.attribute} is {_shown(value)}, required {required:.80}"


def _shown(value: object) -> str:
    return f"{json.dumps(value, ensure_ascii=False):.80}"


def _track_reason(track: str, attributes: Mapping[str, Any]) -> Reason:
    value = attributes.get(track)
    holds = _is_trackable(value)
    why = f"{track} is {_shown(value)}" if holds else f"has no {track} to track it by"
    return Reason("track", holds, why, {"attribute": track, "value": value if holds else None})


def _is_trackable(value: object) -> bool:
    """Whether a value is one that several objects can share."""
    return isinstance(value, str | int | float)


# --- time


def _lifetime_reason(
    ttl_ms: int | None, arrival_ms: int, start_ms: int | None, *, is_exact: bool
) -> Reason:
    details: dict[str, Any] = {"arrival_ms": arrival_ms, "start_ms": start_ms}
    if start_ms is None:
        return Reason("lifetime", True, "would begin with its registration", details)
    if ttl_ms is not None:
        details["end_ms"] = start_ms + ttl_ms
    if arrival_ms < start_ms:
        why = (
            f"arrives at {moment(arrival_ms)}, the query begins at {moment(start_ms)}: "
            "it matches only if the registration asks for past matches"
        )
        if not is_exact:
            # Arrivals follow the clock of another router, or the objects' own times.
            why += ", or if it was published after the registration all the same"
        return Reason("lifetime", False, why, details)
    if ttl_ms is not None and arrival_ms >= start_ms + ttl_ms:
        why = f"arrives at {moment(arrival_ms)}, the query ends at {moment(start_ms + ttl_ms)}"
        return Reason("lifetime", False, why, details)
    until = "without end" if ttl_ms is None else f"until {moment(start_ms + ttl_ms)}"
    return Reason("lifetime", True, f"since {moment(start_ms)}, {until}", details)


def _window_reason(window_ms: int | None, arrival_ms: int, search_ms: int | None) -> Reason:
    now_ms = arrival_ms if search_ms is None else search_ms
    details: dict[str, Any] = {"arrival_ms": arrival_ms, "now_ms": now_ms}
    if arrival_ms > now_ms:
        return Reason(
            "window", False, f"arrives after {moment(now_ms)}, the time of the search", details
        )
    if window_ms is None:
        return Reason("window", True, "of any age", details)
    holds = arrival_ms >= now_ms - window_ms
    relation = "not older than" if holds else "older than"
    return Reason("window", holds, f"{relation} {format_duration(window_ms)}", details)


def moment(at_ms: int) -> str:
    """Returns a time as UTC text; times outside the calendar as their number."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return at.isoformat(timespec="seconds" if at_ms % 1000 == 0 else "milliseconds")


# --- what the outcome depends on


def _depends_on(query: Query, one: ObjectRow, terms: set[str], *, holds: bool) -> str:
    match query:
        case RangeQuery():
            return "" if query.track is None else _tracked_events(query, one, holds=holds)
        case _ if not holds:
            return ""
        case KnnQuery():
            distance = metres(_distance_m(query.lon, query.lat, one))
            return f"{distance} away: in the list while fewer than {query.k} are nearer"
        case TermsQuery():
            return (
                f"each of its {len(terms)} terms counts once; "
                f"whether one is among the {query.k} depends on the other objects"
            )
        case RankedQuery():
            space = 1 - _distance_m(query.lon, query.lat, one) / query.radius_m
            return (
                f"the part of space is {space:.3f}, that of time 1 on arrival; that of the text, "
                f"and whether it is among the {query.k}, depends on the other objects"
            )


def _tracked_events(query: RangeQuery, one: ObjectRow, *, holds: bool) -> str:
    if query.track is None or not _is_trackable(members_of(one.attributes).get(query.track)):
        return "it is not reported"
    if holds:
        dwelt = (
            "" if query.dwell_ms is None else f" and stays for {format_duration(query.dwell_ms)}"
        )
        texts = {
            "enter": f"enter if the value was not inside before{dwelt}",
            "inside": "inside in any other case" if "enter" in query.events else "inside",
        }
    else:
        left = query.leave_after_ms
        stays = "" if left is None else f" and none is for {format_duration(left)}"
        texts = {"exit": f"exit if an object with the same {query.track} was inside before{stays}"}
    reported = [text for event, text in texts.items() if event in query.events]
    return "reported as " + "; ".join(reported) if reported else "it is not reported"
