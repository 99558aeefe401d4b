"""Tracked values with colliding hashes stay distinct, and slots of earlier versions continue."""

from __future__ import annotations

from typing import Any

import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.model.query import Query
from sirocco.protocol.contract import track_values
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing import definitions, tracked_queries
from sirocco.protocol.evaluator.standing.tracked_queries import former_track_key, track_key
from sirocco.protocol.router.objects import track_copies
from tests.collisions import BUSES
from tests.support.values import installed_of
from tests.unit.protocol.evaluator.slot.test_slot_start_times import (
    opened,
    reports_of,
    routed_with_copies,
)

INSIDE, OUTSIDE = 1.0, 9.0
AREA = {"rect": {"west": 0.0, "south": 0.0, "east": 6.0, "north": 6.0}}


class Vans:
    """A slot with a query that tracks vans; each move is a record of its own."""

    def __init__(self) -> None:
        self.slot = opened()
        members = {"id": "q", "kind": "range", "mode": "continuous", "region": AREA}
        install = installed_of(0, [(0, {**members, "track": "van"}, "s", 0)])
        reports_of(self.slot, [(0, install)])
        self.moves = 0

    def move(self, *where: tuple[Any, float]) -> list[tuple[str, int]]:
        """Moves vans to places; returns events with the places of the vans."""
        self.moves += 1
        members = [
            {"id": number, "lon": lon, "lat": 1.0, "van": van}
            for number, (van, lon) in enumerate(where)
        ]
        routed = routed_with_copies(0, self.moves - 1, members, [self.moves] * len(members))
        return [(event, n) for _, event, n in reports_of(self.slot, [(self.moves, routed)])]

    def restart(self, *, is_old: bool) -> dict[str, Any]:
        state = dict(read_state(write_state(slot_state(self.slot, 0, ()))))
        if is_old:
            del state["tracked.member_identities"], state["tracked.member_is_former"]
        successor: Slot = opened(self.slot.offset)
        restore_slot(successor, state, self.slot.past.store.slices)
        self.slot = successor
        return state


@pytest.mark.parametrize("restarts", [False, True])
def test_vans_with_one_hash_enter_and_leave_by_themselves(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (track_copies, track_values):
        monkeypatch.setattr(module, "hash_of", lambda key, value: 7)
    vans = Vans()
    assert vans.move(("a", INSIDE), ("b", OUTSIDE)) == [("enter", 0)]
    if restarts:
        vans.restart(is_old=False)
    assert vans.move(("b", INSIDE), ("a", INSIDE)) == [("enter", 0)]
    assert vans.move(("b", OUTSIDE)) == [("exit", 0)]
    if restarts:
        vans.restart(is_old=False)
    assert vans.move(("c", OUTSIDE), ("a", OUTSIDE)) == [("exit", 1)]


def test_a_slot_is_saved_and_restored_without_parsing_what_its_queries_look_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vans = Vans()
    assert vans.move(("a", INSIDE)) == [("enter", 0)]

    def parsed(spec: str) -> Query:
        raise AssertionError(f"parsed: {spec}")

    monkeypatch.setattr(definitions, "query_of", parsed)
    vans.restart(is_old=False)
    assert vans.move(("a", OUTSIDE)) == [("exit", 0)]


def test_values_whose_hashes_really_collide_are_distinguished() -> None:
    one, other = BUSES
    assert track_values.hash_of("bus", one) == track_values.hash_of("bus", other)
    assert track_values.identity_of("bus", one) != track_values.identity_of("bus", other)


def test_members_with_one_hash_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_queries.xxhash, "xxh3_64_intdigest", lambda data: 7)  # type: ignore[attr-defined]
    assert track_key("van") != track_key("bus")
    assert former_track_key("van") == former_track_key("bus") == 7


@pytest.mark.parametrize("is_saved_again", [False, True])
def test_what_an_old_checkpoint_has_inside_leaves_and_enters_once(is_saved_again: bool) -> None:
    vans = Vans()
    assert vans.move(("a", INSIDE), (5, INSIDE), ("c", OUTSIDE)) == [("enter", 0), ("enter", 1)]
    state = vans.restart(is_old=True)
    # As earlier versions wrote it, and read it.
    hashes = {track_values.hash_of("van", value) for value in ("a", 5)}
    assert set(state["tracked.member_values"].tolist()) == hashes
    assert state["tracked.keys"].tolist() == [former_track_key("van")]
    if is_saved_again:
        state = vans.restart(is_old=False)
        assert state["tracked.member_is_former"].tolist() == [1, 1]
        assert set(state["tracked.member_values"].tolist()) == hashes
    assert vans.move(("a", INSIDE), (5.0, OUTSIDE), ("c", INSIDE)) == [("exit", 1), ("enter", 2)]
    if is_saved_again:
        state = vans.restart(is_old=False)
        assert state["tracked.member_is_former"].tolist() == [0, 0]
    assert vans.move(("a", OUTSIDE), ("c", OUTSIDE)) == [("exit", 0), ("exit", 1)]
    assert vans.slot.standing.tracked.tracked_values == 0
