"""Every kind of message that may be appended is read by whoever reads its topic."""

from __future__ import annotations

import pytest

from sirocco.codec.hops import HOPS
from sirocco.runtime.loop import hops


@pytest.mark.parametrize("kind", HOPS, ids=lambda kind: kind.__name__)
def test_what_is_appended_is_read(kind: type) -> None:
    _, method = hops._CALLS[kind]
    assert getattr(hops._Collector, method) is hops._Collector._collect
    assert kind in hops._TOPICS
