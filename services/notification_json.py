"""Notifications as JSON, in the one form that leaves the cluster by HTTP and by sinks.

Ids are strings: numbers end at 2^53 in browsers and in many readers of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from sirocco_client import (
    Ended,
    KnnChange,
    ListChange,
    NotificationBatch,
    Object,
    RankedChange,
    TermsStep,
)
from sirocco_client.objects.columns import MISSING_TS


def texts(ids: Iterable[int | str]) -> list[str]:
    """Returns ids as strings."""
    return [str(one) for one in ids]


def notifications_of(batch: NotificationBatch) -> Iterator[bytes]:
    """Yields the JSON of each notification. An object is written once however many it matches."""
    heads = [b'{"query":%s,"object":' % orjson.dumps(one) for one in batch.query_ids]
    objects = _objects_of(batch)
    if batch.is_plain:
        for query, row in zip(batch.match_queries, batch.match_objects, strict=True):
            yield b"%s%s}" % (heads[query], objects[row])
        return
    changes, tracks = batch.match_changes, batch.match_tracks
    shown = batch.match_highlights
    for i, (query, row) in enumerate(zip(batch.match_queries, batch.match_objects, strict=True)):
        more = b""
        if changes[i] != "match":
            event, track = orjson.dumps(changes[i]), orjson.dumps(tracks[i])
            more = b',"event":%s,"track":%s' % (event, track)
        if i in shown:
            more += b',"highlights":%s' % orjson.dumps(shown[i])
        yield b"%s%s%s}" % (heads[query], objects[row], more)
    for change in batch.lists:
        yield orjson.dumps(change_members(change))


def _objects_of(batch: NotificationBatch) -> list[bytes]:
    """Returns the JSON of each object, from the columns: a value of each would cost more."""
    found = []
    columns = (batch.object_ids, batch.lon, batch.lat, batch.ts_ms, batch.texts)
    rows = zip(*columns, batch.attributes_json, strict=True)
    for one, lon, lat, ts, text, attributes in rows:
        members: dict[str, Any] = {"id": str(one), "lon": lon, "lat": lat}
        if ts != MISSING_TS:
            members["ts"] = ts
        if text:
            members["text"] = text
        data = orjson.dumps(members)
        # Attributes are the JSON of an object, without members of these names.
        if len(attributes) > 2:
            data = b"%s,%s" % (data[:-1], attributes.encode()[1:])
        found.append(data)
    return found


def change_members(change: ListChange) -> dict[str, Any]:
    """Returns the line of OUT for a changed list, a step or an end."""
    members: dict[str, Any] = {"query": change.query}
    if isinstance(change, Ended):
        return members | {"event": "ended", "reason": change.reason}
    if isinstance(change, KnnChange):
        members |= {
            "added": texts(one.id for one in change.added),
            "removed": texts(change.removed),
        }
        return members | _entries(change.entries, "distance_m") | _shown(change, change.added)
    if change.is_partial:
        members["partial"] = True
    if isinstance(change, TermsStep):
        return members | {"terms": [list(pair) for pair in change.terms], "at": change.at_ms}
    members |= _entries(change.entries, "score") | {"at": change.at_ms}
    return members | _shown(change, change.new)


def _shown(change: KnnChange | RankedChange, new: Iterable[Object]) -> dict[str, Any]:
    """Returns the places of words in the objects that are new in a list."""
    places = [
        {"object": str(one.id), "term": each.term, "start": each.start, "end": each.end}
        for one, shown in zip(new, change.highlights, strict=False)
        for each in shown
    ]
    return {"highlights": places} if places else {}


def _entries(entries: Iterable[tuple[int | str, float]], figure: str) -> dict[str, Any]:
    found = list(entries)
    return {"objects": texts(one for one, _ in found), figure: [value for _, value in found]}
