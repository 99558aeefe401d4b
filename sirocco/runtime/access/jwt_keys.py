"""Public keys that JWTs are checked with: a JWKS (RFC 7517) of a file or an HTTPS address.

Keys of an address are fetched by threads of their own, so that an issuer that is slow or away holds
up no call. What was fetched last stays in force until the next answer that can be read.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from sirocco.model.errors import InvalidArgument, Unavailable
from sirocco.runtime.process.watched_file import WatchedFile
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Issuers publish two or three keys, the largest of them about ten.
KEYS_MAX = 256

# RSA below 2,048 bits is broken soon; beyond 8,192 a check takes more than a millisecond.
_RSA_BITS = (2_048, 8_192)

# Base64 characters of the longest modulus.
_NUMBER_LENGTH_MAX = 1_400

# A token names a key that is not known: the issuer may have new ones. Anybody can make up names, so
# the issuer is asked no more often than this.
UNKNOWN_MS_MIN = 10_000

# After a failure; doubled with each further one, up to the usual interval.
RETRY_MS = 2_000

# Part of a pause that is left to chance: processes that start together must not ask together.
JITTER = 0.2

Key = RSAKey | ECKey | OKPKey

# Key type and curve (of RSA: none) → algorithms that may be checked with such a key. Only
# asymmetric ones: with a shared secret, or with a public key taken for one, anybody who can check a
# token could make one.
_FITTING: dict[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
}
_TYPES: dict[str, type[Key]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


@dataclass(frozen=True, slots=True)
class JwtKey:
    """A key of the issuer.

    Attributes:
        kid: its name; empty if it has none.
        key: the key.
        algorithms: that it may be used with.
        thumbprint: distinguishes it from all other keys (RFC 7638).
    """

    kid: str
    key: Key
    algorithms: frozenset[str]
    thumbprint: str


class JwtKeys:
    """The keys of one JWKS."""

    def __init__(self, keys: Iterable[JwtKey]) -> None:
        self._keys = tuple(keys)
        self._thumbprints = frozenset(each.thumbprint for each in self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, thumbprint: str) -> bool:
        """Whether a key is among them."""
        return thumbprint in self._thumbprints

    def key(self, kid: str | None, algorithm: str) -> JwtKey | None:
        """Returns the key that a header names; without a name, the only one that fits."""
        fitting = [each for each in self._keys if algorithm in each.algorithms]
        if kid is not None:
            return next((each for each in fitting if each.kid == kid), None)
        return fitting[0] if len(fitting) == 1 else None


def read_keys(data: bytes, algorithms: frozenset[str]) -> JwtKeys:
    """Reads a JWKS; keys that cannot be used here are skipped.

    Raises:
        InvalidArgument: It is none, or holds no key for one of the algorithms.
    """
    try:
        members = orjson.loads(data)
    except orjson.JSONDecodeError:
        members = None
    listed = members.get("keys") if isinstance(members, dict) else None
    if not isinstance(listed, list):
        raise InvalidArgument("is no JWKS: a JSON object with `keys`")
    if len(listed) > KEYS_MAX:
        raise InvalidArgument(f"has more than {KEYS_MAX} keys")
    found = [key for key in (_key(each, algorithms) for each in listed) if key is not None]
    if not found:
        raise InvalidArgument(f"has no public key for {', '.join(sorted(algorithms))}")
    return JwtKeys(found)


def _key(members: Any, algorithms: frozenset[str]) -> JwtKey | None:
    """Returns one key; None if it is no key for our signatures."""
    try:
        return _read_key(members, algorithms)
    except (JoseError, ValueError, TypeError, AttributeError):
        return None


def _read_key(members: dict[str, Any], algorithms: frozenset[str]) -> JwtKey | None:
    if members.get("use", "sig") != "sig" or "verify" not in members.get("key_ops", ["verify"]):
        return None
    kind = members["kty"] if members.get("kty") in _TYPES else ""
    fitting = _FITTING.get((kind, members.get("crv", "")), ())
    usable = algorithms & {each for each in fitting if members.get("alg", each) == each}
    # Only what the key is made of: a private part that was left in is none of our business.
    parts: dict[str, str | list[str]] = {
        name: members[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in members
    }
    if not usable or any(len(part) > _NUMBER_LENGTH_MAX for part in parts.values()):
        return None
    key = _TYPES[kind].import_key(parts)
    if isinstance(key, RSAKey) and not _has_bits(key):
        return None
    kid = members.get("kid", "")
    return JwtKey(kid, key, usable, key.thumbprint()) if isinstance(kid, str) else None


def _has_bits(key: RSAKey) -> bool:
    least, most = _RSA_BITS
    return least <= key.public_key.key_size <= most


class KeySource(Protocol):
    """Where keys come from."""

    @property
    def keys(self) -> JwtKeys:
        """The keys in force; the same object until they change.

        Raises:
            Unavailable: None have been read yet.
        """

    def look_again(self) -> bool:
        """Asks for newer keys because one is missing; returns whether some may come soon."""


class KeyFile:
    """Keys of a file, read again when it changes."""

    def __init__(self, path: str, algorithms: frozenset[str]) -> None:
        self._file = WatchedFile(
            path, lambda data: read_keys(data, algorithms), "jwt_keys", "SIROCCO_JWT_KEYS"
        )

    @property
    def keys(self) -> JwtKeys:
        """See `KeySource`."""
        return self._file.contents

    def look_again(self) -> bool:
        """See `KeySource`: it is looked at every second anyway."""
        return False


def _in_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="jwt-keys", daemon=True).start()


class KeyAddress:
    """Keys of an address, fetched now and then.

    They are fetched when they are asked for and due: a process without calls asks nobody.

    Args:
        fetch: returns the bytes of the JWKS; raises OSError.
        algorithms: that are allowed.
        interval_ms: between two fetches.
        begin: runs a job beside the caller.
        clock_ms: the time, of a clock that only goes forward.
        chance: from 0 to 1.
    """

    def __init__(
        self,
        fetch: Callable[[], bytes],
        algorithms: frozenset[str],
        interval_ms: int,
        begin: Callable[[Callable[[], None]], None] = _in_thread,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._fetch = fetch
        self._algorithms = algorithms
        self._interval_ms = interval_ms
        self._begin = begin
        self._clock_ms = clock_ms
        self._chance = chance
        self._lock = threading.Lock()
        self._data = b""
        self._keys: JwtKeys | None = None
        self._is_fetching = False
        self._failures = 0
        self._due_ms = self._asked_ms = clock_ms()
        self._look(self._due_ms)

    @property
    def keys(self) -> JwtKeys:
        """See `KeySource`."""
        now_ms = self._clock_ms()
        if now_ms >= self._due_ms:
            self._look(now_ms)
        if (keys := self._keys) is None:
            raise Unavailable("the keys of JWTs have not been fetched yet")
        return keys

    def look_again(self) -> bool:
        """See `KeySource`."""
        now_ms = self._clock_ms()
        if now_ms - self._asked_ms >= UNKNOWN_MS_MIN:
            self._look(now_ms)
        return self._is_fetching

    def _look(self, now_ms: int) -> None:
        """Begins a fetch, unless one is under way."""
        with self._lock:
            if self._is_fetching:
                return
            self._is_fetching = True
            self._asked_ms = now_ms
        try:
            self._begin(self._run)
        except RuntimeError:
            # No thread can be started now.
            self._end(failed=True)

    def _run(self) -> None:
        try:
            data = self._fetch()
            # The same text gives the same object: nothing that was checked is checked again.
            if data != self._data:
                self._keys = read_keys(data, self._algorithms)
                self._data = data
                logger.info("keys of JWTs read", extra=event("jwt_keys_read", keys=len(self._keys)))
        except (OSError, InvalidArgument) as error:
            logger.error(
                "the keys of JWTs cannot be fetched; the former ones stay in force",
                extra=event("jwt_keys_unreadable", reason=f"{type(error).__name__}: {error}"),
            )
            self._end(failed=True)
        except BaseException:
            self._end(failed=True)
            raise
        else:
            self._end(failed=False)

    def _end(self, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        # No more doublings than lead to the longest interval.
        pause_ms = RETRY_MS << min(self._failures - 1, 30) if failed else self._interval_ms
        spread = 1 + JITTER * (2 * self._chance() - 1)
        self._due_ms = self._clock_ms() + round(min(pause_ms, self._interval_ms) * spread)
        self._is_fetching = False
