"""The statements of `explain` about loads, and about facts that it may not or cannot know."""

from __future__ import annotations

from typing import Any

from sirocco_client import Balance, ClusterDescription
from sirocco_client.calls.balance import LeafLoad, SlotLoad
from sirocco_client.calls.cluster import Leaf, Ownership

from sirocco.cli.explain.view import lines_of
from sirocco.explain.report import (
    Cluster,
    ExplainedQuery,
    RecentMatches,
    count_search,
    report,
    window_of,
)
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import Query, parse_query
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.workload.sampling import sample_of

SLOTS = 4
NOTHING = sample_of(ObjectColumnsBuilder().build(), (), 0, 1)
MAP = scheme_named("uniform-grid").build(NOTHING, 16, SLOTS)
SLOT_OF = {leaf.id: int(MAP.slot_of_leaf[at]) for at, leaf in enumerate(MAP.leaves)}


def _query(**members: Any) -> Query:
    return parse_query({"id": "q", "kind": "range", "mode": "continuous"} | members)


SMALL = _query(text="a OR (b AND c)", region={"circle": {"lon": 10, "lat": 10, "radius_m": 9}})


def _described() -> ClusterDescription:
    leaves = tuple(
        Leaf(
            id=leaf.id,
            slot=SLOT_OF[leaf.id],
            west=leaf.box[0],
            south=leaf.box[1],
            east=leaf.box[2],
            north=leaf.box[3],
            is_text=False,
            objects=leaf.id + 1,
        )
        for leaf in MAP.leaves
    )
    owners = tuple(
        Ownership("slots", slot, f"evaluator-{slot % 2}", 1) for slot in range(SLOTS - 1)
    )
    other = Ownership("intake", SLOTS - 1, "router-1", 1)
    return ClusterDescription(
        cluster="test",
        map_version=1,
        scheme="uniform-grid",
        leaf_count=len(leaves),
        slot_count=SLOTS,
        leader="",
        members=(),
        ownerships=(*owners, other),
        leaves=leaves,
    )


def _balance(leaves: int) -> Balance:
    loads = tuple(LeafLoad(one, SLOT_OF[one], 0.1, 7.0, 0.0, 1.0) for one in range(leaves))
    slots = tuple(SlotLoad(one, "", 0.25, 10.0 * (one + 1), 0.0, 1.0) for one in range(SLOTS))
    return Balance(
        is_on=True,
        balancer="",
        at_ms=1,
        round_ms=10_000,
        map_version=1,
        imbalance=1.0,
        state="",
        slots=slots,
        leaves=loads,
        decisions=(),
        proposal=None,
        moves_total=0,
        map_changes_total=0,
    )


def _report(query: Query, cluster: Cluster, recent: RecentMatches | None = None) -> dict[str, Any]:
    one = parse_object({"id": 1, "lon": 10, "lat": 10, "text": "a"})
    loads = report(
        ExplainedQuery(query),
        cluster,
        recent or RecentMatches(1_000),
        one,
        now_ms=5_000,
        arrival_ms=None,
    )
    assert list(lines_of(loads))
    return loads


def test_what_comes_to_leaves_and_slots() -> None:
    loads = _report(SMALL, Cluster(_described(), MAP, "none", _balance(16)))
    (leaf,) = loads["places"]["leaves"]
    slot = SLOT_OF[leaf]
    assert [one["slot"] for one in loads["places"]["slots"]] == [slot]
    load = loads["load"]
    assert load["leaves_share"] == (leaf + 1) / sum(range(1, 17))
    assert (load["slots_objects_per_s"], load["leaves_objects_per_s"]) == (10.0 * (slot + 1), 7.0)
    assert load["slots_share"] == (slot + 1) / 10

    # The cluster reports only its heaviest leaves: a sum that lacks some is not shown.
    world = _report(_query(), Cluster(_described(), MAP, "copying", _balance(15)))
    assert "leaves_objects_per_s" not in world["load"]
    assert world["load"]["slots_objects_per_s"] == 100.0
    assert world["places"]["map_change"] == "copying"
    assert [one["owner"] for one in world["places"]["slots"]][-1] is None
    assert any("nobody owns 3" in line for line in lines_of(world))


def test_a_caller_without_right_to_the_map_sees_the_rest() -> None:
    why = "token k3 has no scope 'admin'"
    loads = _report(
        SMALL, Cluster(_described(), None, "", None, why), RecentMatches(1_000, why="no store")
    )
    assert loads["places"] == loads["load"] == {"unknown": why}
    assert loads["object"]["outcome"] == "match"
    assert "goes_to" not in loads["object"]
    assert [one["keyword"] for one in loads["text"]["conjunctions"]] == [None, None]
    assert loads["matched"] == {"window_ms": 1_000, "count": None, "unknown": "no store"}
    lines = list(lines_of(loads))
    assert f"leaves        not known: {why}" in lines
    assert "matched       not known: no store" in lines


def test_matches_of_a_query_are_searched_by_a_snapshot_of_its_conditions() -> None:
    where = {"size": {"gte": 3}}
    ranked = {"kind": "ranked", "point": {"lon": 1, "lat": 2}, "radius_m": 5, "k": 1}
    query = parse_query(
        {"id": "q", "mode": "continuous", "keywords": ["b a"], "window": "2h", **ranked}
        | {"where": where}
    )
    window_ms = window_of(query, None)
    assert count_search(query, window_ms) == {
        "id": "q",
        "kind": "range",
        "mode": "snapshot",
        "region": {"circle": {"lon": 1.0, "lat": 2.0, "radius_m": 5.0}},
        "text": "ANY(a b)",
        "where": where,
        "window": "2h",
    }
    assert window_of(query, 1_000) == 1_000
    assert window_of(SMALL, None) == 3_600_000
    tracked = _query(track="van", ttl="1d", text="a")
    assert count_search(tracked, 60_000) == {
        "id": "q", "kind": "range", "mode": "snapshot", "text": "a", "window": "1m",
    }  # fmt: skip


def test_possible_slots_of_an_object_are_marked_as_possible() -> None:
    loads = _report(SMALL, Cluster(_described(), MAP, "none", None))
    loads["object"]["goes_to"] = {
        "leaves": [1],
        "slots": [],
        "or_leaves": list(range(2, 20)),
        "or_slots": [2, 3],
        "query_is_there": None,
    }
    (line,) = [line for line in lines_of(loads) if line.startswith("sent to ")]
    assert line == (
        "sent to       leaf 1 and perhaps one of leaf 2 3 4 5 6 7 8 9 10 11 12 13 …, "
        "one of slot 2 3: whether the query is there depends on which, by the object's event key"
    )
