"""Times in ISO 8601."""

from __future__ import annotations

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.model.moments import moment_ms
from sirocco.model.objects import parse_object


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2014-07-12T00:00:00+00:00", 1_405_123_200_000),
        ("2014-07-12T02:00:00.123456+02:00", 1_405_123_200_123),
        ("2014-07-12 00:00:00.999999Z", 1_405_123_200_999),
        ("20140712T000000Z", 1_405_123_200_000),
        ("1969-12-31T23:59:59.9999Z", -1),
    ],
)
def test_a_time_with_a_zone_is_epoch_ms(text: str, ms: int) -> None:
    assert moment_ms(text, "ts") == ms
    assert parse_object({"id": 1, "lon": 0, "lat": 0, "ts": text}).ts == ms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2014-07-12T00:00:00", "has no zone"),
        ("2014-07-12", "has no zone"),
        ("2014-02-30T00:00:00Z", "neither epoch ms nor"),
        ("yesterday", "neither epoch ms nor"),
        ("", "neither epoch ms nor"),
        ("2" * 100_000, "neither epoch ms nor"),
    ],
)
def test_any_other_text_is_no_time(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        parse_object({"id": 1, "lon": 0, "lat": 0, "ts": text})
    assert caught.value.field == "ts"
    assert len(str(caught.value)) < 200
