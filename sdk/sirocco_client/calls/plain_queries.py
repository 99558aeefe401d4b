"""The bytes of most standing queries, written at once: rectangles with a text of ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from struct import Struct

from sirocco_client.queries.query import Query, RangeQuery
from sirocco_client.queries.regions import Rectangle

# Field `region` with a `rect` of four doubles: both lengths, then tag and value of each side.
_RECTANGLE = Struct("<4sBdBdBdBd").pack
_HEAD = b"\x0a\x26\x0a\x24"

# Longer parts have a length of two bytes.
_SHORT = 128

_NUMBERS = frozenset((float, int))

# Read at once: one by one they take as long as all the rest.
_members = attrgetter(
    *("id", "subscriber", "region", "text", "mode", "where", "ttl", "window", "track"),
    *("events", "fold", "highlight", "dwell", "leave_after"),
)
_sides = attrgetter("west", "south", "east", "north")


def plain_query(query: Query) -> bytes | None:
    """Returns the message of a query, as `write_query` makes it; None if that has to be asked.

    A message is filled member by member, and copied into its request: three times the work.
    """
    if type(query) is not RangeQuery:
        return None
    name, subscriber, rect, text, mode, where, ttl, window, track, *others = _members(query)
    events, fold, highlight, dwell, leave_after = others
    if (
        mode != "continuous"
        or where is not None
        or ttl is not None
        or window is not None
        or track is not None
        or events != ()
        or fold is not False
        or highlight is not False
        or dwell is not None
        or leave_after is not None
        or type(rect) is not Rectangle
        or text == ""
    ):
        return None
    text = "" if text is None else text
    west, south, east, north = _sides(rect)
    if not _NUMBERS.issuperset((type(west), type(south), type(east), type(north))):
        return None
    if not (abs(west) <= 180 and abs(east) <= 180 and abs(south) <= 90 and abs(north) <= 90):
        return None
    if not (type(name) is type(subscriber) is type(text) is str):
        return None
    whole = f"{name}{subscriber}{text}"
    if not whole.isascii() or len(whole) >= _SHORT or not (name and subscriber):
        return None
    kind = _RECTANGLE(_HEAD, 0x09, west, 0x11, south, 0x19, east, 0x21, north)
    if text:
        kind = b"%b\x12%c%b" % (kind, len(text), text.encode())
    return b"\x0a%c%b\x12%c%b\x18\x01\x52%b%b" % (
        *(len(name), name.encode(), len(subscriber), subscriber.encode()),
        *(_LENGTHS[len(kind)], kind),
    )


def queries_field(queries: Sequence[bytes]) -> bytes:
    """Returns field 1 of a request, `repeated Query queries`."""
    known = len(_LENGTHS)
    return b"".join(
        [
            b"\x0a%b%b" % (_LENGTHS[size] if (size := len(each)) < known else length(size), each)
            for each in queries
        ]
    )


def length(count: int) -> bytes:
    """Returns a length as messages have it."""
    written = bytearray()
    while count >= _SHORT:
        written.append(count & 0x7F | 0x80)
        count >>= 7
    written.append(count)
    return bytes(written)


# Of all plain queries, and of short others.
_LENGTHS = [length(count) for count in range(512)]
