"""Responses of the receive stream → notifications, columns first.

A column is decoded when it is first asked for: who only wants pairs of ids never pays for texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco_client.errors import Internal
from sirocco_client.object_rows import ObjectRows, strings_of
from sirocco_client.objects import Object


@dataclass(frozen=True, slots=True)
class Notification:
    """One match: an object satisfies a query.

    Attributes:
        query: Id of the query.
        object: What matched.
        cursor: Where to resume so that nothing behind this notification is missed. Matches travel
            in batches, and only the last one of a batch has its batch's own cursor: resuming from
            another repeats the batch from its begin. `event` tells repeats.
        event: (session, number) of the object's publication; with `query` it is unique.
        arrival_ms: When the object arrived, epoch ms.
    """

    query: str
    object: Object
    cursor: str
    event: tuple[int, int]
    arrival_ms: int


class NotificationBatch(ObjectRows):
    """Matches that came in one message: m of them, between n objects and q queries.

    Attributes:
        cursor: Where to resume once this batch is dealt with: nothing is missed, nothing doubled.
        begin_cursor: Where to resume to get this batch again.
    """

    def __init__(self, response: ReceiveResponse, begin_cursor: str) -> None:
        """Checks that the columns fit together.

        Raises:
            Internal: They do not.
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
        )
        if not fits:
            raise Internal("columns of a response do not fit together")

    def __len__(self) -> int:
        """How many matches."""
        return len(self._response.matches.objects) // 4

    @property
    def match_objects(self) -> memoryview:
        """u4[m], row of each match's object."""
        return memoryview(self._response.matches.objects).cast("I")

    @property
    def match_queries(self) -> memoryview:
        """u4[m], row of each match's query."""
        return memoryview(self._response.matches.queries).cast("I")

    @cached_property
    def query_ids(self) -> list[str]:
        """Ids of the q queries."""
        names = self._response.queries
        return strings_of(names.ids, names.id_offsets, len(names.handles) // 8)

    def pairs(self) -> Iterator[tuple[str, int | str]]:
        """Yields (query id, object id) of every match, the fast way."""
        return zip(
            map(self.query_ids.__getitem__, self.match_queries),
            map(self.object_ids.__getitem__, self.match_objects),
            strict=True,
        )

    def __iter__(self) -> Iterator[Notification]:
        """Yields every match as a value of its own."""
        objects, queries = self.objects, self.query_ids
        events = list(zip(self.sessions, self.numbers, strict=True))
        arrivals_ms = self.arrivals_ms
        last = len(self) - 1
        rows = zip(self.match_objects, self.match_queries, strict=True)
        for i, (row, query) in enumerate(rows):
            cursor = self.cursor if i == last else self.begin_cursor
            yield Notification(queries[query], objects[row], cursor, events[row], arrivals_ms[row])
