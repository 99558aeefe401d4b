"""The disjunctive form is as before, in a fraction of the time, and bounded in its size."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.kernels.base.disjunctive import TOO_MANY, absorb_masks, multiply_masks
from sirocco.kernels.base.hash_placement import secret
from sirocco.model import expression
from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import (
    AllOf,
    AnyOf,
    Conjunction,
    Expression,
    Node,
    Not,
    Term,
    disjunctive_form,
    parse_syntax,
)
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from tests.support.cpu_time import cpu_ratio
from tests.support.reference_form import reference_form

LAX = replace(DEFAULT_LIMITS, expanded_terms=1 << 40)


def outcome(form: object, node: Node, limits: Limits) -> tuple[Conjunction, ...] | str:
    try:
        return form(node, limits=limits)  # type: ignore[operator,no-any-return]
    except InvalidArgument as error:
        return str(error)


def random_node(random_: random.Random, depth: int, words: int, width: int) -> Node:
    if depth == 0 or random_.random() < 0.1:
        return Term(f"t{random_.randrange(words)}")
    # None: a negation, which has one operand.
    kind = random_.choice((None, AllOf, AllOf, AnyOf, AnyOf))
    if kind is None:
        return Not(random_node(random_, depth - 1, words, width))
    operands = tuple(
        random_node(random_, depth - 1, words, width) for _ in range(random_.randint(2, width))
    )
    return kind(operands)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    depth=st.integers(1, 4),
    words=st.integers(2, 90),
    width=st.integers(2, 9),
)
def test_forms_are_those_of_the_reference(seed: int, depth: int, words: int, width: int) -> None:
    """Compares conjunctions, and errors with their texts, also under a low limit of work."""
    node = random_node(random.Random(seed), depth, words, width)
    for steps in (40_000, 700):
        limits = replace(LAX, expression_steps=steps)
        assert outcome(disjunctive_form, node, limits) == outcome(reference_form, node, limits)


def factors(count: int, width: int, prefix: str = "w") -> str:
    return " AND ".join(
        "(" + " OR ".join(f"{prefix}{i}x{j}" for j in range(width)) + ")" for i in range(count)
    )


WORST = {
    "products": factors(9, 10),
    "halves": factors(120, 2),
    "absorbing": " AND ".join(f"(a OR b{i} OR c{i} OR d{i})" for i in range(40)),
    "negated": "x AND NOT (" + " OR ".join(f"(a{i} AND b{i} AND c{i})" for i in range(40)) + ")",
    "clashing": " AND ".join(f"(p{i} OR NOT p{i + 1} OR q{i % 7})" for i in range(60)),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_expressions_take_a_fraction_of_what_they_took(name: str) -> None:
    node = parse_syntax(WORST[name])
    assert outcome(disjunctive_form, node, LAX) == outcome(reference_form, node, LAX)
    ratio = cpu_ratio(
        lambda: outcome(disjunctive_form, node, LAX),
        lambda: outcome(reference_form, node, LAX),
        repeats=2,
    )
    assert ratio < 0.5


def test_what_a_form_holds_is_bounded() -> None:
    many = " ".join(f"c{i}" for i in range(DEFAULT_LIMITS.expanded_terms // 256))
    alternatives = " ".join(f"a{i}" for i in range(256))
    with pytest.raises(InvalidArgument, match="terms together") as caught:
        Expression.parse(f"{many} ANY({alternatives})")
    assert caught.value.field == "text"
    fewer = many.rpartition(" ")[0]
    assert len(Expression.parse(f"{fewer} ANY({alternatives})").conjunctions) == 256


def test_what_was_accepted_before_there_was_a_bound_is_read() -> None:
    source = (
        " ".join(f"c{i}" for i in range(500))
        + " ANY("
        + " ".join(f"a{i}" for i in range(256))
        + ")"
    )
    with pytest.raises(InvalidArgument):
        Expression.parse(source)
    assert len(Expression.parse(source, limits=LAX).conjunctions) == 256


@settings(deadline=None)
@given(st.data())
def test_products_and_absorption_follow_their_definitions(data: st.DataObject) -> None:
    words = data.draw(st.integers(1, 3))
    masks = st.lists(
        st.integers(0, 2 ** (64 * words) - 1).map(
            lambda bits: bits & data.draw(st.integers(0, 255))
        ),
        min_size=1,
        max_size=12,
    )
    left, right = data.draw(masks), data.draw(masks)
    room = data.draw(st.integers(1, 144))

    def rows(values: list[int]) -> np.ndarray:
        raw = b"".join(value.to_bytes(8 * words, "little") for value in values)
        return np.frombuffer(raw, "<u8").reshape(-1, words)

    def numbers(array: np.ndarray) -> list[int]:
        return [int.from_bytes(row.tobytes(), "little") for row in array]

    positive = (2 ** (64 * words) - 1) // 3
    unions = {a | b for a in left for b in right}
    expected = {mask for mask in unions if not mask & (mask >> 1) & positive}
    products = np.empty((room, words), np.uint64)
    table = np.empty(1 << (2 * room - 1).bit_length(), np.int32)
    secret = np.uint64(data.draw(st.integers(0, 2**64 - 1)))
    count = multiply_masks(rows(left), rows(right), secret, products, table)
    if len(expected) > room:
        assert count == TOO_MANY
        return
    assert set(numbers(products[:count])) == expected
    assert count == len(expected)
    kept, spent = np.empty(max(1, count), np.int64), np.empty(1, np.int64)
    left_over = absorb_masks(products[:count], 1 << 40, kept, spent)
    minimal = [m for m in expected if not any(o != m and m & o == o for o in expected)]
    minimal.sort(key=lambda m: (m.bit_count(), m))
    assert numbers(products[:count][kept[:left_over]]) == minimal
    if spent[0]:
        assert absorb_masks(products[:count], int(spent[0]) - 1, kept, spent) == TOO_MANY


def test_products_are_placed_by_the_secret_of_the_process() -> None:
    # Not by Python's hash of a string, which PYTHONHASHSEED makes the same everywhere.
    assert secret()[0] == expression._SECRET
