"""An issuer of JWTs whose keys were made in the test."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from sirocco.model.access import digest_of
from sirocco.runtime.access.jwt_claims import ClaimRules
from sirocco.runtime.access.jwt_keys import JwtKeys, read_keys
from sirocco.runtime.access.jwt_tokens import BUDGET, CheckedJwt, JwtBudget, JwtTokens

# 2026-11-26T12:00:00Z.
NOW_S = 1_795_694_400

RULES = ClaimRules(issuer="https://issuer.test", audience="sirocco")
ALGORITHMS = frozenset({"RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"})
CLAIMS = {
    "iss": RULES.issuer,
    "aud": RULES.audience,
    "sub": "ann",
    "exp": NOW_S + 300,
    "tenant": "acme",
    "scope": "openid sirocco:query sirocco:search",
}

Key = RSAKey | ECKey | OKPKey


@cache
def key(algorithm: str, name: str = "k") -> Key:
    """A private key for an algorithm; the same for the same name."""
    if algorithm.startswith(("RS", "PS")):
        return RSAKey.generate_key(2048)
    curves = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
    if algorithm in curves:
        return ECKey.generate_key(curves[algorithm])  # type: ignore[arg-type]
    return OKPKey.generate_key("Ed25519")


def public(made: Key, kid: Any = "k", **members: Any) -> dict[str, Any]:
    """The key as an entry of a JWKS."""
    return {**made.as_dict(private=False), "kid": kid, "use": "sig", **members}


def jwks(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


def part(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token(
    algorithm: str = "ES256", made: Key | None = None, kid: str | None = "k", **changed: Any
) -> str:
    """A token of CLAIMS; a claim that is None is left out."""
    claims = {name: each for name, each in (CLAIMS | changed).items() if each is not None}
    return signed(json.dumps(claims).encode(), algorithm, made, kid)


def signed(
    payload: bytes,
    algorithm: str = "ES256",
    made: Key | None = None,
    kid: Any = "k",
    **members: Any,
) -> str:
    header: dict[str, Any] = {"alg": algorithm} | ({} if kid is None else {"kid": kid}) | members
    segments = f"{part(json.dumps(header).encode())}.{part(payload)}"
    model = jws.JWSRegistry.algorithms[algorithm]
    signature = model.sign(segments.encode(), made or key(algorithm))
    return f"{segments}.{part(signature)}"


class Source:
    """Keys that the test sets."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.current: JwtKeys = read_keys(jwks(*entries), ALGORITHMS)
        self.is_coming = False
        self.asked = 0

    @property
    def keys(self) -> JwtKeys:
        return self.current

    def look_again(self) -> bool:
        self.asked += 1
        return self.is_coming


class Issuer:
    """Tokens and what checks them, on clocks that the test moves."""

    def __init__(self, *entries: dict[str, Any], budget: JwtBudget = BUDGET) -> None:
        self.now_ms = NOW_S * 1_000
        self.source = Source(*(entries or (public(key("ES256")),)))
        self.tokens = JwtTokens(
            RULES,
            self.source,
            ALGORITHMS,
            budget,
            clock_ms=lambda: self.now_ms,
            elapsed_ms=lambda: self.now_ms,
        )

    def take(self, presented: str, peer: str = "ipv4:10.0.0.1:5") -> CheckedJwt:
        return self.tokens.checked(presented, digest_of(presented), peer, peer.rpartition(":")[0])
