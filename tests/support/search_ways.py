"""The two ways of a single search: a call of its own, and a stream that is kept open."""

from __future__ import annotations

import pytest
from sirocco_client.calls.kept_searches import StreamRules

CALLS, STREAMS = WAYS = ("calls", "streams")


def take(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes clients search in one way, as far as a merger has streams, from the first search on."""
    monkeypatch.setattr(StreamRules, "begins", lambda _rules, _now_s: way == STREAMS)
