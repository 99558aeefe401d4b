"""Responses of the receive stream → notifications, columns first.

A column is decoded at its first use: a caller that only reads pairs of ids never pays for texts.
Matches of range queries are columns; lists of other queries are values (`told_lists`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeAlias, TypeVar

from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco_client.errors import Internal
from sirocco_client.notifications.highlights import (
    Highlight,
    check_highlights,
    read_highlights,
)
from sirocco_client.notifications.list_changes import ListChange, check_lists, read_lists
from sirocco_client.objects.object import Object
from sirocco_client.objects.object_rows import ObjectRows, strings_of

_Value = TypeVar("_Value")

Change: TypeAlias = Literal["match", "enter", "inside", "exit"]

# Changes by their numbers on the wire.
_CHANGES: tuple[Change, ...] = ("match", "enter", "inside", "exit")


@dataclass(frozen=True, slots=True)
class Notification:
    """One match: an object satisfies a query.

    Attributes:
        query: Id of the query.
        object: The object that matched.
        cursor: Where to resume so that nothing after this notification is missed. Matches are sent
            in batches, and only the last one of a batch has the cursor of the batch's end. Resuming
            from another repeats the batch from its beginning; `event` identifies repeats.
        event: (session, number) of the object's publication; with `query` it is unique.
        arrival_ms: When the object arrived, epoch ms.
        highlights: Places of the words that matched, in order, if the query asks for them
            (`RangeQuery.highlight`).
    """

    query: str
    object: Object
    cursor: str
    event: tuple[int, int]
    arrival_ms: int
    highlights: tuple[Highlight, ...] = ()

    @property
    def change(self) -> Change:
        """Relation of the object to the query; only a tracking query has others than "match"."""
        return "match"

    @property
    def track(self) -> Any:
        """The object's value of the tracked attribute; None if the query tracks none."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedNotification(Notification):
    """A tracked value has entered, stays inside, or has left the query's region.

    Attributes:
        change: "enter", "inside" or "exit".
        track: The tracked value, as in the object.
    """

    change: Change
    track: Any


Delivery: TypeAlias = Notification | ListChange


