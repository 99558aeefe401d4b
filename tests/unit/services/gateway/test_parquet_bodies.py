"""Bodies in Parquet: read as files are, and bounded by what they become."""

from __future__ import annotations

import math
from dataclasses import replace
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from sirocco.model.errors import InvalidArgument
from sirocco.services.gateway.object_formats import (
    PARQUET,
    ReadBody,
    media_type_of,
    read_body,
    unpacked_bytes,
)
from sirocco.services.gateway.problems import PayloadTooLarge
from sirocco.services.gateway.settings import LIMITS, GatewayLimits


def parquet(**columns: Any) -> bytes:
    into = BytesIO()
    pq.write_table(pa.table(columns), into)
    return into.getvalue()


def read(body: bytes, limits: GatewayLimits = LIMITS, **chosen: Any) -> ReadBody:
    return read_body(body, media_type_of(PARQUET), limits, chosen)


def test_rows_are_objects_and_bad_ones_are_numbered() -> None:
    count = 200
    lon = [float(i % 90) for i in range(count)]
    lon[150] = 500.0
    body = parquet(
        id=list(range(count)), lon=lon, lat=[1.0] * count, text=["free"] * count, size=[3] * count
    )
    found = read(body)
    assert len(found.objects) == count - 1
    assert found.lines == [*range(1, 151), *range(152, count + 1)]
    assert [(line, error.field) for line, error in found.bad] == [(151, "lon")]
    assert found.bad_count == 1


@pytest.mark.parametrize("value", [math.inf, [-math.inf], {"b": math.inf}])
def test_a_number_that_is_not_finite_is_refused_and_no_number_is_missing(value: Any) -> None:
    """It was null instead, unless another row near it was bad."""
    found = read(parquet(id=[1, 2], lon=[1.0, 1.0], lat=[1.0, 1.0], a=[value, None]))
    assert found.lines == [2]
    assert [error.message for _, error in found.bad] == ["must be finite"]
    missing = read(parquet(id=[1], lon=[1.0], lat=[1.0], a=[math.nan]))
    assert not len(missing.objects.attributes)


def test_a_small_file_of_very_much_text_is_refused() -> None:
    count = 20_000
    body = parquet(
        id=range(count), lon=[1.0] * count, lat=[1.0] * count, text=["x" * 10_000] * count
    )
    assert len(body) < 500_000
    with pytest.raises(PayloadTooLarge, match="bytes of objects"):
        read(body)
    # What is held for it meanwhile is more than what it may become.
    assert unpacked_bytes(PARQUET, LIMITS) > 3 * LIMITS.body_bytes
    assert unpacked_bytes("text/csv", LIMITS) == 0


def test_objects_are_counted() -> None:
    body = parquet(id=range(70), lon=[1.0] * 70, lat=[1.0] * 70)
    assert len(read(body, replace(LIMITS, objects=70)).objects) == 70
    with pytest.raises(PayloadTooLarge, match="more than 69 objects"):
        read(body, replace(LIMITS, objects=69))


@pytest.mark.parametrize("body", [b"", b"PAR1", b"no Parquet at all", parquet(a=[1])[:-9]])
def test_what_is_no_parquet_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read(body)
