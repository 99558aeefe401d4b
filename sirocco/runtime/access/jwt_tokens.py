"""JWTs as tokens of clients: checked once, remembered until they end.

A token is a stranger's text until its signature has been checked. Therefore in order: its length,
whether it is known (one digest, as of any token), its header, the budget of checks, its signature,
and only then its claims. Calls with a token that is known cost no cryptography.
"""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError

from sirocco.model.access import Grant, check_time
from sirocco.model.errors import (
    PermissionDenied,
    ResourceExhausted,
    SiroccoError,
    Unauthenticated,
    Unavailable,
)
from sirocco.model.quotas.quota import Bucket, SharedRate
from sirocco.runtime.access.jwt_claims import ClaimRules, grant_of
from sirocco.runtime.access.jwt_keys import JwtKey, JwtKeys, KeySource
from sirocco.runtime.process.clock import monotonic_ms, now_ms

logger = logging.getLogger(__name__)

# As clients of ours send them; gRPC refuses some headers from there on.
TOKEN_LENGTH_MAX = 8_192

# Base64 characters: of a header with all names of keys that issuers use, and of an RSA signature
# of 8,192 bits.
_HEADER_LENGTH_MAX = 1_024
_SIGNATURE_LENGTH_MAX = 1_400

# A name of a key is shown nowhere, but compared with each key.
_KID_LENGTH_MAX = 256

# How long a refusal is remembered: clocks go on, and issuers publish keys.
REFUSED_MS = 5_000


@dataclass(frozen=True, slots=True)
class JwtBudget:
    """How many new tokens are checked, and how many answers are remembered.

    A check takes 0.1 to 0.4 ms of the loop of all calls, an answer some 500 bytes.

    Attributes:
        process_per_s: of all; hosts share it, since anybody can make tokens up.
        connection_per_s: of one connection; a gateway has many clients on one.
        connections: whose rates are remembered, and of as many hosts.
        known, refused: answers.
    """

    process_per_s: float = 300.0
    connection_per_s: float = 100.0
    connections: int = 8_192
    known: int = 8_192
    refused: int = 4_096


BUDGET = JwtBudget()


@dataclass(frozen=True, slots=True)
class CheckedJwt:
    """A token whose signature was good.

    Attributes:
        grant: what it opens.
        thumbprint: of the key that signed it.
    """

    grant: Grant
    thumbprint: str


@dataclass(frozen=True, slots=True)
class _Refused:
    error: type[SiroccoError]
    message: str
    keys: JwtKeys
    until_ms: int


class _Registry(jws.JWSRegistry):
    """The allowed algorithms, whatever the library recommends; headers are read here already."""

    def __init__(self, algorithms: frozenset[str]) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)
        self.max_header_length = _HEADER_LENGTH_MAX
        self.max_signature_length = _SIGNATURE_LENGTH_MAX

    def get_alg(self, name: str) -> Any:
        """See `JWSRegistry`: it would warn at each check with EdDSA."""
        if name not in (self.allowed or ()):
            raise UnsupportedAlgorithmError(f"Algorithm of '{name}' is not allowed")
        return self.algorithms[name]


