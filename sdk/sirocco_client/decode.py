"""Responses of the receive stream → notifications, columns first.

A column is decoded when it is first asked for: who only wants pairs of ids never pays for texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco_client.columns import MISSING_TS
from sirocco_client.errors import Internal
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


class NotificationBatch:
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
        self._response = response
        self.cursor: str = response.cursor
        self.begin_cursor = begin_cursor
        matches, objects = response.matches, response.objects
        fits = (
            len(matches.objects) == len(matches.queries)
            and len(matches.objects) % 4 == 0
            and len(objects.ids) == 8 * objects.count
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
        return _strings(names.ids, names.id_offsets, len(names.handles) // 8)

    @cached_property
    def object_ids(self) -> list[int | str]:
        """Ids of the n objects: their names, or numbers where they have none."""
        objects = self._response.objects
        numbers = memoryview(objects.ids).cast("Q").tolist()
        if not objects.name_offsets:
            return list(numbers)
        names = _strings(objects.names, objects.name_offsets, objects.count)
        return [name or number for name, number in zip(names, numbers, strict=True)]

    @property
    def lon(self) -> memoryview[float]:
        """f8[n], degrees."""
        return memoryview(self._response.objects.lon).cast("d")

    @property
    def lat(self) -> memoryview[float]:
        """f8[n], degrees."""
        return memoryview(self._response.objects.lat).cast("d")

    @property
    def ts_ms(self) -> memoryview:
        """i8[n], epoch ms; -2^63 where the publisher gave none."""
        return memoryview(self._response.objects.ts_ms).cast("q")

    @property
    def sessions(self) -> memoryview:
        """u8[n], publishing session of each object."""
        return memoryview(self._response.events.sessions).cast("Q")

    @property
    def numbers(self) -> memoryview:
        """u8[n], number of each object within its session."""
        return memoryview(self._response.events.numbers).cast("Q")

    @property
    def arrivals_ms(self) -> memoryview:
        """i8[n], epoch ms."""
        return memoryview(self._response.events.arrivals_ms).cast("q")

    @cached_property
    def texts(self) -> list[str]:
        """Texts of the n objects."""
        objects = self._response.objects
        return _strings(objects.text, objects.text_offsets, objects.count)

    @cached_property
    def attributes_json(self) -> list[str]:
        """Attributes of the n objects as JSON, empty where there are none."""
        objects = self._response.objects
        return _strings(objects.attributes, objects.attribute_offsets, objects.count)

    @cached_property
    def objects(self) -> list[Object]:
        """The n objects."""
        return [
            Object(
                number, lon, lat, text, None if ts == MISSING_TS else ts, _attributes(attributes)
            )
            for number, lon, lat, text, ts, attributes in zip(
                self.object_ids,
                self.lon,
                self.lat,
                self.texts,
                self.ts_ms,
                self.attributes_json,
                strict=True,
            )
        ]

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


def _attributes(text: str) -> dict[str, object]:
    if not text:
        return {}
    parsed: dict[str, object] = json.loads(text)
    return parsed


def _strings(data: bytes, offsets: bytes, rows: int) -> list[str]:
    if not offsets:
        return [""] * rows
    bounds = memoryview(offsets).cast("I").tolist()
    if len(bounds) != rows + 1:
        raise Internal("columns of a response do not fit together")
    if data.isascii():
        # One decoding for all rows: offsets of bytes are those of characters.
        text = data.decode("ascii")
        return [text[begin:end] for begin, end in pairwise(bounds)]
    return [data[begin:end].decode(errors="replace") for begin, end in pairwise(bounds)]
