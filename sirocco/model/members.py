"""Reads members of JSON objects with type checks; every error names the member.

As Python values, JSON's `1` and `true` are equal (`True == 1`), so all readers here refuse booleans
instead of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sirocco.model.errors import InvalidArgument


def read_mapping(value: object, field: str) -> Mapping[str, Any]:
    """Returns the value as a JSON object."""
    # An `isinstance` check with an abstract class takes longer than all of the rest.
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InvalidArgument(f"must be an object, not {_type_name(value)}", field=field)
    return value


def read_sequence(value: object, field: str) -> Sequence[Any]:
    """Returns the value as a JSON array."""
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"must be an array, not {_type_name(value)}", field=field)
    return value


def read_string(value: object, field: str, *, bytes_max: int, empty: bool = False) -> str:
    """Returns the value as a string of at most `bytes_max` bytes of UTF-8."""
    if not isinstance(value, str):
        raise InvalidArgument(f"must be a string, not {_type_name(value)}", field=field)
    if not value and not empty:
        raise InvalidArgument("must not be empty", field=field)
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"is no Unicode text: lone surrogate at character {error.start}", field=field
        ) from None
    if size > bytes_max:
        raise InvalidArgument(f"has {size} bytes, the limit is {bytes_max}", field=field)
    return value


def read_number(
    value: object, field: str, *, least: float = -math.inf, greatest: float = math.inf
) -> float:
    """Returns the value as a finite f64 in [least, greatest]; -0.0 becomes 0.0.

    Equal numbers then have equal bits, as digests of queries require.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"must be a number, not {_type_name(value)}", field=field)
    try:
        number = float(value) + 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidArgument("must be finite", field=field)
    if not least <= number <= greatest:
        raise InvalidArgument(f"{number!r} is outside [{least:g}, {greatest:g}]", field=field)
    return number


def read_integer(value: object, field: str, *, least: int, greatest: int) -> int:
    """Returns the value as an integer in [least, greatest]; 3.0 is not an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"must be an integer, not {_type_name(value)}", field=field)
    if not least <= value <= greatest:
        raise InvalidArgument(f"{shown(value)} is outside [{least}, {greatest}]", field=field)
    return value


def read_flag(value: object, field: str) -> bool:
    """Returns `value` if it is a boolean.

    Raises:
        InvalidArgument: It is not.
    """
    if not isinstance(value, bool):
        raise InvalidArgument(f"must be true or false, is {_type_name(value)}", field=field)
    return value


def read_choice(value: object, field: str, choices: Sequence[str]) -> str:
    """Returns the value as one of a few strings."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(choices)
        raise InvalidArgument(f"{shown(value)} is none of {listed}", field=field)
    return value


def required(members: Mapping[str, Any], name: str, field: str) -> Any:
    """Returns a required member."""
    if name not in members:
        raise InvalidArgument("is missing", field=field)
    return members[name]


def refuse_unknown(members: Mapping[str, Any], known: AbstractSet[str], prefix: str = "") -> None:
    """Raises InvalidArgument for the first member that is not known.

    Args:
        members: The JSON object.
        known: Names that it may hold.
        prefix: Path of the object followed by a dot, or empty at the top.
    """
    if not members.keys() <= known:
        # Names that are not strings, from Python callers, cannot be ordered with these.
        name = min(n if isinstance(n, str) else shown(n) for n in members.keys() - known)
        raise InvalidArgument(
            f"unknown member; known are {', '.join(sorted(known))}", field=f"{prefix}{name:.80}"
        )


# More bits than any intended number needs.
_SHOWN_BITS_MAX = 256
_SHOWN_CHARACTERS_MAX = 60


def shown(value: object) -> str:
    """Returns a value as errors show it, always short.

    `repr` of a client's value raises RecursionError for deep nesting and ValueError for thousands
    of digits, and takes long for large values.
    """
    if isinstance(value, str):
        return f"{value[:_SHOWN_CHARACTERS_MAX]!r:.{_SHOWN_CHARACTERS_MAX}}"
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        bits = value.bit_length()
        return repr(value) if bits <= _SHOWN_BITS_MAX else f"an integer of {bits} bits"
    return _type_name(value)


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "an array"
