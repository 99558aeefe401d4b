"""`where`: conditions on the attributes of an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The other members of an object's line are attributes.
FIXED_MEMBERS = frozenset({"id", "ts", "lon", "lat", "text"})


def satisfies(where: Mapping[str, Any], one: Mapping[str, Any]) -> bool:
    """Returns whether the attributes of an object satisfy a filter."""
    return all(
        name not in FIXED_MEMBERS and _compare(one.get(name), comparison, operand)
        for name, wanted in where.items()
        for comparison, operand in (
            wanted.items() if isinstance(wanted, dict) else [("eq", wanted)]
        )
    )


def _compare(value: Any, comparison: str, operand: Any) -> bool:
    if comparison == "in":
        return any(_compare(value, "eq", one) for one in operand)
    if type_of(value) is None or type_of(value) != type_of(operand):
        return False
    return bool(
        {
            "eq": value == operand,
            "gte": value >= operand,
            "gt": value > operand,
            "lte": value <= operand,
            "lt": value < operand,
        }[comparison]
    )


def type_of(value: Any) -> str | None:
    """Returns the type of a value in comparisons; None if it cannot be compared."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else None
