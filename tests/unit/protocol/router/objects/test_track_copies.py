"""The values by which objects are tracked."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from sirocco.protocol.contract.track_values import hash_of, track_value


def value_of(value: Any) -> str | int | float | bool:
    """Returns the value by which an object is followed, of one that can be."""
    found = track_value(value)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3", "3.0"),
        ("0", "-0.0"),
        ("-9223372036854775808", "-9223372036854775808.0"),
        ("9223372036854775808", "9.223372036854775808e18"),
        # Beyond 64 bits JSON numbers are read as floats.
        ("18446744073709551616", "18446744073709551616.0"),
        ("89014103211118510720", "8.901410321111851072e19"),
        ("-1e19", "-10000000000000000000"),
        ("1e308", "1e308"),
    ],
)
def test_numbers_are_followed_by_their_value(one: str, other: str) -> None:
    hashes = {hash_of("tag", value_of(orjson.loads(each))) for each in (one, other)}
    assert len(hashes) == 1


def test_what_is_no_number_is_another_value() -> None:
    values = [1, "1", True, 1.5, 1e20]
    assert len({hash_of("tag", value_of(value)) for value in values}) == len(values)
    assert [track_value(value) for value in (None, [1], {"a": 1})] == [None, None, None]
