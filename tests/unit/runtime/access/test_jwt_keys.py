"""Keys of JWTs: which are taken, and when they are fetched."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from sirocco.model.errors import InvalidArgument, Unavailable
from sirocco.runtime.access.jwks_fetch import fetch
from sirocco.runtime.access.jwt_keys import (
    JITTER,
    KEYS_MAX,
    RETRY_MS,
    UNKNOWN_MS_MIN,
    KeyAddress,
    KeyFile,
    read_keys,
)
from tests.support.http_answers import serving
from tests.support.jwts import ALGORITHMS, jwks, key, public
from tests.support.waiting import eventually

EC = public(key("ES256"), "ec")


@pytest.mark.parametrize(
    "entry",
    [
        OctKey.generate_key(256).as_dict(private=True),
        public(key("RS256"), use="enc"),
        public(key("RS256"), alg="RS1"),
        public(key("RS256"), alg=["RS256"]),
        public(key("RS256"), key_ops=["encrypt"]),
        public(key("RS256"), key_ops=7),
        public(key("RS256")) | {"n": "AQAB"},
        public(key("RS256")) | {"n": "A" * 1_000_000},
        public(key("RS256")) | {"n": None},
        public(key("RS256"), kty=["RSA"]),
        public(key("RS256"), kid=7),
        public(ECKey.generate_key("secp256k1")),
        public(key("ES256"), crv={"P": 256}),
        {**public(key("ES256")), "x": "AAAA"},
        {},
        7,
        None,
    ],
    # The same in each process, though keys are drawn.
    ids=range(17),
)
@pytest.mark.filterwarnings("error")
def test_a_key_that_is_no_use_is_skipped(entry: Any) -> None:
    assert len(read_keys(jwks(entry, EC), ALGORITHMS)) == 1
    with pytest.raises(InvalidArgument, match="no public key"):
        read_keys(jwks(entry), ALGORITHMS)


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
def test_a_weak_key_is_skipped() -> None:
    with pytest.raises(InvalidArgument, match="no public key"):
        read_keys(jwks(public(RSAKey.generate_key(1024))), ALGORITHMS)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"keys": 7}', b"<html>", b"[" * 100_000, jwks(*[{}] * (KEYS_MAX + 1))],
    ids=["nothing", "a list", "a number", "a page", "nested", "many"],
)
def test_what_is_no_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read_keys(text, ALGORITHMS)


def test_a_key_is_used_with_its_own_algorithms_alone() -> None:
    keys = read_keys(jwks(public(key("RS256"), "r", alg="RS256"), EC), ALGORITHMS)
    assert keys.key("r", "RS256") is not None
    assert keys.key("r", "PS256") is None
    assert keys.key("ec", "RS256") is None
    assert keys.key("ec", "ES384") is None
    assert keys.key(None, "ES256") is not None


def test_a_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(EC))
    source = KeyFile(str(path), ALGORITHMS)
    monkeypatch.setattr(source._file, "_look_s", 0.0)
    assert source.keys is source.keys
    path.write_bytes(jwks(EC, public(key("RS256"))))
    assert len(source.keys) == 2
    path.write_text("{")
    assert len(source.keys) == 2
    assert not source.look_again()


class Address:
    """Keys of an address whose answers the test gives, one after another."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.answers: list[bytes | Exception] = []
        self.fetches = 0
        self.jobs: list[Callable[[], None]] = []
        self.source = KeyAddress(
            self._fetch,
            ALGORITHMS,
            300_000,
            begin=self.jobs.append,
            clock_ms=lambda: self.now_ms,
            chance=lambda: 0.5,
        )

    def _fetch(self) -> bytes:
        self.fetches += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, answer: bytes | Exception) -> None:
        """Ends the fetch that is under way."""
        self.answers.append(answer)
        self.jobs.pop()()
        assert not self.jobs


def test_keys_are_fetched_at_the_start_and_now_and_then() -> None:
    address = Address()
    with pytest.raises(Unavailable):
        address.source.keys  # noqa: B018
    assert len(address.jobs) == 1
    address.answer(jwks(EC))
    first = address.source.keys
    address.now_ms = 299_999
    assert address.source.keys is first
    assert not address.jobs
    address.now_ms = 300_000
    # Nobody waits for the fetch.
    assert [address.source.keys for _ in range(3)] == [first] * 3
    assert len(address.jobs) == 1
    address.answer(jwks(EC))
    assert address.source.keys is first
    address.now_ms = 600_000
    assert address.source.keys is first
    address.answer(jwks(EC, public(key("RS256"))))
    assert len(address.source.keys) == 2


