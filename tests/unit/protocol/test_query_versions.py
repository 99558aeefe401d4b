"""When versions of standing queries end for those who keep something of them."""

from __future__ import annotations

from sirocco.protocol.versions import ENDS_KEPT_MS, Versions


def test_an_end_is_remembered_until_all_have_come_to_it() -> None:
    versions = Versions()
    assert versions.end(1, 2_000)
    assert not versions.end(1, 2_500)
    assert versions.has_ended(1)
    assert versions.expire(2_000 + ENDS_KEPT_MS) == []
    assert versions.expire(2_001 + ENDS_KEPT_MS) == [1]
    assert not versions.has_ended(1)
