"""A random log of one slot, and its meaning by the simplest rules, object by object."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from sirocco.model.text import tokens_of
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import Installed, Routed
from sirocco.protocol.contract.positions import PART_BITS, Intervals, Reached, position_of
from tests.oracle import Region, duration_ms, holds, satisfies
from tests.support.values import (
    columns_of,
    installed_of,
    random_members,
    random_query_members,
    terms_of,
)

INTAKE_PARTITIONS = 2
REGISTRY_PARTITIONS = 2
SUBSCRIBERS = ["ann", "bob", "cleo", "dora", "eve"]

# (slot position, query id, subscriber, object number)
Match = tuple[int, str, str, int]


@dataclass
class Source:
    """One intake partition as this slot receives it."""

    number: int
    offset: int = 0
    time_ms: int = 0
    reported: int = 0
    # (position, members, arrival)
    rows: list[tuple[int, dict[str, Any], int]] = field(default_factory=list)

    def record(self, begin: int) -> Routed:
        """Returns the rows from a position to the present end of the source."""
        end = position_of(self.offset)
        rows = [row for row in self.rows if begin <= row[0] < end]
        objects = columns_of([members for _, members, _ in rows])
        count = len(rows)
        return Routed(
            map_version=1,
            intervals=Intervals.of([(self.number, begin, end, self.time_ms)]),
            objects=objects,
            events=EventColumns(
                np.full(count, self.number, np.uint64),
                objects.ids.copy(),
                np.array([arrival for _, _, arrival in rows], np.int64),
            ),
            positions=np.array([position for position, _, _ in rows], np.int64),
            interval_rows=np.zeros(count, np.uint32),
            terms=terms_of(objects),
        )


class SlotLog:
    """Creates records: objects with resends and overlaps, query changes with repeats of old ones.

    Attributes:
        records: (offset, message), offsets with holes.
    """

    def __init__(self, seed: int, records: int = 60) -> None:
        self.rng = np.random.default_rng(seed)
        self.records: list[tuple[int, Routed | Installed]] = []
        self._sources = [Source(number) for number in range(INTAKE_PARTITIONS)]
        self._revisions = [0] * REGISTRY_PARTITIONS
        self._said: list[Installed] = []
        self._routed_said: list[Routed] = []
        self._next_id = 0
        self._offset = 0
        for _ in range(records):
            self._offset += int(self.rng.integers(1, 4))
            message = self._routed() if self.rng.random() < 0.55 else self._installed()
            self.records.append((self._offset - 1, message))

    def _routed(self) -> Routed:
        if self._routed_said and self.rng.random() < 0.15:
            return self._routed_said[int(self.rng.integers(len(self._routed_said)))]
        message = self._next_routed()
        self._routed_said.append(message)
        return message

    def _next_routed(self) -> Routed:
        source = self._sources[int(self.rng.integers(INTAKE_PARTITIONS))]
        if self.rng.random() < 0.15:  # a repeat, complete or with a new end
            begin = int(self.rng.integers(0, source.reported + 1))
            if self.rng.random() < 0.5:
                return source.record(begin)
        else:
            begin = source.reported
        for row in range(int(self.rng.integers(0, 12))):
            self._next_id += 1
            source.time_ms += int(self.rng.integers(0, 400))
            members = random_members(self.rng, self._next_id)
            source.rows.append((position_of(source.offset, row), members, source.time_ms))
        source.offset += 1
        if self.rng.random() < 0.05:  # a zombie's record after one that never arrived
            return source.record(position_of(source.offset))
        source.reported = position_of(source.offset)
        return source.record(begin)

    def _installed(self) -> Installed:
        if self._said and self.rng.random() < 0.2:
            return self._said[int(self.rng.integers(len(self._said)))]
        partition = int(self.rng.integers(REGISTRY_PARTITIONS))
        floor = self._revisions[partition] if self.rng.random() < 0.2 else 0
        names = [f"q{partition}{i}" for i in range(6)]
        chosen = self.rng.choice(names, int(self.rng.integers(1, 4)), replace=False).tolist()
        changes, removed = [], []
        for name in chosen:
            revision = self._revisions[partition]
            self._revisions[partition] += 1
            if self.rng.random() < 0.35:
                removed.append((name, revision))
                continue
            members = random_query_members(self.rng, name)
            start_ms = min(source.time_ms for source in self._sources)
            changes.append((revision, members, str(self.rng.choice(SUBSCRIBERS)), start_ms))
        message = installed_of(partition, changes, removed, floor)
        meanings[id(message)] = changes, removed
        self._said.append(message)
        return message


# What the random installs were made of; the columns say it too, but less readably.
meanings: dict[int, tuple[list[tuple[int, dict[str, Any], str, int]], list[tuple[str, int]]]] = {}


def expected_matches(records: list[tuple[int, Routed | Installed]]) -> list[Match]:
    """What a slot has to find, by the plain rules."""
    reached = Reached()
    newest: dict[str, int] = defaultdict(lambda: -1)
    live: dict[str, tuple[dict[str, Any], str, float]] = {}
    found: list[Match] = []
    for offset, message in records:
        if isinstance(message, Installed):
            changes, removed = meanings[id(message)]
            for revision, members, subscriber, start_ms in changes:
                if revision > newest[members["id"]]:
                    newest[members["id"]] = revision
                    ends_ms = math.inf
                    if "ttl" in members:
                        ends_ms = start_ms + duration_ms(members["ttl"])
                    live[members["id"]] = members, subscriber, ends_ms
            for name, revision in removed:
                if revision > newest[name]:
                    newest[name] = revision
                    live.pop(name, None)
            continue
        fresh_from = reached.accept(message.intervals)
        for row in range(len(message.objects)):
            if message.positions[row] < fresh_from[message.interval_rows[row]]:
                continue
            one = message.objects.row(row)
            place = position_of(offset) + (row << PART_BITS)
            arrival_ms = int(message.events.arrivals_ms[row])
            found += [
                (place, name, subscriber, one.id)
                for name, (members, subscriber, ends_ms) in live.items()
                if arrival_ms < ends_ms
                and meets(members, one.lon, one.lat, one.text)
                and satisfies(members.get("where", {}), attributes_of(one.attributes))
            ]
    return sorted(found)


def meets(members: dict[str, Any], lon: float, lat: float, text: str) -> bool:
    """Whether a place and a text satisfy a query."""
    if "text" in members and not holds(members["text"], tokens_of(text)):
        return False
    return "region" not in members or Region(members["region"]).contains(lon, lat)


def attributes_of(attributes: bytes) -> dict[str, Any]:
    """The attributes of an object."""
    return orjson.loads(attributes) if attributes else {}
