"""Places and bytes of a process: no caller gets all, and a newcomer always gets some."""

from __future__ import annotations

import asyncio

import pytest

from sirocco.model.errors import ResourceExhausted
from sirocco.runtime.grpc.shares import Shares


def taken(shares: Shares, tenant: str, peer: str = "") -> int:
    """Returns how many places a caller gets that asks until it is refused."""
    count = 0
    while shares.fits(tenant, peer=peer):
        shares.take(tenant, peer=peer)
        count += 1
        assert count <= shares.whole_max
    return count


def test_one_connection_gets_half_and_many_of_one_host_seven_eighths() -> None:
    shares = Shares("calls", 1_000, 100, 200, connection_max=1_000)
    assert taken(shares, "", "ipv4:10.0.0.7:1") == 500
    for port in range(2, 12):
        taken(shares, "", f"ipv4:10.0.0.7:{port}")
    # Other callers on the same host are served as well,
    assert 740 <= shares.held <= 770
    assert taken(shares, "", "ipv4:10.0.0.7:12") >= 1
    # and others are, however many connections there are.
    for port in range(13, 1_000):
        taken(shares, "", f"ipv4:10.0.0.7:{port}")
    assert shares.held <= 875
    assert taken(shares, "", "ipv4:10.0.0.8:1") > 0


def test_tenants_together_do_not_shut_out_another() -> None:
    shares = Shares("publish streams", 100, 50, 200)
    got = [taken(shares, f"tenant-{number}") for number in range(6)]
    assert got[0] == 50
    assert all(got)


def test_a_connection_has_the_bound_of_a_tenant_where_none_is_named() -> None:
    shares = Shares("lists", 64, 16, 200)
    assert taken(shares, "", "ipv6:[::1]:5") == 16
    assert shares.held_by("", "ipv6:[::1]:5") == 16
    with pytest.raises(ResourceExhausted, match=r"this caller has no room .* limit is 16"):
        shares.take("", peer="ipv6:[::1]:5")
    shares.give_back("", 16, peer="ipv6:[::1]:5")
    assert shares.held == 0
    assert not shares._held


def test_the_first_amount_fits_however_large_it_is() -> None:
    shares = Shares("bytes", 100, 50, 200)
    shares.take("acme", 1_000)
    with pytest.raises(ResourceExhausted, match="this process"):
        shares.take("beta", 1)


def test_the_queue_is_shared_as_well() -> None:
    async def test() -> None:
        shares = Shares("bytes", 100, 100, 200)
        shares.take("acme", 100)
        crowd = [asyncio.create_task(shares.wait("acme", 10, 9.0)) for _ in range(20)]
        await asyncio.sleep(0)
        assert 0 < sum(not task.done() for task in crowd) <= 5
        newcomer = asyncio.create_task(shares.wait("beta", 10, 9.0))
        await asyncio.sleep(0)
        assert not newcomer.done()
        shares.give_back("acme", 100)
        await asyncio.gather(*crowd, newcomer, return_exceptions=True)
        assert newcomer.exception() is None
        assert not shares._waiting

    asyncio.run(test())
