"""Names of queries as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.model.query import query_handle
from sirocco.protocol.contract.columns import QueryNames


def names_of_pairs(
    pairs: list[tuple[str, str]], handles: NDArray[np.uint64] | None = None
) -> QueryNames:
    """Returns the names of queries from id and subscriber; `handles` u8[n] if they are known."""
    if handles is None:
        handles = np.array([query_handle(query) for query, _ in pairs], np.uint64)
    ids = [query.encode() for query, _ in pairs]
    offsets = np.zeros(len(ids) + 1, np.int64)
    np.cumsum([len(text) for text in ids], out=offsets[1:])
    names: dict[str, int] = {}
    subscriber_rows = [names.setdefault(subscriber, len(names)) for _, subscriber in pairs]
    return QueryNames(
        handles,
        np.frombuffer(b"".join(ids), np.uint8),
        offsets,
        np.array(subscriber_rows, np.uint32),
        tuple(names),
    )
