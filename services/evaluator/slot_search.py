"""The answer to one question, part by part; made in a thread of the search pool."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.search import MESSAGE_BYTES_MAX, row_chunks, sum_chunks
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import Bounds, Condition, condition_of
from sirocco.index.store.store_search import search_knn_of
from sirocco.index.store.term_tally import Counts, TermTally
from sirocco.model.errors import DeadlineExceeded, OutOfRange
from sirocco.model.objects import ObjectColumns, concat, pack_bytes
from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.evaluator.reports.history_answers import events_of
from sirocco.protocol.evaluator.standing.step_schedule import ranked_of
from sirocco.protocol.search.collectors import NearestCollector, at_least_kth
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import (
    DONE,
    EVER_MS,
    MORE,
    MOVED,
    Leftovers,
    Part,
    Question,
    Ranking,
    TermSums,
)

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

        `radius_m`: the nearest may be farther away nowhere; None while that is not known.
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

    def ranked(self, wanted: Wanted, others: Sequence[SlotSearch]) -> tuple[FoundRows, Ranking]:
        """Returns objects that may be among the k best, and statistics of all objects.

        `others`: slots that have everything in memory, and are searched with this one.
        """


class _NothingCounted:
    """The terms of no slot."""

    hashes = np.empty(0, np.uint64)
    counts = np.empty(0, np.int64)

    def texts(self, hashes: NDArray[np.uint64]) -> list[str]:
        """See `Counted`."""
        return []

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Counted`."""
        return np.zeros(len(hashes), np.int64)


_NOTHING_COUNTED = _NothingCounted()


# Slot, map version and the slot's search → its leftovers, None while they are not known.
LeftoversOf: TypeAlias = "Callable[[int, int, SlotSearch], Leftovers | None]"


# The terms whose counts are wanted after a list of terms, u8[m]; None for all.
TermsWanted: TypeAlias = "Callable[[], NDArray[np.uint64] | None]"


def all_terms() -> None:
    """Wants the counts of all terms: `TermsWanted`."""


def nothing_known(slot: int, version: int, search: SlotSearch) -> Leftovers | None:
    """Returns the leftovers of a slot where none are looked for: `LeftoversOf`."""
    return None


def answer(
    question: Question,
    search_of: Callable[[int], SlotSearch | None],
    is_over: Callable[[], bool],
    hashing: TermHashing = WIRE_TERMS,
    leftovers: LeftoversOf = nothing_known,
    limits: SearchLimits = LIMITS,
    terms_wanted: TermsWanted = all_terms,
) -> Iterator[Part | None]:
    """Yields the parts of an answer; None to let other questions use the thread.

    Args:
        question: the question.
        search_of: slot → its search now, None if it is not here.
        is_over: whether the caller has stopped waiting.
        hashing: numbers the terms of the slots.
        leftovers: finds the leftovers of a slot, if they are known.
        limits: of searches.
        terms_wanted: asked after a list of terms, once the merger has answered it.

    Raises:
        OutOfRange: the window begins before the oldest stored object.
        DeadlineExceeded: the caller does not wait any more.
    """
    ranking = ranked_of(question.query, hashing)
    wanted = Wanted(
        query=question.query,
        condition=(
            condition_of(question.query, hashing)
            if ranking is None
            else replace(ranking.near, where=question.query.where)
        ),
        bounds=Bounds(question.from_ms, question.upto_ms),
        ranking=ranking,
        now_ms=question.now_ms,
        is_over=is_over,
        limits=limits,
    )
    found = [(number, search_of(number)) for number in question.slots]
    slots = [(number, search) for number, search in found if search is not None]
    moved = [number for number, search in found if search is None]
    _check_kept(wanted, [search for _, search in slots])
    turns = _Turns(is_over, limits.slice_s)
    nearby = _cheap(wanted, question.nearby, search_of)
    version = max((search.map_version for _, search in (*slots, *nearby)), default=0)
    match question.query:
        case RangeQuery():
            parts = _within(wanted, slots, moved, turns)
        case KnnQuery():
            parts = _nearest(wanted, slots, nearby, moved, turns, question.radius_m)
        case TermsQuery():
            # Other evaluators answer for slots that have moved. A merger that cannot add up our
            # numbers gets the wire's hashes.
            output_hashing = hashing if question.takes_numbers or not hashing.is_keyed else None
            parts = _TermsAnswer(wanted, slots, moved, turns, question.answers + len(moved)).parts(
                question.listed, output_hashing, terms_wanted
            )
        case RankedQuery():
            parts = _ranked(wanted, slots, moved, turns)
    for part in parts:
        if part is None:
            yield None
            continue
        known: tuple[Leftovers, ...] = ()
        if part.is_last and question.leftovers_of:
            found_of = (leftovers(slot, question.leftovers_of, each) for slot, each in slots)
            known = tuple(each for each in found_of if each is not None)
        yield replace(part, map_version=version, leftovers=known)


