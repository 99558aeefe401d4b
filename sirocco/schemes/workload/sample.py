"""The sample from which a scheme is built: some objects, and the queries on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument


class QueryKind(IntEnum):
    """The kinds of query that the cost model distinguishes (SSTD 3.1, and ranked ones).

    The cost of the first three depends on the keywords of a leaf.
    """

    RANGE_SNAPSHOT = 0
    KNN_SNAPSHOT = 1
    RANKED_SNAPSHOT = 2
    TERMS_SNAPSHOT = 3
    RANGE_CONTINUOUS = 4
    KNN_CONTINUOUS = 5
    TERMS_CONTINUOUS = 6
    RANKED_CONTINUOUS = 7


FIRST_CONTINUOUS = QueryKind.RANGE_CONTINUOUS


@dataclass(frozen=True, slots=True, eq=False)
class SampleQueries:
    """Queries of a sample.

    Attributes:
        kinds: u1[q], `QueryKind`.
        boxes: f8[q, 4], rows (west, south, east, north), degrees; the region's bounding box. For
            kNN the expected search box, see `knn_search_boxes`.
        term_offsets: i8[q + 1], into `terms`.
        terms: u8, distinct hashes of each query's positive keywords.
        lifetimes: f8[q], lifetime of a continuous query over the time in which the sample's objects
            arrived (SSTD's tau over the time of E_obj); 1 if unknown.
    """

    kinds: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    term_offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]
    lifetimes: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Checks the columns; raises InvalidArgument."""
        count = len(self.kinds)
        if (self.kinds >= len(QueryKind)).any():
            raise InvalidArgument("unknown kind of query", field="sample.queries.kinds")
        if self.boxes.shape != (count, 4) or not np.isfinite(self.boxes).all():
            raise InvalidArgument("needs finite f8[q, 4]", field="sample.queries.boxes")
        known = np.isfinite(self.lifetimes) & (self.lifetimes >= 0)
        if self.lifetimes.shape != (count,) or not known.all():
            raise InvalidArgument(
                "needs finite f8[q], none negative", field="sample.queries.lifetimes"
            )
        _check_offsets(self.term_offsets, count, len(self.terms), "sample.queries.term_offsets")

    def __len__(self) -> int:
        """Returns the number of queries."""
        return len(self.kinds)


def no_queries() -> SampleQueries:
    """Returns an empty set of queries for a sample."""
    return SampleQueries(
        np.empty(0, np.uint8),
        np.empty((0, 4)),
        np.zeros(1, np.int64),
        np.empty(0, np.uint64),
        np.empty(0),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Objects and queries from which a map is built.

    Attributes:
        lon, lat: f8[n], degrees.
        term_offsets: i8[n + 1], into `terms`.
        terms: u8, distinct term hashes of each object.
        event_keys: u8[n], as in the router; any distinct numbers if unknown.
        queries: The queries on the objects.
    """

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    term_offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]
    event_keys: NDArray[np.uint64]
    queries: SampleQueries

    def __post_init__(self) -> None:
        """Checks the columns; raises InvalidArgument."""
        count = len(self.lon)
        for name, values in (("lon", self.lon), ("lat", self.lat)):
            if values.shape != (count,) or not np.isfinite(values).all():
                raise InvalidArgument("needs finite f8[n]", field=f"sample.{name}")
        if self.event_keys.shape != (count,):
            raise InvalidArgument("needs u8[n]", field="sample.event_keys")
        _check_offsets(self.term_offsets, count, len(self.terms), "sample.term_offsets")

    def __len__(self) -> int:
        """Returns the number of objects."""
        return len(self.lon)


def empty_sample() -> Sample:
    """Returns an empty sample, for a start without knowledge."""
    none = np.empty(0)
    words = np.empty(0, np.uint64)
    return Sample(none, none, np.zeros(1, np.int64), words, words, no_queries())


def _check_offsets(offsets: NDArray[np.int64], rows: int, end: int, field: str) -> None:
    if offsets.shape != (rows + 1,) or offsets[0] != 0 or offsets[-1] != end:
        raise InvalidArgument(f"needs i8[{rows + 1}] from 0 to {end}", field=field)
    if (offsets[1:] < offsets[:-1]).any():
        raise InvalidArgument("offsets descend", field=field)
