"""The answer to one question, part by part; made in a thread of the search pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from sirocco.index.store.store_condition import Bounds, condition_of
from sirocco.model.errors import OutOfRange
from sirocco.model.query import KnnQuery, RangeQuery, RankedQuery, TermsQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.evaluator.standing.step_schedule import ranked_of
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import EVER_MS, Leftovers, Part, Question
from sirocco.services.evaluator.answers.nearest_answer import nearest_parts
from sirocco.services.evaluator.answers.range_answer import range_parts
from sirocco.services.evaluator.answers.ranked_answer import ranked_parts
from sirocco.services.evaluator.answers.slot_interface import FoundRows, SlotSearch, Wanted
from sirocco.services.evaluator.answers.terms_answer import TermsAnswer, TermsWanted
from sirocco.services.evaluator.answers.turns import Turns

__all__ = ["FoundRows", "SlotSearch", "Wanted", "answer", "nothing_known"]

# Slot, map version and the slot's search → its leftovers, None while they are not known.
LeftoversOf: TypeAlias = "Callable[[int, int, SlotSearch], Leftovers | None]"


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
        terms_wanted: called after a list of terms, once the merger has answered it.

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
    turns = Turns(is_over, limits.slice_s)
    nearby = _cheap(wanted, question.nearby, search_of)
    version = max((search.map_version for _, search in (*slots, *nearby)), default=0)
    match question.query:
        case RangeQuery():
            parts = range_parts(wanted, slots, moved, turns)
        case KnnQuery():
            parts = nearest_parts(wanted, slots, nearby, moved, turns, question.radius_m)
        case TermsQuery():
            # Other evaluators answer for slots that have moved. A merger that cannot add up our
            # numbers gets the wire's hashes.
            output_hashing = hashing if question.takes_numbers or not hashing.is_keyed else None
            parts = TermsAnswer(wanted, slots, moved, turns, question.answers + len(moved)).parts(
                question.listed, output_hashing, terms_wanted
            )
        case RankedQuery():
            parts = ranked_parts(wanted, slots, moved, turns)
    for part in parts:
        if part is None:
            yield None
            continue
        known: tuple[Leftovers, ...] = ()
        if part.is_last and question.leftovers_of:
            found_of = (leftovers(slot, question.leftovers_of, each) for slot, each in slots)
            known = tuple(each for each in found_of if each is not None)
        yield replace(part, map_version=version, leftovers=known)


def _check_kept(wanted: Wanted, slots: Sequence[SlotSearch]) -> None:
    """Refuses a window that begins before the oldest stored object."""
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
