"""What answers need of a slot: its search functions, and the query prepared for them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.search import row_chunks
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import Bounds, Condition
from sirocco.index.store.term_tally import Counts, TermTally
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import Query
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import Ranking

if TYPE_CHECKING:
    from sirocco.index.store.ranked_search import RankedSearch


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """Objects that a search has found.

    Attributes:
        objects: n rows.
        events: n rows.
        distances_m: f8[n], rounded to 1 mm; None for a range query.
    """

    objects: ObjectColumns
    events: EventColumns
    distances_m: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.events)

    def cut(self, bytes_max: int) -> Iterator[FoundRows]:
        """Splits the objects of a range query into runs of at most about this many bytes."""
        for begin, end in row_chunks(self.objects, bytes_max):
            is_all = end - begin == len(self)
            yield (
                self
                if is_all
                else FoundRows(self.objects.slice(begin, end), self.events.slice(begin, end))
            )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Wanted:
    """A query prepared for the slots.

    Attributes:
        query: the query as received.
        condition: its region, text and filter.
        bounds: the range of arrival times.
        ranking: a prepared ranked query.
        now_ms: the moment that the answer describes.
        is_over: whether the caller has stopped waiting; long searches check it at intervals.
        limits: of searches.
    """

    query: Query
    condition: Condition
    bounds: Bounds
    ranking: RankedSearch | None
    now_ms: int
    is_over: Callable[[], bool]
    limits: SearchLimits = LIMITS


class Counted(Protocol):
    """Counted terms of a slot."""

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """u8[t], numbers of terms, ascending."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """i8[t]"""

    def texts(self, hashes: NDArray[np.uint64]) -> list[str]:
        """Returns the texts of some of the terms, in their order."""

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns i8[m], how many of the same objects hold each of any terms (u8[m])."""


class SlotSearch(Protocol):
    """Search functions over one slot's objects, as they were at its creation."""

    @property
    def map_version(self) -> int:
        """The newest map version by which any record that the slot has processed was routed."""

    @property
    def epoch(self) -> int:
        """The epoch of the slot's grant."""

    @property
    def least_version(self) -> int:
        """The oldest map by which any later object is routed; 0 while it is not known."""

    @property
    def former_upto_ms(self) -> Callable[[int], int | None]:
        """Map version → the greatest arrival outside memory that older maps may have routed."""

    def points(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yields lon and lat of all objects in memory, f8[n] each."""

    @property
    def earliest_ms(self) -> int | None:
        """Earliest arrival still stored, epoch ms; None while nothing was dropped."""

    def within(self, wanted: Wanted, bytes_wanted: Callable[[], int]) -> Iterator[FoundRows]:
        """Yields the objects of a range query, in runs of about the wanted bytes.

        `bytes_wanted` is called before each run. Few objects are one run, whatever their size; the
        last run is smaller.
        """

    @property
    def view(self) -> StoreView:
        """Returns the view of the slices in memory."""

    def is_in_memory(self, bounds: Bounds) -> bool:
        """Whether bounds reach no slice outside memory."""

    def outside(self, wanted: Wanted, radius_m: float | None) -> StoreView | None:
        """Returns the slices outside memory that may hold what is wanted, loaded; None for none.

        `radius_m`: no object of the answer is farther away; None while that is not known.
        """

    def tally_terms(self, wanted: Wanted, tally: TermTally) -> None:
        """Adds the objects of each term to a tally."""

    def named(self, tally: TermTally, counts: Counts) -> Counted:
        """Returns counts of a tally, of this slot and others of its process, with texts."""

    def frequent_terms(
        self, wanted: Wanted, k: int, others: Sequence[SlotSearch]
    ) -> Counted | None:
        """Counts the k most frequent terms and their ties, of this slot and others together.

        None if to count all terms is faster.
        """

    def ranked(
        self, wanted: Wanted, others: Sequence[SlotSearch]
    ) -> Generator[None, None, tuple[FoundRows, Ranking]]:
        """Returns objects that may be among the k best, and statistics of all objects.

        It yields whenever it has done some work.

        `others`: slots that have everything in memory, and are searched with this one.
        """
