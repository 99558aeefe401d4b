"""Hashes that tell queries apart: by their ids, and by what they mean."""

from __future__ import annotations

import hashlib
from operator import attrgetter

import orjson
import xxhash

from sirocco.model.expression import Expression
from sirocco.model.geometry import Rectangle
from sirocco.model.query.kinds import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery, kind_of


def query_handle(query_id: str) -> int:
    """Returns the xxh3-64 hash of a query's id, by which the engine identifies the query."""
    return xxhash.xxh3_64_intdigest(query_id.encode())


def fingerprint_of(query_id: str) -> int:
    """Returns 64 bits that distinguish ids with equal handles; never 0.

    A handle comes from a public hash without a key: another id with a given handle is found in
    seconds. The fingerprint comes from a cryptographic hash: nobody can find an id with both the
    handle and the fingerprint of another (docs/adr/0029).
    """
    digest = hashlib.blake2b(query_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


_values_of = {
    kind: attrgetter(*kind.__slots__) for kind in (RangeQuery, KnnQuery, TermsQuery, RankedQuery)
}


def identity_of(query: Query) -> bytes:
    """Returns bytes that are equal exactly if two queries are equal.

    Numbers of equal queries have equal bits: `parse_query` leaves no -0.0 and no 1 instead of 1.0.
    """
    values = _values_of[type(query)](query)
    if isinstance(query, RangeQuery):
        # The same as before queries could ask for these.
        if query.dwell_ms is None and query.leave_after_ms is None:
            values = values[:-2] if query.highlight else values[:-3]
    elif isinstance(query, TermsQuery) or not query.highlight:
        # As before these kinds had events and highlights: checkpoints store digests of equal
        # queries.
        shown = 0 if isinstance(query, TermsQuery) else 1
        values = values[: len(values) - shown - (not query.events)]
    parts = [_plain(value) if type(value) in _SLOW else value for value in values]
    return orjson.dumps([kind_of(query), parts])


def digest_of_query(query: Query, subscriber: str) -> int:
    """Returns 64 bits that are the same for equal queries of one subscriber."""
    # The first part is one JSON value, so its end is unambiguous.
    return xxhash.xxh3_64_intdigest(identity_of(query) + subscriber.encode())


# For these types the JSON writer would ask the class for its fields each time: half of a digest's
# time.
_SLOW = frozenset({Expression, Rectangle})


def _plain(value: Expression | Rectangle) -> object:
    """Returns a value's written form, made of dictionaries."""
    if isinstance(value, Rectangle):
        return {
            "west": value.west,
            "south": value.south,
            "east": value.east,
            "north": value.north,
        }
    return [{"positive": one.positive, "negative": one.negative} for one in value.conjunctions]
