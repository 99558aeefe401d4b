"""What a console is shown: rates from counts, loads of leaves, and the window of a sample."""

from __future__ import annotations

from sirocco_client import ClusterDescription
from sirocco_client.calls.cluster import Leaf, Member, Ownership

from sirocco.services.gateway.live.figures import (
    LEAVES_MAX,
    LeafLoads,
    Rates,
    map_members,
    member_counts,
    members_members,
    total_per_s,
)
from sirocco.services.gateway.live.window import WANTED, SampleWindow


def leaf(number: int, objects: int = 0) -> Leaf:
    return Leaf(id=number, slot=0, west=0, south=0, east=1, north=1, is_text=False, objects=objects)


def described(
    leaves: tuple[Leaf, ...] = (), version: int = 1, **counts: float
) -> ClusterDescription:
    return ClusterDescription(
        cluster="c",
        map_version=version,
        scheme="qt-tree",
        leaf_count=len(leaves),
        slot_count=1,
        leader="",
        members=(Member("router-0", "router", "a:1", "a:2", 0, counts),),
        ownerships=(Ownership("slots", 0, "evaluator-0", 1), Ownership("intake", 0, "router-0", 1)),
        leaves=leaves,
    )


def test_a_count_becomes_a_rate_when_it_grows() -> None:
    rates, key = Rates(stale_s=10), ("router-0", "routed_objects")
    for now_s, count in ((0, 100.0), (2, 100.0), (5, 600.0)):
        assert rates.per_s(key) is None
        rates.read({key: count}, now_s)
    assert rates.per_s(key) == 100
    # Members renew their counts every few seconds.
    rates.read({key: 600.0}, 9)
    assert rates.per_s(key) == 100
    rates.read({key: 600.0}, 16)
    assert rates.per_s(key) == 0
    # It has started anew.
    rates.read({key: 5.0}, 17)
    assert rates.per_s(key) is None
    rates.read({}, 18)
    assert rates.per_s(key) is None


def test_members_have_rates_and_slots() -> None:
    rates = Rates()
    for now_s in (0, 1):
        rates.read(member_counts(described(routed_objects=500.0 * now_s)), now_s)
    members = members_members(described(routed_objects=500.0), rates)
    assert members == [{"id": "router-0", "service": "router", "slots": 0, "objects_per_s": 500.0}]
    assert total_per_s(members, "router", "objects_per_s") == 500
    assert total_per_s(members, "evaluator", "matches_per_s") is None


def test_loads_of_leaves_are_parts_of_what_arrives() -> None:
    loads = LeafLoads()
    assert loads.read(described((leaf(0, 100), leaf(1, 50)))) == [0, 0]
    assert loads.read(described((leaf(0, 190), leaf(1, 60)))) == [0.9, 0.1]
    # Another router answers: its counts say nothing about the difference.
    assert loads.read(described((leaf(0, 3), leaf(1, 99)))) == [0.9, 0.1]
    # Another map has other leaves of the same numbers.
    assert loads.read(described((leaf(0, 500), leaf(1, 500)), version=2)) == [0, 0]


def test_a_map_is_sent_with_a_bounded_number_of_leaves() -> None:
    many = tuple(leaf(i) for i in range(LEAVES_MAX + 7))
    members = map_members(described(many))
    assert len(members["leaves"]) == LEAVES_MAX
    assert members["leaf_count"] == LEAVES_MAX + 7
    assert members["owners"] == {"0": "evaluator-0"}
    assert len(LeafLoads().read(described(many))) == LEAVES_MAX


def looked(per_s: float, batch: int, looks: int = 40) -> tuple[SampleWindow, list[int]]:
    """Returns the window after some looks, and what they found; objects arrive in batches."""
    window, found = SampleWindow(), []
    period_ms = 1_000 * batch / per_s
    for i in range(looks):
        # Looks are a second apart, and meet the batches anywhere between two of them.
        end_ms = 1_000 * i + 7.3 * i
        batches = int(end_ms / period_ms) - int((end_ms - window.ms) / period_ms)
        found.append(batch * batches)
        window.found(found[-1])
    return window, found[looks // 2 :]


def test_a_sample_looks_back_as_far_as_it_needs() -> None:
    for per_s in (1, 10, 100, 400):
        window, _ = looked(per_s, 1)
        # Every object of a slow stream is found, twice at most.
        assert window.ms == 2_000, per_s
    for per_s in (1_000, 3_000, 50_000):
        _, found = looked(per_s, 10)
        assert all(0.5 * WANTED < count < 2 * WANTED for count in found), (per_s, found)


def test_a_sample_of_large_batches_is_seldom_empty() -> None:
    _, found = looked(10_000, 1_000)
    assert found.count(0) <= len(found) // 4, found
    assert max(found) <= 2 * WANTED


def test_a_sample_never_looks_back_for_ever() -> None:
    window = SampleWindow()
    window.found(1_000_000)
    assert window.ms == 10
    for _ in range(20):
        window.found(0)
    assert window.ms == 2_000
