"""Access rights: tokens, tenants and their limits, as in the operator's file.

The file has one JSON object per line, of two kinds; empty lines and comments (#) are skipped:

    {"token": "k3x9q2", "sha256": "…", "tenant": "acme", "scopes": ["publish", "search"]}
    {"tenant": "acme", "queries": 10000, "objects_per_s": 5000, "bytes_per_s": 2000000,
     "streams": 100, "searches": 20}   (on one line)

It only holds digests: a reader of the file cannot call with them. Tokens are 256 random bits, so
that a plain digest is enough; slow password hashes would only slow each call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from sirocco.model.errors import InvalidArgument, Unauthenticated

SCOPES = ("publish", "query", "subscribe", "search", "admin")

# Separates a tenant from its own name of a thing; no tenant's name contains it.
SEPARATOR = ":"

_TENANT = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def tenant_of(name: str) -> str:
    """Returns the tenant of a name in the cluster; empty for the operator's."""
    tenant, separator, _ = name.partition(SEPARATOR)
    return tenant if separator else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a tenant; None: no limit.

    Attributes:
        queries: standing queries at a time, in the whole cluster.
        query_bytes: their total size, compiled, in a slot that holds them
            (`footprint.compiled_bytes`).
        objects_per_s, bytes_per_s: published through each router.
        streams, searches: open subscriptions and running searches at a time, at each merger.
        steps_per_s: of standing terms and ranked queries, in the whole cluster
            (`step_load.step_load`); None: as many as the cluster's settings say.
        change_bytes_per_s: that changes of queries append to all slots together, through each
            router; None: as many as the cluster's settings say.
    """

    queries: int | None = None
    objects_per_s: float | None = None
    bytes_per_s: float | None = None
    streams: int | None = None
    searches: int | None = None
    query_bytes: int | None = None
    steps_per_s: float | None = None
    change_bytes_per_s: float | None = None


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights of a token.

    Attributes:
        id: public name of the token.
        tenant: owner; empty for the operator, who sees all tenants' data.
        scopes: some of `SCOPES`.
        expires_ms: epoch ms; None: never.
        is_jwt: whether it is of a JWT, whose `id` is its subject, escaped; else of the file.
    """

    id: str
    tenant: str
    scopes: frozenset[str]
    expires_ms: int | None = None
    is_jwt: bool = False

    def inward(self, name: str) -> str:
        """Returns the name in the cluster for a tenant's own name."""
        return f"{self.tenant}{SEPARATOR}{name}" if self.tenant and name else name

    def outward(self, name: str) -> str:
        """Returns the tenant's own name for a name in the cluster."""
        return name.removeprefix(self.prefix)

    @property
    def prefix(self) -> str:
        """Prefix of all of the tenant's names in the cluster."""
        return f"{self.tenant}{SEPARATOR}" if self.tenant else ""


# For clusters without tokens.
EVERYTHING = Grant("", "", frozenset(SCOPES))


@dataclass(frozen=True, slots=True)
class Access:
    """Contents of an access file.

    Attributes:
        grants: by the SHA-256 of the token, in hexadecimal digits.
        limits: by tenant.
    """

    grants: Mapping[str, Grant] = field(default_factory=dict)
    limits: Mapping[str, Limits] = field(default_factory=dict)

    @property
    def tenants(self) -> frozenset[str]:
        """All tenants with a token or a limit, without the operator's empty name."""
        named = {grant.tenant for grant in self.grants.values()} | set(self.limits)
        return frozenset(named - {""})

    def grant(self, authorization: str, now_ms: int) -> Grant:
        """Returns the rights for a call's header.

        Raises:
            Unauthenticated: It is missing, or not a valid token now.
        """
        grant = self.grants.get(digest_of(bearer_of(authorization)))
        if grant is None:
            raise Unauthenticated("no such token")
        check_time(grant, now_ms)
        return grant


