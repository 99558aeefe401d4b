"""Who may call a process, and how: its TLS and the tokens of its clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from sirocco.runtime.grpc.authentication import TokenFile
from sirocco.runtime.grpc.peer_channels import PLAIN, Dialer
from sirocco.runtime.grpc.tls import Tls, TlsFiles


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Security settings of a process.

    Attributes:
        tls: files of its certificate; None for plain text.
        tokens: path of the clients' tokens; empty: anybody may do anything.
        peer_port: where a router listens to other services, if those have a port of their own; 0
            for a free one.
    """

    tls: TlsFiles | None = None
    tokens: str = ""
    peer_port: int = 0


@dataclass(frozen=True, slots=True)
class Security:
    """Certificates and tokens of a process, as read.

    Attributes:
        tls: None for plain text.
        tokens: None: anybody may do anything.
        dialer: opens channels to other services.
        peer_port: see `SecuritySettings`.
    """

    tls: Tls | None = None
    tokens: TokenFile | None = None
    dialer: Dialer = field(default=PLAIN)
    peer_port: int = 0

    @property
    def parts_peers(self) -> bool:
        """Whether calls between services have a port that clients do not use."""
        return self.tls is not None or self.tokens is not None


# For one laptop.
OPEN = Security()


def secured(settings: SecuritySettings) -> Security:
    """Reads certificates and tokens.

    Raises:
        InvalidArgument: a file is unreadable or invalid.
    """
    tls = None if settings.tls is None else Tls(settings.tls)
    tokens = TokenFile(settings.tokens) if settings.tokens else None
    return Security(tls, tokens, Dialer(tls), settings.peer_port)
