"""Reads JSON text from outside without changing a number.

`orjson` reads an integer beyond 64 bits as the nearest float, so that 2^70 and 2^70 + 1 become
equal. Clients' input is read here instead: such an integer keeps its value, and the checks of its
member refuse it by name.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, TypeAlias

import orjson

from sirocco.model.errors import InvalidArgument

INTEGER_LEAST = -(2**63)
INTEGER_GREATEST = 2**64 - 1

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = re.compile(rb"-?[0-9]{19,}")
# Python converts at most 4,300 digits. An integer of more digits than this also exceeds every
# 64-bit float. It is replaced by a value that does too, and is refused by the check of its member.
_DIGITS_MAX = 400
_UNKEPT_INTEGER = int("1" + "0" * _DIGITS_MAX)


def may_exceed_64_bits(text: bytes) -> bool:
    """Returns whether a JSON text may hold an integer beyond 64 bits.

    It costs little if no run of digits is long. A run within a string or after a decimal point
    counts too.
    """
    digits = text.translate(_ZEROS)
    if b"0" * 20 not in digits and b"-" + b"0" * 19 not in digits:
        return False
    return any(
        len(run) > _DIGITS_MAX or not INTEGER_LEAST <= int(run) <= INTEGER_GREATEST
        for run in _LONG.findall(text)
    )


def load_json(text: bytes | str, field: str) -> Any:
    """Reads a JSON text; integers keep their value, however large.

    Raises:
        InvalidArgument: It is not JSON, or a number in it is not a finite f64; the field is
            `field`.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        if not may_exceed_64_bits(data):
            return orjson.loads(data)
        found = json.loads(
            data.decode(), parse_int=_integer, parse_float=_number, parse_constant=_refuse
        )
        if b"\\u" in data:
            # Half of a pair of surrogates, which `orjson` refuses: no error could even name it.
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except ValueError as error:
        raise InvalidArgument(f"is no JSON: {error}", field=field) from None
    except RecursionError:
        raise InvalidArgument("is no JSON: nested too deeply", field=field) from None


def is_nested(value: dict[str, Any], depth_max: int) -> bool:
    """Returns whether objects and arrays read by `orjson` are nested this deep."""
    level: list[Any] = [value]
    for _ in range(depth_max):
        level = [
            each
            for holder in level
            for each in (holder.values() if type(holder) is dict else holder)
            if type(each) is dict or type(each) is list
        ]
        if not level:
            return False
    return True


def refuse_unkept(value: Any, path: str, depth_max: int) -> None:
    """Refuses JSON values that would change when they are written and read again.

    Raises:
        InvalidArgument: An integer within is beyond 64 bits, a number is not finite, or it is
            nested too deeply; the field is its path.
    """
    # The container of each value, and its key there: paths are only built for errors.
    pending: list[tuple[Any, int, _Place | None]] = [([value], -1, None)]
    while pending:
        found, depth, place = pending.pop()
        if depth >= depth_max:
            raise InvalidArgument(f"is nested more than {depth_max} deep", field=path)
        is_object = isinstance(found, dict)
        for name, each in found.items() if is_object else enumerate(found):
            kind = type(each)
            if kind is str:
                continue
            if kind is int:
                if not INTEGER_LEAST <= each <= INTEGER_GREATEST:
                    raise InvalidArgument(OVERSIZED, field=_path(path, (place, name, is_object)))
            elif isinstance(each, float):
                if not math.isfinite(each):
                    raise InvalidArgument(
                        "must be finite", field=_path(path, (place, name, is_object))
                    )
            elif isinstance(each, dict | list | tuple) and (each or depth + 1 >= depth_max):
                pending.append((each, depth + 1, (place, name, is_object)))


# Place of the container, a key within it, and whether it is an object.
_Place: TypeAlias = tuple[Any, object, bool]


def _path(path: str, place: _Place) -> str:
    parts: list[str] = []
    holder: _Place | None = place
    while holder is not None:
        holder, name, is_object = holder
        parts.append(f".{name!s:.80}" if is_object else f"[{name}]")
    # The outermost key is that of the value itself.
    return path + "".join(reversed(parts[:-1]))


OVERSIZED = "is an integer beyond 64 bits, which go from -2^63 to 2^64 - 1"


def _integer(digits: str) -> int:
    if len(digits) <= _DIGITS_MAX:
        return int(digits)
    return -_UNKEPT_INTEGER if digits.startswith("-") else _UNKEPT_INTEGER


def _number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits:.40} is beyond a 64-bit float")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
