"""Checks which notifications must, may and must not be sent: brute force over the clients' calls.

An object meets a query at some time between the begin of its first publish call and the time when
the last of its slots has it in its log. A version of a query may be in force from the begin of the
call that asked for it to the acknowledgement of the call that replaced it. If all versions that may
be in force at the object's time match it, there is exactly one notification; if none does, there is
none; otherwise there is at most one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from sirocco.model.durations import parse_duration_ms
from sirocco.model.query import query_handle
from sirocco.model.text import tokens_of
from sirocco.protocol.contract.columns import MATCHES
from sirocco.protocol.contract.messages import (
    DELIVERIES,
    INTAKE,
    NO_PAST,
    NO_REVISION,
    REGISTRY,
    SLOTS,
    Change,
    Delivered,
    Installed,
    IntakeObjects,
    Message,
    Routed,
)
from sirocco.protocol.contract.poison_trials import DEATHS_MAX
from tests.oracle import Members, Region, holds, satisfies, text_holds
from tests.simulation.end_ledger import EndLedger
from tests.simulation.list_ledger import ListLedger, sent_lists
from tests.simulation.log import SimLog, Stored
from tests.simulation.query_versions import EventKey, QueryVersion, versions_of
from tests.simulation.search_ledger import SearchLedger
from tests.simulation.slot_truth import SlotTruth
from tests.simulation.track_ledger import MemberDeclarations, TrackLedger, values_of
from tests.simulation.world import Act, Stream, World


class BrokenPromiseError(AssertionError):
    """A promise was broken; the text says which."""


@dataclass(slots=True, kw_only=True)
class Published:
    """One object."""

    members: Members
    words: list[str]
    begin_ms: float = float("inf")
    end_ms: float = float("inf")
    # The positions of its home: slot → (offset, row) in its log.
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Slots that it reached only by a term.
    visited: set[int] = field(default_factory=set)
    done_ms: float = 0.0
    arrival_ms: int = 0
    # Its position in its intake partition, and since when its home has it.
    source: int = 0
    position: int = 0
    home_ms: float = 0.0
    # When the intake had it, the last time that it was sent.
    taken_ms: float = 0.0

    @property
    def is_held_back(self) -> bool:
        """Returns whether no slot has it though it was acknowledged: no query needs it."""
        is_taken = self.taken_ms > 0 and self.end_ms != float("inf")
        return is_taken and not self.places and not self.visited

    @property
    def when(self) -> str:
        """Returns its times, for error messages."""
        return f"published {self.begin_ms:.0f}-{self.done_ms:.0f} ms"


@dataclass(slots=True, kw_only=True)
class Version:
    """A query from one change to the next; without members there is no query."""

    members: Members | None
    subscriber: str
    begin_ms: float
    end_ms: float = float("inf")
    past_ms: int = NO_PAST
    is_start_given: bool = False
    # Begin and end of its lifetime by the log; None while unknown.
    start_ms: int | None = None
    expires_ms: int | None = None
    found: dict[EventKey, bool] = field(default_factory=dict)
    # Objects in its region; None before the first look-up.
    inside: frozenset[EventKey] | None = None
    # Whether each matching object is reported by itself.
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        members = self.members or {}
        self.is_plain = members.get("kind") == "range" and "track" not in members


@dataclass(slots=True)
class Delivery:
    """One notification in `deliveries`."""

    partition: int
    subscriber: str
    object_id: int


class Ledger:
    """Records what happens and checks it in the end."""

    def __init__(self, log: SimLog, world: World) -> None:
        self._log = log
        self._world = world
        self.objects: dict[EventKey, Published] = {}
        for stream in world.streams:
            for number, members in enumerate(stream.members, 1):
                words = tokens_of(members.get("text") or "")
                self.objects[stream.session, number] = Published(members=members, words=words)
        self.versions = {
            query_id: [Version(members=None, subscriber="", begin_ms=-1.0)]
            for query_id in world.life_starts
        }
        self.names = {query_handle(query_id): query_id for query_id in world.life_starts}
        self.deliveries: dict[tuple[int, int, int], Delivery] = {}
        # Subscriber → all notifications, in the order of `deliveries`.
        self.sent: dict[str, list[Any]] = defaultdict(list)
        # (subscriber, query handle, event), in the order of `deliveries`.
        self.orders: list[tuple[str, int, EventKey]] = []
        self.slots = SlotTruth(world.shape.intake)
        self.lists = ListLedger(log, world, self.objects, self.fail)
        self.searches = SearchLedger(log, world, self.objects, self.slots, self.fail)
        self.tracks = TrackLedger(world, self.slots, self.objects, self._satisfies, self.fail)
        # Query → since when it tracks a member, until a change is asked for.
        self._tracking: dict[str, MemberDeclarations] = {}
        self.ends = EndLedger(log, world, self.slots, self.fail)
        self._stores = world.shape.store
        # Objects that end every evaluator that matches them.
        self.poison: frozenset[EventKey] = frozenset()
        # Objects in records that are set aside: no promise holds for them.
        self._aside: set[EventKey] = set()
        # Changes by ids that collide with others.
        self.rivals_refused = 0
        log.listeners.append(self._landed)

    def fail(self, why: str) -> None:
        """Reports a broken promise."""
        raise BrokenPromiseError(why)

    # --- what clients do

    def publish_begins(self, session: int, number: int) -> None:
        """Records that a number is sent, for the first time or again."""
        published = self.objects[session, number]
        published.begin_ms = min(published.begin_ms, self._log.scheduler.now_ms)

    def publish_ends(self, stream: Stream, first: int, last: int) -> None:
        """Records that numbers are acknowledged."""
        for number in range(first, last + 1):
            self.objects[stream.session, number].end_ms = self._log.scheduler.now_ms

    def change_begins(self, query_id: str, act: Act) -> None:
        """Records that a change is asked for, for the first time."""
        now_ms = self._log.scheduler.now_ms
        if (span := self._tracking.pop(query_id, None)) is not None:
            span.end_ms = min(span.end_ms, now_ms)
        version = Version(
            members=act.members,
            subscriber=act.subscriber,
            begin_ms=now_ms,
            past_ms=act.past_ms,
            is_start_given=act.starts_in_ms is not None,
        )
        self.versions[query_id].append(version)

    def is_acknowledged(self, query_id: str) -> bool:
        """Returns whether the first registration of a query is acknowledged."""
        return self.versions[query_id][0].end_ms != float("inf")

    def change_ends(self, query_id: str, revision: int, *, is_by_clock: bool = False) -> None:
        """Records that the newest change is acknowledged: the former version is over.

        Args:
            query_id: of the query.
            revision: of the change.
            is_by_clock: there was nothing to remove, since the lifetime was over by the clock of
                the asked router. By another's it may not be over, until the next change.
        """
        *former, version = self.versions[query_id]
        for each in [] if is_by_clock else former:
            each.end_ms = min(each.end_ms, self._log.scheduler.now_ms)
        if revision == NO_REVISION:
            return
        if behind := self.slots.behind(query_handle(query_id), revision):
            self.fail(f"a change of {query_id} was acknowledged, and slots {behind} have an older")
        if version.members is None:
            return
        partition = query_handle(query_id) % self._world.shape.registry
        records = self._log.partition(REGISTRY, partition).records
        change = records[revision].message
        assert isinstance(change, Change)
        assert change.handle == query_handle(query_id)
        # An equal registration changes nothing: the first one's begin stays.
        version.start_ms, version.is_start_given = change.start_ms, change.is_start_given
        if "track" in version.members:
            span = MemberDeclarations(version.members["track"], self._log.scheduler.now_ms)
            self._tracking[query_id] = span
            self.tracks.spans.append(span)
        if "ttl" in version.members:
            ttl_ms = parse_duration_ms(version.members["ttl"], "ttl")
            version.expires_ms = change.start_ms + ttl_ms
            if "track" in version.members:
                span.end_ms = version.expires_ms

    def change_refused(self, query_id: str, *, is_over: bool) -> None:
        """Records that the newest change was refused because the query's lifetime is over.

        Args:
            query_id: of the query.
            is_over: it may be the lifetime of the newest version itself, which was then in force
                without an acknowledgement.
        """
        *_, former, version = self.versions[query_id]
        version.end_ms = self._log.scheduler.now_ms
        if not is_over:
            # There was no query to change: the version was never in force.
            version.members = None
        if is_over and "ttl" not in (former.members or {}):
            former.end_ms = version.end_ms

    # --- the contents of the log

    def _landed(self, topic: str, partition: int, stored: Stored) -> None:
        message: Message = stored.message
        if topic == INTAKE and isinstance(message, IntakeObjects):
            deltas = message.number_deltas
            for delta in range(message.span) if deltas is None else deltas.tolist():
                key = message.session, message.first_number + delta
                self.objects[key].taken_ms = stored.landed_ms
        if topic == SLOTS and isinstance(message, Routed):
            self._routed(partition, stored, message)
        elif topic == SLOTS and isinstance(message, Installed):
            self.slots.installed(partition, stored.offset, message)
            self.ends.installed(partition, stored.offset, message)
        elif topic == DELIVERIES and isinstance(message, Delivered):
            self._delivered(partition, message)
            for subscriber, handle, reported in sent_lists(message):
                self.sent[subscriber].append((handle, reported))
                if reported.ended:
                    self.ends.add_sent(subscriber, handle, reported.ended)
            self.lists.delivered(message)

    def _routed(self, slot: int, stored: Stored, routed: Routed) -> None:
        fresh_from = self.slots.routed(slot, routed)
        self.slots.note_time(slot, stored.offset)
        self.searches.routed(slot, stored.offset)
        for row in range(len(routed.objects)):
            fresh = fresh_from[int(routed.interval_rows[row])]
            if fresh is None or int(routed.positions[row]) < fresh:
                continue
            key = int(routed.events.sessions[row]), int(routed.events.numbers[row])
            if routed.tracks is not None and routed.tracks[row]:
                for member, value in values_of(routed, row):
                    self.tracks.copied(slot, stored.offset, row, member, value, key)
                continue
            published = self.objects[key]
            published.done_ms = max(published.done_ms, stored.landed_ms)
            if slot in published.places or slot in published.visited:
                self.fail(f"object {key} stands twice in slot {slot}")
            if routed.homes is not None and not routed.homes[row]:
                published.visited.add(slot)
                published.arrival_ms = int(routed.events.arrivals_ms[row])
                continue
            if published.places:
                self.fail(f"object {key} is at home twice, in slots {[*published.places, slot]}")
            published.places[slot] = stored.offset, row
            published.source = int(routed.intervals.sources[routed.interval_rows[row]])
            published.position = int(routed.positions[row])
            published.home_ms = stored.landed_ms
            published.arrival_ms = int(routed.events.arrivals_ms[row])

    def _delivered(self, partition: int, delivered: Delivered) -> None:
        queries, matches = delivered.queries, delivered.matches
        changes = np.zeros(len(matches), np.uint8) if matches.changes is None else matches.changes
        for object_row, query_row, change in zip(
            matches.objects.tolist(), matches.queries.tolist(), changes.tolist(), strict=True
        ):
            handle = int(queries.handles[query_row])
            event = (
                int(delivered.events.sessions[object_row]),
                int(delivered.events.numbers[object_row]),
            )
            key = handle, *event
            if handle not in self.names or event not in self.objects:
                self.fail(f"a notification of something unknown: {key}")
            name = self.names[handle]
            subscriber = queries.subscribers[int(queries.subscriber_rows[query_row])]
            self.sent[subscriber].append((*key, change))
            if change != MATCHES:
                self.tracks.add_sent(subscriber, handle, event, change)
                continue
            if key in self.deliveries:
                self.fail(f"{name} was notified twice of {event}")
            self.deliveries[key] = Delivery(
                partition, subscriber, int(delivered.objects.ids[object_row])
            )
            self.orders.append((subscriber, handle, event))

    def set_aside(self, slot: int, offset: int, ended_during: int) -> None:
        """Records that a record went to `dead-letters`.

        Args:
            slot, offset: its position.
            ended_during: how many evaluators ended or paused while they processed it alone.
        """
        message = self._log.partition(SLOTS, slot).records[offset].message
        keys: set[EventKey] = set()
        if isinstance(message, Routed):
            events = message.events
            keys = set(zip(events.sessions.tolist(), events.numbers.tolist(), strict=True))
        if self.poison.isdisjoint(keys) and ended_during < DEATHS_MAX:
            self.fail(f"record {offset} of slot {slot} was set aside, and ends nobody")
        self._aside |= keys

    # --- the checks

    def check(self) -> None:
        """Compares the deliveries with the required ones.

        Raises:
            BrokenPromiseError: the first promise found broken.
        """
        self._check_objects()
        self._check_order()
        present = self._present()
        for query_id in self.versions:
            self._check_query(query_id, present)
        self.lists.check(self._versions_of)
        self.tracks.check(self._versions_of)
        self.ends.check(self._versions_of, self.sent)
        self.searches.check()

    def _versions_of(self, handle: int) -> list[QueryVersion]:
        records = self._log.partition(REGISTRY, handle % self._world.shape.registry).records
        return versions_of(handle, self.slots, records)

    def _satisfies(self, members: Members, key: EventKey) -> bool:
        published = self.objects[key]
        if not matches(members, published):
            return False
        one = published.members
        return "region" not in members or Region(members["region"]).contains(one["lon"], one["lat"])

    def _check_objects(self) -> None:
        refused = {(s.session, number) for s in self._world.streams for number in s.refused}
        for key, published in self.objects.items():
            if key in refused:
                if published.places:
                    self.fail(f"object {key} was refused and yet routed")
            elif published.end_ms != float("inf") and not published.places and self._stores:
                self.fail(f"object {key} was acknowledged and is in no slot")
        for (_, session, number), delivery in self.deliveries.items():
            if delivery.object_id != self.objects[session, number].members["id"]:
                self.fail(f"object {session, number} was delivered with another's content")

    def _check_order(self) -> None:
        last: dict[tuple[str, int, int], tuple[int, int]] = {}
        for subscriber, handle, event in self.orders:
            if self.objects[event].visited:
                # It is not known which of its slots has reported it.
                continue
            for slot, place in self.objects[event].places.items():
                key = subscriber, handle, slot
                if place < last.get(key, (-1, -1)):
                    self.fail(f"{self.names[handle]}: notifications of slot {slot} out of order")
                last[key] = place

    def _present(self) -> dict[EventKey, Published]:
        """Returns the objects that are in some slot; no notification concerns others."""
        lost = {key for key, published in self.objects.items() if self._is_lost(published)}
        for handle, *event in self.deliveries:
            if tuple(event) in lost:
                self.fail(f"{self.names[handle]} was notified of {event}, which is in no slot")
        return {key: each for key, each in self.objects.items() if key not in lost}

    def _check_query(self, query_id: str, present: dict[EventKey, Published]) -> None:
        versions = self.versions[query_id]
        handle = query_handle(query_id)
        if not any(version.is_plain for version in versions):
            # Its matches are never reported one by one.
            present = {
                key: each for key, each in present.items() if (handle, *key) in self.deliveries
            }
        past = versions[1] if len(versions) > 1 else versions[0]
        # Included in any case, unless the third version may have replaced this one first.
        certain_ms = versions[2].begin_ms if len(versions) > 2 else float("inf")
        for key, published in present.items():
            begin_ms, done_ms = published.begin_ms, published.done_ms
            possible = [
                version
                for version in versions
                if version.begin_ms <= done_ms and version.end_ms >= begin_ms
            ]
            verdicts = {self._matches(version, key, published) for version in possible}
            if self._is_of_past(past, published) and self._matches(past, key, published):
                verdicts = {True} if done_ms <= certain_ms else {*verdicts, None}
                possible.append(past)
            if key in self._aside:
                verdicts.add(None)
            delivery = self.deliveries.get((handle, *key))
            if delivery is None:
                if verdicts == {True}:
                    self.fail(f"{query_id} was not notified of {key}, {published.when}")
                continue
            if verdicts == {False}:
                self.fail(f"{query_id} was notified of {key} without reason, {published.when}")
            if delivery.subscriber not in {version.subscriber for version in possible}:
                self.fail(f"{query_id}: {delivery.subscriber} was sent {key}, {published.when}")

    def _is_lost(self, published: Published) -> bool:
        """Returns whether an object is in no slot, as is allowed until it is acknowledged."""
        if self._stores or not published.is_held_back:
            return not published.places and not published.visited
        # It was decided by the records before it in the intake.
        published.done_ms = published.taken_ms
        return False

    @staticmethod
    def _is_of_past(version: Version, published: Published) -> bool:
        """Returns whether a version includes an object that arrived before it."""
        if version.past_ms == NO_PAST or version.start_ms is None:
            return False
        return published.arrival_ms >= version.start_ms - version.past_ms

    def _matches(self, version: Version, key: EventKey, published: Published) -> bool | None:
        members = version.members
        if members is None or not version.is_plain:
            return False
        if "ttl" in members:
            if version.expires_ms is None or published.is_held_back:
                return None
            if published.arrival_ms >= version.expires_ms:
                return False
        if version.is_start_given:
            if version.start_ms is None or published.is_held_back:
                return None
            if published.arrival_ms < version.start_ms - max(0, version.past_ms):
                return False
        if key not in version.found:
            version.found[key] = self._is_inside(version, key) and matches(members, published)
        return version.found[key]

    def _is_inside(self, version: Version, key: EventKey) -> bool:
        if version.inside is None:
            version.inside = frozenset(self._inside((version.members or {}).get("region")))
        return key in version.inside

    def _inside(self, region: Members | None) -> Iterable[EventKey]:
        """Returns all objects of a region at once: one by one they took long."""
        if region is None:
            return self.objects
        places = [(each.members["lon"], each.members["lat"]) for each in self.objects.values()]
        lon, lat = np.array(places, np.float64).T
        return compress(self.objects, Region(region).mask(lon, lat).tolist())


def matches(members: Members, published: Published) -> bool:
    """Returns whether an object of its region satisfies a query, by the contract's formulas."""
    one = published.members
    if members.get("fold"):
        if not text_holds(members, one.get("text") or ""):
            return False
    elif "text" in members and not holds(members["text"], published.words):
        return False
    return satisfies(members.get("where", {}), one)
