"""`where` filters: every pair of kinds, and a naive evaluation of the JSON form."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.attributes import Filter
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import Limits

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.5]),
    st.sampled_from(["", "a", "b", "Z", "é", "\uffff", "\U0001f389", "1", "true"]),
)
VALUES = st.one_of(SCALARS, st.none(), st.lists(st.integers(), max_size=2), st.just({"x": 1}))
NAMES = st.sampled_from(["p", "q", "r"])
ORDERED = SCALARS.filter(lambda v: not isinstance(v, bool))
COMPARISONS = st.one_of(
    SCALARS,
    st.dictionaries(st.sampled_from(["gte", "gt", "lte", "lt"]), ORDERED, min_size=1),
    st.lists(SCALARS, min_size=1, max_size=4).map(lambda v: {"in": v}),
    st.tuples(st.lists(SCALARS, min_size=1, max_size=4), ORDERED).map(
        lambda v: {"in": v[0], "lt": v[1]}
    ),
)
WHERE = st.dictionaries(NAMES, COMPARISONS, max_size=3)


def kind(value: object) -> str:
    return {bool: "boolean", int: "number", float: "number", str: "string"}.get(
        type(value), "other"
    )


ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "gte": operator.ge,
    "gt": operator.gt,
    "lte": operator.le,
    "lt": operator.lt,
}


def naive(where: dict[str, Any], attributes: dict[str, Any]) -> bool:
    for name, wanted in where.items():
        value = attributes.get(name)
        for comparison, operand in (
            wanted.items() if isinstance(wanted, dict) else [("in", [wanted])]
        ):
            if comparison == "in":
                good = any(kind(value) == kind(o) and value == o for o in operand)
            elif kind(value) != kind(operand):
                good = False
            else:
                # Code points as big-endian UTF-32, which has the same order.
                a, b = (
                    v.encode("utf-32-be") if isinstance(v, str) else v for v in (value, operand)
                )
                good = ORDERS[comparison](a, b)
            if not good:
                return False
    return True


@given(WHERE, st.dictionaries(NAMES, VALUES))
def test_where_filters_match_as_the_contract_defines(
    where: dict[str, Any], attributes: dict[str, Any]
) -> None:
    assert Filter.parse(where).matches(attributes) == naive(where, attributes)


@given(WHERE)
def test_canonical_form_is_read_back(where: dict[str, Any]) -> None:
    parsed = Filter.parse(where)
    assert Filter.parse(parsed.canonical()) == parsed


def test_kinds_are_distinguished() -> None:
    assert Filter.parse({"a": True}) != Filter.parse({"a": 1})
    assert Filter.parse({"a": 1}) == Filter.parse({"a": 1.0})
    assert Filter.parse({"a": {"in": [2, 1, 2]}}) == Filter.parse({"a": {"in": [1, 2]}})
    assert not Filter.parse({"a": 1}).matches({"a": True})
    assert not Filter.parse({"a": {"gte": 0}}).matches({"a": True})
    assert not Filter.parse({"a": "1"}).matches({"a": 1})
    assert Filter.parse({"a": 2**53 + 1}).matches({"a": 2**53 + 1})
    assert not Filter.parse({"a": 2**53 + 1}).matches({"a": float(2**53)})


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ([], "where"),
        ({"": 1}, "where."),
        ({"a": None}, "where.a"),
        ({"a": [1]}, "where.a"),
        ({"a": {}}, "where.a"),
        ({"a": {"ne": 1}}, "where.a.ne"),
        ({"a": {"gte": None}}, "where.a.gte"),
        ({"a": {"gte": True}}, "where.a.gte"),
        ({"a": {"gte": float("nan")}}, "where.a.gte"),
        ({"a": {"lt": 1e30, "gt": 10**400}}, "where.a.gt"),
        ({"a": {"in": []}}, "where.a.in"),
        ({"a": {"in": "abc"}}, "where.a.in"),
        ({"a": {"in": [1, [2]]}}, "where.a.in[1]"),
        ({"a": "\ud800"}, "where.a"),
        ({"\ud800": 1}, "where.\ud800"),
        ({f"a{i}": 1 for i in range(65)}, "where"),
    ],
)
def test_errors_name_the_attribute(where: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Filter.parse(where)
    assert caught.value.field == field


def test_limits_are_arguments() -> None:
    with pytest.raises(InvalidArgument):
        Filter.parse({"a": {"in": [1, 2]}}, limits=Limits(alternatives=1))


def test_many_alternatives_take_few_steps() -> None:
    """Each object was compared with each of 1,024 alternatives, in each condition of a query."""
    wanted = [f"value {number}" for number in range(1_024)]
    parsed = Filter.parse({"p": {"in": wanted}})
    steps = 0

    def count(*_: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = [parsed.matches({"p": each}) for each in (wanted[-1], "value 7", "zero", 7)]
    finally:
        sys.settrace(before)
    assert found == [True, True, False, False]
    assert steps < 600
