"""Installs of queries of all kinds: to which slots, and with what besides the conditions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sirocco.codec.installs import read_installed, write_installed
from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_RANKED, KIND_TERMS, KIND_TRACKED
from sirocco.model.query import parse_query
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import NO_PAST, Installed
from sirocco.protocol.contract.query_definitions import query_of
from sirocco.protocol.router.queries.install_records import Installs, routed_queries
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.support.values import change_of, request_of, uniform_routing

SLOTS_COUNT = 5
ROUTING = uniform_routing(SLOTS_COUNT, SLOTS_COUNT)
EVERYWHERE = set(range(SLOTS_COUNT))

# A small place in the middle of one tile.
RECT = {"rect": {"west": -150.0, "south": 10.0, "east": -149.0, "north": 11.0}}
POINT = {"lon": -149.5, "lat": 10.5}
RANGE: dict[str, Any] = {"kind": "range", "region": RECT}
TRACKED = RANGE | {"track": "vehicle"}
KNN: dict[str, Any] = {"kind": "knn", "point": POINT, "k": 3}
TERMS: dict[str, Any] = {"kind": "terms", "region": RECT, "k": 3, "step": "1m"}
RANKED: dict[str, Any] = {
    "kind": "ranked", "point": POINT, "radius_m": 5_000, "k": 3, "keywords": ["a"]
}  # fmt: skip


def installed_for(*queries: dict[str, Any], past_ms: int = NO_PAST) -> dict[int, Installed]:
    """Returns the installs of new queries q0, q1, … for each slot."""
    requests = [
        request_of(
            "register", {"id": f"q{i}", "mode": "continuous"} | members, "s", 70 + i, past_ms
        )
        for i, members in enumerate(queries)
    ]
    rows, slots = routed_queries([change_of(request) for request in requests], ROUTING)
    installs = Installs(3, 0)
    installs.install([(i, change_of(request)) for i, request in enumerate(requests)], rows, slots)
    found = {}
    for effect in installs.effects():
        assert isinstance(effect, Append)
        assert isinstance(effect.message, Installed)
        found[effect.partition] = effect.message
    return found


def test_updates_of_a_slot_fit_records_of_the_log() -> None:
    # 256 conjunctions of 1,008 terms each compile to 2 MB.
    words = " ".join(f"w{i}" for i in range(1_000))
    wide = RANGE | {"text": words + "".join(f" (a{i} OR b{i})" for i in range(8))}
    ring = [[math.cos(i / 1_000) / 10, math.sin(i / 1_000) / 10] for i in range(6_000)]
    shaped = RANGE | {"region": {"polygon": [ring]}}
    queries = [wide, RANGE, *[shaped] * 60, wide, KNN, wide, RANGE]
    requests = [
        request_of("register", {"id": f"q{i}", "mode": "continuous"} | members, "s", 70 + i)
        for i, members in enumerate(queries)
    ]
    rows, slots = routed_queries(
        [change_of(request) for request in requests], uniform_routing(1, 1)
    )
    installs = Installs(3, 0, 99)
    installs.install([(i, change_of(request)) for i, request in enumerate(requests)], rows, slots)
    installs.leave([0], 7, 8)
    messages = [each.message for each in installs.effects() if isinstance(each, Append)]
    installed_for = [each for each in messages if isinstance(each, Installed)]
    assert [revision for each in installed_for for revision in each.revisions] == [
        *range(len(queries))
    ]
    assert [each.removed.tolist() for each in installed_for] == [[7]] + [[]] * (
        len(installed_for) - 1
    )
    assert {each.copied_at for each in installed_for} == {99}
    sizes = [write_installed(each).ByteSize() for each in installed_for]
    assert max(sizes) < RECORD_BYTES_MAX * 0.9
    assert sum(sizes) > 2 * RECORD_BYTES_MAX
    for each in installed_for:
        assert len(read_installed(write_installed(each)).revisions) == len(each.revisions)


def slots_of(members: dict[str, Any]) -> set[int]:
    return set(installed_for(members))


def test_queries_of_a_place_stand_in_the_slots_of_their_place() -> None:
    (home,) = slots_of(RANGE)
    assert slots_of(TERMS) == {home}
    assert slots_of(RANKED) == {home}
    assert slots_of(RANKED | {"radius_m": 1e8}) == EVERYWHERE
    assert slots_of({name: value for name, value in TERMS.items() if name != "region"}) == (
        EVERYWHERE
    )


@pytest.mark.parametrize("members", [KNN, TRACKED], ids=["knn", "tracked"])
def test_queries_that_any_object_may_concern_stand_everywhere(members: dict[str, Any]) -> None:
    assert slots_of(members) == EVERYWHERE


def test_plain_range_queries_are_sent_without_further_members() -> None:
    for message in installed_for(RANGE, RANGE, {"kind": "range"}).values():
        assert not message.kinds.any()
        assert not message.starts_ms.any()
        assert (message.past_ms == NO_PAST).all()
        assert not message.slot_counts.any()
        assert not message.homes.any()
        assert message.specs is None


def test_each_slot_receives_the_condition_of_each_query() -> None:
    queries = [RANGE, KNN, TERMS, RANKED, TRACKED]
    found = installed_for(*queries)
    (home,) = slots_of(RANGE)
    assert set(found) == EVERYWHERE
    for slot, message in found.items():
        ids = message.names.ids.tobytes().decode()
        chosen = [int(number) for number in ids.replace("q", " ").split()]
        assert chosen == ([0, 1, 2, 3, 4] if slot == home else [1, 4])
        kinds = [KIND_RANGE, KIND_KNN, KIND_TERMS, KIND_RANKED, KIND_TRACKED]
        assert message.kinds.tolist() == [kinds[i] for i in chosen]
        assert message.starts_ms.tolist() == [[0, 71, 72, 73, 74][i] for i in chosen]
        assert message.past_ms.tolist() == [NO_PAST] * len(chosen)
        assert message.slot_counts.tolist() == [[0, 5, 1, 1, 5][i] for i in chosen]
        # The home of queries in all slots is slot 0, of others their only one.
        is_first = slot == 0
        homes = [False, is_first, True, True, is_first]
        assert message.homes.tolist() == [homes[i] for i in chosen]
        assert message.specs is not None
        for i, spec in zip(chosen, message.specs, strict=True):
            if i == 0:
                assert spec == ""
            else:
                wanted = parse_query({"id": f"q{i}", "mode": "continuous"} | queries[i])
                assert query_of(spec) == wanted


def test_every_query_has_one_home() -> None:
    whole = {name: value for name, value in TERMS.items() if name != "region"}
    wide = RANKED | {"radius_m": 3e6}
    found = installed_for(KNN, whole, wide, TRACKED)
    homes: dict[bytes, list[int]] = {}
    counts: dict[bytes, list[int]] = {}
    for slot, message in found.items():
        ids = message.names.ids.tobytes()
        names = [ids[i : i + 2] for i in range(0, len(ids), 2)]
        for name, is_home, count in zip(
            names, message.homes.tolist(), message.slot_counts.tolist(), strict=True
        ):
            homes.setdefault(name, []).extend([slot] if is_home else [])
            counts.setdefault(name, []).append(count)
    assert sorted(homes) == [b"q0", b"q1", b"q2", b"q3"]
    for name, found_homes in homes.items():
        assert len(found_homes) == 1
        # Each slot receives the number of the query's slots: as many as receive it.
        assert counts[name] == [len(counts[name])] * len(counts[name])


def test_range_queries_request_history_without_a_definition() -> None:
    (message,) = installed_for(RANGE, past_ms=5_000).values()
    assert message.kinds.tolist() == [KIND_RANGE]
    assert message.past_ms.tolist() == [5_000]
    assert message.starts_ms.tolist() == [70]
    assert message.slot_counts.tolist() == [1]
    assert message.homes.tolist() == [True]
    assert message.specs is None
