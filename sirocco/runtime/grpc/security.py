"""Who may call a process, and how: its TLS, the tokens of its clients, and whose JWTs it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sirocco.runtime.access.jwt_claims import ClaimRules
from sirocco.runtime.grpc.authentication import TokenFile
from sirocco.runtime.grpc.peer_channels import PLAIN, Dialer
from sirocco.runtime.grpc.tls import Tls, TlsFiles

if TYPE_CHECKING:
    from sirocco.runtime.access.jwt_tokens import JwtTokens

# Algorithms of JWTs. There are no others: with HS256 everybody who checks tokens could make them.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """Whose JWTs a process takes.

    Attributes:
        rules: how claims are read.
        keys: path or address of the issuer's JWKS.
        ca: file of the authorities to believe for the address; the system's if empty.
        algorithms: some of `ALGORITHMS`.
        interval_ms: between two fetches of an address.
    """

    rules: ClaimRules
    keys: str
    ca: str = ""
    algorithms: frozenset[str] = frozenset({"RS256", "ES256", "EdDSA", "Ed25519"})
    interval_ms: int = 300_000

    @property
    def is_address(self) -> bool:
        """Whether the keys are fetched."""
        return self.keys.startswith(("https://", "http://"))


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Security settings of a process.

    Attributes:
        tls: files of its certificate; None for plain text.
        tokens: path of the clients' tokens; without it and `jwt` anybody may do anything.
        peer_port: where a router listens to other services, if those have a port of their own; 0
            for a free one.
        jwt: None: JWTs are no tokens.
    """

    tls: TlsFiles | None = None
    tokens: str = ""
    peer_port: int = 0
    jwt: JwtSettings | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """Certificates and tokens of a process, as read.

    Attributes:
        tls: None for plain text.
        tokens: of the operator's file.
        dialer: opens channels to other services.
        peer_port: see `SecuritySettings`.
        jwts: of the issuer; without them and `tokens` anybody may do anything.
    """

    tls: Tls | None = None
    tokens: TokenFile | None = None
    dialer: Dialer = field(default=PLAIN)
    peer_port: int = 0
    jwts: JwtTokens | None = None

    @property
    def needs_tokens(self) -> bool:
        """Whether calls of clients need a token."""
        return self.tokens is not None or self.jwts is not None

    @property
    def parts_peers(self) -> bool:
        """Whether calls between services have a port that clients do not use."""
        return self.tls is not None or self.needs_tokens


# For one laptop.
OPEN = Security()


def secured(settings: SecuritySettings) -> Security:
    """Reads certificates and tokens.

    Raises:
        InvalidArgument: a file is unreadable or invalid.
    """
    tls = None if settings.tls is None else Tls(settings.tls)
    tokens = TokenFile(settings.tokens) if settings.tokens else None
    jwts = None if settings.jwt is None else _jwts(settings.jwt)
    return Security(tls, tokens, Dialer(tls), settings.peer_port, jwts)


def _jwts(settings: JwtSettings) -> JwtTokens:
    # Only here: their libraries take a second to load.
    from sirocco.runtime.access.jwks_fetch import fetch  # noqa: PLC0415
    from sirocco.runtime.access.jwt_keys import KeyAddress, KeyFile, KeySource  # noqa: PLC0415
    from sirocco.runtime.access.jwt_tokens import JwtTokens  # noqa: PLC0415

    algorithms = settings.algorithms
    source: KeySource
    if settings.is_address:
        fetched = partial(fetch, settings.keys, settings.ca)
        source = KeyAddress(fetched, algorithms, settings.interval_ms)
    else:
        source = KeyFile(settings.keys, algorithms)
    return JwtTokens(settings.rules, source, algorithms)
