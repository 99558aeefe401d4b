"""Checks the events of queries with `track`, by the simplest rules, over the slots' copies.

A value's copies are in the log of one slot, in order of arrival. While a slot holds a version of a
query, each copy gives at most one event of its value: it enters, is inside, or has left. A version
that continues an earlier one keeps that one's values, as far as they satisfy it at their last
place; for all others a leave is reported. So it is for values inside when the query is removed, or
when the slot's time is past its lifetime.

A version with `dwell` or `leave_after` reports an enter or leave later: when the slot's time is
past it, or before the value's next copy that arrived later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from sirocco.index.base.kinds import KIND_TRACKED
from sirocco.model.query import RangeQuery, canonical, query_handle
from sirocco.protocol.contract.columns import ENTERS, LEAVES, STAYS
from sirocco.protocol.contract.messages import Routed
from sirocco.protocol.contract.track_values import hash_of, track_value
from tests.oracle import Members
from tests.simulation.query_versions import EventKey, QueryVersion
from tests.simulation.slot_truth import SlotTruth
from tests.simulation.world import World

# After all copies of a record.
_BEHIND = 1 << 30

# How far a slot's time may be past a lifetime before its end must have been reported.
_ON_ITS_WAY_MS = 10_000

EVENTS = {ENTERS: "enter", STAYS: "inside", LEAVES: "exit"}

# Offset and row in a slot's log, and the object.
Copy = tuple[int, int, EventKey]

# With the event, and whether it must have been reported.
Wanted = tuple[Copy, str, bool]


@dataclass(frozen=True, slots=True)
class Visit:
    """A value inside a query.

    Attributes:
        key: its newest object that was inside.
        has_entered: its enter was due.
        since_ms: when it came inside, or went outside after its enter; None: nothing is awaited.
    """

    key: EventKey
    has_entered: bool = True
    since_ms: int | None = None


class Followed(Protocol):
    """The facts about a published object."""

    members: Members
    places: dict[int, tuple[int, int]]
    begin_ms: float
    end_ms: float
    arrival_ms: int


@dataclass(slots=True)
class MemberDeclarations:
    """When a query tracks a member: from its acknowledgement to the request of another change."""

    member: str
    begin_ms: float
    end_ms: float = float("inf")

    def holds(self, published: Followed) -> bool:
        """Returns whether it was published after the begin and acknowledged before the end."""
        return self.begin_ms < published.begin_ms and published.end_ms < self.end_ms


class TrackLedger:
    """Records copies and events and checks them in the end."""

    def __init__(
        self,
        world: World,
        truth: SlotTruth,
        objects: Mapping[EventKey, Followed],
        satisfies: Callable[[dict[str, Any], EventKey], bool],
        fail: Callable[[str], None],
    ) -> None:
        self._world = world
        self._truth = truth
        self._objects = objects
        self._satisfies = satisfies
        self._fail = fail
        # (slot, member, value) → its copies in log order.
        self._copies: dict[tuple[int, str, object], list[Copy]] = defaultdict(list)
        self.spans: list[MemberDeclarations] = []
        # (subscriber, query handle) → events in the order of `deliveries`.
        self._sent: dict[tuple[str, int], list[tuple[EventKey, str]]] = defaultdict(list)

    @property
    def events_total(self) -> int:
        """How many events were reported."""
        return sum(map(len, self._sent.values()))

    def copied(
        self, slot: int, offset: int, row: int, member: str, found: int, key: EventKey
    ) -> None:
        """Records a copy of an object in the log of a slot, for a value with this hash."""
        value = track_value(self._objects[key].members.get(member))
        if value is None or hash_of(member, value) != found:
            self._fail(f"object {key} is copied for a value of {member} that it has not")
            return
        copies = self._copies[slot, member, _kind(value)]
        if any(known == key for _, _, known in copies):
            self._fail(f"object {key} is copied twice for {member} to slot {slot}")
        copies.append((offset, row, key))

    def add_sent(self, subscriber: str, handle: int, key: EventKey, change: int) -> None:
        """Records a delivered event."""
        self._sent[subscriber, handle].append((key, EVENTS[change]))

    # --- the checks

    def check(self, versions: Callable[[int], list[QueryVersion]]) -> None:
        """Compares all events with the required ones.

        Args:
            versions: of a query, by its handle.
        """
        self._check_copies()
        for query_id in self._world.life_starts:
            handle = query_handle(query_id)
            registered = [each for each in versions(handle) if each.kind == KIND_TRACKED]
            wanted = self._wanted(registered)
            for subscriber in sorted({version.subscriber for version in registered}):
                reported = self._sent.pop((subscriber, handle), [])
                own = {slot: each for (slot, name), each in wanted.items() if name == subscriber}
                self._check_query(f"{query_id} of {subscriber}", own, reported)
        for subscriber, handle in self._sent:
            self._fail(f"{subscriber} was sent events of {handle}, which never tracked for it")

    def _check_copies(self) -> None:
        for (slot, member, (_, value)), copies in self._copies.items():
            if slot != hash_of(member, value) % self._world.shape.slots:  # type: ignore[has-type]
                self._fail(f"copies for {member} {value!r} lie in slot {slot}")  # type: ignore[has-type]
            for _, _, key in copies:
                if not self._objects[key].places:
                    self._fail(f"of object {key} there is but a copy")
        for key, published in self._objects.items():
            for member in sorted({span.member for span in self.spans if span.holds(published)}):
                value = track_value(published.members.get(member))
                is_due = published.places and value is not None
                if is_due and not self._has_copy(key, member, value):
                    self._fail(f"object {key} is not followed by {member}")

    def _has_copy(self, key: EventKey, member: str, value: Any) -> bool:
        slot = hash_of(member, value) % self._world.shape.slots
        return any(known == key for _, _, known in self._copies[slot, member, _kind(value)])

    def _check_query(
        self, name: str, wanted: dict[int, list[Wanted]], sent: list[tuple[EventKey, str]]
    ) -> None:
        due = Counter(
            (copy[2], event) for s in wanted.values() for copy, event, is_due in s if is_due
        )
        most = Counter((copy[2], event) for s in wanted.values() for copy, event, _ in s)
        missing, strange = list(due - Counter(sent)), list(Counter(sent) - most)
        if missing or strange:
            self._fail(f"{name}: not sent {missing[:3]}, sent without reason {strange[:3]}")
        for slot, each in wanted.items():
            begin = 0
            for _, together in groupby(sorted(each), lambda one: one[0][:2]):
                places = [
                    sent.index(pair, begin) if pair in sent[begin:] else -1
                    for pair in [(copy[2], event) for copy, event, is_due in together if is_due]
                ]
                if -1 in places:
                    self._fail(f"{name}: events of slot {slot} are not in order")
                # Values that leave at one position of the log do so in any order.
                begin = max([begin, *(place + 1 for place in places)])

    def _wanted(self, registered: list[QueryVersion]) -> dict[tuple[int, str], list[Wanted]]:
        """Returns the events to report, by slot and subscriber; some need not have arrived yet."""
        wanted: dict[tuple[int, str], list[Wanted]] = defaultdict(list)
        for (slot, member, _), copies in self._copies.items():
            before: QueryVersion | None = None
            inside: Visit | None = None
            for version in [each for each in registered if slot in each.stays]:
                query, stay = version.query, version.stays[slot]
                assert isinstance(query, RangeQuery)
                if query.track != member:
                    continue
                if (
                    inside is not None
                    and before is not None
                    and not self._goes_on(before, version, slot, inside.key)
                ):
                    self._leave(wanted, before, slot, (before.stays[slot].end, -1), inside)
                    inside = None
                reported, inside = self._events(version, slot, copies, inside)
                wanted[slot, version.subscriber] += reported
                before = version
                over = self._over_at(version, slot)
                if inside is not None and over is not None:
                    place, is_due = (over[0], _BEHIND), over[1]
                    self._leave(wanted, version, slot, place, inside, is_due=is_due)
                    inside = None
                elif inside is not None and stay.end is None:
                    before = inside = None
            if inside is not None and before is not None:
                self._leave(wanted, before, slot, (before.stays[slot].end, -1), inside)
        return wanted

    def _over_at(self, version: QueryVersion, slot: int) -> tuple[int, bool] | None:
        """Returns the record that ended its lifetime there, and whether that must be reported."""
        stay = version.stays[slot]
        passed = self._truth.passed_at(slot, version.expires_ms)
        if passed is None or (stay.end is not None and passed >= stay.end):
            return None
        is_old = self._truth.time_ms(slot) > version.expires_ms + _ON_ITS_WAY_MS
        return max(passed, stay.begin), is_old or stay.end is not None

    def _leave(
        self,
        wanted: dict[tuple[int, str], list[Wanted]],
        version: QueryVersion,
        slot: int,
        place: tuple[int | None, int],
        inside: Visit,
        *,
        is_due: bool = True,
    ) -> None:
        """Ends the stay of a value inside a version."""
        offset, row = place
        assert offset is not None
        query = version.query
        assert isinstance(query, RangeQuery)
        if "exit" in query.events and inside.has_entered:
            wanted[slot, version.subscriber].append(((offset, row, inside.key), "exit", is_due))

    def _goes_on(
        self, before: QueryVersion, version: QueryVersion, slot: int, inside: EventKey
    ) -> bool:
        """Returns whether a value inside one version is inside the next."""
        goes_on = 0 <= version.since <= before.revision
        if not goes_on or before.subscriber != version.subscriber:
            return False
        if before.stays[slot].end != version.stays[slot].begin:
            return False
        arrival_ms = self._objects[inside].arrival_ms
        if not version.lives_at(arrival_ms):
            return False
        return self._satisfies(canonical(version.query), inside)

    def _events(
        self, version: QueryVersion, slot: int, copies: list[Copy], inside: Visit | None
    ) -> tuple[list[Wanted], Visit | None]:
        """Returns a version's events for one value, and where that is at the end."""
        stay, query = version.stays[slot], version.query
        assert isinstance(query, RangeQuery)
        found: list[Wanted] = []
        for copy in copies:
            offset, _, key = copy
            if offset < stay.begin or (stay.end is not None and offset > stay.end):
                continue
            if not version.lives_at(self._objects[key].arrival_ms):
                continue
            waited, inside = self._waited(version, slot, inside, copy)
            found += waited
            events, inside = self._moved(query, key, inside)
            if event := next((each for each in events if each in query.events), None):
                found.append((copy, event, True))
        waited, inside = self._waited(version, slot, inside, None)
        return found + waited, inside

    def _moved(
        self, query: RangeQuery, key: EventKey, inside: Visit | None
    ) -> tuple[list[str], Visit | None]:
        """Returns the event of an object, the first that is asked for, and its value's visit."""
        arrival_ms = self._objects[key].arrival_ms
        if self._satisfies(canonical(query), key):
            if inside is None and query.dwell_ms:
                return [], Visit(key, has_entered=False, since_ms=arrival_ms)
            if inside is not None and not inside.has_entered:
                return [], replace(inside, key=key)
            return ["inside"] if inside else ["enter", "inside"], Visit(key)
        if inside is None or not inside.has_entered:
            return [], None
        if query.leave_after_ms:
            since_ms = arrival_ms if inside.since_ms is None else inside.since_ms
            return [], replace(inside, since_ms=since_ms)
        return ["exit"], None

    def _waited(
        self, version: QueryVersion, slot: int, inside: Visit | None, copy: Copy | None
    ) -> tuple[list[Wanted], Visit | None]:
        """Returns what is reported before a copy, or at the end: the wait for it is over."""
        query, stay = version.query, version.stays[slot]
        assert isinstance(query, RangeQuery)
        if inside is None or inside.since_ms is None:
            return [], inside
        wait_ms = query.leave_after_ms if inside.has_entered else query.dwell_ms
        due_ms = inside.since_ms + (wait_ms or 0)
        passed = self._truth.passed_at(slot, due_ms)
        offset = None if passed is None else max(passed, stay.begin)
        if offset is not None and stay.end is not None and offset >= stay.end:
            offset = None
        place = None if offset is None else (offset, _BEHIND)
        is_due = stay.end is not None or self._truth.time_ms(slot) > due_ms + _ON_ITS_WAY_MS
        if copy is not None and (offset is None or offset >= copy[0]):
            place = copy[:2] if self._objects[copy[2]].arrival_ms > due_ms else None
        if place is None or due_ms >= version.expires_ms:
            return [], inside
        events = ["exit"] if inside.has_entered else ["enter", "inside"]
        event = next((each for each in events if each in query.events), None)
        after = None if inside.has_entered else Visit(inside.key)
        waited: list[Wanted] = []
        if event is not None:
            waited.append(((*place, inside.key), event, copy is not None or is_due))
        return waited, after


def values_of(routed: Routed, row: int) -> list[tuple[str, int]]:
    """Returns the values for which a copy is here: members and hashes."""
    assert routed.tracks is not None
    assert routed.track_values is not None
    named = [(int(routed.tracks[row]), int(routed.track_values[row]))]
    further = None if routed.further is None else routed.further.of(row, row + 1)
    if further is not None:
        named += zip(further.tracks.tolist(), further.values.tolist(), strict=True)
    return [(routed.track_keys[number - 1], value) for number, value in named]


def _kind(value: Any) -> tuple[str, Any]:
    """Returns a value as a key: true is not 1."""
    return type(value).__name__, value
