"""JSON text from outside, read without changing a number.

`orjson` reads an integer beyond 64 bits as the nearest float, so that 2^70 and 2^70 + 1 become
equal. What a client sends is read here instead: such an integer stays what it is, and the checks
of the member that holds it refuse it by name.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

from sirocco.model.errors import InvalidArgument

INTEGER_LEAST = -(2**63)
INTEGER_GREATEST = 2**64 - 1

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = re.compile(rb"-?[0-9]{19,}")
# Python converts at most 4,300 digits; these are enough to be beyond 64 bits.
_DIGITS_MAX = 40


def may_exceed_64_bits(text: bytes) -> bool:
    """Tells whether a text of JSON may hold an integer that 64 bits cannot.

    It costs little where no run of digits is long. A run within a string or behind a decimal
    point counts too.
    """
    digits = text.translate(_ZEROS)
    if b"0" * 20 not in digits and b"-" + b"0" * 19 not in digits:
        return False
    return any(
        len(run) > _DIGITS_MAX or not INTEGER_LEAST <= int(run) <= INTEGER_GREATEST
        for run in _LONG.findall(text)
    )


def load_json(text: bytes | str, field: str) -> Any:
    """Reads a text of JSON; integers keep their value, however large.

    Raises:
        InvalidArgument: It is no JSON, or a number in it is no finite f64; the field is `field`.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        if not may_exceed_64_bits(data):
            return orjson.loads(data)
        return json.loads(
            data.decode(), parse_int=_integer, parse_float=_number, parse_constant=_refuse
        )
    except ValueError as error:
        raise InvalidArgument(f"is no JSON: {error}", field=field) from None
    except RecursionError:
        raise InvalidArgument("is no JSON: nested too deeply", field=field) from None


def oversized_integer(value: Any, path: str) -> str | None:
    """Returns the path of an integer beyond 64 bits within a JSON value; None if there is none."""
    pending = [(path, value)]
    while pending:
        place, found = pending.pop()
        if type(found) is int and not INTEGER_LEAST <= found <= INTEGER_GREATEST:
            return place
        if isinstance(found, dict):
            pending += [(f"{place}.{name!s:.80}", each) for name, each in found.items()]
        elif isinstance(found, list | tuple):
            pending += [(f"{place}[{i}]", each) for i, each in enumerate(found)]
    return None


def refuse_oversized(value: Any, path: str) -> None:
    """Raises InvalidArgument with its path for an integer beyond 64 bits within a JSON value."""
    place = oversized_integer(value, path)
    if place is not None:
        raise InvalidArgument(OVERSIZED, field=place)


OVERSIZED = "is an integer beyond 64 bits, which go from -2^63 to 2^64 - 1"


def _integer(digits: str) -> int:
    return int(digits[:_DIGITS_MAX])


def _number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits:.40} is beyond a 64-bit float")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