class _Turns:
    """Yields the thread to others at intervals, and ends questions whose caller has gone."""

    def __init__(self, is_over: Callable[[], bool], slice_s: float) -> None:
        self._is_over = is_over
        self._slice_s = slice_s
        self._begin_s = time.monotonic()

    def pause(self) -> Iterator[None]:
        """Yields None if it is time to give the thread away.

        Raises:
            DeadlineExceeded: the caller does not wait any more.
        """
        if self._is_over():
            raise DeadlineExceeded("nobody waits for the answer any more")
        if time.monotonic() - self._begin_s > self._slice_s:
            yield None
            self._begin_s = time.monotonic()

    def went(self) -> None:
        """Records that a part gave the thread away."""
        self._begin_s = time.monotonic()


def _check_kept(wanted: Wanted, slots: Sequence[SlotSearch]) -> None:
    # Without a window the question covers everything stored.
    from_ms = wanted.bounds.arrival_from_ms
    if from_ms == EVER_MS:
        return
    earliest_ms = max((s.earliest_ms for s in slots if s.earliest_ms is not None), default=None)
    if earliest_ms is not None and from_ms < earliest_ms:
        raise OutOfRange(
            f"reaches back to {from_ms}; arrivals are kept from {earliest_ms} on (epoch ms)",
            field="window",
            earliest_ms=earliest_ms,
        )


def _cheap(
    wanted: Wanted, numbers: Sequence[int], search_of: Callable[[int], SlotSearch | None]
) -> list[tuple[int, SlotSearch]]:
    """Returns the slots that can be searched for the whole window without the archive."""
    found = [(number, search_of(number)) for number in numbers]
    return [
        (number, search)
        for number, search in found
        if search is not None
        and _keeps(search, wanted.bounds.arrival_from_ms)
        and search.is_in_memory(wanted.bounds)
    ]


def _keeps(search: SlotSearch, from_ms: int) -> bool:
    return from_ms == EVER_MS or search.earliest_ms is None or from_ms >= search.earliest_ms


# --- range


class _Filling:
    """The next part of a range answer."""

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self._wanted_bytes = limits.part_bytes
        self._clear()

    def _clear(self) -> None:
        self._slots: list[int] = []
        self._states: list[int] = []
        self._ends: list[int] = []
        self._found: list[FoundRows] = []
        self._rows = 0
        self._bytes_total = 0

    @property
    def is_full(self) -> bool:
        """Whether it is to be sent."""
        return self._bytes_total >= self._wanted_bytes

    def left_bytes(self) -> int:
        """Bytes that still fit into it."""
        return max(1, self._wanted_bytes - self._bytes_total)

    def add(self, slot: int, found: FoundRows) -> None:
        self._found.append(found)
        self._rows += len(found)
        self._bytes_total += found.objects.bytes_total
        self.state(slot, MORE)

    def state(self, slot: int, state: int) -> None:
        if not self._slots or self._slots[-1] != slot:
            self._slots.append(slot)
            self._states.append(state)
            self._ends.append(self._rows)
        self._states[-1], self._ends[-1] = state, self._rows

    def part(self, *, is_last: bool = False) -> Part:
        objects, events = NO_OBJECTS, NO_EVENTS
        if self._found:
            objects = concat([one.objects for one in self._found])
            events = EventColumns.concat([one.events for one in self._found])
        part = Part(
            slots=np.array(self._slots, np.uint32),
            states=np.array(self._states, np.uint8),
            row_ends=np.array(self._ends, np.int64),
            objects=objects,
            events=events,
            is_last=is_last,
        )
        self._clear()
        limits = self._limits
        self._wanted_bytes = min(self._wanted_bytes + limits.part_bytes, limits.part_bytes_max)
        return part


