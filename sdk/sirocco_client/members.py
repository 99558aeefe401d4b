"""Members of JSON objects and of queries: of the right type, or an error that names the field.

Whether a value is in range is judged by the server.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from sirocco_client.errors import InvalidArgument

# Bounds of the wire's integers.
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def read_number(value: object, field: str) -> float:
    """Returns a number that `value` can be taken for; text and booleans cannot."""
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise InvalidArgument(f"{value!r:.60} is no number", field=field)
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise InvalidArgument(f"{value!r:.60} is no number", field=field) from None


def read_integer(value: object, field: str) -> int:
    """Returns `value`, which must be an integer that the wire can tell."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{value!r:.60} is no integer", field=field)
    number = operator.index(value)
    if not _LEAST <= number <= _GREATEST:
        raise InvalidArgument(f"{number!r:.60} is beyond 64 bits", field=field)
    return number


def read_string(value: object, field: str) -> str:
    """Returns `value`, which must be a string."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r:.60} is no string", field=field)
    return value


def read_strings(value: object, field: str) -> tuple[str, ...]:
    """Returns `value`, which must be an array of strings."""
    if not isinstance(value, list | tuple):
        raise InvalidArgument("must be an array of strings", field=field)
    return tuple(read_string(each, f"{field}[{i}]") for i, each in enumerate(value))


def read_mapping(value: object, field: str) -> Mapping[str, Any]:
    """Returns `value`, which must be a JSON object."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{value!r:.60} is no object", field=field)
    return value


def required(members: Mapping[str, Any], name: str, field: str) -> Any:
    """Returns a member that must be there; `field` is its path."""
    if name not in members:
        raise InvalidArgument("is missing", field=field)
    return members[name]


def refuse_unknown(members: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    """Refuses members that are not known; `prefix` is the path before them."""
    unknown = [str(name) for name in members if name not in known]
    if unknown:
        raise InvalidArgument(
            f"unknown member; known are {', '.join(sorted(known))}",
            field=f"{prefix}{min(unknown):.80}",
        )
