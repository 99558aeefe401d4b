"""Versions of standing queries, as the registry and the slots hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from sirocco.index.base.kinds import kind_number
from sirocco.model.query import Query, canonical
from sirocco.protocol.contract.messages import NO_PAST, Change
from tests.oracle import duration_ms
from tests.simulation.log import Stored
from tests.simulation.slot_truth import SlotTruth, Stay

EventKey = tuple[int, int]

FOREVER_MS = 1 << 62


@dataclass(slots=True, kw_only=True)
class QueryVersion:
    """One version of a query in the registry.

    Attributes:
        stays: slot → its time in that slot.
        is_whole: whether it has been in all of its slots.
        is_start_given: whether its begin was given with it.
        since: the revision that began the chain of versions it continues; -1: it begins one.
        sent: step → what was reported of it.
        resumed_ms: its steps reported directly after a step of another version.
    """

    revision: int
    query: Query
    members: dict[str, Any]
    subscriber: str
    start_ms: int
    past_ms: int
    stays: dict[int, Stay]
    is_whole: bool
    is_start_given: bool
    since: int
    sent: dict[int, Any] = field(default_factory=dict)
    resumed_ms: set[int] = field(default_factory=set)

    @property
    def kind(self) -> int:
        """See `index.base.kinds`."""
        return kind_number(self.query)

    @property
    def expires_ms(self) -> int:
        """The end of its lifetime."""
        ttl_ms = self.query.ttl_ms
        return FOREVER_MS if ttl_ms is None else self.start_ms + ttl_ms

    def lives_at(self, arrival_ms: int) -> bool:
        """Returns whether an object of that arrival counts, in a slot that holds the query."""
        has_begun = not self.is_start_given or arrival_ms >= self.since_ms
        return has_begun and arrival_ms < self.expires_ms

    @property
    def since_ms(self) -> int:
        """The oldest arrival that it includes."""
        return self.start_ms - max(0, self.past_ms)

    @property
    def step_ms(self) -> int:
        """Time between two steps."""
        return duration_ms(self.members["step"])

    def steps_ms(self) -> Iterator[int]:
        """Yields all of its steps: with history the first is at its begin."""
        first_ms = self.start_ms + (self.step_ms if self.past_ms == NO_PAST else 0)
        return takewhile(lambda at_ms: at_ms <= self.expires_ms, count(first_ms, self.step_ms))

    def has_step(self, at_ms: int) -> bool:
        """Returns whether a time is one of its steps."""
        first_ms = self.start_ms + (self.step_ms if self.past_ms == NO_PAST else 0)
        is_within = first_ms <= at_ms <= self.expires_ms
        return is_within and (at_ms - self.start_ms) % self.step_ms == 0

    def bounds_ms(self) -> tuple[int, int]:
        """Returns the bounds of the time when all slots held it as their time passed a step."""
        stays = self.stays.values()
        ends_ms = [stay.end_ms for stay in stays if stay.end is not None]
        # A slot that received it by a change of the map has no earlier results.
        first = [stay for stay in stays if not stay.is_copied]
        begin_ms = max(stay.begin_ms for stay in first) if self.is_whole else FOREVER_MS
        if self.is_whole and self.past_ms != NO_PAST:
            # A query with history waits until all slots have reported the first step, however late.
            begin_ms = min(begin_ms, self.start_ms)
        return begin_ms, min(ends_ms, default=FOREVER_MS)

    def window_ms(self, at_ms: int) -> tuple[int, int]:
        """Returns the arrivals that a step counts, both inclusive; terms' windows are half open."""
        if "window" not in self.members:
            return self.since_ms, at_ms
        oldest_ms = at_ms - duration_ms(self.members["window"])
        return max(self.since_ms, oldest_ms + (self.members["kind"] == "terms")), at_ms


def versions_of(handle: int, truth: SlotTruth, records: list[Stored]) -> list[QueryVersion]:
    """Returns the versions of a query that any slot ever held, in order.

    Args:
        handle: of the query.
        truth: the contents of the slots.
        records: of its registry partition.
    """
    return [
        version_of(
            records[revision],
            stays,
            is_whole=sum(not stay.is_copied for stay in stays.values())
            == truth.slot_counts.get((own, revision)),
        )
        for (own, revision), stays in sorted(truth.stays.items())
        if own == handle
    ]


def version_of(stored: Stored, stays: dict[int, Stay], *, is_whole: bool) -> QueryVersion:
    """Returns the version that a record of the registry begins.

    Args:
        stored: the record.
        stays: slot → its time in that slot.
        is_whole: whether it has been in all of its slots.
    """
    change = stored.message
    assert isinstance(change, Change)
    assert change.query is not None
    return QueryVersion(
        revision=stored.offset,
        query=change.query,
        members=canonical(change.query),
        subscriber=change.subscriber,
        start_ms=change.start_ms,
        past_ms=change.past_ms,
        stays=stays,
        is_whole=is_whole,
        is_start_given=change.is_start_given,
        since=change.since,
    )
