"""64 bits that identify equal queries of one subscriber."""

from __future__ import annotations

import xxhash

from sirocco.model.query import Query, identity_of


def digest_of_query(query: Query, subscriber: str) -> int:
    """Returns the digest of a query with its subscriber."""
    # The first part is one JSON value, so its end is unambiguous.
    return xxhash.xxh3_64_intdigest(identity_of(query) + subscriber.encode())
