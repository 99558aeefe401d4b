"""What the claims of a JWT open: its tenant and scopes, by rules of the operator (RFC 7519)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from sirocco.model.access import SCOPES, Grant, read_tenant
from sirocco.model.errors import InvalidArgument, PermissionDenied, Unauthenticated

# Says that a token is the operator's. A missing tenant says nothing: an identity provider that
# stops to send the claim would otherwise open all tenants' data to everybody.
OPERATOR = "operator"

# Seconds since 1970 that are a time at all; what is beyond is a mistake or a trick.
_SECONDS_MAX = 1e11

# Of a subject, in messages and logs.
_SUBJECT_LENGTH_MAX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """How claims are read.

    A claim is named by its name, or by a JSON pointer (RFC 6901) such as `/realm_access/roles`.

    Attributes:
        issuer: what `iss` has to be.
        audience: what `aud` has to be, or to contain.
        tenant: claim that names the tenant.
        scopes: claim that lists scopes: an array, or one text with spaces between them.
        prefix: begins those of its entries that are for Sirocco; others are skipped.
        skew_ms: how far the clocks of issuer and process may be apart.
    """

    issuer: str
    audience: str
    tenant: str = "tenant"
    scopes: str = "scope"
    prefix: str = "sirocco:"
    skew_ms: int = 30_000


def grant_of(payload: bytes, rules: ClaimRules, now_ms: int) -> Grant:
    """Returns what a JWT opens, whose signature has been checked.

    Args:
        payload: JSON text of its claims.
        rules: of the operator.
        now_ms: epoch ms.

    Raises:
        Unauthenticated: It is another issuer's or for somebody else, not valid now, or has no
            tenant.
        PermissionDenied: It opens nothing here, or what no tenant may do.
    """
    claims = _claims(payload)
    if claims.get("iss") != rules.issuer:
        raise Unauthenticated("the JWT is another issuer's")
    audience = claims.get("aud")
    if rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise Unauthenticated("the JWT is for another audience")
    not_before_ms = _time_ms(claims, "nbf", 0)
    if now_ms + rules.skew_ms < not_before_ms:
        raise Unauthenticated("the JWT is not valid yet")
    # Later checks compare with this moment alone.
    expires_ms = _time_ms(claims, "exp", None) + rules.skew_ms
    if now_ms >= expires_ms:
        raise Unauthenticated("the JWT has expired")
    tenant, scopes = _rights(claims, rules)
    return Grant(_subject(claims), tenant, scopes, expires_ms, is_jwt=True)


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = orjson.loads(payload)
    except orjson.JSONDecodeError:
        claims = None
    if not isinstance(claims, dict):
        raise Unauthenticated("the JWT holds no claims")
    return claims


def _time_ms(claims: Mapping[str, Any], name: str, default: int | None) -> int:
    """Returns a moment that a claim names in seconds, as epoch ms."""
    value = claims.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _SECONDS_MAX:
        raise Unauthenticated(f"the JWT has no valid `{name}`")
    return math.floor(float(value) * 1_000)


def _subject(claims: Mapping[str, Any]) -> str:
    """Returns the name of who holds the token; a stranger's text, so escaped and short."""
    subject = claims.get("sub")
    text = subject if isinstance(subject, str) else ""
    shown = text.encode("unicode_escape").decode()
    return shown if len(shown) <= _SUBJECT_LENGTH_MAX else shown[: _SUBJECT_LENGTH_MAX - 1] + "…"


def _rights(claims: Mapping[str, Any], rules: ClaimRules) -> tuple[str, frozenset[str]]:
    """Returns tenant and scopes."""
    listed = _claim(claims, rules.scopes)
    entries = listed.split(" ") if isinstance(listed, str) else listed
    named = {
        each.removeprefix(rules.prefix)
        for each in (entries if isinstance(entries, list) else ())
        if isinstance(each, str) and each.startswith(rules.prefix)
    }
    scopes = frozenset(named & set(SCOPES))
    if not scopes:
        raise PermissionDenied(
            f"the JWT has none of the scopes {', '.join(rules.prefix + each for each in SCOPES)}"
        )
    if OPERATOR in named:
        return "", scopes
    if "admin" in scopes:
        # It changes the map and the time of all tenants.
        raise PermissionDenied(
            f"the scope {rules.prefix}admin is only for tokens with {rules.prefix}{OPERATOR}"
        )
    try:
        return read_tenant(_claim(claims, rules.tenant)), scopes
    except InvalidArgument as error:
        raise Unauthenticated(f"the JWT has no valid tenant: it {error.message}") from None


def _claim(claims: Any, name: str) -> Any:
    """Returns a claim by its name or JSON pointer; None if there is none."""
    if not name.startswith("/"):
        return claims.get(name)
    found = claims
    for part in name[1:].split("/"):
        if not isinstance(found, dict):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found
