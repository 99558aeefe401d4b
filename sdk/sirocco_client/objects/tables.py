"""Answers of searches as tables of pyarrow, pandas and geopandas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sirocco_client.base.libraries import load
from sirocco_client.errors import FailedPrecondition
from sirocco_client.objects.object import Object

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Columns of other meaning: an attribute of such a name gets an underscore.
_FIXED = frozenset({"arrival", "distance_m", "score"})


class Found(Protocol):
    """An object of an answer."""

    @property
    def object(self) -> Object:
        """The object."""

    @property
    def arrival_ms(self) -> int:
        """When it arrived, epoch ms."""


class Answer(Protocol):
    """What is written as a table."""

    @property
    def terms(self) -> Sequence[tuple[str, int]]:
        """Terms and their counts."""

    @property
    def distances_m(self) -> list[float]:
        """Distances of the objects."""

    @property
    def scores(self) -> list[float]:
        """Scores of the objects."""

    def __iter__(self) -> Iterator[Found]:
        """Yields the objects."""


def columns_of(answer: Answer) -> dict[str, list[Any]]:
    """Returns the columns of an answer; times are datetimes in UTC."""
    if answer.terms:
        return {
            "term": [term for term, _ in answer.terms],
            "objects": [count for _, count in answer.terms],
        }
    found = list(answer)
    objects = [one.object for one in found]
    ids: list[Any] = [one.id for one in objects]
    if not all(isinstance(each, int) for each in ids):
        # A column has one type.
        ids = [str(each) for each in ids]
    columns: dict[str, list[Any]] = {
        "id": ids,
        "lon": [one.lon for one in objects],
        "lat": [one.lat for one in objects],
        "text": [one.text for one in objects],
        "ts": [None if one.ts_ms is None else _moment(one.ts_ms) for one in objects],
        "arrival": [_moment(one.arrival_ms) for one in found],
    }
    if answer.distances_m:
        columns["distance_m"] = answer.distances_m
    if answer.scores:
        columns["score"] = answer.scores
    for name in dict.fromkeys(name for one in objects for name in one.attributes):
        column = f"{name}_" if name in _FIXED else name
        columns[column] = [one.attributes.get(name) for one in objects]
    return columns


def arrow_table(answer: Answer) -> Any:
    """Returns a `pyarrow.Table`; attributes of several types are written as JSON."""
    pa = load("pyarrow", extra="arrow")
    times = {"ts", "arrival"}
    arrays = {
        name: pa.array(values, pa.timestamp("ms", "UTC")) if name in times else _array(pa, values)
        for name, values in columns_of(answer).items()
    }
    return pa.table(arrays)


def _array(pa: Any, values: list[Any]) -> Any:
    if values and all(type(each) is int and each >= 0 for each in values):
        # Ids have 64 bits without a sign.
        return pa.array(values, pa.uint64())
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if each is None else json.dumps(each) for each in values])


def pandas_frame(answer: Answer) -> Any:
    """Returns a `pandas.DataFrame`."""
    pandas = load("pandas", extra="pandas")
    frame = pandas.DataFrame(columns_of(answer))
    for name in frame.columns.intersection(["ts", "arrival"]):
        frame[name] = pandas.to_datetime(frame[name], utc=True).astype("datetime64[ms, UTC]")
    return frame


def geopandas_frame(answer: Answer) -> Any:
    """Returns a `geopandas.GeoDataFrame`; an attribute `geometry` gets an underscore."""
    if answer.terms:
        raise FailedPrecondition("an answer of terms has no places")
    geopandas = load("geopandas", extra="geopandas")
    frame = pandas_frame(answer).rename(columns={"geometry": "geometry_"})
    places = geopandas.points_from_xy(frame["lon"], frame["lat"])
    return geopandas.GeoDataFrame(frame, geometry=places, crs="EPSG:4326")


def _moment(time_ms: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        # Beyond the years 1 to 9999.
        return None
