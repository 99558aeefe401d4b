"""Answers to range queries: objects, as they are found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sirocco.codec.search import MESSAGE_BYTES_MAX
from sirocco.model.objects import concat
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.search.limits import SearchLimits
from sirocco.protocol.search.messages import DONE, MORE, MOVED, Part
from sirocco.services.evaluator.answers.slot_interface import FoundRows, SlotSearch, Wanted
from sirocco.services.evaluator.answers.turns import Turns


class _PartBuilder:
    """Collects the objects of the next part, which grows with every part that was sent."""

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
        """Whether the part is to be sent."""
        return self._bytes_total >= self._wanted_bytes

    def left_bytes(self) -> int:
        """Bytes that still fit into the part."""
        return max(1, self._wanted_bytes - self._bytes_total)

    def add(self, slot: int, found: FoundRows) -> None:
        """Adds objects of a slot, which has more."""
        self._found.append(found)
        self._rows += len(found)
        self._bytes_total += found.objects.bytes_total
        self.state(slot, MORE)

    def state(self, slot: int, state: int) -> None:
        """Sets the state of a slot after the objects so far."""
        if not self._slots or self._slots[-1] != slot:
            self._slots.append(slot)
            self._states.append(state)
            self._ends.append(self._rows)
        self._states[-1], self._ends[-1] = state, self._rows

    def build(self, *, is_last: bool = False) -> Part:
        """Returns the part, and begins the next one."""
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


def range_parts(
    wanted: Wanted,
    slots: list[tuple[int, SlotSearch]],
    moved: list[int],
    turns: Turns,
) -> Iterator[Part | None]:
    """Yields the objects that satisfy the query, slot by slot, and the states of the slots.

    Args:
        wanted: a range query.
        slots: the slots that are here.
        moved: the others.
        turns: gives the thread away at intervals.
    """
    builder = _PartBuilder(wanted.limits)
    for number in moved:
        builder.state(number, MOVED)
    for number, search in slots:
        for run in search.within(wanted, builder.left_bytes):
            for found in run.cut(MESSAGE_BYTES_MAX):
                builder.add(number, found)
                if builder.is_full:
                    yield builder.build()
                    turns.restart()
            yield from turns.pause()
        builder.state(number, DONE)
        yield from turns.pause()
    yield builder.build(is_last=True)
