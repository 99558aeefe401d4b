"""When versions of standing queries end for those who keep something of them."""

from __future__ import annotations

from sirocco.protocol.positions import NO_TIME_MS
from sirocco.protocol.versions import ENDS_KEPT_MS, LIFETIME_GRACE_MS, Versions


def test_a_lifetime_does_not_begin_before_anybody_told_the_time() -> None:
    versions = Versions()
    versions.begin(1, NO_TIME_MS, 10)
    assert versions.expire(1_000) == []
    versions.begin(1, 1_000, 10)
    assert versions.expire(1_010 + LIFETIME_GRACE_MS) == []
    assert versions.expire(1_011 + LIFETIME_GRACE_MS) == [1]


def test_an_end_is_remembered_until_all_have_come_to_it() -> None:
    versions = Versions()
    versions.begin(1, 1_000, None)
    assert versions.end(1, 2_000)
    assert not versions.end(1, 2_500)
    assert versions.has_ended(1)
    assert versions.expire(2_000 + ENDS_KEPT_MS) == []
    assert versions.expire(2_001 + ENDS_KEPT_MS) == [1]
    assert not versions.has_ended(1)
