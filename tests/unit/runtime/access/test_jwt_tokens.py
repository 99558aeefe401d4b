"""JWTs as tokens: checked once, remembered until they end, and bounded when they are hostile."""

from __future__ import annotations

import hmac
import json
import sys
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest

from sirocco.model.errors import (
    PermissionDenied,
    ResourceExhausted,
    SiroccoError,
    Unauthenticated,
    Unavailable,
)
from sirocco.runtime.access import jwt_tokens
from sirocco.runtime.access.jwt_tokens import TOKEN_LENGTH_MAX, JwtBudget
from tests.support.jwts import CLAIMS, NOW_S, Issuer, Source, jwks, key, part, public, signed, token

PAYLOAD = json.dumps(CLAIMS).encode()


@pytest.mark.parametrize(
    "algorithm", ["RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
)
def test_each_algorithm_opens_what_the_claims_say(algorithm: str) -> None:
    issuer = Issuer(public(key(algorithm)))
    found = issuer.take(token(algorithm)).grant
    assert (found.id, found.tenant, found.scopes) == ("ann", "acme", {"query", "search"})


def test_a_token_is_checked_once_until_it_ends() -> None:
    issuer, presented = Issuer(), token()
    known = issuer.take(presented)
    for _ in range(100):
        assert issuer.take(presented, peer="another") is known
    assert issuer.tokens.checks_total == 1
    issuer.now_ms = (NOW_S + 300) * 1_000 + 29_999
    issuer.tokens.check(known)
    issuer.now_ms += 1
    with pytest.raises(Unauthenticated, match="expired"):
        issuer.tokens.check(known)
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="expired"):
            issuer.take(presented)


def test_a_token_ends_with_the_key_that_signed_it() -> None:
    issuer = Issuer(public(key("ES256")), public(key("ES256", "next"), "next"))
    former, later = token(), token(made=key("ES256", "next"), kid="next")
    known, other = issuer.take(former), issuer.take(later)
    issuer.source.current = Source(public(key("ES256", "next"), "next")).current
    issuer.tokens.check(other)
    assert issuer.take(later) is other
    with pytest.raises(Unauthenticated, match="no more"):
        issuer.tokens.check(known)
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            issuer.take(former)


def test_a_key_of_the_same_name_is_another_key() -> None:
    issuer, presented = Issuer(), token()
    issuer.take(presented)
    issuer.source.current = Source(public(key("ES256", "other"))).current
    with pytest.raises(Unauthenticated):
        issuer.take(presented)
    with pytest.raises(Unauthenticated, match="signature"):
        issuer.take(token(sub="bob"))


def test_an_unknown_key_is_asked_for() -> None:
    issuer, presented = Issuer(), token(made=key("ES256", "next"), kid="next")
    with pytest.raises(Unauthenticated, match="no such key"):
        issuer.take(presented)
    assert issuer.source.asked == 1
    # The refusal is remembered: nobody is asked again for the same token.
    with pytest.raises(Unauthenticated, match="no such key"):
        issuer.take(presented)
    assert (issuer.source.asked, issuer.tokens.checks_total) == (1, 0)
    issuer.source.is_coming = True
    with pytest.raises(Unavailable):
        issuer.take(token(made=key("ES256", "next"), kid="next", sub="bob"))
    issuer.source.current = Source(public(key("ES256", "next"), "next")).current
    issuer.take(presented)


def test_without_a_name_the_only_key_that_fits_is_taken() -> None:
    issuer = Issuer(public(key("ES256")), public(key("RS256"), "r"))
    issuer.take(token(kid=None))
    issuer.source.current = Source(
        public(key("ES256")), public(key("ES256", "other"), "other")
    ).current
    with pytest.raises(Unauthenticated, match="no such key"):
        issuer.take(token(kid=None, sub="bob"))


def pem() -> bytes:
    return key("RS256").as_pem(private=False)


