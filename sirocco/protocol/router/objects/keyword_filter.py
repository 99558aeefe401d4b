"""The filter at the router: objects that no query of a slot can match are not sent there.

In Tornado (section 3.1) every routing unit keeps a textual summary of each evaluator, with one
keyword alone of a query that wants all of its keywords. Here the summary is part of the intake's
log: before the owner of a registry partition answers a registration, it appends what its queries
need to every intake partition (`keyword_summary`). What is known at a record of the intake is
therefore a function of the log before it, and objects published after a registration was
acknowledged come after its keywords. (In Tornado a routing unit forwards keywords to the others
while it processes objects.)

Keywords are not withdrawn one by one: a keyword is forgotten only when an owner has republished all
live ones (Tornado's lazy cleaning, section 4.6). Until each registry partition has published a
whole summary, and where a summary is unknown, every object is sent.
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
from sirocco.protocol.router.limits import LIMITS
from sirocco.schemes.map.routing import ObjectRoutes


@dataclass(slots=True)
class PartitionSummary:
    """What an intake partition knows of one registry partition.

    Attributes:
        known: needed from here on.
        epoch: the greatest of any owner that has published.
        is_whole: whether a whole summary has been published.
        following: the part read so far of a new whole summary; None if none has begun.
    """

    known: KeywordSlots
    epoch: int = -1
    is_whole: bool = False
    following: KeywordSlots | None = None


class KeywordFilter:
    """What the queries of all registry partitions need, as of a position of an intake partition.

    Args:
        slots: number of slots.
        partitions: of the registry.
        bytes_max: memory of all keywords, see `RouterLimits.keyword_table_bytes_max`.
    """

    def __init__(
        self, slots: int, partitions: int, bytes_max: int = LIMITS.keyword_table_bytes_max
    ) -> None:
        self._words = words_of(slots)
        self._count_max = max(1, keywords_max(bytes_max, self._words) // partitions)
        self._partitions = {
            partition: PartitionSummary(self._new_table()) for partition in range(partitions)
        }
        self._join()

    def __len__(self) -> int:
        """Returns how many keywords are known."""
        return len(self._all)

    @property
    def is_whole(self) -> bool:
        """Whether the needs of all queries are known."""
        return all(summary.is_whole for summary in self._partitions.values())

    def add(self, record: Keywords) -> None:
        """Takes the next record."""
        summary = self._partitions.get(record.partition)
        if summary is None:
            return
        # A former owner that was suspended does not know later registrations.
        is_former = record.epoch < summary.epoch
        summary.epoch = max(summary.epoch, record.epoch)
        if record.is_withdrawn:
            summary.is_whole &= is_former
            return
        if len(record.terms) and record.slots.shape[1] != self._words:
            # Written for another number of slots, so it cannot be read.
            summary.is_whole = False
            return
        if record.begins and not is_former:
            summary.following = self._new_table()
        if len(record.terms):
            self._put(summary, record)
        if record.ends and summary.following is not None and not is_former:
            summary.known, summary.following, summary.is_whole = summary.following, None, True
            self._join()

    def mark(
        self,
        terms: TermColumns,
        routes: ObjectRoutes,
        begin: int,
        end: int,
        keep: NDArray[np.bool_],
    ) -> None:
        """Marks which of the routes [begin, end) lead to a slot that may need the object."""
        if begin == end or not self.is_whole:
            return
        # An open slot also takes objects that arrive by a term: a query that keeps the places of an
        # earlier version (ADR 17) reports objects there, though it has no keyword any more.
        rows, slots = routes.row[begin:end], routes.slot[begin:end]
        self._all.mark_wanted(terms.offsets, terms.terms, rows, slots, keep[begin:end])

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        parts: list[tuple[int, ...]] = []
        columns: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
        for partition, summary in self._partitions.items():
            tables = [each for each in (summary.known, summary.following) if each is not None]
            items = [table.items() for table in tables]
            counts = [len(terms) for terms, _ in items]
            parts.append((partition, summary.epoch, int(summary.is_whole), *counts, -1)[:5])
            columns += items
        return {
            "summary.parts": np.array(parts, np.int64).reshape(-1, 5),
            "summary.terms": np.concatenate([terms for terms, _ in columns]),
            "summary.slots": np.concatenate([sets for _, sets in columns]),
        }

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one without summaries changes nothing."""
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
            if partition in self._partitions:
                summary = PartitionSummary(tables[0], epoch, bool(is_whole))
                summary.following = tables[1] if len(tables) > 1 else None
                self._partitions[partition] = summary
        self._join()

    def _put(self, summary: PartitionSummary, record: Keywords) -> None:
        self._all.add(record.terms, record.slots)
        for table in (summary.known, summary.following):
            if table is not None:
                table.add(record.terms, record.slots)
        # A keyword may have found room here that `known` lacks; after a take-over it would have
        # none.
        self._all.open_set |= summary.known.open_set

    def _join(self) -> None:
        self._all = KeywordSlots(self._words, self._count_max * len(self._partitions))
        for summary in self._partitions.values():
            self._all.add(*summary.known.items())

    def _new_table(self) -> KeywordSlots:
        return KeywordSlots(self._words, self._count_max)


def wanted(
    parts: list[tuple[int, int, tuple[Keywords, ...]]],
    summaries: Mapping[int, KeywordFilter],
    terms: TermColumns,
    routes: ObjectRoutes,
) -> ObjectRoutes:
    """Leaves out the routes to slots that do not need the object.

    Args:
        parts: (intake partition, number of objects, summaries read before them), those of one
            partition in the order of its log.
        summaries: of the intake partitions.
        terms: of all objects.
        routes: of all objects.
    """
    keep = np.ones(len(routes.row), np.bool_)
    ends = np.cumsum([0, *(count for _, count, _ in parts)])
    bounds = np.searchsorted(routes.row, ends).tolist()
    for (partition, _, record), begin, end in zip(parts, bounds[:-1], bounds[1:], strict=True):
        for each in record:
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
