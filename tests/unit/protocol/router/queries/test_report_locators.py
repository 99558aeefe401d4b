"""Where a change is reported that is decided under one map and lands under another."""

from __future__ import annotations

from typing import Any

from sirocco.index.standing.locators import HOME, read_locator
from sirocco.model.query import parse_query, query_handle
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import NO_REVISION, Change, Prepare
from sirocco.protocol.router.map_change.query_copies import copy, is_copied
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.protocol.router.queries.report_locators import Locators, derived
from sirocco.runtime.first_map import first_map
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from tests.simulation.keyword_map import quartered_map
from tests.support.values import request_of

WORDS = ("coffee", "free", "pizza", "fire")
KEYWORDS = compile_map(from_bytes(quartered_map(WORDS, 4, 7)))
PLACES = compile_map(from_bytes(first_map(ClusterSettings(slots=4, leaves=16), "")))


def change(text: str | None, revision: int) -> Change:
    members: dict[str, Any] = {"id": "q", "kind": "range", "mode": "continuous"}
    members |= {} if text is None else {"text": text}
    return Change(
        handle=query_handle("q"),
        query=parse_query(members),
        subscriber="ann",
        start_ms=0,
        expected_revision=revision,
        digest=0,
        epoch=1,
    )


def test_a_change_continues_from_what_was_copied_for_the_map_that_is_prepared() -> None:
    locators, before = Locators(), change("(coffee free) OR pizza", NO_REVISION)
    assert locators.choose(before, PLACES) == b""
    locators.learn(before, is_by_keyword=True)
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


def test_what_has_a_locator_continues_from_it_under_a_map_of_places() -> None:
    # Objects that were routed by keyword are still on their way when it changes.
    locators, before = Locators(), change(None, NO_REVISION)
    assert locators.choose(before, KEYWORDS) == b""
    locators.learn(before, is_by_keyword=True)
    for next_routing in (None, PLACES):
        after = locators.choose(change("coffee free", 3), PLACES, next_routing)
        assert read_locator(after) == (HOME,)


def owner_of(*records: Change | Prepare, of: RoutingArrays, to: RoutingArrays) -> Registry:
    """Returns the owner of a partition with the second map prepared after the first one."""
    registry = Registry(partition=0, offset=0, floor=0, epoch=1)
    registry.validation.epoch_seen = 1
    registry.pending_requests.routing = of
    registry.read(list(enumerate(records)), {1: of, 2: to})
    return registry


def rewrite(registry: Registry, text: str) -> Change:
    """Returns the owner's append for another text of the query."""
    members = {"id": "q", "kind": "range", "mode": "continuous", "text": text}
    (append,) = registry.take_requests(1, (request_of("update", members),))
    assert isinstance(append, Append)
    assert isinstance(append.message, Change)
    return append.message


def test_what_comes_while_a_map_of_places_is_prepared_is_located() -> None:
    # Until it retires, objects are routed by the keyword map.
    first = change(None, NO_REVISION)
    for records in ((first, Prepare(2)), (Prepare(2), first)):
        registry = owner_of(*records, of=KEYWORDS, to=PLACES)
        assert read_locator(rewrite(registry, "coffee free").locator) == (HOME,)


def test_what_is_decided_before_its_query_is_copied_is_waited_for() -> None:
    first = change(None, NO_REVISION)
    maps = {1: PLACES, 2: KEYWORDS}
    registry = owner_of(first, of=PLACES, to=KEYWORDS)
    blind = rewrite(registry, "coffee free")
    assert blind.locator == b""
    registry.read([(1, Prepare(2))], maps)
    assert copy(registry, [(0, first)], maps)
    # By present knowledge it would be located at home.
    assert not is_copied(registry)
    registry.read([(2, blind)], maps)
    assert is_copied(registry)
    # A change decided now may be delayed for any time.
    assert rewrite(registry, "pizza").locator
    assert is_copied(registry)