def _within(
    wanted: Wanted,
    slots: list[tuple[int, SlotSearch]],
    moved: list[int],
    turns: _Turns,
) -> Iterator[Part | None]:
    filling = _Filling(wanted.limits)
    for number in moved:
        filling.state(number, MOVED)
    for number, search in slots:
        for run in search.within(wanted, filling.left_bytes):
            for found in run.cut(MESSAGE_BYTES_MAX):
                filling.add(number, found)
                if filling.is_full:
                    yield filling.part()
                    turns.went()
            yield from turns.pause()
        filling.state(number, DONE)
        yield from turns.pause()
    yield filling.part(is_last=True)


# --- kinds whose parts count together


def _nearest(
    wanted: Wanted,
    slots: list[tuple[int, SlotSearch]],
    nearby: list[tuple[int, SlotSearch]],
    moved: list[int],
    turns: _Turns,
    radius_m: float | None,
) -> Iterator[Part | None]:
    assert isinstance(wanted.query, KnnQuery)
    nearest = NearestCollector(wanted.query.k, wanted.limits.kept_bytes_max)
    asked, others = ([search for _, search in some] for some in (slots, nearby))

    def within_m() -> float | None:
        """Returns the radius found so far, which limits the other searches."""
        return _lesser(radius_m, nearest.bound_m())

    outside = _outside_memory(wanted, asked, within_m)
    for views in chain(_in_memory(wanted, [*asked, *others]), outside):
        found = _nearest_of(wanted, views, within_m())
        if found is not None:
            nearest.add([found])
        yield from turns.pause()
    best = nearest.answer()
    yield from _closed(
        [number for number, _ in (*slots, *nearby)],
        moved,
        [
            Part(
                objects=best.objects.slice(begin, end),
                events=best.events.slice(begin, end),
                distances_m=best.values[begin:end],
            )
            for begin, end in row_chunks(best.objects)
        ],
    )


def _in_memory(wanted: Wanted, searches: list[SlotSearch]) -> Iterator[list[StoreView]]:
    """Yields the views to search for the nearest, one group at a time."""
    for group in _grouped(wanted, searches):
        yield [search.view for search in group]


def _outside_memory(
    wanted: Wanted, searches: list[SlotSearch], within_m: Callable[[], float | None]
) -> Iterator[list[StoreView]]:
    for search in searches:
        # One slot at a time: the slices are loaded only for this.
        if (view_outside := search.outside(wanted, within_m())) is not None:
            yield [view_outside]


def _nearest_of(wanted: Wanted, views: list[StoreView], radius_m: float | None) -> Part | None:
    query = wanted.query
    assert isinstance(query, KnnQuery)
    found = search_knn_of(
        views,
        query.lon,
        query.lat,
        query.k,
        wanted.condition,
        wanted.bounds,
        math.inf if radius_m is None else radius_m,
    )
    rows = found.gather(terms=False)
    if rows is None:
        return None
    return Part(objects=rows.objects, events=events_of(rows), distances_m=found.distances_m)


def _lesser(one_m: float | None, other_m: float | None) -> float | None:
    known = [radius_m for radius_m in (one_m, other_m) if radius_m is not None]
    return min(known, default=None)


