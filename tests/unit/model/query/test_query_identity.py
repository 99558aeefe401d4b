"""The identity bytes of queries: the same exactly for equal queries."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.query import canonical, identity_of, parse_query

SPELLINGS: list[list[dict[str, Any]]] = [
    [{}, {"where": {}}],
    [{"text": "a b"}, {"text": "B AND a"}, {"text": "(a b) OR (a b c)"}],
    [{"text": "A-b"}, {"text": '"a B"'}],
    [{"text": "a OR b"}, {"text": "ANY(b a)"}],
    [{"text": "a NOT b"}, {"text": "NOT (b OR NOT a)"}],
    [{"ttl": "1h"}, {"ttl": "60m"}],
    [{"window": "1h"}],
    [
        {"region": {"rect": {"west": 0, "south": -0.0, "east": 1, "north": 1}}},
        {"region": {"rect": {"north": 1.0, "east": 1, "south": 0.0, "west": -0.0}}},
    ],
    [{"region": {"circle": {"lon": 0, "lat": 0, "radius_m": 1}}}],
    [
        {"region": {"polygon": [[[0, 0], [1, 0], [1, 1]]]}},
        {"region": {"polygon": [[[-0.0, 0.0], [1.0, 0], [1, 1], [0, 0]]]}},
    ],
    [{"where": {"n": 3, "m": "x"}}, {"where": {"m": "x", "n": 3.0}}],
    [{"where": {"n": {"in": [0, 1.5]}}}, {"where": {"n": {"in": [1.5, -0.0]}}}],
    [{"where": {"n": 2**63}}, {"where": {"n": float(2**63)}}],
    [{"where": {"n": 2**63 + 1}}],
    [{"where": {"n": 1}}],
    [{"where": {"n": True}}],
    [{"where": {"n": "1"}}],
    [{"track": "v"}, {"track": "v", "events": ["exit", "enter"]}],
    [{"track": "v", "events": ["exit"]}],
]


def identity(members: dict[str, Any]) -> bytes:
    return identity_of(parse_query({"id": "q", "kind": "range", "mode": "continuous"} | members))


def test_spellings_of_one_query_are_one_and_others_are_not() -> None:
    found = [{identity(spelling) for spelling in spellings} for spellings in SPELLINGS]
    assert [len(each) for each in found] == [1] * len(SPELLINGS)
    assert len(set.union(*found)) == len(SPELLINGS)


def test_kinds_are_distinguished() -> None:
    knn = {"id": "q", "mode": "snapshot", "kind": "knn", "point": {"lon": 0, "lat": 0}, "k": 1}
    ranked = knn | {"kind": "ranked", "radius_m": 1, "keywords": ["a"]}
    terms = {"id": "q", "mode": "snapshot", "kind": "terms", "k": 1}
    identities = {identity_of(parse_query(each)) for each in (knn, ranked, terms)}
    assert len(identities) == 3


def test_a_query_without_ends_keeps_the_identity_from_before_ends_existed() -> None:
    """Checkpoints hold digests of earlier registrations."""
    knn = {"id": "q", "mode": "continuous", "kind": "knn", "point": {"lon": 1, "lat": 2}, "k": 3}
    before = ["knn", ["q", "continuous", 1.0, 2.0, 3, None, None, None, None]]
    assert orjson.loads(identity_of(parse_query(knn))) == before
    ended = orjson.loads(identity_of(parse_query(knn | {"events": ["ended"]})))
    assert ended == ["knn", [*before[1], ["ended"]]]
    shown = knn | {"text": "a", "highlight": True}
    members: tuple[dict[str, Any], ...] = ({}, {"events": ["ended"]}, {"highlight": False})
    assert len({identity_of(parse_query(shown | each)) for each in members}) == 3


def test_what_is_known_of_queries_that_were_registered_before_stays() -> None:
    """The log holds digests: with other bytes equal queries would be refused."""
    members = {"region": {"rect": {"west": 1, "south": 2, "east": 3.5, "north": 4}}}
    assert identity(members | {"text": "b (a OR NOT c)"}) == (
        b'["range",["q","continuous",{"west":1.0,"south":2.0,"east":3.5,"north":4.0},'
        b'[{"positive":["a","b"],"negative":[]},{"positive":["b"],"negative":["c"]}],'
        b"null,null,null,null,[]]]"
    )


_NUMBER = st.sampled_from([0, -0.0, 0.0, 1, 1.0, 2.5, -3, 90])
_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from(["a", "b a", "a b", "a OR b", "b OR a", "a OR a b"]),
        "region": st.builds(
            lambda lon, lat, m: {"circle": {"lon": lon, "lat": lat, "radius_m": abs(m)}},
            *[_NUMBER] * 3,
        ),
        "where": st.dictionaries(st.sampled_from(["n", "m"]), _NUMBER, min_size=1),
        "ttl": st.sampled_from(["60s", "1m", "2m"]),
    },
)


@given(_MEMBERS, _MEMBERS)
def test_identities_are_equal_where_queries_are(
    left: dict[str, Any], right: dict[str, Any]
) -> None:
    one, other = (
        parse_query({"id": "q", "kind": "range", "mode": "continuous"} | members)
        for members in (left, right)
    )
    assert (identity_of(one) == identity_of(other)) == (one == other)
    assert identity_of(parse_query(canonical(one))) == identity_of(one)


@pytest.mark.parametrize("name", ["id", "mode"])
def test_names_and_modes_count(name: str) -> None:
    other = {"id": "p", "mode": "snapshot"}
    assert identity({name: other[name]}) != identity({})
