"""What a merger reads out of the JSON form of a query that stands beside its rows.

A record says of each query that is no plain range query what it is (`QueryNames.specs`). A version
of a query is known by that text: it holds the id and the revision, so that a later version which
asks the very same is another. What is kept of it is found by 64 bits of a cryptographic hash of the
text: nobody can write a query whose lists are taken for another's (docs/adr/0029).
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

# Says of a version of a query that it has ended; see `gone_spec`.
KIND_GONE = 254
# Says that its end is to be told; see `over_spec`.
KIND_OVER = 253
# Of a later version of the system, or damaged: nothing can be made of it.
KIND_UNKNOWN = 255

# Of what a former version of the system says: below every checkpoint of the registry.
ENDED_SOMEWHERE = (0, -1)

# Texts that are kept with what was read out of them, and how long one may be: at most 64 MB. Others
# are read anew each time, in some µs.
SPECS_MAX = 1 << 15
SPEC_LENGTH_MAX = 2_048

_GONE, _AT, _BY = '{"gone":', ',"at_ms":', ',"by":'
_OVER = '{"over":'
_GOES_ON = ',"goes_on":true'
_REVISION = ',"revision":'
_KINDS = {"knn": KIND_KNN, "terms": KIND_TERMS, "ranked": KIND_RANKED}


@dataclass(frozen=True, slots=True)
class Spec:
    """What a query asks, as far as it concerns a merger.

    Attributes:
        kind: see `index.kinds`; `KIND_GONE` and `KIND_UNKNOWN` besides.
        key: 64 bits by which this version of the query is known.
        former_key: by which mergers before knew it: what their checkpoints hold is found by it.
        k: length of its lists, 0 if it has none.
        ranked: the query, if it is a ranked one.
        ended: of `KIND_GONE`, what has ended.
        ended_ms: of `KIND_GONE`, the slot's time at which it has.
        ended_by: of `KIND_GONE`, registry partition and offset of the change that ended it.
        goes_on: of `KIND_GONE`, whether that change is a version which goes on from it, for the
            same subscriber.
        query: 64 bits by which the query is known, whatever its version; 0 where that is not told.
        revision: of the version.
        place: of `KIND_OVER`, registry partition and revision of the version.
        expires_ms: of `KIND_OVER`, when its lifetime ended; None: the registry has said so.
        is_over: of `KIND_OVER`, and that its lifetime was over by then.
    """

    kind: int
    key: int
    former_key: int = 0
    k: int = 0
    ranked: RankedQuery | None = None
    ended: Spec | None = None
    ended_ms: int = 0
    ended_by: tuple[int, int] = ENDED_SOMEWHERE
    goes_on: bool = False
    query: int = 0
    revision: int = NO_REVISION
    place: tuple[int, int] = ENDED_SOMEWHERE
    expires_ms: int | None = None
    is_over: bool = False


def query_number(query_id: str) -> int:
    """64 bits by which a query is known whatever its version."""
    return int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=8).digest(), "little")


@lru_cache(maxsize=SPECS_MAX)
def told_to(query: int, subscriber: str) -> int:
    """64 bits by which a query is known as long as one subscriber has it; 0 where it is unknown."""
    if not query:
        return 0
    data = query.to_bytes(8, "little") + subscriber.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def told_spec(text: str, revision: int) -> str:
    """How slots tell the JSON form of a query of which mergers keep something."""
    return f"{text[:-1]}{_REVISION}{revision}}}"


def asked_spec(text: str) -> str:
    """The JSON form of a query, out of what `told_spec` made of it."""
    # Quotes within texts are escaped: only the last member can be mistaken for a revision.
    asked, _, revision = text.rpartition(_REVISION)
    return asked + "}" if asked and revision[:-1].isdigit() else text


def gone_spec(text: str, time_ms: int, by: tuple[int, int], *, goes_on: bool = False) -> str:
    """What stands in the place of a version's text when a slot says that it has ended there.

    Nothing refers to such a query, and the record that holds it covers one slot alone.

    Args:
        text: of the version.
        time_ms: the slot's time; of steps from there on the slot says nothing.
        by: registry partition and offset of the change that ended it.
        goes_on: that is a version which goes on from it.
    """
    more = _GOES_ON if goes_on else ""
    return f"{_GONE}{text}{_AT}{time_ms}{_BY}[{by[0]},{by[1]}]{more}}}"


def over_spec(place: tuple[int, int], expires_ms: int | None, *, is_over: bool) -> str:
    """What stands in the place of a query's text when a slot has come to its end.

    Args:
        place: registry partition and revision of the version.
        expires_ms: when its lifetime ended, which the slot's time has passed; None: it has passed
            what the registry says.
        is_over: the registry says that its lifetime was over.
    """
    return orjson.dumps({"over": place, "ttl": expires_ms, "is_over": is_over}).decode()


def _read_over(text: str) -> Spec:
    match orjson.loads(text):
        case {"over": [int(partition), int(revision)], "ttl": None, "is_over": bool(is_over)}:
            return Spec(KIND_OVER, 0, place=(partition, revision), is_over=is_over)
        case {"over": [int(partition), int(revision)], "ttl": int(expires_ms)}:
            return Spec(KIND_OVER, 0, place=(partition, revision), expires_ms=expires_ms)
    return Spec(KIND_UNKNOWN, 0)


def read_spec(text: str) -> Spec:
    """Reads the JSON form of a query, or what `gone_spec` or `over_spec` makes of it."""
    if text.startswith(_OVER):
        # Each comes once.
        return _read_over(text)
    return _kept(text) if len(text) <= SPEC_LENGTH_MAX else _read(text)


@lru_cache(maxsize=SPECS_MAX)
def _kept(text: str) -> Spec:
    return _read(text)


def _read(text: str) -> Spec:
    data = text.encode()
    key = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
    former_key = xxhash.xxh3_64_intdigest(data)
    unknown = Spec(KIND_UNKNOWN, key, former_key)
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        return unknown
    if not isinstance(members, dict):
        return unknown
    if "gone" in members:
        ended, _, _ = text[len(_GONE) :].rpartition(_AT)
        match members:
            case {"at_ms": int(ended_ms), "by": [int(partition), int(offset)]}:
                by = partition, offset
            case {"at_ms": int(ended_ms)}:
                by = ENDED_SOMEWHERE
            case _:
                return unknown
        goes_on = members.get("goes_on") is True
        gone = read_spec(ended)
        return Spec(
            KIND_GONE,
            key,
            former_key,
            ended=gone,
            ended_ms=ended_ms,
            ended_by=by,
            goes_on=goes_on,
        )
    revision = members.pop("revision", NO_REVISION)
    name, k = members.get("kind"), members.get("k")
    if name == "range":
        return Spec(KIND_TRACKED if "track" in members else KIND_RANGE, key, former_key)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(k, int) or not 1 <= k <= DEFAULT_LIMITS.k:
        return unknown
    try:
        query = parse_query(members, limits=STORED_LIMITS) if kind == KIND_RANKED else None
    except InvalidArgument:
        return unknown
    assert query is None or isinstance(query, RankedQuery)
    known = 0
    is_told = isinstance(revision, int) and revision != NO_REVISION
    if isinstance(members.get("id"), str) and is_told:
        known = query_number(members["id"])
    else:
        revision = NO_REVISION
    return Spec(kind, key, former_key, k, query, query=known, revision=revision)
