"""Filters on attributes as slots receive them, as texts, which stay parsed for a while."""

from __future__ import annotations

import orjson

from sirocco.model.attributes import Filter

# Characters of texts in a generation: those of a record of a slot. Several readers in turn parse
# them (the check of the record, its slot, the other slots of the process), 10 ms for 4,000 values.
# Parsed, a text takes some twenty times as much memory, and a short one a kilobyte.
TEXT_MAX = 1 << 20
_SHORT = 64


class ParsedFilters:
    """Filters by their texts, in two generations: once the newer one is full it becomes the older.

    Two threads may disturb each other: then a filter is parsed once more.

    Args:
        text_max: characters of the texts of a generation.
    """

    def __init__(self, text_max: int = TEXT_MAX) -> None:
        self._text_max = text_max
        self._newer: dict[str, Filter] = {}
        self._older: dict[str, Filter] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def get(self, text: str) -> Filter:
        """Returns the filter of a text; see `filter_of`."""
        found = self._newer.get(text)
        if found is not None:
            return found
        found = self._older.get(text) or Filter.parse(orjson.loads(text), "where")
        self._newer[text] = found
        self._characters += max(len(text), _SHORT)
        if self._characters >= self._text_max:
            self._older, self._newer, self._characters = self._newer, {}, 0
        return found


_PARSED = ParsedFilters()


def filter_of(text: str) -> Filter:
    """Returns the filter of a text.

    Raises:
        InvalidArgument: As `Filter.parse`.
        orjson.JSONDecodeError: It is no JSON.
    """
    return _PARSED.get(text)
