"""Answers of searches: the objects or terms found, and what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from sirocco_api.v1.search_service_pb2 import SearchResponse

from sirocco_client.errors import Internal, SiroccoError
from sirocco_client.objects.object import Object
from sirocco_client.objects.object_rows import ObjectRows
from sirocco_client.objects.tables import arrow_table, geopandas_frame, pandas_frame
from sirocco_client.queries.query import KnnQuery, Query, RangeQuery, RankedQuery

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of an answer.

    Attributes:
        object: The object.
        event: (session, number) of its publication, which is unique.
        arrival_ms: When it arrived, epoch ms.
        distance_m: Of a knn query: from its point, else None.
        score: Of a ranked query, else None.
    """

    object: Object
    event: tuple[int, int]
    arrival_ms: int
    distance_m: float | None = None
    score: float | None = None

    def to_geojson(self) -> dict[str, Any]:
        """Returns the object as a Feature, with what the search found out about it."""
        figures = {"distance_m": self.distance_m, "score": self.score}
        found = {name: value for name, value in figures.items() if value is not None}
        return self.object.to_geojson(arrival_ms=self.arrival_ms, **found)


class SearchPart(ObjectRows):
    """The n objects of one message, column by column."""

    def __init__(self, response: SearchResponse) -> None:
        """Checks that the columns fit together.

        Raises:
            Internal: They do not.
        """
        super().__init__(response.objects, response.events)
        size = 8 * response.objects.count
        columns = (response.events.sessions, response.events.numbers, response.events.arrivals_ms)
        if {len(column) for column in columns} != {size} or len(response.values) not in (0, size):
            raise Internal("columns of a response do not fit together")
        self._response = response

    def __len__(self) -> int:
        """How many objects."""
        return int(self._response.objects.count)

    @property
    def ids(self) -> memoryview:
        """u8[n], ids as numbers; for a string id, its hash."""
        return memoryview(self._response.objects.ids).cast("Q")

    @property
    def values(self) -> memoryview[float]:
        """f8[n], metres (knn) or scores (ranked); empty for a range query."""
        return memoryview(self._response.values).cast("d")


