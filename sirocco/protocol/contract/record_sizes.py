"""The sizes of the records that follow from a query, checked before it is accepted.

A registered query is repeated in records that its client never sees. Records for slots hold the
compiled conditions, the filter and, except for plain range queries, the definition, with the filter
again. A record that the log refuses would end the process that appends it, again after each
restart. So a change whose records would not fit is refused when requested, and set aside if an old
log holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import xxhash

from sirocco.index.base.kinds import KIND_RANGE, kind_number
from sirocco.model.errors import InvalidArgument
from sirocco.model.geometry import Polygon
from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery, canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """How much one record of matches, lists or steps holds.

    Attributes:
        matches_max: a merger's window is written at about as many.
        bytes_max: unless a single object is longer: half of what the log accepts. Ids of queries
            may be long, so the number of matches alone is no limit.
    """

    matches_max: int = 32_768
    bytes_max: int = 2 << 20


RECORD_LIMITS = RecordLimits()

# The fixed columns of one match with its query (handle, offset, subscriber, two rows), and of one
# object with its event and position.
MATCH_BYTES = 24

OBJECT_BYTES = 84


# Bytes of a record: a log accepts 4 MiB with headers and framing.
APPENDED_BYTES_MAX = 15 << 18

# Bytes of a query in a record besides the parts below: its columns, boxes of a circle, and again
# its id and `track` in the definition.
FIXED_BYTES = 2_048

# The same of a query without any of these parts.
_SMALL_FIXED_BYTES = 320

# A term's hash with its word's number; the length of a word besides its bytes.
_TERM_BYTES = 12
_WORD_BYTES = 4
_CONJUNCTION_BYTES = 24
_VERTEX_BYTES = 16
_RING_BYTES = 16

# An expression as short as this has fewer than 128 terms in each of its 256 conjunctions at most.
_SMALL_CHARACTERS = 256
_SMALL_BYTES = 16_384


def check_change(
    query: Query, subscriber: str, locator: bytes = b"", bytes_max: int = APPENDED_BYTES_MAX
) -> None:
    """Refuses a query whose records the log would not take.

    Raises:
        InvalidArgument: The field names the part that takes most.
    """
    if _is_small(query) and len(locator) <= _SMALL_BYTES:
        return
    parts = _parts(query, locator)
    total = _total(query, subscriber, parts)
    if total > bytes_max:
        raise InvalidArgument(
            f"the query takes up to {total} bytes in a record, the limit is {bytes_max}",
            field=max(parts, key=lambda name: parts[name]),
        )


def record_bytes(query: Query, subscriber: str, locator: bytes = b"") -> int:
    """Returns about how many bytes a query takes in a record for a slot."""
    if not _is_small(query):
        return _total(query, subscriber, _parts(query, locator))
    size = _SMALL_FIXED_BYTES + len(query.id) + len(subscriber) + len(locator)
    if not isinstance(query, RankedQuery) and query.expression is not None:
        for one in query.expression.conjunctions:
            size += _CONJUNCTION_BYTES
            size += _TERM_BYTES * (len(one.positive) + len(one.negative))
    return size


def _total(query: Query, subscriber: str, parts: dict[str, int]) -> int:
    return FIXED_BYTES + len(query.id.encode()) + len(subscriber.encode()) + sum(parts.values())


def _is_small(query: Query) -> bool:
    """Whether a query obviously fits, without counting; nearly all do."""
    if query.where is not None or isinstance(query, RankedQuery):
        return False
    if not isinstance(query, KnnQuery) and isinstance(query.region, Polygon):
        return False
    return query.expression is None or len(query.expression.source) <= _SMALL_CHARACTERS


def _parts(query: Query, locator: bytes) -> dict[str, int]:
    """Returns upper bounds of the bytes of a query's parts in records for slots."""
    parts = {"where": 0, "text": len(locator), "region": 0}
    is_highlighted = isinstance(query, RangeQuery) and query.highlight
    is_plain = kind_number(query) == KIND_RANGE and not is_highlighted
    if query.where is not None:
        parts["where"] = len(orjson.dumps(query.where.canonical()))
    if not isinstance(query, RankedQuery) and query.expression is not None:
        conjunctions = query.expression.conjunctions
        terms = sum(len(one.positive) + len(one.negative) for one in conjunctions)
        compiled = _TERM_BYTES * terms + _CONJUNCTION_BYTES * len(conjunctions)
        # Of plain range queries the locator may repeat every conjunction.
        words = {term for one in conjunctions for term in (*one.positive, *one.negative)}
        parts["text"] = compiled + (max(compiled, len(locator)) if is_plain else 0)
        parts["text"] += sum(_WORD_BYTES + len(word.encode()) for word in words)
    if isinstance(query, RankedQuery):
        each = _TERM_BYTES + _CONJUNCTION_BYTES + _WORD_BYTES
        parts["text"] = sum(each + len(word.encode()) for word in query.keywords)
    if isinstance(query, RangeQuery | TermsQuery) and isinstance(query.region, Polygon):
        vertices = sum(len(ring) for ring in query.region.rings)
        parts["region"] = _VERTEX_BYTES * vertices + _RING_BYTES * len(query.region.rings)
    if not is_plain:
        form = canonical(query)
        for name, member in (("where", "where"), ("text", "text"), ("region", "region")):
            parts[name] += len(orjson.dumps(form.get(member)))
        parts["text"] += len(orjson.dumps(form.get("keywords")))
    return parts


def partition_of(subscriber: str, partials_partitions: int) -> int:
    """Returns the Kafka partition of `partials` and `deliveries` that a subscriber belongs to."""
    return xxhash.xxh3_64_intdigest(subscriber.encode()) % partials_partitions