class JwtTokens:
    """Checks JWTs; belongs to one loop.

    Args:
        rules: how claims are read.
        source: of the issuer's keys.
        algorithms: that are allowed; asymmetric ones.
        budget: of checks.
        clock_ms: epoch ms.
        elapsed_ms: of a clock that only goes forward.
    """

    def __init__(
        self,
        rules: ClaimRules,
        source: KeySource,
        algorithms: frozenset[str],
        budget: JwtBudget = BUDGET,
        clock_ms: Callable[[], int] = now_ms,
        elapsed_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._rules = rules
        self._source = source
        self._algorithms = algorithms
        self._registry = _Registry(algorithms)
        self._budget = budget
        self._clock_ms = clock_ms
        self._elapsed_ms = elapsed_ms
        self._process = SharedRate(budget.process_per_s, budget.connections)
        # The longest unused first, in all three.
        self._connections: OrderedDict[str, Bucket] = OrderedDict()
        self._known: OrderedDict[str, CheckedJwt] = OrderedDict()
        self._refused: OrderedDict[str, _Refused] = OrderedDict()
        self.checks_total = 0

    def checked(self, token: str, digest: str, peer: str, host: str) -> CheckedJwt:
        """Returns what a token opens.

        Args:
            token: of a call's header.
            digest: of it.
            peer: the connection.
            host: that it comes from.

        Raises:
            Unauthenticated: It is no valid token now.
            PermissionDenied: It is valid and opens nothing here.
            Unavailable: Its key may be fetched soon.
            ResourceExhausted: Too many new tokens have to be checked.
        """
        known = self._known.get(digest)
        if known is not None:
            try:
                self.check(known)
            except Unauthenticated:
                del self._known[digest]
                raise
            self._known.move_to_end(digest)
            return known
        keys = self._source.keys
        self._refuse_again(digest, keys)
        try:
            key = self._key_of(token, keys)
            self._spend(peer, host)
            self.checks_total += 1
            found = self._check_new(token, key)
        except (Unauthenticated, PermissionDenied) as error:
            until_ms = self._elapsed_ms() + REFUSED_MS
            self._refused[digest] = _Refused(type(error), error.message, keys, until_ms)
            _trim(self._refused, self._budget.refused)
            raise
        self._known[digest] = found
        _trim(self._known, self._budget.known)
        return found

    def check(self, known: CheckedJwt) -> None:
        """Checks a token again, without its signature.

        Raises:
            Unauthenticated: It has ended, or the issuer took its key back.
        """
        if not self._source.keys.has(known.thumbprint):
            raise Unauthenticated("the key of the JWT is the issuer's no more")
        check_time(known.grant, self._clock_ms())

    def _refuse_again(self, digest: str, keys: JwtKeys) -> None:
        """Raises the error of a token that was refused just now."""
        refused = self._refused.get(digest)
        if refused is None:
            return
        if refused.keys is keys and self._elapsed_ms() < refused.until_ms:
            raise refused.error(refused.message)
        del self._refused[digest]

    def _spend(self, peer: str, host: str) -> None:
        """Takes one check from the budgets of the connection and the process."""
        at_ms = self._elapsed_ms()
        own = self._connections.get(peer)
        if own is None:
            own = self._connections[peer] = Bucket(self._budget.connection_per_s, at_ms)
            _trim(self._connections, self._budget.connections)
        self._connections.move_to_end(peer)
        if wait_ms := max(own.wait_ms(at_ms), self._process.wait_ms(host, at_ms)):
            raise ResourceExhausted("too many new JWTs at a time", retry_after_ms=wait_ms)
        own.take(1, at_ms)
        self._process.take(host, at_ms)

    def _check_new(self, token: str, key: JwtKey) -> CheckedJwt:
        try:
            found = jws.deserialize_compact(token, key.key, registry=self._registry)
        except (JoseError, ValueError, TypeError):
            raise Unauthenticated("the signature of the JWT is wrong") from None
        return CheckedJwt(grant_of(found.payload, self._rules, self._clock_ms()), key.thumbprint)

    def _key_of(self, token: str, keys: JwtKeys) -> JwtKey:
        """Returns the key that a token names; it is read no further than its header."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise Unauthenticated(f"the JWT has more than {TOKEN_LENGTH_MAX} characters")
        algorithm, kid = _header(token)
        if algorithm not in self._algorithms:
            raise Unauthenticated("the algorithm of the JWT is not allowed")
        key = keys.key(kid, algorithm)
        if key is None:
            if self._source.look_again():
                raise Unavailable("the key of the JWT is not known yet; keys are being fetched")
            raise Unauthenticated("the issuer has no such key")
        return key


def _header(token: str) -> tuple[str, str | None]:
    """Returns algorithm and name of the key.

    Keys and addresses of keys that a header brings along are never used. Its members have to be
    texts: nothing nested, no critical extensions (RFC 7515, 4.1.11), no unencoded payload.
    """
    segment = token.partition(".")[0]
    members = None
    if len(segment) <= _HEADER_LENGTH_MAX and token.isascii():
        try:
            padded = segment + "=" * (-len(segment) % 4)
            members = orjson.loads(b64decode(padded, b"-_", validate=True))
        except (binascii.Error, orjson.JSONDecodeError):
            members = None
    if not isinstance(members, dict) or not all(isinstance(x, str) for x in members.values()):
        raise Unauthenticated("the header of the JWT cannot be read")
    kid = members.get("kid")
    if len(kid or "") > _KID_LENGTH_MAX:
        raise Unauthenticated("the JWT names a key too long")
    return members.get("alg", ""), kid


def _trim(kept: OrderedDict[str, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