class NotificationBatch(ObjectRows):
    """The content of one message: m matches of n objects and q queries, and lists.

    Attributes:
        cursor: Where to resume after this batch, without gaps or repeats.
        begin_cursor: Where to resume to receive this batch again.
    """

    def __init__(self, response: ReceiveResponse, begin_cursor: str) -> None:
        """Checks that the columns fit together.

        Raises:
            Internal: They do not fit.
        """
        super().__init__(response.objects, response.events)
        self._response = response
        self.cursor: str = response.cursor
        self.begin_cursor = begin_cursor
        matches = response.matches
        fits = (
            len(matches.objects) == len(matches.queries)
            and len(matches.objects) % 4 == 0
            and len(response.queries.handles) % 8 == 0
            and len(matches.changes) in (0, len(matches.objects) // 4)
        )
        events = response.events
        columns = {len(each) for each in (events.sessions, events.numbers, events.arrivals_ms)}
        # Lists need none of objects that arrived long ago.
        fits &= columns <= {8 * response.objects.count} or (columns == {0} and not matches.objects)
        if not fits:
            raise Internal("columns of a response do not fit together")
        # Few responses have any, and a response is often a single match.
        self._has_highlights = response.HasField("highlights")
        if self._has_highlights:
            check_highlights(response.highlights)
        if response.HasField("list_highlights"):
            check_highlights(response.list_highlights)
        self._list_count = 0
        if response.HasField("lists"):
            check_lists(response.lists)
            self._list_count = len(response.lists.queries) // 4

    def __repr__(self) -> str:
        """Shows the size and the end position."""
        matches = len(self._response.matches.objects) // 4
        return (
            f"<NotificationBatch of {matches} matches and {self._list_count} lists, "
            f"cursor {self.cursor!r}>"
        )

    def __len__(self) -> int:
        """Number of matches and lists."""
        return len(self._response.matches.objects) // 4 + self._list_count

    @property
    def is_plain(self) -> bool:
        """Whether it holds matches alone: no changes of tracked values, highlights or lists."""
        shown = self._has_highlights or self._list_count
        return not shown and not self._response.matches.changes

    @property
    def message_bytes(self) -> int:
        """Size of the message."""
        return int(self._response.ByteSize())

    @property
    def match_objects(self) -> memoryview:
        """u4[m], row of each match's object."""
        return memoryview(self._response.matches.objects).cast("I")

    @property
    def match_queries(self) -> memoryview:
        """u4[m], row of each match's query."""
        return memoryview(self._response.matches.queries).cast("I")

    @cached_property
    def match_changes(self) -> list[Change]:
        """The change of each match."""
        matches = self._response.matches
        if not matches.changes:
            return ["match"] * (len(matches.objects) // 4)
        if max(matches.changes) >= len(_CHANGES):
            raise Internal("a match is of an unknown kind")
        return [_CHANGES[change] for change in matches.changes]

    @cached_property
    def match_tracks(self) -> list[Any]:
        """For each match the tracked value, as in the object; None without tracking."""
        matches = self._response.matches
        if not matches.changes:
            return [None] * (len(matches.objects) // 4)
        try:
            keys = [json.loads(spec).get("track") if spec else None for spec in self._specs]
        except (ValueError, AttributeError):
            raise Internal("a query of a response is damaged") from None
        rows = zip(
            _picked(self.objects, self.match_objects),
            _picked(keys, self.match_queries),
            strict=True,
        )
        return [None if key is None else one.attributes.get(key) for one, key in rows]

    @cached_property
    def match_highlights(self) -> dict[int, tuple[Highlight, ...]]:
        """Places of words by match, for the queries that ask for them."""
        return read_highlights(self._response.highlights)

    @cached_property
    def lists(self) -> list[ListChange]:
        """Reports other than matches; those of one query are in order."""
        if not self._list_count:
            return []
        cursors = [self.begin_cursor] * (self._list_count - 1) + [self.cursor]
        lists = self._response.lists
        try:
            shown = read_highlights(self._response.list_highlights)
            return read_lists(lists, self.query_ids, self._specs, self.objects, cursors, shown)
        except (IndexError, ValueError, AttributeError):
            raise Internal("rows of lists do not fit together") from None

    @property
    def _specs(self) -> Sequence[str]:
        """JSON form of each query, empty for plain range queries and for knn lists as a rule."""
        return self._response.queries.specs or [""] * len(self.query_ids)

    @cached_property
    def query_ids(self) -> list[str]:
        """Ids of the q queries."""
        names = self._response.queries
        return strings_of(names.ids, names.id_offsets, len(names.handles) // 8)

    def pairs(self) -> Iterator[tuple[str, int | str]]:
        """Yields (query id, object id) of every match; the fastest way to read them."""
        return zip(
            _picked(self.query_ids, self.match_queries),
            _picked(self.object_ids, self.match_objects),
            strict=True,
        )

    def __iter__(self) -> Iterator[Delivery]:
        """Yields every match and every list as a separate value."""
        matches = self._changes() if self._response.matches.changes else self._matches()
        return chain(matches, self.lists) if self._list_count else matches

    def _matches(self) -> Iterator[Notification]:
        events = list(zip(self.sessions, self.numbers, strict=True))
        last = len(self) - 1
        shown = self.match_highlights if self._has_highlights else None
        found = zip(
            _picked(self.query_ids, self.match_queries),
            _picked(self.objects, self.match_objects),
            _picked(events, self.match_objects),
            _picked(self.arrivals_ms, self.match_objects),
            strict=True,
        )
        for i, (query, one, event, arrival_ms) in enumerate(found):
            cursor = self.cursor if i == last else self.begin_cursor
            highlights = shown.get(i, ()) if shown else ()
            yield Notification(query, one, cursor, event, arrival_ms, highlights)

    def _changes(self) -> Iterator[Notification]:
        pairs = zip(self.match_changes, self.match_tracks, strict=True)
        for match, (change, track) in zip(self._matches(), pairs, strict=True):
            if change == "match":
                yield match
                continue
            yield TrackedNotification(
                query=match.query,
                object=match.object,
                cursor=match.cursor,
                event=match.event,
                arrival_ms=match.arrival_ms,
                highlights=match.highlights,
                change=change,
                track=track,
            )


def _picked(values: Sequence[_Value], rows: Iterable[int]) -> list[_Value]:
    """Returns the values of some rows.

    Raises:
        Internal: There is no such row.
    """
    try:
        return list(map(values.__getitem__, rows))
    except IndexError:
        raise Internal("rows of a response do not fit together") from None
