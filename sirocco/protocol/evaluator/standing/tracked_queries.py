"""What the index of queries with tracked values needs of them: members, events and tenants."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import xxhash
from numpy.typing import NDArray

from sirocco.index.standing.query_table import NamedQueries
from sirocco.index.standing.track.track_index import ENTERS, EXITS, INSIDE
from sirocco.index.standing.track.track_pairs import Waits
from sirocco.model.access import tenant_of
from sirocco.model.query import ENDED, RangeQuery
from sirocco.protocol.evaluator.standing.definitions import spec_outline

# Events of tracked queries as the index numbers them; `MatchColumns` uses the same numbers.
_EVENTS = {"enter": ENTERS, "inside": INSIDE, "exit": EXITS}


def tracked_columns(
    names: NamedQueries,
) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint64], Waits | None]:
    """Returns members, bits of events, tenants and waits of queries with tracked values."""
    keys, events, waits = [], [], []
    for spec in names.specs or ():
        query = spec_outline(spec)
        assert isinstance(query, RangeQuery)
        assert query.track is not None
        keys.append(track_key(query.track))
        events.append(sum(1 << _EVENTS[event] for event in query.events if event != ENDED))
        waits.append((query.dwell_ms or 0, query.leave_after_ms or 0))
    table = np.array(waits, np.int64).reshape(-1, 2)
    waited = Waits(table[:, 0], table[:, 1]) if table.any() else None
    return np.array(keys, np.uint64), np.array(events, np.uint8), tenants_of(names), waited


def track_key(member: str) -> int:
    """Returns a hash of a member by whose values objects are followed."""
    return int.from_bytes(hashlib.blake2b(member.encode(), digest_size=8).digest(), "little") | 1


def former_track_key(member: str) -> int:
    """Returns the hash of a member in checkpoints, as older versions compute it."""
    return xxhash.xxh3_64_intdigest(member.encode()) | 1


def tenants_of(names: NamedQueries) -> NDArray[np.uint64]:
    """Returns u8[q], a hash of the tenant of each query; 0 for the operator's."""
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    tenants = [tenant_of(ids[begin:end].decode()) for begin, end in pairwise(bounds)]
    hashes = [xxhash.xxh3_64_intdigest(name.encode()) | 1 if name else 0 for name in tenants]
    return np.array(hashes, np.uint64)
