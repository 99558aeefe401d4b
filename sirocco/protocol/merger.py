"""The merger: owns Kafka partitions of `partials`, writes their twins in `deliveries` (rule R5).

What evaluators found is taken by interval, so a match counts once whoever reported it and however
often. What has been taken is written in windows: one transaction holds the deliveries of a window
and, last, the progress that they stand for. A successor fences the predecessor, reads the last
progress, and goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.ragged import take_ragged
from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.effects import (
    Committed,
    ControlRead,
    Draining,
    Effect,
    Event,
    Fence,
    Fenced,
    Follow,
    Load,
    Loaded,
    Polled,
    Tick,
    Transact,
    Truncate,
)
from sirocco.protocol.found import MATCH_BYTES, OBJECT_BYTES, PIECE_BYTES_MAX
from sirocco.protocol.messages import (
    DELIVERIES,
    PARTIALS,
    Delivered,
    EventColumns,
    Found,
    MatchColumns,
    Message,
    Progress,
    QueryNames,
)
from sirocco.protocol.owned import Holdings
from sirocco.protocol.positions import NO_TIME_MS, Reached

# A transaction costs 0.5 ms here and 2 ms at the broker whatever it holds: at most 20 a second and
# Kafka partition, 5 % of a core. After a pause the first matches go at once.
WINDOW_MS = 50

# A window that holds so many matches is written at once: a record each 100,000 or so would exceed
# what the log takes.
WINDOW_MATCHES_MAX = 50_000

# With nothing but marks the progress is written at this interval: somebody may wait for it, and a
# successor does not read the whole of an idle hour again.
PROGRESS_INTERVAL_MS = 200


@dataclass(frozen=True, slots=True)
class MergerSettings:
    """What all mergers of a cluster have in common.

    Attributes:
        retained_bytes_max: how much each Kafka partition of `deliveries` keeps at least for
            subscribers that are behind, and at most twice as much; those further behind get a
            typed error.
    """

    retained_bytes_max: int = 1 << 30


@dataclass(slots=True)
class Window:
    """One owned Kafka partition of `partials`."""

    input_offset: int
    reached: Reached
    written_offset: int
    written_ms: int
    parts: list[Found] = field(default_factory=list)
    matches: int = 0
    # Number of the open transaction, 0 while there is none.
    committing: int = 0
    # What is kept in `deliveries`: (end offset, bytes) of each window, oldest first.
    retained: deque[tuple[int, int]] = field(default_factory=deque)
    retained_bytes: int = 0


class MergerMachine:
    """`step(event, now_ms) -> effects`."""

    def __init__(self, member: str, settings: MergerSettings) -> None:
        self.holdings = Holdings(member, frozenset({PARTIALS}))
        self.windows: dict[int, Window] = {}
        self.matches_total = 0
        self.repeats_total = 0
        self._settings = settings
        self._transactions = 0

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""
        match event:
            case Polled():
                self._polled(event)
                return self._write(now_ms)
            case Tick():
                return self._write(now_ms)
            case Committed():
                return self._committed(event, now_ms)
            case Fenced():
                return self._fenced(event)
            case ControlRead():
                return self._control(event)
            case Loaded():
                return self._loaded(event, now_ms)
            case Draining():
                return self._write(now_ms, at_once=True)
            case _:
                raise TypeError(f"a merger takes no {type(event).__name__}")

    def deadline_ms(self) -> int | None:
        """When the next window is due; None while nothing waits or all are being written."""
        waiting = (w for w in self.windows.values() if w.parts and not w.committing)
        return min((w.written_ms + WINDOW_MS for w in waiting), default=None)

    def _polled(self, event: Polled) -> None:
        for entry in event.entries:
            window = self.windows.get(entry.partition)
            if window is None or not isinstance(entry.message, Found):
                continue
            window.input_offset = entry.offset + 1
            fresh = self._fresh(window, entry.message)
            if fresh is not None:
                window.parts.append(fresh)
                window.matches += len(fresh.matches)
                self.matches_total += len(fresh.matches)

    def _fresh(self, window: Window, found: Found) -> Found | None:
        """What of a record was not taken before; None when nothing is left."""
        fresh_from = window.reached.accept(found.intervals)
        if not len(found.matches):
            return None
        is_fresh = found.positions >= fresh_from[found.interval_rows]
        if is_fresh.all():
            return found
        kept = is_fresh[found.matches.objects]
        self.repeats_total += int(len(kept) - kept.sum())
        if not kept.any():
            return None
        # Objects and names that no match refers to any more are left out when it is written.
        matches = MatchColumns(found.matches.objects[kept], found.matches.queries[kept])
        return Found(
            found.intervals,
            found.objects,
            found.events,
            found.positions,
            found.interval_rows,
            found.queries,
            matches,
        )

    def _write(self, now_ms: int, *, at_once: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for partition, window in self.windows.items():
            if not window.committing and self._is_due(window, now_ms, at_once):
                effects.append(self._close(partition, window, now_ms))
        return effects

    def _is_due(self, window: Window, now_ms: int, at_once: bool) -> bool:
        if window.input_offset == window.written_offset:
            return False
        if at_once or window.matches >= WINDOW_MATCHES_MAX:
            return True
        if window.parts:
            return now_ms - window.written_ms >= WINDOW_MS
        return now_ms - window.written_ms >= PROGRESS_INTERVAL_MS

    def _close(self, partition: int, window: Window, now_ms: int) -> Transact:
        messages: list[Message] = list(deliveries(window.parts))
        slots = sorted(window.reached.positions.keys() | window.reached.times_ms.keys())
        messages.append(
            Progress(
                window.input_offset,
                np.array(slots, np.uint32),
                np.array([window.reached.positions.get(s, 0) for s in slots], np.int64),
                np.array([window.reached.times_ms.get(s, NO_TIME_MS) for s in slots], np.int64),
            )
        )
        window.parts, window.matches = [], 0
        self._transactions += 1
        window.committing = self._transactions
        window.written_offset, window.written_ms = window.input_offset, now_ms
        return Transact(partition, window.committing, tuple(messages))

    def _committed(self, event: Committed, now_ms: int) -> list[Effect]:
        window = self.windows.get(event.partition)
        if window is None or window.committing != event.number:
            return []
        window.committing = 0
        effects: list[Effect] = [Truncate(PARTIALS, event.partition, window.written_offset)]
        window.retained.append((event.end_offset, event.bytes_total))
        window.retained_bytes += event.bytes_total
        before = 0
        # The newest window stays, however large: its progress is what a successor starts from.
        while (
            window.retained_bytes > 2 * self._settings.retained_bytes_max
            and len(window.retained) > 1
        ):
            before, size = window.retained.popleft()
            window.retained_bytes -= size
        if before:
            effects.append(Truncate(DELIVERIES, event.partition, before))
        return effects + self._write(now_ms)

    def _fenced(self, event: Fenced) -> list[Effect]:
        window = self.windows.get(event.partition)
        if window is None or window.committing != event.number:
            return []
        # By `control`, as far as it was read, this process is the owner. Either that is out of date
        # and the next records say so, or a process that stood still has fenced upon an old grant
        # and has gone by now: then nobody but this one goes on, from the last progress.
        del self.windows[event.partition]
        return self._behind_fences(self.holdings.reload(PARTIALS, event.partition))

    def _control(self, event: ControlRead) -> list[Effect]:
        effects, lost = self.holdings.control(event.offset, event.declaration)
        for _, partition in lost:
            self.windows.pop(partition, None)
        return self._behind_fences(effects)

    @staticmethod
    def _behind_fences(effects: list[Effect]) -> list[Effect]:
        fenced: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Load):
                # The predecessor's last transaction is over before its progress is read.
                fenced.append(Fence(effect.partition))
            fenced.append(effect)
        return fenced

    def _loaded(self, event: Loaded, now_ms: int) -> list[Effect]:
        if not self.holdings.loaded(event):
            return []
        reached = Reached()
        if event.state is not None:
            slots = event.state["slots"].tolist()
            times_ms = event.state["times_ms"].tolist()
            positions = event.state["positions"].tolist()
            reached.positions = dict(zip(slots, positions, strict=True))
            reached.times_ms = {
                slot: time_ms
                for slot, time_ms in zip(slots, times_ms, strict=True)
                if time_ms != NO_TIME_MS
            }
        window = Window(event.offset, reached, event.offset, now_ms)
        if event.state is not None:
            # How large it is what predecessors left is not known: it counts as full, and goes when
            # as much again has been written.
            window.retained.append((int(event.state["end"][0]), self._settings.retained_bytes_max))
            window.retained_bytes = self._settings.retained_bytes_max
        self.windows[event.partition] = window
        return [Follow(PARTIALS, event.partition, event.offset)]


def bytes_of(part: Found) -> int:
    """What a part takes in a record at most, bytes."""
    ragged = (part.objects.text, part.objects.attributes, part.objects.names, part.queries.ids)
    fixed = len(part.objects) * OBJECT_BYTES + len(part.matches) * MATCH_BYTES
    return fixed + sum(len(column) for column in ragged)


def deliveries(parts: list[Found]) -> Iterator[Delivered]:
    """Turns what was found into records for subscribers, as few as fit."""
    group: list[Found] = []
    size = 0
    for part in parts:
        part_bytes = bytes_of(part)
        # A part is at most as large as one record: the evaluator has cut it.
        if group and size + part_bytes > PIECE_BYTES_MAX:
            yield _delivered(group)
            group, size = [], 0
        group.append(part)
        size += part_bytes
    if group:
        yield _delivered(group)


def _delivered(parts: list[Found]) -> Delivered:
    objects, events, names, matches = _joined(parts)
    owners = names.subscriber_rows[matches.queries]
    if len(names.subscribers) == 1:
        bounds = np.array([0, len(matches)], np.int64)
    else:
        order = np.argsort(owners, kind="stable")
        matches = MatchColumns(matches.objects[order], matches.queries[order])
        counts = np.bincount(owners, minlength=len(names.subscribers))
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return compacted(Delivered(objects, events, names, matches, bounds))


def _joined(
    parts: list[Found],
) -> tuple[ObjectColumns, EventColumns, QueryNames, MatchColumns]:
    if len(parts) == 1:
        part = parts[0]
        return part.objects, part.events, part.queries, part.matches
    object_bases = np.cumsum([0, *(len(part.objects) for part in parts[:-1])])
    query_bases = np.cumsum([0, *(len(part.queries) for part in parts[:-1])])
    numbers: dict[str, int] = {}
    subscriber_rows = []
    for part in parts:
        own = [numbers.setdefault(name, len(numbers)) for name in part.queries.subscribers]
        subscriber_rows.append(np.array(own, np.uint32)[part.queries.subscriber_rows])
    lengths = np.concatenate([np.diff(part.queries.id_offsets) for part in parts])
    id_offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=id_offsets[1:])
    pairs = [part.matches for part in parts]
    return (
        concat([part.objects for part in parts]),
        EventColumns.concat([part.events for part in parts]),
        QueryNames(
            np.concatenate([part.queries.handles for part in parts]),
            np.concatenate([part.queries.ids for part in parts]),
            id_offsets,
            np.concatenate(subscriber_rows),
            tuple(numbers),
        ),
        MatchColumns(
            np.concatenate(
                [m.objects + base for m, base in zip(pairs, object_bases, strict=True)]
            ).astype(np.uint32),
            np.concatenate(
                [m.queries + base for m, base in zip(pairs, query_bases, strict=True)]
            ).astype(np.uint32),
        ),
    )


def compacted(delivered: Delivered) -> Delivered:
    """Leaves out the objects and names that no match refers to."""
    matches = delivered.matches
    objects, object_rows = _used(matches.objects, len(delivered.objects))
    queries, query_rows = _used(matches.queries, len(delivered.queries))
    if objects is None and queries is None:
        return delivered
    kept_objects, kept_events = delivered.objects, delivered.events
    if objects is not None:
        kept_objects, kept_events = kept_objects.take(objects), kept_events.take(objects)
    return Delivered(
        kept_objects,
        kept_events,
        delivered.queries if queries is None else take_names(delivered.queries, queries),
        MatchColumns(object_rows, query_rows),
        delivered.match_offsets,
    )


def of_subscriber(delivered: Delivered, subscriber: str) -> Delivered | None:
    """The part of a record that is one subscriber's; None when it has none."""
    if subscriber not in delivered.queries.subscribers:
        return None
    row = delivered.queries.subscribers.index(subscriber)
    begin, end = delivered.match_offsets[row : row + 2].tolist()
    if begin == end:
        return None
    if len(delivered.queries.subscribers) == 1:
        return delivered
    matches = MatchColumns(
        delivered.matches.objects[begin:end], delivered.matches.queries[begin:end]
    )
    names = QueryNames(
        delivered.queries.handles,
        delivered.queries.ids,
        delivered.queries.id_offsets,
        np.zeros(len(delivered.queries), np.uint32),
        (subscriber,),
    )
    bounds = np.array([0, end - begin], np.int64)
    return compacted(Delivered(delivered.objects, delivered.events, names, matches, bounds))


def take_names(names: QueryNames, rows: NDArray[np.integer]) -> QueryNames:
    """Some of the names, in the given order."""
    offsets, places = take_ragged(names.id_offsets, rows)
    return QueryNames(
        names.handles[rows],
        names.ids[places],
        offsets,
        names.subscriber_rows[rows],
        names.subscribers,
    )


def _used(
    references: NDArray[np.uint32], count: int
) -> tuple[NDArray[np.intp] | None, NDArray[np.uint32]]:
    """The rows that are referred to (None: all of them), and the references into them."""
    is_used = np.zeros(count, np.bool_)
    is_used[references] = True
    if is_used.all():
        return None, references
    places = np.cumsum(is_used) - 1
    return np.flatnonzero(is_used), places[references].astype(np.uint32)
