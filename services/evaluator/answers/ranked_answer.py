"""Answers to ranked queries: the best objects of all slots here, and totals for scores."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from sirocco.codec.search import row_chunks
from sirocco.protocol.search.messages import Part
from sirocco.services.evaluator.answers.slot_groups import together
from sirocco.services.evaluator.answers.slot_interface import SlotSearch, Wanted
from sirocco.services.evaluator.answers.slot_states import with_slot_states
from sirocco.services.evaluator.answers.turns import Turns

T = TypeVar("T")


def ranked_parts(
    wanted: Wanted,
    slots: list[tuple[int, SlotSearch]],
    moved: list[int],
    turns: Turns,
) -> Iterator[Part | None]:
    """Yields objects that may be among the k best, then the states of the slots.

    Args:
        wanted: a ranked query.
        slots: the slots that are here.
        moved: the others.
        turns: gives the thread away at intervals.
    """
    parts: list[Part] = []
    for first, *others in together(wanted, [search for _, search in slots]):
        found, ranking = yield from _in_turns(first.ranked(wanted, others), turns)
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
    yield from with_slot_states([number for number, _ in slots], moved, parts)


def _in_turns(work: Generator[None, None, T], turns: Turns) -> Generator[None, None, T]:
    """Does some work, which others interrupt; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found
        yield from turns.pause()
