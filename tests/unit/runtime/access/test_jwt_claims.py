"""Claims of a JWT → tenant and scopes; whatever is missing or strange opens nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sirocco.model.access import Grant
from sirocco.model.errors import PermissionDenied, Unauthenticated
from sirocco.runtime.access.jwt_claims import ClaimRules, grant_of

NOW_S = 1_795_694_400
RULES = ClaimRules(issuer="https://issuer.test", audience="sirocco", skew_ms=30_000)
CLAIMS = {
    "iss": RULES.issuer,
    "aud": RULES.audience,
    "sub": "ann",
    "exp": NOW_S + 300,
    "tenant": "acme",
    "scope": "openid sirocco:query sirocco:search",
}


def granted(rules: ClaimRules = RULES, at_s: float = NOW_S, **changed: Any) -> Grant:
    claims = {name: each for name, each in (CLAIMS | changed).items() if each is not None}
    return grant_of(json.dumps(claims).encode(), rules, round(at_s * 1_000))


def test_a_tenant_gets_the_scopes_that_begin_with_the_prefix() -> None:
    expires_ms = (NOW_S + 300) * 1_000 + 30_000
    scopes = frozenset({"query", "search"})
    assert granted() == Grant("ann", "acme", scopes, expires_ms, is_jwt=True)


@pytest.mark.parametrize(
    ("rules", "claims"),
    [
        ({}, {"scope": ["sirocco:query", "sirocco:search", "other:admin", 7]}),
        ({}, {"aud": ["other", "sirocco"]}),
        ({"scopes": "scp"}, {"scope": "sirocco:admin", "scp": CLAIMS["scope"]}),
        ({"prefix": "geo/"}, {"scope": "geo/query geo/search sirocco:publish"}),
        (
            {"scopes": "/realm_access/roles", "tenant": "/a~1b/c~0d"},
            {
                "realm_access": {"roles": ["sirocco:search", "sirocco:query"]},
                "a/b": {"c~d": "acme"},
                "tenant": None,
                "scope": None,
            },
        ),
        (
            {"tenant": "https://issuer.test/tenant"},
            {"tenant": "other", "https://issuer.test/tenant": "acme"},
        ),
    ],
)
def test_claims_are_found_where_the_operator_says(
    rules: dict[str, Any], claims: dict[str, Any]
) -> None:
    found = granted(replace(RULES, **rules), **claims)
    assert (found.tenant, found.scopes) == ("acme", {"query", "search"})


def test_the_operator_is_named_by_a_scope_and_never_by_what_is_missing() -> None:
    found = granted(scope="sirocco:operator sirocco:admin sirocco:query")
    assert (found.tenant, found.scopes) == ("", {"admin", "query"})
    with pytest.raises(Unauthenticated, match="no valid tenant"):
        granted(tenant=None)
    with pytest.raises(PermissionDenied, match="sirocco:operator"):
        granted(scope="sirocco:admin sirocco:query")
    with pytest.raises(PermissionDenied, match="none of the scopes"):
        granted(scope="sirocco:operator")


STRANGE: dict[str, list[Any]] = {
    "iss": [None, "https://issuer.test/", 7, ["https://issuer.test"]],
    "aud": [None, "siroc", [], {"sirocco": 1}, [["sirocco"]]],
    "exp": [None, "1795694700", True, 1e300, -1e300, [], {}],
    "nbf": ["soon", False, 1e300, NOW_S + 31],
    "tenant": ["", "Acme", "a:b", "a" * 33, 7, ["acme"], None],
}


@pytest.mark.parametrize(
    "changed", [{name: value} for name, values in STRANGE.items() for value in values], ids=str
)
def test_what_is_missing_or_strange_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        granted(**changed)


@pytest.mark.parametrize(
    "scope", [None, 7, {}, "", "query search", [["sirocco:query"]], "sirocco:"]
)
def test_without_scopes_of_ours_a_token_opens_nothing(scope: Any) -> None:
    with pytest.raises(PermissionDenied):
        granted(scope=scope)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b"[" * 4_000, b"7", b'"iss"'])
def test_what_is_no_object_holds_no_claims(payload: bytes) -> None:
    with pytest.raises(Unauthenticated, match="no claims"):
        grant_of(payload, RULES, NOW_S * 1_000)


def test_clocks_may_differ_by_the_skew() -> None:
    granted(nbf=NOW_S + 30)
    granted(at_s=NOW_S + 329.999)
    with pytest.raises(Unauthenticated, match="expired"):
        granted(at_s=NOW_S + 330)


def test_a_subject_is_shown_escaped_and_short() -> None:
    assert granted(sub='x"\n\u202e').id == 'x"\\n\\u202e'
    assert granted(sub="\n" * 9_000).id == "\\n" * 63 + "\\…"
    assert granted(sub=None).id == granted(sub=["ann"]).id == ""
