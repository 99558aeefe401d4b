"""Every member of a query with every kind and mode, and with all options of a registration.

Each combination is accepted, or refused with the name of a member that does not belong: by the
tables of docs/reference/queries.md. No combination is accepted silently that asks for results that
never follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from sirocco.codec.queries import read_query, write_query
from sirocco.model.access import EVERYTHING
from sirocco.model.errors import SiroccoError
from sirocco.model.query import MODES, canonical, parse_query
from sirocco.protocol.contract.messages import NO_PAST
from sirocco.services.router.changes.query_checks import Lifetime
from sirocco.services.router.owners import Owners
from sirocco.services.router.queries import QueryFront
from sirocco.telemetry.metrics.router import RouterMetrics

POINT = {"lon": 1.0, "lat": 2.0}
RECT = {"rect": {"west": 0, "south": 0, "east": 2, "north": 2}}
WEIGHTS = {"text": 0.5, "space": 0.25, "time": 0.25}

REQUIRED: dict[str, dict[str, Any]] = {
    "range": {},
    "knn": {"point": POINT, "k": 3},
    "terms": {"k": 3},
    "ranked": {"point": POINT, "radius_m": 5_000, "k": 3, "keywords": ["a"]},
}
VALUES: dict[str, Any] = {
    "where": {"a": 1},
    "ttl": "1h",
    "window": "1h",
    "region": RECT,
    "text": "a OR b",
    "track": "bus",
    "events": ["enter", "inside"],
    "point": POINT,
    "k": 3,
    "step": "1m",
    "radius_m": 5_000,
    "keywords": ["a"],
    "weights": WEIGHTS,
    "half_life": "6h",
}
# Member → its kinds and modes.
BELONGS: dict[str, tuple[set[str], set[str]]] = {
    "where": ({"range", "knn", "terms", "ranked"}, {"continuous", "snapshot"}),
    "ttl": ({"range", "knn", "terms", "ranked"}, {"continuous"}),
    "window": ({"range", "knn", "terms", "ranked"}, {"continuous", "snapshot"}),
    "region": ({"range", "terms"}, {"continuous", "snapshot"}),
    "text": ({"range", "knn", "terms"}, {"continuous", "snapshot"}),
    "track": ({"range"}, {"continuous"}),
    "events": ({"range", "knn", "terms", "ranked"}, {"continuous"}),
    "point": ({"knn", "ranked"}, {"continuous", "snapshot"}),
    "k": ({"knn", "terms", "ranked"}, {"continuous", "snapshot"}),
    "step": ({"terms", "ranked"}, {"continuous"}),
    "radius_m": ({"ranked"}, {"continuous", "snapshot"}),
    "keywords": ({"ranked"}, {"continuous", "snapshot"}),
    "weights": ({"ranked"}, {"continuous", "snapshot"}),
    "half_life": ({"ranked"}, {"continuous", "snapshot"}),
}
KINDS_AND_MODES = list(itertools.product(REQUIRED, MODES))


def objectionable(members: dict[str, Any]) -> set[str]:
    """Returns the members that docs/reference/queries.md refuses in such a query, or misses."""
    kind, mode = members["kind"], members["mode"]
    found = {
        name
        for name, (kinds, modes) in BELONGS.items()
        if name in members and (kind not in kinds or mode not in modes)
    }
    if "track" not in members and set(members.get("events", ())) - {"ended"}:
        found.add("events")
    if kind == "knn" and mode == "continuous" and "window" in members:
        found.add("window")
    missing = {name for name in REQUIRED[kind] if name not in members}
    if kind == "terms" and mode == "continuous" and "step" not in members:
        missing.add("step")
    return found | missing


def combinations(kind: str, mode: str) -> Iterator[dict[str, Any]]:
    base = {"id": "q", "kind": kind, "mode": mode} | REQUIRED[kind]
    others = [name for name in VALUES if name not in base]
    for size in range(4):
        for chosen in itertools.combinations(others, size):
            members = base | {name: VALUES[name] for name in chosen}
            yield members
            if "events" in members:
                yield members | {"events": ["ended"]}
    for name in REQUIRED[kind]:
        yield {each: value for each, value in base.items() if each != name}


def refused_field(call: Callable[[], Any]) -> str | None:
    """Returns the member that a typed refusal names; None if nothing is refused."""
    try:
        call()
    except SiroccoError as error:
        return error.field
    return None


@pytest.mark.parametrize(("kind", "mode"), KINDS_AND_MODES)
def test_each_combination_is_a_query_or_names_a_member_that_does_not_belong(
    kind: str, mode: str
) -> None:
    for members in combinations(kind, mode):
        wrong = objectionable(members)
        field = refused_field(lambda members=members: parse_query(members))
        assert (field in wrong) if wrong else field is None, (members, wrong, field)
        if wrong:
            continue
        query = parse_query(members)
        # Nothing is lost in any encoding.
        assert parse_query(canonical(query)) == query
        assert read_query(write_query(query, "s"))[0] == query


def accept(front: QueryFront, members: dict[str, Any], past_ms: int, start_ms: int | None) -> None:
    message = write_query(parse_query(members), "s")
    lifetime = Lifetime(7 if start_ms is None else start_ms, past_ms, start_ms is not None)
    request, _ = front._checks.checked("register", message, lifetime, EVERYTHING)
    assert request.query == parse_query(members)
    assert Lifetime(request.start_ms, request.past_ms, request.is_start_given) == lifetime


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("past_ms", [NO_PAST, 0, 60_000])
@pytest.mark.parametrize("start_ms", [None, 0, 1 << 41])
def test_further_members_of_a_registration_are_answered_or_refused(
    start_ms: int | None, past_ms: int, store: bool
) -> None:
    front = QueryFront(
        cast(Owners, None), 1, RouterMetrics(CollectorRegistry()), 86_400_000, store=store
    )
    for kind, mode in KINDS_AND_MODES:
        for members in combinations(kind, mode):
            if objectionable(members):
                continue
            refused: set[str] = set()
            if mode == "snapshot":
                refused.add("mode")
            if not store and kind != "range":
                refused.add("kind")
            if "track" in members:
                refused |= {"past_ms"} if past_ms != NO_PAST else set()
                refused |= set() if store else {"track"}
            if past_ms != NO_PAST and not store:
                refused.add("past")
            # Steps count the stored objects, here for a day.
            if kind in ("terms", "ranked") and "window" not in members:
                refused.add("window")
            # Steps since 1970 would all be due at once.
            if kind in ("terms", "ranked") and start_ms == 0 and "ttl" not in members:
                refused.add("start_ms")
            field = refused_field(lambda members=members: accept(front, members, past_ms, start_ms))
            assert (field in refused) if refused else field is None, (members, refused, field)