def shared(secret: bytes) -> str:
    """A token with HS256, signed with what is public."""
    segments = f"{part(json.dumps({'alg': 'HS256', 'kid': 'k'}).encode())}.{part(PAYLOAD)}"
    return f"{segments}.{part(hmac.digest(secret, segments.encode(), 'sha256'))}"


def altered() -> str:
    head, _, signature = token("RS256").split(".")
    return f"{head}.{part(json.dumps(CLAIMS | {'tenant': 'other'}).encode())}.{signature}"


def with_header(header: object) -> str:
    return f"{part(json.dumps(header).encode())}.{part(PAYLOAD)}.{part(b'x' * 256)}"


HOSTILE: dict[str, Callable[[], str]] = {
    "none": lambda: f"{part(b'{}')}.{part(PAYLOAD)}.",
    "alg none": lambda: with_header({"alg": "none", "kid": "k"}).rpartition(".")[0] + ".",
    "alg None": lambda: with_header({"alg": "None", "kid": "k"}),
    "a public key as a secret": lambda: shared(pem()),
    "a public key as JSON": lambda: shared(jwks(public(key("RS256")))),
    "altered": altered,
    "signed by another key": lambda: token("RS256", key("RS256", "other")),
    "another algorithm of the key": lambda: token("RS512"),
    "an algorithm of another key": lambda: token("ES256"),
    "a key of its own": lambda: signed(
        PAYLOAD, "RS256", key("RS256", "own"), jwk=public(key("RS256", "own"))
    ),
    "an address of its own": lambda: signed(
        PAYLOAD, "RS256", key("RS256", "own"), jku="http://127.0.0.1:9/"
    ),
    "critical": lambda: signed(PAYLOAD, "RS256", crit=["exp"], exp=1),
    "unencoded": lambda: signed(PAYLOAD, "RS256", b64=False, crit=["b64"]),
    "a name that is none": lambda: signed(PAYLOAD, "RS256", kid=["k"]),
    "a name too long": lambda: signed(PAYLOAD, "RS256", kid="k" * 300),
    "nested header": lambda: f"{part(b'[' * 700)}.{part(PAYLOAD)}.x",
    "nested claims": lambda: signed(b'{"a":' * 900 + b"1" + b"}" * 900, "RS256"),
    "long header": lambda: signed(PAYLOAD, "RS256", typ="x" * 2_000),
    "long signature": lambda: token("RS256") + "A" * 2_000,
    "too long": lambda: token("RS256", sub="x" * 7_000),
    "no signature": lambda: token("RS256").rpartition(".")[0] + ".",
    "empty": lambda: "..",
    "no base64": lambda: "!!.??.==",
    "no UTF-8": lambda: f"{part(bytes(range(128, 160)))}.{part(PAYLOAD)}.AAAA",
    "no ASCII": lambda: "é.é.é",
    "padded": lambda: token("RS256") + "=",
    "numbers beyond all bounds": lambda: signed(
        PAYLOAD.replace(str(NOW_S + 300).encode(), b"9" * 5_000), "RS256"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused_with_a_typed_error(name: str) -> None:
    issuer = Issuer(public(key("RS256")), public(key("EdDSA"), "e"))
    presented = HOSTILE[name]()
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            issuer.take(presented)
    assert issuer.tokens.checks_total <= 1


def test_hostile_tokens_are_made_as_good_ones_are() -> None:
    """Otherwise the cases above would be refused for something else."""
    issuer = Issuer(public(key("RS256")))
    issuer.take(signed(PAYLOAD, "RS256", typ="at+jwt", x5t="abc"))
    assert len(token("RS256", sub="x" * 5_000)) < TOKEN_LENGTH_MAX
    issuer.take(token("RS256", sub="x" * 5_000))
    assert json.loads(b64decode(shared(pem()).split(".")[0] + "==")) == {"alg": "HS256", "kid": "k"}


def refused(issuer: Issuer, presented: str, peer: str) -> SiroccoError | None:
    try:
        issuer.take(presented, peer)
    except SiroccoError as error:
        return error
    return None


def unsigned(count: int) -> list[str]:
    """Returns tokens that name the issuer's key, which has not signed them."""
    header, _, signature = token().split(".")
    return [f"{header}.{part(str(each).encode())}.{signature}" for each in range(count)]


def test_what_is_refused_by_its_header_takes_nothing_of_the_budget() -> None:
    issuer = Issuer(budget=JwtBudget(process_per_s=2, connection_per_s=2))
    unnamed = token().partition(".")[2]
    for number in range(100):
        for header in (str(number), part(json.dumps({"alg": "none", "kid": str(number)}).encode())):
            assert isinstance(refused(issuer, f"{header}.{unnamed}", "mine"), Unauthenticated)
    issuer.take(token(), "mine")


def test_a_host_that_makes_up_tokens_leaves_checks_to_others() -> None:
    issuer = Issuer(budget=JwtBudget(process_per_s=40, connection_per_s=10))
    made_up = unsigned(3_000)
    for second in range(10):
        for number in range(100):
            issuer.now_ms += 10
            for host in range(3):
                peer = f"ipv4:10.0.0.{100 + host}:{number}"
                refused(issuer, made_up[(100 * second + number) * 3 + host], peer)
        issuer.take(token(sub=str(second)), f"ipv4:10.0.0.{second}:5")
    assert issuer.tokens.checks_total <= 40 * 11


def test_checks_have_a_budget_of_the_connection_and_of_the_process() -> None:
    issuer = Issuer(budget=JwtBudget(process_per_s=50, connection_per_s=20, connections=8))
    mine = token()
    issuer.take(mine, "good")
    made_up = unsigned(1_000)
    errors = [refused(issuer, each, "bad") for each in made_up]
    kinds = [type(each) for each in errors]
    assert kinds.count(Unauthenticated) <= 21
    assert kinds.count(ResourceExhausted) >= 979
    # Others have theirs, and a token that is known needs none.
    issuer.take(token(sub="bob"), "good")
    for number, each in enumerate(made_up):
        refused(issuer, each, f"bad{number}")
    assert issuer.tokens.checks_total <= 52
    assert issuer.take(mine, "bad")
    error = refused(issuer, token(sub="eve"), "good")
    assert isinstance(error, ResourceExhausted)
    issuer.now_ms += error.retry_after_ms or 0
    issuer.take(token(sub="eve"), "good")
    assert len(issuer.tokens._connections) <= 8


def test_what_is_remembered_is_bounded() -> None:
    issuer = Issuer(budget=JwtBudget(10_000, 10_000, known=4, refused=4))
    first = token(sub="first")
    for number in range(20):
        issuer.take(first)
        issuer.take(token(sub=str(number)))
        refused(issuer, f"{number}..", "bad")
    assert (len(issuer.tokens._known), len(issuer.tokens._refused)) == (4, 4)
    # What is in use stays.
    assert issuer.tokens.checks_total == 1 + 20


def test_a_refusal_is_remembered_for_a_while() -> None:
    issuer, presented = Issuer(), token(nbf=NOW_S + 33)
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="not valid yet"):
            issuer.take(presented)
    assert issuer.tokens.checks_total == 1
    issuer.now_ms += jwt_tokens.REFUSED_MS
    issuer.take(presented)


def test_a_token_without_rights_is_known_and_may_do_nothing() -> None:
    issuer, presented = Issuer(), token(scope="openid")
    for _ in range(2):
        with pytest.raises(PermissionDenied):
            issuer.take(presented)
    assert issuer.tokens.checks_total == 1


def test_a_call_with_a_known_token_calls_no_cryptography() -> None:
    issuer, presented = Issuer(), token()
    issuer.take(presented)
    called: set[str] = set()

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(look)
    try:
        issuer.take(presented)
    finally:
        sys.setprofile(None)
    assert not [each for each in called if each.startswith(("joserfc", "cryptography"))]
