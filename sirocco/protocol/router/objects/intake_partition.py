"""Turns the records of one owned intake partition into new objects, without repeats.

The result is a function of the record and of the state at its offset: rules R1, R2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import MISSING_TS, ObjectColumns
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import (
    IntakeObjects,
    Keywords,
    Switch,
    TrackedMember,
    TrackedMemberSet,
)
from sirocco.protocol.contract.positions import NO_TIME_MS, position_of
from sirocco.protocol.router.objects.followed_members import FollowedMembers
from sirocco.protocol.router.objects.keyword_filter import KeywordFilter
from sirocco.protocol.router.objects.publish_sessions import SessionTable

IntakeRecord: TypeAlias = IntakeObjects | TrackedMember | TrackedMemberSet | Keywords | Switch


@dataclass(slots=True)
class Part:
    """The new objects of one intake record, and the map that routes them.

    `keywords`: summaries of what queries need, read between the objects before and these.
    """

    partition: int
    map_version: int
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    keywords: tuple[Keywords, ...] = ()


@dataclass(slots=True, kw_only=True)
class Source:
    """The state of one owned intake partition at its position."""

    partition: int
    offset: int
    received_ms: int
    arrival_ms: int
    sessions: SessionTable
    # i8[slots], the position up to which each slot has been sent everything.
    sent: NDArray[np.int64]
    # When a record was last read, by this process's clock.
    last_ms: int
    # Version of the map that routes objects after the position.
    map_version: int = 0
    # Members by whose values objects are followed (`track`).
    members: FollowedMembers = field(default_factory=lambda: FollowedMembers(1))
    # Which objects queries need; None where everything is stored.
    summaries: KeywordFilter | None = None
    # Summaries of keywords read since the last object.
    keywords: list[Keywords] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Returns the position up to which everything was taken."""
        return position_of(self.offset)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the state for a checkpoint, without `sent`: marks to every slot precede it."""
        times = np.array([self.received_ms, self.arrival_ms], np.int64)
        return {
            "times_ms": times,
            "map_version": np.array([self.map_version], np.int64),
            **self.members.state(),
            **self.sessions.state(),
            **({} if self.summaries is None else self.summaries.state()),
        }

    def learn(self) -> None:
        """Applies the summaries that were read after the last object."""
        if self.summaries is not None:
            for record in self.keywords:
                self.summaries.add(record)
        self.keywords.clear()

    def take(self, offset: int, taken: IntakeRecord, *, event_time: bool) -> Part | None:
        """Takes the next record; returns its new objects, if there are any.

        `event_time`: an object's own time is its arrival, made non-decreasing.
        """
        self.offset = offset + 1
        if isinstance(taken, Switch):
            # Several owners may write it more than once; versions follow each other.
            if taken.version == self.map_version + 1:
                self.map_version = taken.version
            return None
        if isinstance(taken, TrackedMember):
            self.members.add(taken)
            return None
        if isinstance(taken, TrackedMemberSet):
            self.members.keep(taken)
            return None
        if isinstance(taken, Keywords):
            self.keywords.append(taken)
            return None
        if taken.span == 0:
            self.arrival_ms = max(self.arrival_ms, taken.received_ms)
            if event_time:
                return None
        self.received_ms = max(self.received_ms, taken.received_ms)
        if taken.span == 0:
            return None
        repeats = self.sessions.take(taken, self.received_ms)
        if repeats >= taken.span:
            return None
        objects = taken.objects
        deltas = taken.number_deltas
        if deltas is None:
            deltas = np.arange(taken.span, dtype=np.uint32)
        first = int(np.searchsorted(deltas, repeats))
        if first == len(deltas):
            return None
        rows = np.arange(first, len(deltas))
        if first > 0:
            objects = objects.take(rows)
            deltas = deltas[first:]
        events = EventColumns(
            np.full(len(objects), taken.session, np.uint64),
            deltas.astype(np.uint64) + np.uint64(taken.first_number),
            self._arrivals_ms(objects, event_time=event_time),
        )
        positions = rows + position_of(offset)
        keywords = tuple(self.keywords)
        self.keywords.clear()
        return Part(self.partition, self.map_version, objects, events, positions, keywords)

    def _arrivals_ms(self, objects: ObjectColumns, *, event_time: bool) -> NDArray[np.int64]:
        if not event_time:
            self.arrival_ms = max(self.arrival_ms, self.received_ms)
            return np.full(len(objects), self.arrival_ms, np.int64)
        # A missing time takes the arrival before it; for the first object only the clock is known.
        floor = self.arrival_ms if self.arrival_ms != NO_TIME_MS else self.received_ms
        own = objects.ts
        if own[0] != MISSING_TS and self.arrival_ms == NO_TIME_MS:
            floor = int(own[0])
        arrivals_ms = np.maximum.accumulate(np.maximum(own, floor))
        self.arrival_ms = int(arrivals_ms[-1])
        return arrivals_ms
