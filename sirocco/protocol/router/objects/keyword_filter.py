"""The filter at the router: objects that no query of a slot can match are not sent there.

Tornado (section 3.1) keeps in every routing unit a textual summary of each evaluator, of a query
that wants all of its keywords one alone. Here the summary is part of the intake's log: the owner of
a registry partition appends to every intake partition what its queries need, before it answers a
registration (`summarising`). What is known at a record of the intake is therefore a function of the
log before it, and whatever is published after a registration was acknowledged comes behind its
keywords. (In Tornado a routing unit forwards keywords to the others while objects go on.)

Nothing is ever taken back by itself: a keyword is forgotten only when an owner has said anew all
that is live (Tornado's lazy cleaning, section 4.6). Until this was done once for every registry
partition, and where it is not known what is needed, everything is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.routing.keyword_slots import KeywordSlots, keywords_max, words_of
from sirocco.model.text import TermColumns
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Keywords
from sirocco.schemes.map.routing import ObjectRoutes

# What the table of one intake partition may take; each keyword beyond opens its slots to every
# object. At 64 slots a million keywords: more than the vocabulary of a month of posts, and a router
# that owns eight intake partitions stays below its memory.
TABLE_BYTES_MAX = 32 << 20


@dataclass(slots=True)
class Told:
    """What an intake partition knows of one registry partition.

    Attributes:
        known: needed from here on.
        epoch: the greatest that has said anything.
        is_whole: all that was live has been said once.
        following: what has been said since all that is live began to be said anew; else None.
    """

    known: KeywordSlots
    epoch: int = -1
    is_whole: bool = False
    following: KeywordSlots | None = None


class Summaries:
    """What the queries of all registry partitions need, as of a position of an intake partition.

    Args:
        slots: how many there are.
        partitions: of the registry.
    """

    def __init__(self, slots: int, partitions: int) -> None:
        self._words = words_of(slots)
        self._count_max = max(1, keywords_max(TABLE_BYTES_MAX, self._words) // partitions)
        self._told = {partition: Told(self._new_table()) for partition in range(partitions)}
        self._join()

    def __len__(self) -> int:
        """How many keywords are known."""
        return len(self._all)

    @property
    def is_whole(self) -> bool:
        """Whether it is known what all queries need."""
        return all(told.is_whole for told in self._told.values())

    def add(self, said: Keywords) -> None:
        """Takes the next record."""
        told = self._told.get(said.partition)
        if told is None:
            return
        # A former owner, which stood still, does not know what has been registered since.
        is_former = said.epoch < told.epoch
        told.epoch = max(told.epoch, said.epoch)
        if said.is_withdrawn:
            told.is_whole &= is_former
            return
        if len(said.terms) and said.slots.shape[1] != self._words:
            # Of another number of slots: nobody knows what it means.
            told.is_whole = False
            return
        if said.begins and not is_former:
            told.following = self._new_table()
        if len(said.terms):
            self._put(told, said)
        if said.ends and told.following is not None and not is_former:
            told.known, told.following, told.is_whole = told.following, None, True
            self._join()

    def mark(
        self,
        terms: TermColumns,
        routes: ObjectRoutes,
        begin: int,
        end: int,
        keep: NDArray[np.bool_],
    ) -> None:
        """Marks which of the routes [begin, end) lead to a slot that has a use for the object."""
        if begin == end or not self.is_whole:
            return
        # An open slot takes what comes by a term, too: where a query keeps the places of an earlier
        # version (ADR 17), objects are reported there, though it has no keyword any more.
        rows, slots = routes.row[begin:end], routes.slot[begin:end]
        self._all.mark_wanted(terms.offsets, terms.terms, rows, slots, keep[begin:end])

    def state(self) -> State:
        """For a checkpoint."""
        parts: list[tuple[int, ...]] = []
        columns: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
        for partition, told in self._told.items():
            tables = [each for each in (told.known, told.following) if each is not None]
            items = [table.items() for table in tables]
            counts = [len(terms) for terms, _ in items]
            parts.append((partition, told.epoch, int(told.is_whole), *counts, -1)[:5])
            columns += items
        return {
            "summary.parts": np.array(parts, np.int64).reshape(-1, 5),
            "summary.terms": np.concatenate([terms for terms, _ in columns]),
            "summary.slots": np.concatenate([sets for _, sets in columns]),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one from before anything was summarised has none."""
        if "summary.parts" not in state or state["summary.slots"].shape[1] != self._words:
            return
        at = 0
        for partition, epoch, is_whole, *counts in state["summary.parts"].tolist():
            tables: list[KeywordSlots] = []
            for count in counts:
                if count >= 0:
                    tables.append(self._new_table())
                    own = slice(at, at + count)
                    tables[-1].add(state["summary.terms"][own], state["summary.slots"][own])
                    at += count
            if partition in self._told:
                told = Told(tables[0], epoch, bool(is_whole))
                told.following = tables[1] if len(tables) > 1 else None
                self._told[partition] = told
        self._join()

    def _put(self, told: Told, said: Keywords) -> None:
        self._all.add(said.terms, said.slots)
        for table in (told.known, told.following):
            if table is not None:
                table.add(said.terms, said.slots)
        # What found no room there has found some here; it would have none after a take-over.
        self._all.open_set |= told.known.open_set

    def _join(self) -> None:
        self._all = KeywordSlots(self._words, self._count_max * len(self._told))
        for told in self._told.values():
            self._all.add(*told.known.items())

    def _new_table(self) -> KeywordSlots:
        return KeywordSlots(self._words, self._count_max)


def wanted(
    parts: list[tuple[int, int, tuple[Keywords, ...]]],
    summaries: Mapping[int, Summaries],
    terms: TermColumns,
    routes: ObjectRoutes,
) -> ObjectRoutes:
    """Leaves out the routes to slots that have no use for the object.

    Args:
        parts: (intake partition, number of objects, what was said before them), those of one
            partition in the order of its log.
        summaries: of the intake partitions.
        terms: of all objects.
        routes: of all objects.
    """
    keep = np.ones(len(routes.row), np.bool_)
    ends = np.cumsum([0, *(count for _, count, _ in parts)])
    bounds = np.searchsorted(routes.row, ends).tolist()
    for (partition, _, said), begin, end in zip(parts, bounds[:-1], bounds[1:], strict=True):
        for each in said:
            summaries[partition].add(each)
        summaries[partition].mark(terms, routes, begin, end, keep)
    if keep.all():
        return routes
    return replace(
        routes,
        row=routes.row[keep],
        leaf=routes.leaf[keep],
        slot=routes.slot[keep],
        homes=None if routes.homes is None else routes.homes[keep],
    )
