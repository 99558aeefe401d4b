"""Objects of a response as columns, with their event keys.

A column is decoded at its first use: a caller that only reads ids never pays for texts.
"""

from __future__ import annotations

import json
from functools import cached_property
from itertools import pairwise

from sirocco_api.v1.columns_pb2 import EventColumns, ObjectColumns

from sirocco_client.errors import Internal
from sirocco_client.objects.columns import MISSING_TS
from sirocco_client.objects.object import Object


class ObjectRows:
    """n objects, column by column or as values."""

    def __init__(self, objects: ObjectColumns, events: EventColumns) -> None:
        """Checks that the columns fit together.

        Raises:
            Internal: They do not fit.
        """
        columns = (objects.ids, objects.lon, objects.lat, objects.ts_ms)
        if any(len(column) != 8 * objects.count for column in columns):
            raise Internal("columns of a response do not fit together")
        self._objects = objects
        self._events = events

    @property
    def has_names(self) -> bool:
        """Whether some objects may have string ids."""
        return bool(self._objects.name_offsets)

    @cached_property
    def object_ids(self) -> list[int | str]:
        """Ids of the n objects: names, or numbers for objects without a name."""
        objects = self._objects
        numbers = memoryview(objects.ids).cast("Q").tolist()
        if not objects.name_offsets:
            return list(numbers)
        names = strings_of(objects.names, objects.name_offsets, objects.count)
        return [name or number for name, number in zip(names, numbers, strict=True)]

    @property
    def lon(self) -> memoryview[float]:
        """f8[n], degrees."""
        return memoryview(self._objects.lon).cast("d")

    @property
    def lat(self) -> memoryview[float]:
        """f8[n], degrees."""
        return memoryview(self._objects.lat).cast("d")

    @property
    def ts_ms(self) -> memoryview:
        """i8[n], epoch ms; -2^63 where the publisher gave none."""
        return memoryview(self._objects.ts_ms).cast("q")

    @property
    def sessions(self) -> memoryview:
        """u8[n], publishing session of each object."""
        return memoryview(self._events.sessions).cast("Q")

    @property
    def numbers(self) -> memoryview:
        """u8[n], number of each object within its session."""
        return memoryview(self._events.numbers).cast("Q")

    @property
    def arrivals_ms(self) -> memoryview:
        """i8[n], epoch ms."""
        return memoryview(self._events.arrivals_ms).cast("q")

    @cached_property
    def texts(self) -> list[str]:
        """Texts of the n objects."""
        objects = self._objects
        return strings_of(objects.text, objects.text_offsets, objects.count)

    @cached_property
    def attributes_json(self) -> list[str]:
        """Attributes of the n objects as JSON, empty for objects without attributes."""
        objects = self._objects
        return strings_of(objects.attributes, objects.attribute_offsets, objects.count)

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


def _attributes(text: str) -> dict[str, object]:
    if not text:
        return {}
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Internal(f"attributes of a response are damaged: {error}") from None
    if not isinstance(parsed, dict):
        raise Internal("attributes of a response are no JSON object")
    return parsed


def strings_of(data: bytes, offsets: bytes, rows: int) -> list[str]:
    """Returns the strings of a column; empty strings if the column is absent."""
    if not offsets:
        return [""] * rows
    bounds = memoryview(offsets).cast("I").tolist()
    if len(bounds) != rows + 1:
        raise Internal("columns of a response do not fit together")
    if data.isascii():
        # ASCII only: one decoding for all rows, because byte offsets are character offsets.
        text = data.decode("ascii")
        return [text[begin:end] for begin, end in pairwise(bounds)]
    return [data[begin:end].decode(errors="replace") for begin, end in pairwise(bounds)]