@pytest.mark.parametrize("fault", [OSError("away"), b"<html>", jwks(), TimeoutError()], ids=str)
def test_the_last_good_keys_stay_while_the_issuer_is_away(
    fault: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    address = Address()
    address.answer(jwks(EC))
    first = address.source.keys
    address.now_ms = 300_000
    pauses = []
    for _ in range(12):
        assert address.source.keys is first
        address.answer(fault)
        began_ms = address.now_ms
        while not address.jobs:
            address.now_ms += 500
            assert address.source.keys is first
        pauses.append(address.now_ms - began_ms)
    doubled = [min(RETRY_MS << number, 300_000) for number in range(12)]
    assert pauses == doubled
    assert [r.event for r in caplog.records] == ["jwt_keys_unreadable"] * 12  # type: ignore[attr-defined]
    address.answer(jwks(public(key("RS256"))))
    assert address.source.keys is not first


def test_an_unexpected_error_does_not_end_the_fetches() -> None:
    address = Address()
    with pytest.raises(ZeroDivisionError):
        address.answer(ZeroDivisionError())
    address.now_ms = RETRY_MS
    with pytest.raises(Unavailable):
        address.source.keys  # noqa: B018
    address.answer(jwks(EC))
    assert len(address.source.keys) == 1


def test_unknown_names_ask_the_issuer_no_more_often_than_allowed() -> None:
    address = Address()
    # The first fetch is under way: its keys may be among them.
    assert address.source.look_again()
    address.answer(jwks(EC))
    for now_ms in range(0, UNKNOWN_MS_MIN, 10):
        address.now_ms = now_ms
        assert not address.source.look_again()
    assert address.fetches == 1
    address.now_ms = UNKNOWN_MS_MIN
    assert [address.source.look_again() for _ in range(100)] == [True] * 100
    address.answer(jwks(EC))
    assert not address.source.look_again()
    assert address.fetches == 2


def test_pauses_are_spread() -> None:
    """Processes that start together do not ask together."""
    for chance, due_ms in ((0.0, 300_000 * (1 - JITTER)), (1.0, 300_000 * (1 + JITTER))):
        now = [0]
        jobs: list[Callable[[], None]] = []
        source = KeyAddress(
            lambda: jwks(EC),
            ALGORITHMS,
            300_000,
            begin=jobs.append,
            clock_ms=lambda now=now: now[0],  # type: ignore[misc]
            chance=lambda chance=chance: chance,  # type: ignore[misc]
        )
        jobs.pop()()
        now[0] = round(due_ms) - 1
        assert source.keys
        assert not jobs
        now[0] += 1
        assert source.keys
        assert len(jobs) == 1


def test_keys_of_a_real_server_are_taken_and_renewed() -> None:
    current = [jwks(EC)]
    now = [0]
    with serving(lambda call: call.send(current[0])) as (url, asked):
        source = KeyAddress(
            lambda: fetch(f"{url}/keys?v=1", ""), ALGORITHMS, 300_000, clock_ms=lambda: now[0]
        )

        def number() -> int:
            try:
                return len(source.keys)
            except Unavailable:
                return 0

        eventually(lambda: number() == 1)
        current[0] = jwks(EC, public(key("RS256")))
        now[0] = UNKNOWN_MS_MIN
        assert source.look_again()
        eventually(lambda: number() == 2)
        eventually(lambda: not source.look_again())
        assert asked == ["/keys?v=1"] * 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda call: call.send(b"x" * 70_000), "more than 65536"),
        (lambda call: call.send(b"", 302, Location="/other"), "status 302"),
        (lambda call: call.send(b"{}", 503), "status 503"),
        (lambda call: call.wfile.write(b"\0" * 70_000), "cannot be read"),
        (lambda call: call.send(b"{", **{"Content-Length": "9"}), "not whole"),
        (lambda call: call.send(b"zz\r\n{}", **{"Transfer-Encoding": "chunked"}), "cannot be read"),
    ],
)
def test_answers_beyond_the_bounds_are_refused(answer: Callable[[Any], None], reason: str) -> None:
    with serving(answer) as (url, asked), pytest.raises(OSError, match=reason):
        fetch(url, "", bytes_max=65_536)
    assert asked == ["/"]


# Also when the time is over before the answer has begun, as on a busy machine.
@pytest.mark.parametrize("whole_s", [0.0, 0.2])
def test_a_server_that_drips_is_left(whole_s: float) -> None:
    ended = threading.Event()

    def drip(call: Any) -> None:
        with suppress(OSError):
            call.send(b"", **{"Content-Length": "100000"})
            while not ended.wait(0.01):
                call.wfile.write(b" ")

    with serving(drip) as (url, _):
        with pytest.raises(OSError, match="not whole"):
            fetch(url, "", whole_s=whole_s)
        ended.set()


def test_nobody_listens() -> None:
    with serving(lambda call: None) as (url, _):
        pass
    with pytest.raises(ConnectionError):
        fetch(url, "")


def test_a_private_part_is_left_out() -> None:
    entry = json.loads(json.dumps(key("ES256").as_dict(private=True))) | {"kid": "k"}
    found = read_keys(jwks(entry), ALGORITHMS).key("k", "ES256")
    assert found is not None
    assert not found.key.is_private
