"""The bytes of most standing queries, written at once: rectangles with a text of ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from sirocco_client.queries import Query, RangeQuery
from sirocco_client.regions import Rectangle

# Field `region` with a `rect` of four doubles: both lengths, then tag and value of each side.
_RECTANGLE = Struct("<4sBdBdBdBd").pack
_HEAD = b"\x0a\x26\x0a\x24"

# Longer parts have a length of two bytes.
_SHORT = 128

_NUMBERS = frozenset((float, int))


def plain_query(query: Query) -> bytes | None:
    """Returns the message of a query, as `write_query` makes it; None if that has to be asked.

    A message is filled member by member, and copied into its request: three times the work.
    """
    if (
        type(query) is not RangeQuery
        or query.mode != "continuous"
        or query.where is not None
        or query.ttl is not None
        or query.window is not None
        or query.track is not None
        or query.events != ()
        or query.fold is not False
        or query.highlight is not False
        or type(query.region) is not Rectangle
    ):
        return None
    rect, text = query.region, "" if query.text is None else query.text
    west, south, east, north = rect.west, rect.south, rect.east, rect.north
    if not _NUMBERS.issuperset((type(west), type(south), type(east), type(north))):
        return None
    if not (abs(west) <= 180 and abs(east) <= 180 and abs(south) <= 90 and abs(north) <= 90):
        return None
    names = query.id, query.subscriber
    if not (type(names[0]) is type(names[1]) is type(text) is str and query.text != ""):
        return None
    whole = "".join((*names, text))
    if not whole.isascii() or len(whole) >= _SHORT or not (names[0] and names[1]):
        return None
    kind = _RECTANGLE(_HEAD, 0x09, west, 0x11, south, 0x19, east, 0x21, north)
    if text:
        kind = b"%b\x12%c%b" % (kind, len(text), text.encode())
    return b"\x0a%c%b\x12%c%b\x18\x01\x52%b%b" % (
        *(len(names[0]), names[0].encode(), len(names[1]), names[1].encode()),
        *(length(len(kind)), kind),
    )


def queries_field(queries: Sequence[bytes]) -> bytes:
    """Returns field 1 of a request, `repeated Query queries`."""
    return b"".join([b"\x0a%b%b" % (length(len(each)), each) for each in queries])


def length(count: int) -> bytes:
    """Returns a length as messages have it."""
    written = bytearray()
    while count >= _SHORT:
        written.append(count & 0x7F | 0x80)
        count >>= 7
    written.append(count)
    return bytes(written)
