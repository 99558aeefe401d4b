"""Objects that end every evaluator that matches them, in worlds that have some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.record_batch import Part
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.simulation.query_versions import EventKey

if TYPE_CHECKING:
    from tests.simulation.world import Stream


class PoisonedError(Exception):
    """Ends a process; no machine catches it."""


def poisonous(seed: int, count: int, streams: list[Stream]) -> frozenset[EventKey]:
    """Draws the poisonous objects."""
    dice = Random(f"poison {seed}")
    sane = [
        (stream.session, number)
        for stream in streams
        for number in range(1, 1 + len(stream.members))
        if number not in stream.refused
    ]
    return frozenset(dice.sample(sane, dice.randint(1, count))) if count else frozenset()


@contextmanager
def poisoned(poison: frozenset[EventKey]) -> Iterator[None]:
    """Makes slots fail to match these objects while the context is open."""

    def match(self: Slot, parts: list[Part], end: int) -> Report:
        for _, routed, rows in parts:
            events = routed.events if rows is None else routed.events.take(rows)
            keys = zip(events.sessions.tolist(), events.numbers.tolist(), strict=True)
            if not poison.isdisjoint(keys):
                raise PoisonedError
        return _match(self, parts, end)

    with patch.object(Slot, "_match", match) if poison else patch.object(Slot, "_match", _match):
        yield


_match = Slot._match
