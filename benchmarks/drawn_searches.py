"""Searches after published objects, as `bench_search_client` and `against` measure them.

Earlier checkouts run this too: of the measured packages it imports the client alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sirocco_client import KnnQuery, RangeQuery, RankedQuery, Rectangle, TermsQuery

# CPU time of the loops of all idle services in a second, with some spare; and for how many seconds:
# in between, merges and the archive wait for the disk.
IDLE_CPU_S = 0.2
IDLE_S = 5
# Number of published objects from which searches are created.
REMEMBERED = 20_000

Query = RangeQuery | KnnQuery | TermsQuery | RankedQuery


class DrawnSearches:
    """Creates queries from published objects."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._lon: list[float] = []
        self._lat: list[float] = []
        self._texts: list[str] = []

    def remember(self, objects: Any) -> None:
        """Keeps some objects of a batch."""
        rows = self._rng.integers(0, len(objects), 40)
        if len(self._lon) < REMEMBERED:
            for row in rows.tolist():
                one = objects.row(row)
                self._lon.append(one.lon)
                self._lat.append(one.lat)
                self._texts.append(one.text)

    def places(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns lon and lat of the remembered objects."""
        return np.array(self._lon), np.array(self._lat)

    def queries(self, case: str) -> Iterator[Query]:
        """Yields queries of a case without end."""
        make: Callable[[], Query] = getattr(self, f"_{case}")
        while True:
            yield make()

    def _row(self) -> int:
        return int(self._rng.integers(len(self._lon)))

    def _word(self) -> str:
        return str(self._rng.choice(self._texts[self._row()].split()))

    def _range_at(self, lon: float, lat: float, text: str | None) -> RangeQuery:
        box = self._box(lon, lat, 0.01)
        return RangeQuery(id="r", subscriber="", mode="snapshot", region=box, text=text)

    @staticmethod
    def _box(lon: float, lat: float, side: float) -> Rectangle:
        west = min(max(lon - 180 * side, -180.0), 180 - 360 * side)
        south = min(max(lat - 90 * side, -90.0), 90 - 180 * side)
        return Rectangle(west, south, west + 360 * side, south + 180 * side)

    def _nothing(self) -> Query:
        row = self._row()
        return self._range_at(self._lon[row], self._lat[row], "no_object_holds_this")

    def _range(self) -> Query:
        row = self._row()
        word = str(self._rng.choice(self._texts[row].split()))
        return self._range_at(self._lon[row], self._lat[row], word)

    def _range_rare(self) -> Query:
        lon, lat = self._rng.uniform(-180, 180), self._rng.uniform(-90, 90)
        return self._range_at(float(lon), float(lat), self._word())

    def _knn(self) -> Query:
        return self._knn_of(None)

    def _knn_word(self) -> Query:
        return self._knn_of(self._word())

    def _knn_of(self, text: str | None) -> Query:
        row = self._row()
        lon = min(180.0, max(-180.0, self._lon[row] + float(self._rng.uniform(-1, 1))))
        lat = min(90.0, max(-90.0, self._lat[row] + float(self._rng.uniform(-1, 1))))
        return KnnQuery(id="k", subscriber="", mode="snapshot", lon=lon, lat=lat, k=10, text=text)

    def _terms(self) -> Query:
        row = self._row()
        box = self._box(self._lon[row], self._lat[row], 0.1)
        return TermsQuery(id="t", subscriber="", mode="snapshot", k=10, region=box)

    def _ranked(self) -> Query:
        row = self._row()
        return RankedQuery(
            id="b",
            subscriber="",
            mode="snapshot",
            lon=self._lon[row],
            lat=self._lat[row],
            radius_m=100_000.0,
            k=10,
            keywords=tuple({self._word() for _ in range(5)}),
        )


def settle() -> None:
    """Waits until no more slices are merged: the system has to be idle."""
    idle_s = 0
    while idle_s < IDLE_S:
        begin_s = time.process_time()
        time.sleep(1.0)
        idle_s = idle_s + 1 if time.process_time() - begin_s < IDLE_CPU_S else 0
