"""Where a change is reported that is decided before a map by keyword comes, and lands behind it."""

from __future__ import annotations

from typing import Any

from sirocco.index.locators import HOME, read_locator
from sirocco.model.query import parse_query, query_handle
from sirocco.protocol.locating import Locators, derived
from sirocco.protocol.messages import NO_REVISION, Change
from sirocco.runtime.first_map import first_map
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map_bytes import from_bytes
from sirocco.schemes.routing import compile_map
from tests.simulation.keyword_map import quartered_map

WORDS = ("coffee", "free", "pizza", "fire")
KEYWORDS = compile_map(from_bytes(quartered_map(WORDS, 4, 7)))
PLACES = compile_map(from_bytes(first_map(ClusterSettings(slots=4, leaves=16), "")))


def change(text: str | None, revision: int) -> Change:
    members: dict[str, Any] = {"id": "q", "kind": "range", "mode": "continuous"}
    members |= {} if text is None else {"text": text}
    return Change(query_handle("q"), parse_query(members), "ann", 0, revision, 0, 1)


def test_a_change_goes_on_from_what_was_copied_for_the_map_that_is_prepared() -> None:
    locators, before = Locators(), change("(coffee free) OR pizza", NO_REVISION)
    assert locators.choose(before, PLACES) == b""
    locators.learn(before, KEYWORDS)
    after = locators.choose(change(None, 3), PLACES, KEYWORDS)
    assert read_locator(after) == (*derived(before), HOME)
    assert after == locators.choose(change(None, 3), KEYWORDS)


def test_what_is_not_copied_yet_is_left_to_the_rule() -> None:
    assert Locators().choose(change("coffee free", 3), PLACES, KEYWORDS) == b""


def test_a_first_version_has_the_keys_of_the_map_that_is_prepared() -> None:
    first = change("coffee free", NO_REVISION)
    locators = Locators()
    assert locators.choose(first, PLACES, KEYWORDS) == locators.choose(first, KEYWORDS)
    assert locators.choose(first, PLACES, PLACES) == b""


def test_what_has_a_locator_goes_on_from_it_under_a_map_of_places() -> None:
    # Objects that were routed by keyword are still on their way when it changes.
    locators, before = Locators(), change(None, NO_REVISION)
    assert locators.choose(before, KEYWORDS) == b""
    locators.learn(before, KEYWORDS)
    for coming in (None, PLACES):
        after = locators.choose(change("coffee free", 3), PLACES, coming)
        assert read_locator(after) == (HOME,)
