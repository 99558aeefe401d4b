"""Settings of TLS, tokens and JWTs, read from the environment."""

from __future__ import annotations

from urllib.parse import urlsplit

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.access.jwt_claims import ClaimRules
from sirocco.runtime.grpc.security import ALGORITHMS, JwtSettings, SecuritySettings
from sirocco.runtime.grpc.tls import TlsFiles
from sirocco.runtime.process.environment import Reader

# Tokens count as valid for so long after their end: clocks of servers differ by seconds.
JWT_SKEW_MAX_MS = 600_000


def read_security(read: Reader) -> SecuritySettings:
    """Reads how calls are encrypted, and whose are taken.

    Raises:
        InvalidArgument: A setting makes no sense, or tokens would travel in plain text.
    """
    certificate = read.text("SIROCCO_TLS_CERTIFICATE", "")
    encrypted = read.when(bool(certificate), "no SIROCCO_TLS_CERTIFICATE")
    tls = TlsFiles(
        certificate,
        encrypted.text("SIROCCO_TLS_KEY", None),
        encrypted.text("SIROCCO_TLS_CA", None),
        encrypted.text("SIROCCO_TLS_NAME", "sirocco"),
    )
    tokens = read.text("SIROCCO_TOKENS", "")
    in_mesh = read.choice("SIROCCO_TOKENS_IN_PLAINTEXT", "refuse", ("refuse", "allow"))
    jwt = _jwt(read, is_plain=in_mesh == "allow")
    if (tokens or jwt is not None) and not certificate and in_mesh == "refuse":
        # Anybody who intercepts one call could make any other from then on.
        raise InvalidArgument(
            "tokens would travel in plain text: set SIROCCO_TLS_CERTIFICATE, or "
            "SIROCCO_TOKENS_IN_PLAINTEXT=allow where a mesh encrypts",
            field="SIROCCO_TOKENS" if tokens else "SIROCCO_JWT_ISSUER",
        )
    return SecuritySettings(
        tls if certificate else None,
        tokens,
        read.integer("SIROCCO_PEER_PORT", 0, 65_535, least=0),
        jwt,
    )


def _jwt(read: Reader, *, is_plain: bool) -> JwtSettings | None:
    """Returns whose JWTs are taken; `is_plain`: keys may be fetched without TLS."""
    issuer = read.text("SIROCCO_JWT_ISSUER", "")
    used = read.when(bool(issuer), "no SIROCCO_JWT_ISSUER")
    rules = ClaimRules(
        issuer=issuer,
        audience=used.text("SIROCCO_JWT_AUDIENCE", None),
        tenant=used.text("SIROCCO_JWT_TENANT_CLAIM", "tenant"),
        scopes=used.text("SIROCCO_JWT_SCOPE_CLAIM", "scope"),
        prefix=used.text("SIROCCO_JWT_SCOPE_PREFIX", "sirocco:"),
        skew_ms=used.duration_ms("SIROCCO_JWT_CLOCK_SKEW", 30_000, 0),
    )
    found = JwtSettings(
        rules=rules,
        keys=used.text("SIROCCO_JWT_KEYS", None),
        ca=used.text("SIROCCO_JWT_KEYS_CA", ""),
        algorithms=_algorithms(used.text("SIROCCO_JWT_ALGORITHMS", "RS256,ES256,EdDSA,Ed25519")),
        interval_ms=used.duration_ms("SIROCCO_JWT_KEYS_INTERVAL", 300_000, 10_000),
    )
    if not issuer:
        return None
    if rules.skew_ms > JWT_SKEW_MAX_MS:
        raise InvalidArgument("is more than 10m", field="SIROCCO_JWT_CLOCK_SKEW")
    if found.is_address:
        _check_address(found.keys, is_plain=is_plain)
    return found


def _algorithms(text: str) -> frozenset[str]:
    found = frozenset(each.strip() for each in text.split(",") if each.strip())
    # Without an issuer there are none.
    if text and not (found and found <= set(ALGORITHMS)):
        raise InvalidArgument(
            f"{text!r:.80} is no list of {', '.join(ALGORITHMS)}", field="SIROCCO_JWT_ALGORITHMS"
        )
    return found


def _check_address(url: str, *, is_plain: bool) -> None:
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        is_whole = False
    if not is_whole or (parts.scheme != "https" and not is_plain):
        # A network that changes the answer could make tokens.
        raise InvalidArgument(
            "is no https://HOST[:PORT]/PATH; http:// needs SIROCCO_TOKENS_IN_PLAINTEXT=allow",
            field="SIROCCO_JWT_KEYS",
        )
