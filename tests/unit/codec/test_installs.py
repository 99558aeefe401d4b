"""Installs in slots: columns for plain range queries, validated definitions for all others."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.installs import read_installed, write_installed
from sirocco.index.base.kinds import (
    KIND_KNN,
    KIND_RANGE,
    KIND_RANKED,
    KIND_TERMS,
    KIND_TRACKED,
    kind_number,
)
from sirocco.model.attributes import Filter
from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import Expression
from sirocco.model.query import parse_query
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import NO_PAST, Change, Installed
from sirocco.protocol.contract.query_definitions import PARSED_LONG_MAX, query_of, spec_of
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.queries.install_records import Installs, routed_queries
from tests.support.random_messages import differences
from tests.support.values import change_of, request_of, uniform_routing

POINT = {"lon": 1.0, "lat": 2.0}
RANGE: dict[str, Any] = {"kind": "range", "text": "a"}
KNN: dict[str, Any] = {"kind": "knn", "point": POINT, "k": 3}
TERMS: dict[str, Any] = {"kind": "terms", "k": 3, "step": "1m"}
RANKED: dict[str, Any] = {
    "kind": "ranked", "point": POINT, "radius_m": 5_000, "k": 3, "keywords": ["a"]
}  # fmt: skip
TRACKED = RANGE | {"track": "vehicle"}
KINDS = {
    KIND_RANGE: RANGE,
    KIND_KNN: KNN,
    KIND_TERMS: TERMS,
    KIND_RANKED: RANKED,
    KIND_TRACKED: TRACKED,
}

ADDED = ("kinds", "starts_ms", "past_ms", "slot_counts", "homes")


def installed_for(*queries: dict[str, Any], past_ms: int = NO_PAST) -> Installed:
    """Returns the record for the only slot of a small cluster."""
    changes: list[tuple[int, Change]] = []
    for number, members in enumerate(queries):
        request = request_of(
            "register", {"id": f"q{number}", "mode": "continuous"} | members, "s", 7
        )
        changes.append((number, replace(change_of(request), past_ms=past_ms)))
    rows, slots = routed_queries([change for _, change in changes], uniform_routing(1, 1))
    installs = Installs(3, 0)
    installs.install(changes, rows, slots)
    (effect,) = installs.effects()
    assert isinstance(effect, Append)
    assert isinstance(effect.message, Installed)
    return effect.message


def test_plain_range_queries_stay_as_bare_as_they_were() -> None:
    message = installed_for(RANGE, RANGE | {"where": {"a": 1}})
    request = write_installed(message)
    assert not any(getattr(request, name) for name in ADDED)
    assert not request.names.specs
    assert differences(read_installed(request), message) == []


@pytest.mark.parametrize("past_ms", [NO_PAST, 0, (1 << 63) - 1])
@pytest.mark.parametrize("kind", KINDS)
def test_members_of_each_kind_survive_encoding(kind: int, past_ms: int) -> None:
    message = installed_for(KINDS[kind], RANGE, past_ms=past_ms)
    assert message.kinds.tolist() == [kind, KIND_RANGE]
    assert message.past_ms.tolist() == [past_ms] * 2
    again = read_installed(write_installed(message))
    assert differences(again, message) == []
    if kind != KIND_RANGE:
        assert again.specs is not None
        assert kind_number(query_of(again.specs[0])) == kind
        assert again.specs[1] == ""


def refused(message: Installed) -> str | None:
    with pytest.raises(InvalidArgument) as caught:
        read_installed(write_installed(message))
    return caught.value.field


def with_specs(message: Installed, *specs: str) -> Installed:
    return replace(message, names=replace(message.names, specs=specs))


def test_definitions_that_do_not_fit_their_rows_are_refused() -> None:
    message = installed_for(KNN, RANGE)
    assert message.specs is not None
    spec = message.specs[0]
    assert refused(with_specs(message, "", "")) == "names.specs[0]"
    assert refused(with_specs(message, spec + "}", "")) == "names.specs[0]"
    assert refused(with_specs(message, spec, spec)) == "names.specs[1]"
    assert refused(with_specs(message, spec.replace('"k":3', '"k":0'), "")) == "names.specs[0].k"
    other = spec_of(parse_query({"id": "q9", "mode": "continuous"} | KNN))
    assert refused(with_specs(message, other, "")) == "names.specs[0]"
    tracked = spec_of(parse_query({"id": "q0", "mode": "continuous"} | TRACKED))
    assert refused(with_specs(message, tracked, "")) == "names.specs[0]"
    unknown = np.array([5, KIND_RANGE], np.uint8)
    assert refused(replace(message, kinds=unknown)) == "names.specs[0]"


@pytest.mark.parametrize("name", ADDED)
def test_a_column_that_is_missing_is_refused(name: str) -> None:
    request = write_installed(installed_for(KNN, RANGE))
    request.ClearField(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument) as caught:
        read_installed(request)
    assert caught.value.field == name


def test_a_definition_without_kinds_is_refused() -> None:
    request = write_installed(installed_for(RANGE))
    request.names.specs.append("")
    with pytest.raises(InvalidArgument) as caught:
        read_installed(request)
    assert caught.value.field == "kinds"


def test_slots_take_queries_without_reading_what_they_look_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 16 slots read the longest twice: 32 times what its tenant may take of a router."""
    text = " OR ".join(f"word{i:05}" for i in range(250))
    queries = [TRACKED, KNN, TERMS, RANGE | {"highlight": True}]
    request = write_installed(installed_for(*(each | {"text": text} for each in queries)))

    def parsed(*_: object, **__: object) -> Expression:
        raise AssertionError("an expression was parsed")

    monkeypatch.setattr(Expression, "parse", parsed)
    slot = Slot(0, 1)
    slot.open(0, 0, 1, 0)
    slot.take([(0, read_installed(request))])
    assert [len(family.table) for family in slot.standing.families] == [1, 1, 1, 1]


def test_slots_of_a_process_read_a_filter_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 values it takes 10 ms; each of 16 slots read it two or three times."""
    asked = [RANGE | {"where": {"a": {"in": [f"{q}-{n}" for n in range(900)]}}} for q in range(20)]
    request = write_installed(installed_for(*asked))
    read: list[object] = []
    parse = Filter.parse

    def counted(value: object, field: str = "where") -> Filter:
        read.append(value)
        return parse(value, field)

    monkeypatch.setattr(Filter, "parse", counted)
    for number in range(3):
        slot = Slot(number, 1)
        slot.open(0, 0, 1, 0)
        slot.take([(0, read_installed(request))])
    assert len(read) == len(asked)


def test_long_definitions_do_not_stay_parsed() -> None:
    """Four thousand of the longest took 19 GB in an evaluator, removed or not."""

    def spec(number: int) -> str:
        where = {f"a{i}": {"in": [f"{number}-{n}" for n in range(1_000)]} for i in range(4)}
        point = {"lon": 1.0, "lat": 1.0}
        members = {"id": "q", "kind": "knn", "mode": "continuous", "k": 1, "point": point}
        return spec_of(parse_query(members | {"where": where}))

    def grown(numbers: range) -> int:
        before = tracemalloc.get_traced_memory()[0]
        for number in numbers:
            query_of(spec(number))
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        full = grown(range(PARSED_LONG_MAX))
        assert grown(range(PARSED_LONG_MAX, 3 * PARSED_LONG_MAX)) < full / 4
    finally:
        tracemalloc.stop()
