"""The places given for a query are those to which routers send it and its matches."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from sirocco.model.explanation import explain
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import parse_query
from sirocco.model.text import analyse_batch
from sirocco.protocol.explain.routes import object_places, query_places
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sampling import sample_of
from tests.simulation.keyword_map import quartered_map
from tests.support.values import random_members

WORDS = ("coffee", "free", "pizza", "fire", "drill", "light")
TEXTS = [
    *WORDS,
    "coffee pizza",
    "ANY(pizza light free)",
    "(free OR fire) AND NOT (coffee light)",
    None,
]
SLOTS = 8


def by_keyword(seed: int) -> RoutingArrays:
    return compile_map(from_bytes(quartered_map(WORDS, SLOTS, seed)))


def by_scheme(name: str) -> RoutingArrays:
    nothing = sample_of(ObjectColumnsBuilder().build(), (), 0, 1)
    return compile_map(scheme_named(name).build(nothing, 16, SLOTS))


def _object(dice: Random, rng: np.random.Generator, number: int) -> dict[str, Any]:
    words = dice.sample(WORDS, dice.randrange(5))
    return random_members(rng, number, ts=False) | {"text": " ".join(words), "van": number % 3}


def _query(dice: Random) -> dict[str, Any]:
    query: dict[str, Any] = {
        "id": "q",
        "kind": "range",
        "mode": dice.choice(["continuous"] * 3 + ["snapshot"]),
    }
    text = dice.choice(TEXTS)
    if text is not None:
        query["text"] = text
    if dice.random() < 0.6:
        west, south = dice.uniform(-180, 0), dice.uniform(-90, 0)
        query["region"] = {"rect": {"west": west, "south": south, "east": west + 180, "north": 80}}
    if query["mode"] == "continuous" and dice.random() < 0.2:
        query["track"] = "van"
    return query


MAPS = [
    "keywords 1",
    "keywords 2",
    "qt-tree",
    "kdt-tree",
    "uniform-grid",
    "text-frequency",
    "replicated",
]


@pytest.mark.parametrize("name", MAPS)
def test_what_matches_comes_to_where_the_query_is(name: str) -> None:
    seed = 20261122
    dice, rng = Random(seed), np.random.default_rng(seed)
    kind, _, number = name.partition(" ")
    routing = by_keyword(int(number)) if kind == "keywords" else by_scheme(name)
    matched = elsewhere = 0
    for turn in range(300):
        query, one = parse_query(_query(dice)), parse_object(_object(dice, rng, turn))
        places = query_places(query, routing)
        goes = object_places(one, query, places, routing)
        verdict = explain(query, one, arrival_ms=0, start_ms=None)
        matched += verdict.holds
        elsewhere += goes.meets is not True
        assert not verdict.holds or goes.meets is True, (seed, turn)
        assert set(places.slots) >= {
            int(slot)
            for leaf, slot in zip(routing.leaf_ids, routing.slot_of_leaf, strict=True)
            if leaf in places.leaves
        }
        # Whatever its event key, it has no other destination.
        tracked = getattr(query, "track", None) is not None
        if not tracked:
            home = _slots_of(one, routing, dice.getrandbits(64))
            assert set(goes.slots) <= home <= {*goes.slots, *goes.other_slots}, (seed, turn)
    assert matched > 20
    # If all queries are in all slots, there is no other slot.
    assert bool(elsewhere) == (name != "replicated")


def _slots_of(one: Any, routing: RoutingArrays, key: int) -> set[int]:
    builder = ObjectColumnsBuilder()
    builder.add(one)
    columns = builder.build()
    terms = analyse_batch(columns.text, columns.text_offsets)
    keys = np.array([key], np.uint64)
    routes = routing.route_objects(columns.lon, columns.lat, terms.offsets, terms.terms, keys)
    return set(routes.slot.tolist())


def test_keywords_are_named_as_far_as_they_are_known() -> None:
    query = parse_query(
        {"id": "q", "kind": "range", "mode": "continuous", "text": "(coffee AND free) OR pizza"}
    )
    # A spatial map has no frequencies: slots use the terms that are rarest there.
    plain = query_places(query, by_scheme("uniform-grid"))
    assert plain.keywords == (None, "pizza")
    assert plain.forwarded is not None
    assert "pizza" in plain.forwarded
    split = query_places(query, by_keyword(1))
    assert split.keywords[0] in ("coffee", "free")
    assert split.keywords[1] == "pizza"
    assert split.why


def test_nearest_queries_reach_all_slots_and_snapshots_first_the_slot_of_their_point() -> None:
    routing = by_scheme("uniform-grid")
    members = {"id": "q", "kind": "knn", "point": {"lon": 1, "lat": 1}, "k": 3}
    standing = query_places(parse_query(members | {"mode": "continuous"}), routing)
    assert (len(standing.slots), len(standing.leaves)) == (SLOTS, len(routing.leaf_ids))
    asked = query_places(parse_query(members | {"mode": "snapshot"}), routing)
    assert (len(asked.slots), len(asked.leaves)) == (1, 1)
    snapshot = {"id": "q", "kind": "range", "mode": "snapshot"}
    snapshot["region"] = {"circle": {"lon": 1, "lat": 1, "radius_m": 5}}  # type: ignore[assignment]
    assert len(query_places(parse_query(snapshot), routing).slots) == 1
    assert len(query_places(parse_query(snapshot), routing, has_changed=True).slots) == SLOTS