@dataclass(frozen=True)
class SearchAnswer:
    """The answer to a search.

    Attributes:
        query: The query.
        now_ms: The moment that the answer describes, epoch ms.
        parts: The objects in order of arrival, column by column.
        terms: Of a terms query: (term, objects that hold it), most frequent first, ties by term.
        slots: How many slots of the cluster could hold answers.
        missing_slots: Slots that gave no answer; empty unless a partial answer was allowed.
        warnings: What the query probably does not mean as it is written, in words.
    """

    query: Query
    now_ms: int
    parts: tuple[SearchPart, ...] = ()
    terms: tuple[tuple[str, int], ...] = ()
    slots: int = 0
    missing_slots: tuple[int, ...] = ()
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def is_partial(self) -> bool:
        """Whether some slots gave no answer."""
        return bool(self.missing_slots)

    @cached_property
    def ids(self) -> list[int | str]:
        """The objects' ids in the order of the answer.

        The order is by id (range), distance (knn) or score (ranked), ties by id.
        """
        if isinstance(self.query, RangeQuery) and not any(part.has_names for part in self.parts):
            # Only numbers: the order of equal ones cannot be seen.
            return sorted(self._id_numbers())
        return self._ordered(part.object_ids for part in self.parts)

    @cached_property
    def distances_m(self) -> list[float]:
        """Distances in metres in the order of `ids`; knn queries only."""
        return self._values() if isinstance(self.query, KnnQuery) else []

    @cached_property
    def scores(self) -> list[float]:
        """Scores in the order of `ids`; ranked queries only."""
        return self._values() if isinstance(self.query, RankedQuery) else []

    @cached_property
    def objects(self) -> list[Object]:
        """The objects in the order of `ids`."""
        return self._ordered(part.objects for part in self.parts)

    def __len__(self) -> int:
        """How many objects, or terms."""
        return sum(map(len, self.parts)) + len(self.terms)

    def __iter__(self) -> Iterator[FoundObject]:
        """Yields the objects in the order of the answer."""
        nothing: list[float | None] = [None] * len(self.objects)
        distances_m: Sequence[float | None] = self.distances_m or nothing
        scores: Sequence[float | None] = self.scores or nothing
        sessions = self._ordered(part.sessions.tolist() for part in self.parts)
        numbers = self._ordered(part.numbers.tolist() for part in self.parts)
        arrivals_ms = self._ordered(part.arrivals_ms.tolist() for part in self.parts)
        columns = (self.objects, sessions, numbers, arrivals_ms, distances_m, scores)
        for found, session, number, arrival_ms, distance_m, score in zip(*columns, strict=True):
            yield FoundObject(found, (session, number), arrival_ms, distance_m, score)

    def members(self) -> dict[str, Any]:
        """Returns the public JSON form, with `missing_slots` where the answer is partial."""
        members: dict[str, Any] = {"query": self.query.id}
        if isinstance(self.query, RangeQuery | KnnQuery | RankedQuery):
            members["objects"] = self.ids
        else:
            members |= {"terms": [list(pair) for pair in self.terms], "at": self.now_ms}
        if isinstance(self.query, KnnQuery):
            members["distance_m"] = self.distances_m
        elif isinstance(self.query, RankedQuery):
            members["score"] = self.scores
        if self.missing_slots:
            members["missing_slots"] = list(self.missing_slots)
        return members

    @property
    def newest_first(self) -> list[FoundObject]:
        """The objects in the order of their arrival, the newest first; ties as in the answer."""
        return sorted(self, key=lambda found: -found.arrival_ms)

    def to_geojson(self, objects: Iterable[FoundObject] | None = None) -> dict[str, Any]:
        """Returns the objects as a FeatureCollection.

        `properties` are the attributes, and `text`, `ts`, `arrival_ms`, `distance_m` and `score` if
        there are such. A terms query has no objects.

        Args:
            objects: Some of the objects; None: all, in the order of the answer.
        """
        found = self if objects is None else objects
        return {"type": "FeatureCollection", "features": [one.to_geojson() for one in found]}

    def to_arrow(self) -> Any:
        """Returns the answer as a `pyarrow.Table`, a row an object or a term; see `to_pandas`.

        Raises:
            FailedPrecondition: pyarrow is not installed (`sirocco-client[arrow]`).
        """
        return arrow_table(self)

    def to_pandas(self) -> Any:
        """Returns the answer as a `pandas.DataFrame`, a row an object or a term.

        Columns are `id`, `lon`, `lat`, `text`, `ts` and `arrival` (in UTC), `distance_m` (knn),
        `score` (ranked) and the attributes; `term` and `objects` (terms).

        Raises:
            FailedPrecondition: pandas is not installed (`sirocco-client[pandas]`).
        """
        return pandas_frame(self)

    def to_geopandas(self) -> Any:
        """Returns the answer as a `geopandas.GeoDataFrame`: `to_pandas`, and `geometry` in WGS 84.

        Raises:
            FailedPrecondition: geopandas is not installed (`sirocco-client[geopandas]`), or the
                answer holds terms.
        """
        return geopandas_frame(self)

    @cached_property
    def _order(self) -> list[int] | None:
        """Returns the objects' places, counted through all parts, in the order of the answer.

        None: they are already in that order.
        """
        if not isinstance(self.query, RangeQuery):
            return None
        # Range objects arrive unordered. Few share an id, so ids alone are sorted.
        ids = self._id_numbers()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        if len(set(ids)) < len(ids):
            sessions = [session for part in self.parts for session in part.sessions]
            numbers = [number for part in self.parts for number in part.numbers]
            order.sort(key=lambda place: (ids[place], sessions[place], numbers[place]))
        return order

    def _id_numbers(self) -> list[int]:
        return [number for part in self.parts for number in part.ids.tolist()]

    def _ordered(self, columns: Iterable[Sequence[Value]]) -> list[Value]:
        """Returns the values of a column of all parts, in the order of the answer."""
        values = list(chain.from_iterable(columns))
        return values if self._order is None else [values[place] for place in self._order]

    def _values(self) -> list[float]:
        return self._ordered(part.values.tolist() for part in self.parts)


class PartialResult(SiroccoError):  # noqa: N818
    """Some parts of the cluster did not answer a search in time.

    Attributes:
        missing_slots: The slots, ascending.
        answer: That of the other slots; None if the caller has already received it.
    """

    code = "PARTIAL_RESULT"
    may_pass = True

    shown = (*SiroccoError.shown, "missing_slots")

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        retry_after_ms: int | None = None,
        missing_slots: Sequence[int] = (),
    ) -> None:
        super().__init__(message, field=field, retry_after_ms=retry_after_ms)
        self.missing_slots = tuple(missing_slots)
        self.answer: SearchAnswer | None = None