def bearer_of(authorization: str) -> str:
    """Returns the token of a call's header.

    Raises:
        Unauthenticated: It has none.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated("a call needs `authorization: Bearer TOKEN`")
    return token.strip()


def check_time(grant: Grant, now_ms: int) -> None:
    """Raises Unauthenticated for an expired grant."""
    if grant.expires_ms is not None and now_ms >= grant.expires_ms:
        raise Unauthenticated(f"token {grant.id} has expired")


def digest_of(token: str) -> str:
    """Returns the digest of a token, as in the file."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_access(text: str) -> Access:
    """Reads the file's text.

    Raises:
        InvalidArgument: a line is invalid; `field` is its number. The message never holds its
            contents, which may be a token instead of its digest.
    """
    grants: dict[str, Grant] = {}
    limits: dict[str, Limits] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            members = _members(line)
            if "sha256" in members:
                digest, grant = _read_grant(members)
                if digest in grants:
                    raise InvalidArgument("the same token again", field="sha256")
                grants[digest] = grant
            else:
                tenant, given = _read_limits(members)
                if tenant in limits:
                    raise InvalidArgument("has limits already", field="tenant")
                limits[tenant] = given
        except InvalidArgument as error:
            raise error.within(f"line {number}") from None
    return Access(grants, limits)


def write_grant(digest: str, grant: Grant, expires: str | None = None) -> str:
    """Returns the line of a token."""
    members: dict[str, Any] = {"token": grant.id, "sha256": digest}
    if grant.tenant:
        members["tenant"] = grant.tenant
    members["scopes"] = [scope for scope in SCOPES if scope in grant.scopes]
    if expires:
        members["expires"] = expires
    return orjson.dumps(members).decode()


def read_tenant(value: object) -> str:
    """Returns the name of a tenant.

    Raises:
        InvalidArgument: it is not a valid name.
    """
    if not isinstance(value, str) or not _TENANT.fullmatch(value):
        raise InvalidArgument(
            "must be 1 to 32 of a-z, 0-9 and -, beginning and ending with none of -",
            field="tenant",
        )
    return value


def read_time_ms(value: object) -> int:
    """Returns a moment such as 2027-01-01T00:00:00Z as epoch ms.

    Raises:
        InvalidArgument: it is not a moment, or has no time zone.
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidArgument("must be such as 2027-01-01T00:00:00Z", field="expires")
    return round(moment.timestamp() * 1_000)


def _members(line: str) -> dict[str, Any]:
    try:
        members = orjson.loads(line)
    except orjson.JSONDecodeError:
        members = None
    if not isinstance(members, dict):
        raise InvalidArgument("is no JSON object")
    return members


def _read_grant(members: Mapping[str, Any]) -> tuple[str, Grant]:
    _refuse_unknown(members, {"token", "sha256", "tenant", "scopes", "expires"})
    digest, name, scopes = members["sha256"], members.get("token"), members.get("scopes")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InvalidArgument("must be 64 hexadecimal digits", field="sha256")
    if not isinstance(name, str) or not name:
        raise InvalidArgument("must name it", field="token")
    if not isinstance(scopes, list) or not scopes or not set(map(str, scopes)) <= set(SCOPES):
        raise InvalidArgument(f"must be some of {', '.join(SCOPES)}", field="scopes")
    tenant = read_tenant(members["tenant"]) if "tenant" in members else ""
    if tenant and "admin" in scopes:
        # It changes the map and the time of all tenants.
        raise InvalidArgument("admin is only for tokens without a tenant", field="scopes")
    expires_ms = read_time_ms(members["expires"]) if "expires" in members else None
    return digest, Grant(name, tenant, frozenset(scopes), expires_ms)


def _read_limits(members: Mapping[str, Any]) -> tuple[str, Limits]:
    counts, rates = (
        ("queries", "query_bytes", "streams", "searches"),
        ("objects_per_s", "bytes_per_s", "steps_per_s", "change_bytes_per_s"),
    )
    _refuse_unknown(members, {"tenant", *counts, *rates})
    given: dict[str, Any] = {name: _read_count(members, name) for name in counts}
    given |= {name: _read_rate(members, name) for name in rates}
    return read_tenant(members.get("tenant")), Limits(**given)


def _read_rate(members: Mapping[str, Any], name: str) -> float | None:
    rate = members.get(name)
    if rate is not None and (type(rate) not in (int, float) or rate <= 0):
        raise InvalidArgument("must be a positive number", field=name)
    return None if rate is None else float(rate)


def _read_count(members: Mapping[str, Any], name: str) -> int | None:
    count = members.get(name)
    if count is not None and (type(count) is not int or count < 0):
        raise InvalidArgument("must be a whole number", field=name)
    return count


def _refuse_unknown(members: Mapping[str, Any], known: set[str]) -> None:
    if not known >= set(members):
        raise InvalidArgument(f"has members beside {', '.join(sorted(known))}")
