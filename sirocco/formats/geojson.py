"""GeoJSON, however large: a FeatureCollection, or Features one after the other.

Features may follow each other on lines of their own, or after a record separator (RFC 8142), or
over several lines. One feature at a time is in memory. Where the text cannot be read, reading goes
on at the next separator, or at the next line that begins a feature.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from sirocco.formats.rows import Row
from sirocco.model.errors import InvalidArgument
from sirocco.model.members import shown

# Characters of one feature: an object at all limits takes as many (`LINE_BYTES_MAX`).
FEATURE_CHARACTERS_MAX = 1 << 20
_TOO_LONG = f"is no JSON within {FEATURE_CHARACTERS_MAX} characters"

_BLANK = re.compile(r"[ \t\r\n\ufeff]*")
# What is between features: also the end of a collection that could not be followed.
_BETWEEN = re.compile(r"[ \t\r\n\ufeff\x1e,\]}]*")
_NEXT = re.compile(r"\x1e|\n[ \t\r]*(?=\{)")
# What may be the begin of it, at the end of what was read.
_NEXT_BEGIN = re.compile(r"\n[ \t\r]{0,999}\Z")

# Text after a value that cannot be read is read again where a feature may begin, and may hold such
# values too. All that is read in vain, as a multiple of what was read, and what is always allowed:
# a bound for the work.
_VAIN_MAX = 4
_VAIN_ALWAYS = 1 << 16

# What is done with is forgotten from so many characters on: errors count the lines before them.
_DONE_MAX = 1 << 16

# Longer than `false`, an escape in a string, and the sign of a number.
_WORD_MAX = 16

_FIXED = ("id", "lon", "lat")

# Members of a Feature that are looked at.
_OF_FEATURES = ("type", "geometry", "properties", "id")


def read_features(chunks: Iterator[bytes]) -> Iterator[Row]:
    """Yields the objects of a text; a feature's line is that on which it begins."""
    text = _Text(chunks)
    while text.skip(_BETWEEN):
        try:
            yield from _top(text)
        except _UnreadableError as error:
            yield text.line(error.place), InvalidArgument(str(error), field="object")
            text.recover()


def members_of_feature(feature: object) -> dict[str, Any]:
    """Returns the members of the object that a Feature is: at its Point, with its properties.

    Raises:
        InvalidArgument: It is no Feature with a Point; `field` is the wrong member.
    """
    if not isinstance(feature, dict):
        raise InvalidArgument("must be a Feature", field="object")
    if feature.get("type") != "Feature":
        raise InvalidArgument(f"{shown(feature.get('type'))} is not Feature", field="type")
    geometry = feature.get("geometry")
    if not isinstance(geometry, dict):
        raise InvalidArgument("must be a Point", field="geometry")
    if geometry.get("type") != "Point":
        raise InvalidArgument(f"{shown(geometry.get('type'))} is not Point", field="geometry.type")
    at = geometry.get("coordinates")
    if not isinstance(at, list) or not 2 <= len(at) <= 4:
        raise InvalidArgument("must be [lon, lat]", field="geometry.coordinates")
    properties = feature.get("properties")
    if not isinstance(properties, dict | None):
        raise InvalidArgument("must be an object", field="properties")
    members = {name: each for name, each in (properties or {}).items() if name not in _FIXED}
    members |= {"lon": at[0], "lat": at[1]}
    found = feature.get("id", (properties or {}).get("id"))
    if found is not None:
        members["id"] = found
    return members


def _top(text: _Text) -> Iterator[Row]:
    """Yields the objects of a value at the top: a Feature, or a collection with its features."""
    begin, line = text.place, text.line(text.place)
    if not text.takes("{"):
        raise _UnreadableError("is no GeoJSON", begin)
    members: dict[str, Any] = {}
    is_collection, is_first = False, True
    while not text.takes("}"):
        if not is_first:
            text.expect(",")
        is_first = False
        name = text.value()
        text.expect(":")
        if name == "features" and text.takes("["):
            is_collection = True
            yield from _features(text)
            continue
        value = text.value()
        # Others would fill the memory: there may be any number of them.
        if name in _OF_FEATURES:
            members[str(name)] = value
    if not is_collection:
        yield line, _object(members)


def _features(text: _Text) -> Iterator[Row]:
    is_first = True
    while not text.takes("]"):
        if not is_first:
            text.expect(",")
        is_first = False
        text.skip(_BLANK)
        line = text.line(text.place)
        yield line, _object(text.value())


def _object(feature: object) -> dict[str, Any] | InvalidArgument:
    try:
        return members_of_feature(feature)
    except InvalidArgument as error:
        return error.with_traceback(None)


