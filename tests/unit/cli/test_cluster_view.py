"""`sirocco cluster`: the output about slots without an owner."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from sirocco_client.calls.cluster import ClusterDescription, Member, Ownership

from sirocco.cli.cluster import _print, unowned_slots


def _member(name: str, **loads: float) -> Member:
    return Member(
        id=name, service="evaluator", address="a:1", http_address="a:2", started_ms=0, loads=loads
    )


def _cluster(owners: dict[int, str], *members: Member) -> ClusterDescription:
    return ClusterDescription(
        cluster="c",
        map_version=1,
        scheme="swarm",
        leaf_count=64,
        slot_count=6,
        leader="",
        members=members,
        ownerships=tuple(
            Ownership(topic="slots", partition=slot, member=owner, epoch=1)
            for slot, owner in owners.items()
        ),
        leaves=(),
    )


def _lines(found: ClusterDescription, *, with_slots: bool = False, width: int = 200) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    _print(found, console, with_slots=with_slots)
    written = console.file
    assert isinstance(written, StringIO)
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_slots_without_an_owner_are_named() -> None:
    found = _cluster({0: "e1", 1: "e1", 2: "e1", 4: "e2", 5: "gone"}, _member("e1"), _member("e2"))
    assert unowned_slots(found) == [3, 5]
    assert _lines(found)[-2:] == [
        "owned by nobody: slots 3",
        "owned by gone, which is gone: slots 5",
    ]
    assert _lines(found, with_slots=True)[-4:-2] == ["e1 owns slots 0, 1, 2", "e2 owns slots 4"]


def test_nothing_is_printed_where_all_slots_are_owned() -> None:
    found = _cluster(dict.fromkeys(range(6), "e1"), _member("e1"))
    assert unowned_slots(found) == []
    assert "owned by" not in "\n".join(_lines(found))


def test_with_no_evaluator_at_all_every_slot_is_named() -> None:
    found = _cluster({}, _member("r1", routed_objects=0))
    assert _lines(found)[-1] == "owned by nobody: slots 0, 1, 2, 3, 4, 5"


def test_a_tenant_sees_no_owners() -> None:
    assert unowned_slots(_cluster({}, _member("e1"))) == []


def test_what_only_processes_need_of_each_other_is_left_out() -> None:
    found = _cluster({}, _member("e1", log_heard_s=188.0, slots=0))
    assert _lines(found)[2].endswith("slots 0")
    assert "log_heard_s" not in "\n".join(_lines(found))


def test_a_narrow_terminal_shows_whole_names_and_addresses() -> None:
    name, address = "sirocco-evaluator-7d9c8b6f4-abcde.10b75d3a62", "10.244.110.112:36589"
    member = replace(_member(name, slots=4, matches=0), address=address, http_address=address)
    lines = _lines(_cluster({0: name}, member), width=80)
    assert any(line.startswith(name) and line.count(address) == 2 for line in lines)
