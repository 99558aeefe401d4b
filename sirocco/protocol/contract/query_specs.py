"""What a merger reads from the JSON form of a query (its spec), which accompanies its rows.

A record describes each query other than plain range queries by its spec (`QueryNames.specs`). The
spec identifies a version of a query: it holds the id and the revision, so a later version with the
same question is another. State kept for it is found by 64 bits of a cryptographic hash of the spec:
nobody can write a query whose lists are confused with those of another (docs/adr/0029).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import orjson
import xxhash

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_RANKED, KIND_TERMS, KIND_TRACKED
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS, STORED_LIMITS
from sirocco.model.query import RankedQuery, parse_query
from sirocco.protocol.contract.messages import NO_REVISION

# A version of a query has ended; see `ended_spec`.
KIND_ENDED = 254
# An end is to be reported; see `end_spec`.
KIND_END = 253
# Of a later version of the system, or damaged: unusable.
KIND_UNKNOWN = 255

# `ended_by` in records of older versions: below every checkpoint of the registry.
ENDED_SOMEWHERE = (0, -1)

# Specs that stay parsed, and how long one may be: at most 64 MB. Others are parsed each time, in
# some µs.
SPECS_MAX = 1 << 15
SPEC_LENGTH_MAX = 2_048

_ENDED, _AT, _BY = '{"gone":', ',"at_ms":', ',"by":'
_END = '{"over":'
_IS_CONTINUED = ',"goes_on":true'
_REVISION = ',"revision":'
_KINDS = {"knn": KIND_KNN, "terms": KIND_TERMS, "ranked": KIND_RANKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A query's spec, as far as a merger needs it.

    Attributes:
        kind: see `index.base.kinds`; also `KIND_ENDED`, `KIND_END` and `KIND_UNKNOWN`.
        key: 64 bits that identify this version of the query.
        former_key: the key in older versions, by which the contents of their checkpoints are found.
        k: length of its lists, 0 if it has none.
        ranked: the query, if it is a ranked one.
        ended: of `KIND_ENDED`, what has ended.
        ended_ms: of `KIND_ENDED`, the slot's time at its end.
        ended_by: of `KIND_ENDED`, registry partition and offset of the change that ended it.
        is_continued: of `KIND_ENDED`, whether that change is a version that continues it,
            for the same subscriber.
        query: 64 bits that identify the query, whatever its version; 0 if unknown.
        revision: of the version.
        place: of `KIND_END`, registry partition and revision of the version.
        expires_ms: of `KIND_END`, when its lifetime ended; None: the registry has ended it.
        has_expired: of `KIND_END`, whether its lifetime was over by then.
    """

    kind: int
    key: int
    former_key: int = 0
    k: int = 0
    ranked: RankedQuery | None = None
    ended: Spec | None = None
    ended_ms: int = 0
    ended_by: tuple[int, int] = ENDED_SOMEWHERE
    is_continued: bool = False
    query: int = 0
    revision: int = NO_REVISION
    place: tuple[int, int] = ENDED_SOMEWHERE
    expires_ms: int | None = None
    has_expired: bool = False


def query_number(query_id: str) -> int:
    """Returns 64 bits that identify a query whatever its version."""
    return int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=8).digest(), "little")


@lru_cache(maxsize=SPECS_MAX)
def subscription_number(query: int, subscriber: str) -> int:
    """Returns 64 bits that identify a query and its subscriber; 0 where the query is unknown."""
    if not query:
        return 0
    data = query.to_bytes(8, "little") + subscriber.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def versioned_spec(text: str, revision: int) -> str:
    """Returns the spec that slots send of a query of which mergers keep state."""
    return f"{text[:-1]}{_REVISION}{revision}}}"


def definition_of_spec(text: str) -> str:
    """Returns the JSON form of a query, from the result of `versioned_spec`."""
    # Quotes within texts are escaped: only the last member can look like a revision.
    definition, _, revision = text.rpartition(_REVISION)
    return definition + "}" if definition and revision[:-1].isdigit() else text


