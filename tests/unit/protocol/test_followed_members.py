"""Members by whose values objects are followed: clients choose them, one with each query."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sirocco.protocol import router as router_module
from sirocco.protocol.effects import Append, Effect
from sirocco.protocol.messages import INTAKE, REGISTRY, SLOTS, Routed, Tracked
from tests.unit.protocol.test_copies_of_objects import values_in
from tests.unit.protocol.test_intake_router import router as intake_router
from tests.unit.protocol.test_router_machine import router as router_with_map
from tests.unit.protocol.values import change_of, taken_of, wish_of


class Touched(set[str]):
    """A set that counts how often it is asked; to go over it is an error."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return super().__contains__(key)

    def __iter__(self) -> Any:
        raise AssertionError("the work must not depend on how many there are")


def tags_of(effects: list[Effect]) -> set[tuple[int, str]]:
    """(object id, member) of each copy."""
    found: set[tuple[int, str]] = set()
    for effect in effects:
        if isinstance(effect, Append) and effect.topic == SLOTS:
            assert isinstance(effect.message, Routed)
            found |= values_in(effect.message).keys()
    return found


def test_an_object_is_followed_by_its_own_members_whatever_others_there_are() -> None:
    made = intake_router(0)
    for i in range(500):
        made.add(0, i, Tracked(f"m{i}"), 0)
    made.flush(0, at_once=True)
    made._track_keys = Touched(made._track_keys)
    objects = [
        {"id": 1, "lon": 1, "lat": 1, "m7": "a", "m499": 3, "other": 1},
        {"id": 2, "lon": 1, "lat": 1, "m500": "a", "m8": None},
        {"id": 3, "lon": 1, "lat": 1},
        {"id": 4, "lon": 2, "lat": 1, "m7": "b"},
    ]
    made.add(0, 500, taken_of(1, 1, objects), 0)
    assert tags_of(made.flush(0, at_once=True)) == {(1, "m7"), (1, "m499"), (4, "m7")}
    assert made._track_keys.asked == 6


def test_members_go_with_the_partition_that_they_stand_in() -> None:
    made = intake_router(0, 1)
    made.add(0, 0, Tracked("a"), 0)
    made.add(1, 0, Tracked("b"), 0)
    made.flush(0, at_once=True)
    made.disown(0)
    one = {"id": 1, "lon": 1, "lat": 1, "a": 1, "b": 1}
    made.add(1, 1, taken_of(1, 1, [one]), 0)
    assert tags_of(made.flush(0, at_once=True)) == {(1, "b")}


@pytest.mark.parametrize("is_former", [False, True])
def test_members_are_known_after_a_take_over(is_former: bool) -> None:
    # A version before kept them without their ends.
    names = ["a", "b", "ä"] if is_former else ["a", "b\0c", "\0", "ä"]
    made = intake_router(0)
    for i, name in enumerate(names):
        made.add(0, i, Tracked(name), 0)
    made.flush(0, at_once=True)
    state = dict(made.sources[0].state())
    if is_former:
        del state["track_key_ends"]
    successor = intake_router()
    successor.own(0, len(names), state, 0)
    one = {"id": 1, "lon": 1, "lat": 1, "b": 1, "c": 1, **dict.fromkeys(names, 1)}
    successor.add(0, len(names), taken_of(1, 1, [one]), 0)
    assert tags_of(successor.flush(0, at_once=True)) == {(1, name) for name in names}
    empty = intake_router()
    empty.own(0, 0, intake_router(0).sources[0].state(), 0)
    assert not empty.sources[0].track_keys


def test_a_router_forgets_what_it_said_and_says_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "FOLLOWED_MAX", 4)
    made = router_with_map()
    made.own_registry()
    said: Counter[str] = Counter()
    query = {"kind": "range", "mode": "continuous"}
    for turn in range(3):
        for i in range(10):
            change = change_of(wish_of("register", {"id": f"q{i}", "track": f"m{i}", **query}))
            effects = made.poll((REGISTRY, 0, 10 * turn + i, change))
            for effect in effects:
                if isinstance(effect, Append) and isinstance(effect.message, Tracked):
                    assert effect.topic == INTAKE
                    said[effect.message.key] += 1
            assert len(made.machine._followed) <= 4
    assert set(said) == {f"m{i}" for i in range(10)}
    assert set(said.values()) == {3}
