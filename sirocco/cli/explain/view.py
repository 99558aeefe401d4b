"""The readable output of `sirocco explain`, from the members that `--json` prints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sirocco.model.durations import format_duration
from sirocco.model.explanation import alternative_words, metres, moment, words_of

_NAME_WIDTH = 14

# Longer lists of leaves or slots help no reader; --json prints all of them.
_NUMBERS_SHOWN = 12
# The same for alternatives of a text.
_ALTERNATIVES_SHOWN = 16

_OUTCOMES = {
    "match": "matches",
    "inside": "inside",
    "candidate": "a candidate",
    "counted": "counted",
    "no match": "no match",
}


def lines_of(members: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines."""
    for name, texts in _rows(members):
        for number, text in enumerate(texts):
            yield f"{name if number == 0 else '':{_NAME_WIDTH}}{text}".rstrip()


def _rows(members: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "query", [_head(members)]
    if members["warnings"]:
        yield "warning", members["warnings"]
    yield "lifetime", [_lifetime(members)]
    yield "text", list(_text(members["text"]))
    yield "region", list(_region(members))
    if "where" in members["query"]:
        yield "where", [_where(members["query"]["where"])]
    yield from _place_rows(members["places"])
    yield "load", list(_load(members["load"]))
    yield "costs", list(_cost(members))
    yield "matched", [_matched(members["matched"])]
    if "object" in members:
        yield from _object_rows(members["object"])


# --- the query


def _head(members: Mapping[str, Any]) -> str:
    query = members["query"]
    parts = [query["kind"], query["mode"]]
    if "k" in query:
        parts.append(f"k {query['k']}")
    if "track" in query:
        parts.append(f"follows {query['track']} ({', '.join(query['events'])})")
    if members["subscriber"]:
        parts.append(f"for {members['subscriber']}")
    known = members["revision"] is not None
    parts.append(f"revision {members['revision']}" if known else "not registered")
    return f"{query['id']}: {', '.join(parts)}"


def _lifetime(members: Mapping[str, Any]) -> str:
    query = members["query"]
    parts = []
    if query["mode"] == "snapshot":
        parts.append("searched once")
    elif members["start_ms"] is None:
        parts.append(f"{query.get('ttl', 'without end')} from its registration")
    else:
        end_ms = members["end_ms"]
        until = "without end" if end_ms is None else f"until {moment(end_ms)}"
        parts.append(f"since {moment(members['start_ms'])}, {until}")
    parts += [f"{name} {query[name]}" for name in ("window", "step", "half_life") if name in query]
    return ", ".join(parts)


def _text(text: Mapping[str, Any]) -> Iterator[str]:
    if "keywords" in text:
        yield f"one of {', '.join(text['keywords'])}"
    elif not text["conjunctions"]:
        yield "any"
    yield from _shortened(_alternatives(text), len(text.get("conjunctions", ())))
    if "index" in text:
        yield text["index"]


def _alternatives(text: Mapping[str, Any]) -> Iterator[str]:
    for number, one in enumerate(text.get("conjunctions", ())):
        texts = f"{'or ' if number else ''}{words_of(one)}"
        if "index" in text:
            yield texts
        elif one["keyword"] is None:
            yield f"{texts}   [indexed under its least frequent word, by each slot's counts]"
        else:
            yield f"{texts}   [indexed under {one['keyword']}]"


def _shortened(lines: Iterable[str], count: int) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number < _ALTERNATIVES_SHOWN:
            yield line
    if count > _ALTERNATIVES_SHOWN:
        yield f"and {count - _ALTERNATIVES_SHOWN} more"


def _region(members: Mapping[str, Any]) -> Iterator[str]:
    region, query = members["region"], members["query"]
    if region is None:
        if "point" in query:
            yield f"around {_point(query['point'])}, however far"
        else:
            yield "the whole world"
        return
    if "circle" in region:
        circle = region["circle"]
        yield f"circle of {metres(circle['radius_m'])} around {_point(circle)}"
    elif "polygon" in region:
        vertices = sum(map(len, region["polygon"]))
        yield f"polygon of {vertices} vertices in {_count(len(region['polygon']), 'ring')}"
    else:
        yield "rectangle"
    for box in region["boxes"]:
        # A meridian under its other name is not a separate place.
        if box["west"] < box["east"] or len(region["boxes"]) == 1:
            sides = (f"{side} {box[side]:.5f}" for side in ("west", "south", "east", "north"))
            yield f"box {', '.join(sides)}"
    if region["crosses_antimeridian"]:
        yield "on both sides of the antimeridian"


def _point(members: Mapping[str, Any]) -> str:
    return f"{members['lon']:.5f},{members['lat']:.5f}"


def _where(where: Mapping[str, Any]) -> str:
    return json.dumps(where, ensure_ascii=False)


# --- the cluster


def _place_rows(places: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    if "unknown" in places:
        yield "leaves", [f"not known: {places['unknown']}"]
        return
    change = f", a change is {places['map_change']}" if places["map_change"] else ""
    yield "map", [f"version {places['map_version']} ({places['scheme']}){change}"]
    yield "leaves", [_of(places["leaves"], places["leaf_count"])]
    slots = [one["slot"] for one in places["slots"]]
    texts = [_of(slots, places["slot_count"])]
    owners: dict[str, list[int]] = {}
    for one in places["slots"]:
        owners.setdefault(one["owner"] or "nobody", []).append(one["slot"])
    texts += [f"{owner} owns {_numbers(held)}" for owner, held in sorted(owners.items())]
    if places["why"]:
        texts.append(places["why"])
    yield "slots", texts


def _of(numbers: list[int], count: int) -> str:
    if len(numbers) == count:
        return f"all {count}"
    return f"{len(numbers)} of {count}" + (f": {_numbers(numbers)}" if numbers else "")


def _numbers(numbers: list[int]) -> str:
    shown = " ".join(map(str, numbers[:_NUMBERS_SHOWN]))
    return f"{shown} …" if len(numbers) > _NUMBERS_SHOWN else shown


def _load(load: Mapping[str, Any]) -> Iterator[str]:
    if load.get("leaves_share") is not None:
        yield (
            f"to its leaves {load['leaves_share']:.1%} of the {load['router_objects']:,} objects "
            "that the answering router has sent to leaves"
        )
    if "slots_objects_per_s" in load:
        share = load["slots_share"]
        part = "" if share is None else f", {share:.1%} of all,"
        yield (
            f"to its slots {load['slots_objects_per_s']:,.1f} objects/s{part} in the last round "
            f"of {load['round_ms'] / 1_000:.0f} s"
        )
    if "leaves_objects_per_s" in load:
        yield f"to its leaves {load['leaves_objects_per_s']:,.1f} objects/s in the same round"
    if "unknown" in load:
        yield f"objects/s not known: {load['unknown']}"


def _cost(members: Mapping[str, Any]) -> Iterator[str]:
    cost = members["cost"]
    if "slots_asked" in cost:
        yield f"{_count(cost['slots_asked'], 'slot')} searched, once"
    elif "leaf_copies" not in cost:
        yield "not known"
    else:
        leaves = _count(cost["leaf_copies"], "leaf", "leaves")
        yield f"{_count(cost['slot_copies'], 'copy', 'copies')}, one for each slot, for {leaves}"
        yield _forwarded(cost["keywords_forwarded"], has_store=cost["has_store"])


def _forwarded(keywords: list[str] | None, *, has_store: bool | None) -> str:
    if has_store:
        return "objects are stored, so routers send all of them anyway"
    objects = "every object of its slots"
    if keywords is not None:
        shown = ", ".join(keywords[:_NUMBERS_SHOWN])
        more = len(keywords) - _NUMBERS_SHOWN
        others = f" and {more} more" if more > 0 else ""
        objects = f"objects of its slots with {shown}{others}"
    if has_store is None:
        return f"where nothing is stored, routers send {objects} for it"
    return f"routers send {objects} for it"


def _matched(matched: Mapping[str, Any]) -> str:
    window = format_duration(matched["window_ms"])
    if matched["count"] is None:
        return f"not known: {matched['unknown']}"
    more = "at least " if matched["is_more"] else ""
    objects = _count(matched["count"], "object")
    return f"{more}{objects} of the last {window}, by its conditions"


def _count(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


# --- the object


def _object_rows(one: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "", [""]
    at = f"{_point(one)}, arrives at {moment(one['arrival_ms'])}"
    yield "object", [f"{one['id']} at {at}"]
    if "goes_to" in one:
        yield "sent to", [_destination(one["goes_to"])]
    for each in one["conditions"]:
        texts = [f"{'yes' if each['holds'] else 'NO':<5}{each['why']}"]
        alternatives = each.get("conjunctions", ())
        if len(alternatives) > 1:
            shown = (f"     {alternative_words(one)}" for one in alternatives)
            texts += _shortened(shown, len(alternatives))
        texts += _found_places(each.get("places", ()))
        yield each["name"], texts
    failed = [each["name"] for each in one["conditions"] if not each["holds"]]
    because = f", because of {' and '.join(failed)}" if failed else ""
    yield "outcome", [f"{_OUTCOMES[one['outcome']]}{because}"]
    if one["depends_on"]:
        yield "", [one["depends_on"]]


def _found_places(places: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns where the words stand, which are the characters from `start` to before `end`."""
    if not places:
        return []
    shown = [f"{one['term']} at {one['start']}" for one in places[:_NUMBERS_SHOWN]]
    more = len(places) - len(shown)
    return [f"     {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"]


def _destination(places: Mapping[str, Any]) -> str:
    parts = []
    for sure, other, noun in (("leaves", "or_leaves", "leaf"), ("slots", "or_slots", "slot")):
        texts = [f"{noun} {_numbers(places[sure])}"] if places[sure] else []
        if places[other]:
            # Its home may be one of its other slots.
            perhaps = "perhaps " if texts else ""
            texts.append(f"{perhaps}one of {noun} {_numbers(places[other])}")
        parts.append(" and ".join(texts))
    there = {
        True: "the query is there",
        False: "the query is NOT there",
        None: "whether the query is there depends on which, by the object's event key",
    }
    return f"{', '.join(part for part in parts if part)}: {there[places['query_is_there']]}"
