"""`where` filters on the attributes of objects.

Semantics (public contract): equality, or `gte gt lte lt in`; all conditions must hold. Numbers
compare by value, strings by code point, booleans only with booleans; null is missing, a missing
attribute does not match, and neither do values of different types.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import INTEGER_GREATEST, INTEGER_LEAST, OVERSIZED
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.members import read_mapping, read_number, read_sequence, read_string

Comparison = Literal["eq", "gte", "gt", "lte", "lt", "in"]
Kind = Literal["number", "string", "boolean"]

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "gte": operator.ge,
    "gt": operator.gt,
    "lte": operator.le,
    "lt": operator.lt,
}


def _kind_of(value: object) -> Kind | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, order=True)
class Scalar:
    """A value with its kind, so that `true` and `1` are unequal, `1` and `1.0` equal."""

    kind: Kind
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of one attribute.

    Attributes:
        attribute: Name of the attribute.
        comparison: How it is compared.
        operands: One scalar; for `in` the alternatives, sorted and distinct.
    """

    attribute: str
    comparison: Comparison
    operands: tuple[Scalar, ...]

    def holds(self, value: object) -> bool:
        """Returns whether a value of the attribute satisfies the condition."""
        kind = _kind_of(value)
        if kind is None:
            return False
        if self.comparison == "in":
            # Clients choose how many there are, and objects are compared with all queries.
            wanted = Scalar(kind, value)  # type: ignore[arg-type]
            place = bisect_left(self.operands, wanted)
            return place < len(self.operands) and self.operands[place] == wanted
        bound = self.operands[0]
        if self.comparison == "eq":
            return bound.kind == kind and bound.value == value
        return bound.kind == kind and _ORDERS[self.comparison](value, bound.value)


@dataclass(frozen=True, slots=True)
class Filter:
    """A conjunction of conditions, sorted by attribute and comparison."""

    conditions: tuple[Condition, ...]

    @classmethod
    def parse(cls, value: object, field: str = "where", *, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Reads the JSON form, for example `{"status": "open", "size": {"gte": 3, "lt": 10}}`.

        Raises:
            InvalidArgument: Not such a filter; the field names the attribute and comparison.
        """
        conditions: list[Condition] = []
        for name, wanted in read_mapping(value, field).items():
            path = f"{field}.{name:.80}" if isinstance(name, str) else field
            read_string(name, path, bytes_max=limits.attribute_bytes)
            if isinstance(wanted, Mapping):
                if not wanted:
                    raise InvalidArgument("holds no comparison", field=path)
                for comparison, operand in wanted.items():
                    conditions.append(_parse_condition(name, comparison, operand, path, limits))
            else:
                conditions.append(Condition(name, "eq", (_scalar(wanted, path, limits),)))
        if len(conditions) > limits.conditions:
            raise InvalidArgument(
                f"{len(conditions)} conditions, the limit is {limits.conditions}", field=field
            )
        conditions.sort(key=lambda c: (c.attribute, c.comparison))
        return cls(tuple(conditions))

    def matches(self, attributes: Mapping[str, Any]) -> bool:
        """Returns whether the attributes of an object satisfy all conditions."""
        return all(c.holds(attributes.get(c.attribute)) for c in self.conditions)

    def canonical(self) -> dict[str, Any]:
        """Returns the JSON form that `parse` reads back to an equal filter."""
        form: dict[str, Any] = {}
        for condition in self.conditions:
            values = [operand.value for operand in condition.operands]
            if condition.comparison == "eq":
                form[condition.attribute] = values[0]
            else:
                comparisons = form.setdefault(condition.attribute, {})
                comparisons[condition.comparison] = (
                    values if condition.comparison == "in" else values[0]
                )
        return form


def _scalar(value: object, field: str, limits: Limits) -> Scalar:
    if isinstance(value, str):
        # An attribute's value cannot be longer, so a longer operand could never match.
        return Scalar(
            "string", read_string(value, field, bytes_max=limits.attribute_bytes, empty=True)
        )
    if isinstance(value, bool):
        return Scalar("boolean", value)
    if isinstance(value, int):
        if not INTEGER_LEAST <= value <= INTEGER_GREATEST:
            # Attributes hold none either: as floats, unequal integers would become equal.
            raise InvalidArgument(OVERSIZED, field=field)
        return Scalar("number", value)
    if isinstance(value, float):
        number = read_number(value, field)
        # Equal numbers have one form: 3.0 as 3.
        is_whole = number.is_integer() and INTEGER_LEAST <= number <= INTEGER_GREATEST
        return Scalar("number", int(number) if is_whole else number)
    raise InvalidArgument("compares with a number, a string or a boolean", field=field)


def _parse_condition(
    name: str, comparison: object, operand: object, path: str, limits: Limits
) -> Condition:
    field = f"{path}.{comparison:.20}" if isinstance(comparison, str) else path
    if comparison == "in":
        values = read_sequence(operand, field)
        if not 1 <= len(values) <= limits.alternatives:
            raise InvalidArgument(
                f"{len(values)} alternatives, must be 1 to {limits.alternatives}", field=field
            )
        alternatives = {_scalar(v, f"{field}[{i}]", limits) for i, v in enumerate(values)}
        return Condition(name, "in", tuple(sorted(alternatives)))
    if comparison not in _ORDERS:
        raise InvalidArgument("is none of gte, gt, lte, lt, in", field=field)
    bound = _scalar(operand, field, limits)
    if bound.kind == "boolean":
        raise InvalidArgument("booleans have no order", field=field)
    return Condition(name, comparison, (bound,))  # type: ignore[arg-type]


def unreadable_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[int]:
    """Returns the rows of an attribute column that are not JSON objects; empty rows are valid.

    Args:
        data: u1[b], UTF-8.
        offsets: i8[n + 1].
    """
    whole, bounds = data.tobytes(), offsets.tolist()
    return [
        row
        for row in np.flatnonzero(offsets[1:] > offsets[:-1]).tolist()
        if _object_of(whole[bounds[row] : bounds[row + 1]]) is None
    ]


def members_of(attributes: bytes) -> dict[str, Any]:
    """Returns the attributes of an object from their JSON; none if it is not a JSON object.

    The front has checked them; an object from a broken writer on a topic has no attributes.
    """
    return (_object_of(attributes) or {}) if attributes else {}


def _object_of(attributes: bytes) -> dict[str, Any] | None:
    try:
        members = orjson.loads(attributes)
    except orjson.JSONDecodeError:
        return None
    return members if isinstance(members, dict) else None
