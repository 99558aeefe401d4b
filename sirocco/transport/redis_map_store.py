"""The map store on Redis; the only module that knows its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import redis
from redis.backoff import EqualJitterBackoff
from redis.exceptions import (
    BusyLoadingError,
    MasterDownError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from sirocco.transport.errors import TransportUnavailable

_T = TypeVar("_T")

# One call ends within about (1 + 2) × 0.5 s and the waits between, well below the shortest lease (6
# s): a holder that cannot reach Redis gets an error before its lease expires.
_ANSWER_TIMEOUT_S: Final = 0.5
_RETRIES: Final = 2
_RETRY_WAIT_S: Final = 0.05
_RETRY_WAIT_S_MAX: Final = 0.2

# Keys of one step of SCAN. Redis serves nobody else during a step (about 0.1 ms at 1,000).
_SCAN_COUNT: Final = 1000

# Check and change in one step on the server: a predecessor never prolongs or deletes a lease that a
# successor has taken in between.
_ACQUIRE: Final = """
local holder = redis.call('GET', KEYS[1])
if holder == false or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
return 0
"""
_RENEW: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""


class RedisMapStore:
    """`MapStore` on one Redis (or a service in front of its replicas).

    Args:
        url: redis://[USER:PASSWORD@]HOST:PORT/DB, or rediss:// with TLS.
        prefix: before every key, for several clusters in one Redis.
        tls_ca: path of the authorities' certificates, with rediss://; the system's if empty.

    Raises:
        ValueError: the address is invalid.
    """

    def __init__(self, url: str, prefix: str = "sirocco", *, tls_ca: str = "") -> None:
        tls: dict[str, Any] = {"ssl_ca_certs": tls_ca} if tls_ca else {}
        self._client: Any = redis.Redis.from_url(
            url,
            **tls,
            socket_timeout=_ANSWER_TIMEOUT_S,
            socket_connect_timeout=_ANSWER_TIMEOUT_S,
            retry=Retry(
                EqualJitterBackoff(cap=_RETRY_WAIT_S_MAX, base=_RETRY_WAIT_S),
                _RETRIES,
                supported_errors=(RedisConnectionError, RedisTimeoutError, BusyLoadingError),
            ),
        )
        self._leases = f"{prefix}:lease:"
        self._values = f"{prefix}:value:"
        self._acquire = self._client.register_script(_ACQUIRE)
        self._renew = self._client.register_script(_RENEW)
        self._release = self._client.register_script(_RELEASE)

    def acquire(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See `MapStore.acquire`."""
        keys = [self._leases + name]
        return bool(self._typed(lambda: self._acquire(keys=keys, args=[holder, ttl_ms])))

    def renew(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See `MapStore.renew`."""
        keys = [self._leases + name]
        return bool(self._typed(lambda: self._renew(keys=keys, args=[holder, ttl_ms])))

    def release(self, name: str, holder: str) -> bool:
        """See `MapStore.release`; also false if a retry finds the lease already released."""
        keys = [self._leases + name]
        return bool(self._typed(lambda: self._release(keys=keys, args=[holder])))

    def holders(self, prefix: str) -> dict[str, str]:
        """See `MapStore.holders`."""
        found = self._typed(lambda: self._scan(self._leases, prefix))
        named = ((name, _text(holder)) for name, holder in found.items())
        return {name: holder for name, holder in named if holder is not None}

    def put(self, key: str, value: bytes, *, ttl_ms: int | None = None) -> None:
        """See `MapStore.put`."""
        self._typed(lambda: self._client.set(self._values + key, value, px=ttl_ms))

    def get(self, key: str) -> bytes | None:
        """See `MapStore.get`."""
        found: bytes | None = self._typed(lambda: self._client.get(self._values + key))
        return found

    def delete(self, key: str) -> None:
        """See `MapStore.delete`."""
        self._typed(lambda: self._client.delete(self._values + key))

    def scan(self, prefix: str) -> dict[str, bytes]:
        """See `MapStore.scan`."""
        return self._typed(lambda: self._scan(self._values, prefix))

    def close(self) -> None:
        """See `MapStore.close`."""
        self._client.close()

    def _scan(self, space: str, prefix: str) -> dict[str, bytes]:
        """Returns all live entries of a key space; a key that vanishes meanwhile is left out.

        So is one that is no UTF-8: no process of a cluster writes such keys, and others may use the
        same Redis.
        """
        pattern = _literal(space + prefix) + "*"
        keys = sorted(set(self._client.scan_iter(match=pattern, count=_SCAN_COUNT)))
        if not keys:
            return {}
        values = self._client.mget(keys)
        named = ((_text(key), value) for key, value in zip(keys, values, strict=True))
        return {
            key[len(space) :]: value
            for key, value in named
            if key is not None and value is not None
        }

    def _typed(self, call: Callable[[], _T]) -> _T:
        """Runs a call; turns every error of Redis or its client into `TransportUnavailable`."""
        try:
            return call()
        except RedisError as error:
            if isinstance(error, (ReadOnlyError, MasterDownError)):
                # A failover may leave connections to the former master open. Only a new one reaches
                # its successor; those in use by others are dropped when they get this error.
                self._client.connection_pool.disconnect(inuse_connections=False)
            raise TransportUnavailable(f"redis: {type(error).__name__}: {error}") from error


def _text(data: bytes) -> str | None:
    """Returns what bytes spell; None if they are no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _literal(text: str) -> str:
    """Returns a pattern of Redis that matches just `text`."""
    return "".join("\\" + c if c in "*?[]\\^" else c for c in text)