class _UnreadableError(Exception):
    """The text is no GeoJSON from a place on."""

    def __init__(self, reason: str, place: int) -> None:
        super().__init__(reason)
        self.place = place


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


class _Text:
    """The characters of a text as far as they are needed.

    Attributes:
        place: Of the next character, in the part that is kept.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.place = 0
        self._chunks = chunks
        # What is no UTF-8 becomes lone surrogates, which the check of the object refuses by name.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._json = json.JSONDecoder(parse_constant=_refuse)
        self._text = ""
        self._is_over = False
        self._line = 1
        # Lines are counted up to here.
        self._counted = 0
        # Characters read so far, and those read in vain.
        self._total = 0
        self._vain = 0

    def line(self, place: int) -> int:
        """Returns the line of a place; places only grow."""
        if place > self._counted:
            self._line += self._text.count("\n", self._counted, place)
            self._counted = place
        return self._line

    def skip(self, pattern: re.Pattern[str]) -> bool:
        """Skips what is between values; returns whether anything follows."""
        while True:
            found = pattern.match(self._text, self.place)
            assert found is not None
            self.place = found.end()
            if self.place < len(self._text):
                return True
            if not self._read():
                return False

    def takes(self, character: str) -> bool:
        """Skips a character, if it is the next one that is not blank."""
        if not self.skip(_BLANK):
            raise _UnreadableError("ends within a value", self.place)
        if self._text[self.place] != character:
            return False
        self.place += 1
        return True

    def expect(self, character: str) -> None:
        """Skips a character, which must be the next one that is not blank."""
        if not self.takes(character):
            raise _UnreadableError(f"is no JSON: {character!r} is missing", self.place)

    def value(self) -> Any:
        """Returns the next value of JSON.

        Raises:
            _UnreadableError: There is none.
        """
        if not self.skip(_BLANK):
            raise _UnreadableError("ends within a value", self.place)
        if self.place > _DONE_MAX:
            self._forget()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self.place)
            except RecursionError:
                raise self._unreadable("is no JSON: nested too deeply", len(self._text)) from None
            except ValueError as error:
                kept = len(self._text) - self.place
                reason = f"is no JSON: {str(error).partition(': line ')[0]}"
                if self._is_wrong(error):
                    raise self._unreadable(reason, getattr(error, "pos", len(self._text))) from None
                if kept > FEATURE_CHARACTERS_MAX:
                    raise self._unreadable(_TOO_LONG, len(self._text)) from None
                # Twice as much each time, so that a long value is not parsed a hundred times.
                if not self._read(kept):
                    raise self._unreadable(reason, len(self._text)) from None
                continue
            # A number could go on in the next chunk.
            if end == len(self._text) and self._read():
                continue
            self.place = end
            return value

    def _unreadable(self, reason: str, end: int) -> _UnreadableError:
        """Returns the error of a value that was looked at up to a place.

        What follows its begin is read again, unless too much was read in vain already.
        """
        error = _UnreadableError(reason, self.place)
        self._vain += end - self.place
        if self._vain > _VAIN_MAX * self._total + _VAIN_ALWAYS:
            # Lines are counted in order.
            self.line(self.place)
            self.place = max(self.place, end)
        return error

    def _is_wrong(self, error: ValueError) -> bool:
        """Whether a value stays unreadable, whatever follows."""
        if not isinstance(error, json.JSONDecodeError):
            return True
        # A string that does not end is reported at its begin, and a cut `true` at its.
        is_cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - _WORD_MAX
        return not is_cut

    def recover(self) -> None:
        """Goes on to where the next feature may begin."""
        while True:
            found = _NEXT.search(self._text, self.place)
            if found is not None:
                self.place = found.end()
                return
            # The begin of what is searched may be at the end.
            begin = _NEXT_BEGIN.search(self._text, self.place)
            self.place = len(self._text) if begin is None else begin.start()
            if not self._read():
                self.place = len(self._text)
                return

    def _forget(self) -> None:
        """Forgets what is before the place."""
        self.line(self.place)
        self._text = self._text[self.place :]
        self.place = self._counted = 0

    def _read(self, characters: int = 1) -> bool:
        """Reads at least so many characters more, if there are; returns whether there was any."""
        self._forget()
        parts = [self._text]
        had = len(self._text)
        size = had
        while not self._is_over and size < had + characters:
            chunk = next(self._chunks, b"")
            self._is_over = not chunk
            parts.append(self._decoder.decode(chunk, final=not chunk))
            size += len(parts[-1])
        self._text = "".join(parts)
        self._total += size - had
        return size > had