class _TermsAnswer:
    """The answer to a terms query, as parts.

    Args:
        wanted: the query.
        slots: the slots that are here.
        moved: the others.
        turns: gives the thread away at intervals.
        answers: into how many answers the search is cut; a term added up elsewhere may be frequent
            there.
    """

    def __init__(
        self,
        wanted: Wanted,
        slots: list[tuple[int, SlotSearch]],
        moved: list[int],
        turns: _Turns,
        answers: int,
    ) -> None:
        assert isinstance(wanted.query, TermsQuery)
        self._wanted, self._slots, self._moved = wanted, slots, moved
        self._turns, self._answers = turns, answers
        self._k = wanted.query.k
        self._counted: list[Counted] = []
        self._tally = TermTally()
        self._untallied = [search for _, search in reversed(slots)]

    def parts(
        self, listed: int, output_hashing: TermHashing | None, terms_wanted: TermsWanted
    ) -> Iterator[Part | None]:
        """Yields the parts.

        Args:
            listed: how many terms will do at first; 0 for all.
            output_hashing: numbers the terms; None for the wire's hashes.
            terms_wanted: see `answer`.
        """
        if output_hashing is None:
            hashes, counts = yield from self._all()
            yield from _spelled(self._slots, self._moved, hashes, counts, self._counted)
            return
        most = self._k if self._answers == 1 else listed
        found = self._frequent(most) if most else None
        is_whole = False
        if found is None:
            found, is_whole = yield from self._tallied(most)
        hashes, counts = found.hashes, found.counts.astype(np.uint64)
        if self._answers > 1 and listed:
            rows, rest = _cut(counts, listed, is_whole=is_whole)
            if rest:
                yield self._list(hashes[rows], counts[rows], rest, output_hashing)
                self._turns.went()
                terms = terms_wanted()
                if terms is not None:
                    sums = found.count_of(terms).astype(np.uint64)
                    yield from self._closed(terms, sums, 0, output_hashing)
                    return
                hashes, counts = yield from self._all()
        first = at_least_kth(counts, self._k, self._answers)
        # Alone, only the first terms count; otherwise all may, and only the first are named.
        rows = first
        if self._answers > 1:
            rows = np.concatenate([first, _others(first, len(hashes))])
        yield from self._closed(hashes[rows], counts[rows], len(first), output_hashing)

    def _frequent(self, k: int) -> Counted | None:
        if not self._slots:
            return None
        first, *others = (search for _, search in self._slots)
        found = first.frequent_terms(self._wanted, k, others)
        if found is not None:
            self._counted = [found]
        return found

    def _all(self) -> Generator[None, None, tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        """Counts all terms; returns u8[t], ascending, and u8[t]."""
        found, _ = yield from self._tallied(0)
        return found.hashes, found.counts.astype(np.uint64)

    def _tallied(self, most: int) -> Generator[None, None, tuple[Counted, bool]]:
        """Counts terms one by one.

        Returns:
            The most frequent terms and their ties, all if `most` is 0; and whether these are all.
        """
        tally = self._tally
        while self._untallied:
            self._untallied.pop().tally_terms(self._wanted, tally)
            yield from self._turns.pause()
        if not self._slots:
            return _NOTHING_COUNTED, True
        counts, is_whole = tally.most_frequent(most) if most else (tally.all(), True)
        found = self._slots[0][1].named(tally, counts)
        self._counted = [found]
        return found, is_whole

    def _list(
        self,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.uint64],
        rest: int,
        output_hashing: TermHashing,
    ) -> Part:
        texts, offsets = self._named(hashes)
        return Part(
            slots=np.array(self._moved, np.uint32),
            states=np.full(len(self._moved), MOVED, np.uint8),
            terms=TermSums(hashes, counts, texts, offsets, output_hashing.id),
            rest=rest,
        )

    def _closed(
        self,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.uint64],
        named: int,
        output_hashing: TermHashing,
    ) -> Iterator[Part]:
        """Yields the last parts; the first terms have their texts."""
        texts, offsets = self._named(hashes[:named])
        sums = TermSums(hashes, counts, texts, offsets, output_hashing.id)
        parts = [Part(terms=chunk) for chunk in sum_chunks(sums)]
        yield from _closed([number for number, _ in self._slots], self._moved, parts)

    def _named(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return pack_bytes([text.encode() for text in _texts(hashes, self._counted)])


def _cut(
    counts: NDArray[np.uint64], listed: int, *, is_whole: bool
) -> tuple[NDArray[np.int64], int]:
    """Returns the rows of a list of the most frequent terms, and a bound on the counts of others.

    Args:
        counts: u8[t], at least of the most frequent terms and their ties.
        listed: how many terms are wanted.
        is_whole: whether there are no others.
    """
    rows = at_least_kth(counts, listed)
    if len(rows) < listed or (is_whole and len(rows) == len(counts)):
        return rows, 0
    least = int(counts[rows].min())
    if len(rows) <= 2 * listed:
        return rows, least - 1
    # Of rare terms many have the same count: to list them all would take longer than to count.
    return np.flatnonzero(counts > least), least


def _spelled(
    slots: list[tuple[int, SlotSearch]],
    moved: list[int],
    hashes: NDArray[np.uint64],
    counts: NDArray[np.uint64],
    counted: list[Counted],
) -> Iterator[Part | None]:
    """Yields all terms by their wire hashes, with texts: slow, only while versions or keys mix."""
    words = _texts(hashes, counted)
    texts, offsets = pack_bytes([word.encode() for word in words])
    sums = TermSums(WIRE_TERMS.numbers(words), counts, texts, offsets)
    parts = [Part(terms=chunk) for chunk in sum_chunks(sums)]
    yield from _closed([number for number, _ in slots], moved, parts)


def _texts(hashes: NDArray[np.uint64], counted: list[Counted]) -> list[str]:
    """Returns the texts of terms, each from the first slot that holds it."""
    found: dict[int, str] = {}
    for one in counted:
        missing = np.array([term for term in hashes.tolist() if term not in found], np.uint64)
        if not len(missing) or not len(one.hashes):
            continue
        places = np.searchsorted(one.hashes, missing)
        held = missing[one.hashes[np.minimum(places, len(one.hashes) - 1)] == missing]
        found |= zip(held.tolist(), one.texts(held), strict=True)
    return [found[term] for term in hashes.tolist()]


def _others(rows: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    keep = np.ones(total, np.bool_)
    keep[rows] = False
    return np.flatnonzero(keep)


def _ranked(
    wanted: Wanted,
    slots: list[tuple[int, SlotSearch]],
    moved: list[int],
    turns: _Turns,
) -> Iterator[Part | None]:
    parts: list[Part] = []
    for first, *others in _together(wanted, [search for _, search in slots]):
        found, ranking = first.ranked(wanted, others)
        assert found.distances_m is not None
        # Totals are added up: they are in the first part of a group, zeros in the others.
        for begin, end in row_chunks(found.objects) if len(found) else [(0, 0)]:
            parts.append(
                Part(
                    objects=found.objects.slice(begin, end),
                    events=found.events.slice(begin, end),
                    distances_m=found.distances_m[begin:end],
                    ranking=ranking.slice(begin, end),
                )
            )
        yield from turns.pause()
    yield from _closed([number for number, _ in slots], moved, parts)


def _together(wanted: Wanted, searches: list[SlotSearch]) -> Iterator[list[SlotSearch]]:
    """Yields the slots to rank, one group at a time.

    Slices outside memory are loaded for one slot at a time. With a filter on attributes, all
    objects with a keyword are kept until they are filtered.
    """
    in_memory = []
    for search in searches:
        if search.is_in_memory(wanted.bounds):
            in_memory.append(search)
        else:
            yield [search]
    yield from _grouped(wanted, in_memory)


def _grouped(wanted: Wanted, searches: list[SlotSearch]) -> Iterator[list[SlotSearch]]:
    """Yields slots that are searched together: one call reads a bounded number of objects."""
    # A filter on attributes may require reading all rows, one by one.
    rows_max = wanted.limits.nearest_rows if wanted.condition.is_exact else 0
    group: list[SlotSearch] = []
    rows = 0
    for search in searches:
        further = search.view.objects_total
        if group and rows + further > rows_max:
            yield group
            group, rows = [], 0
        group.append(search)
        rows += further
    if group:
        yield group


def _closed(done: list[int], moved: list[int], parts: list[Part]) -> Iterator[Part]:
    """Yields the parts; the last one lists the slots that they cover."""
    states = sorted([*((number, DONE) for number in done), *((number, MOVED) for number in moved)])
    yield from parts[:-1]
    yield replace(
        parts[-1] if parts else Part(),
        slots=np.array([number for number, _ in states], np.uint32),
        states=np.array([state for _, state in states], np.uint8),
        is_last=True,
    )
