"""The operator's file of tokens and limits: the rights it gives, and errors with their line."""

from __future__ import annotations

import pytest

from sirocco.model.access import Grant, Limits, digest_of, read_access, read_time_ms, write_grant
from sirocco.model.errors import InvalidArgument, Unauthenticated

GRANT = Grant("k3x9q2", "acme", frozenset({"publish", "search"}))
LINE = write_grant(digest_of("secret"), GRANT)
DIGEST = "0" * 64


def test_a_token_grants_the_rights_of_its_line() -> None:
    limits = '{"tenant": "acme", "queries": 10, "objects_per_s": 5, "bytes_per_s": 2e6}'
    access = read_access(f"# of acme\n\n{LINE}\n{limits}\n")
    assert access.grant("Bearer secret", 0) == GRANT
    assert access.grant("bearer  secret ", 0) == GRANT
    assert access.limits == {"acme": Limits(queries=10, objects_per_s=5.0, bytes_per_s=2e6)}
    assert access.tenants == {"acme"}


@pytest.mark.parametrize("header", ["", "secret", "Bearer", "Bearer ", "Basic secret", "Bearer x"])
def test_what_is_no_token_opens_nothing(header: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        read_access(LINE).grant(header, 0)
    assert "secret" not in str(refused.value)


def test_a_token_ends_at_its_time() -> None:
    moment = "2027-01-01T00:00:00Z"
    end_ms = read_time_ms(moment)
    access = read_access(write_grant(digest_of("secret"), GRANT, moment))
    assert access.grant("Bearer secret", end_ms - 1).expires_ms == end_ms
    with pytest.raises(Unauthenticated, match="k3x9q2 has expired"):
        access.grant("Bearer secret", end_ms)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("sirocco_abc", None),
        ("[]", None),
        ("{}", "tenant"),
        ('{"token": "a", "sha256": "sirocco_abc", "scopes": ["search"]}', "sha256"),
        (f'{{"sha256": "{DIGEST}", "scopes": ["search"]}}', "token"),
        (f'{{"token": "a", "sha256": "{DIGEST}", "scopes": []}}', "scopes"),
        (f'{{"token": "a", "sha256": "{DIGEST}", "scopes": ["all"]}}', "scopes"),
        (f'{{"token": "a", "sha256": "{DIGEST}", "scopes": ["admin"], "tenant": "b"}}', "scopes"),
        (f'{{"token": "a", "sha256": "{DIGEST}", "scopes": ["search"], "tenant": ""}}', "tenant"),
        (f'{{"token": "a", "sha256": "{DIGEST}", "scopes": ["search"], "until": 1}}', None),
        (
            f'{{"token": "a", "sha256": "{DIGEST}", "scopes": ["search"], "expires": "x"}}',
            "expires",
        ),
        ('{"tenant": "a:b"}', "tenant"),
        ('{"tenant": "-a"}', "tenant"),
        ('{"tenant": "A"}', "tenant"),
        ('{"tenant": "a", "queries": -1}', "queries"),
        ('{"tenant": "a", "queries": true}', "queries"),
        ('{"tenant": "a", "streams": -1}', "streams"),
        ('{"tenant": "a", "searches": 1.5}', "searches"),
        ('{"tenant": "a", "objects_per_s": 0}', "objects_per_s"),
        ('{"tenant": "a", "rate": 0}', None),
    ],
)
def test_a_line_that_makes_no_sense_is_named_and_not_repeated(line: str, field: str | None) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_access(f"\n{line}")
    assert refused.value.field == (f"line 2.{field}" if field else "line 2")
    assert "sirocco_abc" not in str(refused.value)


def test_streams_and_searches_of_a_tenant_may_have_limits() -> None:
    access = read_access('{"tenant": "acme", "streams": 100, "searches": 20}')
    assert access.limits == {"acme": Limits(streams=100, searches=20)}


def test_a_member_given_twice_is_refused() -> None:
    for twice in (LINE, '{"tenant": "a"}'):
        with pytest.raises(InvalidArgument, match="line 2"):
            read_access(f"{twice}\n{twice}")


def test_a_tenant_has_names_of_its_own() -> None:
    assert GRANT.inward("q") == "acme:q"
    assert GRANT.outward("acme:q") == "q"
    # An empty name stays empty.
    assert GRANT.inward("") == ""
    assert GRANT.inward("acme:q") == "acme:acme:q"
    operator = Grant("o", "", frozenset({"query"}))
    assert operator.inward("acme:q") == operator.outward("acme:q") == "acme:q"
