"""Reads members of JSON objects and queries: the right type, or an error that names the field.

The server checks ranges.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from sirocco_client.errors import InvalidArgument

# Bounds of the wire's integers.
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


# More bits than any intended number needs.
_SHOWN_BITS_MAX = 256
_SHOWN_CHARACTERS_MAX = 60


def shown(value: object) -> str:
    """Returns a value as errors show it, always short.

    `repr` raises RecursionError for deep nesting and ValueError for thousands of digits, and takes
    long for large values.
    """
    if isinstance(value, str):
        return f"{value[:_SHOWN_CHARACTERS_MAX]!r:.{_SHOWN_CHARACTERS_MAX}}"
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        bits = value.bit_length()
        return repr(value) if bits <= _SHOWN_BITS_MAX else f"an integer of {bits} bits"
    if isinstance(value, list | tuple):
        return "an array"
    return "an object" if isinstance(value, Mapping) else f"a value of {type(value).__name__}"


def read_number(value: object, field: str) -> float:
    """Returns `value` as a number; text and booleans are refused."""
    if type(value) is float:
        return value
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise InvalidArgument(f"{shown(value)} is no number", field=field)
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise InvalidArgument(f"{shown(value)} is no number", field=field) from None


def read_integer(value: object, field: str) -> int:
    """Returns `value`, which must be an integer within the wire's range."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{shown(value)} is no integer", field=field)
    number = operator.index(value)
    if not _LEAST <= number <= _GREATEST:
        raise InvalidArgument(f"{shown(number)} is beyond 64 bits", field=field)
    return number


def read_flag(value: object, field: str) -> bool:
    """Returns `value`, which must be a bool."""
    if not isinstance(value, bool):
        raise InvalidArgument("must be True or False", field=field)
    return value


def read_string(value: object, field: str) -> str:
    """Returns `value`, which must be a string."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{shown(value)} is no string", field=field)
    return value


def read_text(value: object, field: str) -> str:
    """Returns `value`, which must be a string that can be sent."""
    text = read_string(value, field)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"is no Unicode text: lone surrogate at character {error.start}", field=field
        ) from None
    return text


def read_bytes(value: object, field: str) -> bytes:
    """Returns `value`, which must be bytes."""
    if not isinstance(value, bytes):
        raise InvalidArgument(f"{shown(value)} is no bytes", field=field)
    return value


def read_strings(value: object, field: str) -> tuple[str, ...]:
    """Returns `value`, which must be an array of strings."""
    if not isinstance(value, list | tuple):
        raise InvalidArgument("must be an array of strings", field=field)
    return tuple(read_string(each, f"{field}[{i}]") for i, each in enumerate(value))


def read_mapping(value: object, field: str) -> Mapping[str, Any]:
    """Returns `value`, which must be a JSON object."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{shown(value)} is no object", field=field)
    return value


def required(members: Mapping[str, Any], name: str, field: str) -> Any:
    """Returns a required member; `field` is its path."""
    if name not in members:
        raise InvalidArgument("is missing", field=field)
    return members[name]


def refuse_unknown(members: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    """Refuses unknown members; `prefix` is the path before them."""
    unknown = [str(name) for name in members if name not in known]
    if unknown:
        raise InvalidArgument(
            f"unknown member; known are {', '.join(sorted(known))}",
            field=f"{prefix}{min(unknown):.80}",
        )