def ended_spec(text: str, time_ms: int, by: tuple[int, int], *, is_continued: bool = False) -> str:
    """Returns the spec that replaces a version's when a slot reports its end there.

    Nothing refers to such a query, and the record that holds it covers one slot alone.

    Args:
        text: of the version.
        time_ms: the slot's time; from there on the slot reports no steps.
        by: registry partition and offset of the change that ended it.
        is_continued: that change is a version that continues it.
    """
    more = _IS_CONTINUED if is_continued else ""
    return f"{_ENDED}{text}{_AT}{time_ms}{_BY}[{by[0]},{by[1]}]{more}}}"


def end_spec(place: tuple[int, int], expires_ms: int | None, *, has_expired: bool) -> str:
    """Returns the spec that replaces a query's when its end is reported by a slot.

    Args:
        place: registry partition and revision of the version.
        expires_ms: when its lifetime ended, which the slot's time has passed; None: the registry
            has ended it.
        has_expired: by the registry its lifetime was over.
    """
    return orjson.dumps({"over": place, "ttl": expires_ms, "is_over": has_expired}).decode()


def _read_end(text: str) -> Spec:
    match orjson.loads(text):
        case {"over": [int(partition), int(revision)], "ttl": None, "is_over": bool(has_expired)}:
            return Spec(kind=KIND_END, key=0, place=(partition, revision), has_expired=has_expired)
        case {"over": [int(partition), int(revision)], "ttl": int(expires_ms)}:
            return Spec(kind=KIND_END, key=0, place=(partition, revision), expires_ms=expires_ms)
    return Spec(kind=KIND_UNKNOWN, key=0)


def read_spec(text: str) -> Spec:
    """Reads the JSON form of a query, or the result of `ended_spec` or `end_spec`."""
    if text.startswith(_END):
        # Each is read only once.
        return _read_end(text)
    return _kept(text) if len(text) <= SPEC_LENGTH_MAX else _read(text)


@lru_cache(maxsize=SPECS_MAX)
def _kept(text: str) -> Spec:
    return _read(text)


def _read(text: str) -> Spec:
    data = text.encode()
    key = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
    former_key = xxhash.xxh3_64_intdigest(data)
    unknown = Spec(kind=KIND_UNKNOWN, key=key, former_key=former_key)
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        return unknown
    if not isinstance(members, dict):
        return unknown
    if "gone" in members:
        ended, _, _ = text[len(_ENDED) :].rpartition(_AT)
        match members:
            case {"at_ms": int(ended_ms), "by": [int(partition), int(offset)]}:
                by = partition, offset
            case {"at_ms": int(ended_ms)}:
                by = ENDED_SOMEWHERE
            case _:
                return unknown
        is_continued = members.get("goes_on") is True
        ended_version = read_spec(ended)
        return Spec(
            kind=KIND_ENDED,
            key=key,
            former_key=former_key,
            ended=ended_version,
            ended_ms=ended_ms,
            ended_by=by,
            is_continued=is_continued,
        )
    revision = members.pop("revision", NO_REVISION)
    name, k = members.get("kind"), members.get("k")
    if name == "range":
        return Spec(
            kind=KIND_TRACKED if "track" in members else KIND_RANGE, key=key, former_key=former_key
        )
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(k, int) or not 1 <= k <= DEFAULT_LIMITS.k:
        return unknown
    try:
        query = parse_query(members, limits=STORED_LIMITS) if kind == KIND_RANKED else None
    except InvalidArgument:
        return unknown
    assert query is None or isinstance(query, RankedQuery)
    known = 0
    has_revision = isinstance(revision, int) and revision != NO_REVISION
    if isinstance(members.get("id"), str) and has_revision:
        known = query_number(members["id"])
    else:
        revision = NO_REVISION
    return Spec(
        kind=kind, key=key, former_key=former_key, k=k, ranked=query, query=known, revision=revision
    )
