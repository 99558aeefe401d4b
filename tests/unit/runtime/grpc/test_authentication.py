"""The errors of an open stream when the operator's file changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirocco.codec.errors import write_error
from sirocco.model.access import Grant, digest_of, write_grant
from sirocco.model.errors import SiroccoError, Unauthenticated
from sirocco.runtime.grpc.authentication import Caller, TokenFile

HEADER = "Bearer secret"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "tokens"
    written.write_text(line({"publish"}))
    return written


def line(scopes: set[str], expires: str | None = None, tenant: str = "acme") -> str:
    return write_grant(digest_of("secret"), Grant("k", tenant, frozenset(scopes)), expires) + "\n"


def opened(path: Path) -> Caller:
    """Returns a stream that was opened under the present file."""
    tokens = TokenFile(path, look_s=0.0)
    caller = Caller(tokens.access.grant(HEADER, 0), tokens, HEADER)
    caller.check()
    return caller


@pytest.mark.parametrize(
    "changed",
    [line({"publish"}, "2100-01-01T00:00:00Z"), line({"publish", "search"}), line({"search"})],
    ids=["another end", "a scope more", "a scope less"],
)
def test_a_token_that_opens_something_else_is_looked_at_again(path: Path, changed: str) -> None:
    caller = opened(path)
    path.write_text("# of today\n" + changed)
    with pytest.raises(SiroccoError) as caught:
        caller.check()
    # A new call learns the new rights; a publisher must not give up before.
    assert write_error(caught.value).retry_after_ms > 0


def test_what_changes_beside_a_token_ends_nothing(path: Path) -> None:
    caller = opened(path)
    path.write_text(path.read_text() + '{"tenant": "acme", "queries": 5}\n')
    caller.check()
    assert caller.limits.queries == 5


@pytest.mark.parametrize(
    "changed", ["# nobody\n", line({"publish"}, tenant="other")], ids=["nobody's", "another's"]
)
def test_a_token_that_was_taken_back_is_none(path: Path, changed: str) -> None:
    caller = opened(path)
    path.write_text(changed)
    with pytest.raises(Unauthenticated) as caught:
        caller.check()
    assert write_error(caught.value).retry_after_ms == 0
