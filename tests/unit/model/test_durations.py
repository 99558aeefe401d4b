"""Durations: reading and writing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.durations import format_duration, parse_duration_ms
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("72h", 259_200_000), ("10m", 600_000), ("250ms", 250), ("0s", 0), ("007d", 604_800_000)],
)
def test_reading(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text, "ttl") == duration_ms


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1",
        "h",
        "-5m",
        "+5m",
        "1.5h",
        "1 h",
        "1H",
        "1h\n",
        "1h30m",
        "١h",
        "1w",
        5,
        None,
        True,
        "9" * 18 + "d",
        "9" * 5_000 + "ms",
        "365251d",
    ],
)
def test_refusals(value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_duration_ms(value, "ttl")
    assert caught.value.field == "ttl"
    assert len(caught.value.message) < 200


@given(st.integers(0, DEFAULT_LIMITS.duration_ms))
def test_written_form_is_read_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms), "ttl") == duration_ms


def test_written_form_is_short() -> None:
    written = [format_duration(n) for n in (0, 1, 1_000, 60_000, 5_400_000, 7_200_000, 259_200_000)]
    assert written == ["0ms", "1ms", "1s", "1m", "90m", "2h", "3d"]
