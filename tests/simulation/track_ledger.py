"""What queries with `track` must say: by the plain rules, over the copies in the logs of the slots.

A value's copies lie in the log of one slot, in the order in which they came. From where a version
of a query stands there, each copy tells at most one thing of its value: it enters, is inside, or
has left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sirocco.index.kinds import KIND_TRACKED
from sirocco.model.query import RangeQuery, canonical, query_handle
from sirocco.protocol.columns import ENTERS, LEAVES, STAYS
from sirocco.protocol.following import hash_of, track_value
from sirocco.protocol.messages import Routed
from tests.simulation.asked import Asked, EventKey
from tests.simulation.slot_truth import SlotTruth
from tests.simulation.world import World

EVENTS = {ENTERS: "enter", STAYS: "inside", LEAVES: "exit"}

# Offset and row in a slot's log, and the object.
Copy = tuple[int, int, EventKey]


class Followed(Protocol):
    """What is known of a published object."""

    members: dict[str, Any]
    places: dict[int, tuple[int, int]]
    begin_ms: float
    end_ms: float
    arrival_ms: int


class TrackLedger:
    """Writes down copies and events and checks them in the end."""

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
        # (slot, member, value) → its copies in the order of the log.
        self._copies: dict[tuple[int, str, object], list[Copy]] = defaultdict(list)
        # Member → from when on, at the latest, objects are followed by it.
        self.followed_ms: dict[str, float] = {}
        # (subscriber, query handle) → events in the order of `deliveries`.
        self._told: dict[tuple[str, int], list[tuple[EventKey, str]]] = defaultdict(list)

    @property
    def events_total(self) -> int:
        """How many events were told."""
        return sum(map(len, self._told.values()))

    def copied(self, slot: int, offset: int, row: int, routed: Routed, key: EventKey) -> None:
        """A copy of an object is in the log of a slot."""
        assert routed.tracks is not None
        assert routed.track_values is not None
        member = routed.track_keys[int(routed.tracks[row]) - 1]
        value = track_value(self._objects[key].members.get(member))
        if value is None or hash_of(member, value) != int(routed.track_values[row]):
            self._fail(f"object {key} is copied for a value of {member} that it has not")
            return
        copies = self._copies[slot, member, _kind(value)]
        if any(known == key for _, _, known in copies):
            self._fail(f"object {key} is copied twice for {member} to slot {slot}")
        copies.append((offset, row, key))

    def told(self, subscriber: str, handle: int, key: EventKey, change: int) -> None:
        """An event was delivered."""
        self._told[subscriber, handle].append((key, EVENTS[change]))

    # --- the reckoning

    def check(self, versions: Callable[[int], list[Asked]]) -> None:
        """Compares all events with what they had to be.

        Args:
            versions: of a query, by its handle.
        """
        self._check_copies()
        for query_id in self._world.lives:
            handle = query_handle(query_id)
            asked = [each for each in versions(handle) if each.kind == KIND_TRACKED]
            for subscriber in {version.subscriber for version in asked}:
                own = [version for version in asked if version.subscriber == subscriber]
                told = self._told.pop((subscriber, handle), [])
                self._check_query(f"{query_id} of {subscriber}", own, told)
        for subscriber, handle in self._told:
            self._fail(f"{subscriber} was told events of {handle}, which never tracked for it")

    def _check_copies(self) -> None:
        for (slot, member, (_, value)), copies in self._copies.items():
            if slot != hash_of(member, value) % self._world.shape.slots:
                self._fail(f"copies for {member} {value!r} lie in slot {slot}")
            for _, _, key in copies:
                if not self._objects[key].places:
                    self._fail(f"of object {key} there is but a copy")
        for key, published in self._objects.items():
            for member, from_ms in self.followed_ms.items():
                value = track_value(published.members.get(member))
                is_due = published.places and published.begin_ms > from_ms and value is not None
                if is_due and not self._has_copy(key, member, value):
                    self._fail(f"object {key} is not followed by {member}")

    def _has_copy(self, key: EventKey, member: str, value: Any) -> bool:
        slot = hash_of(member, value) % self._world.shape.slots
        return any(known == key for _, _, known in self._copies[slot, member, _kind(value)])

    def _check_query(
        self, name: str, versions: list[Asked], told: list[tuple[EventKey, str]]
    ) -> None:
        wanted: dict[tuple[int, int], list[tuple[Copy, str]]] = defaultdict(list)
        for number, version in enumerate(versions):
            assert isinstance(version.query, RangeQuery)
            for (slot, member, _), copies in self._copies.items():
                if member == version.query.track and slot in version.stays:
                    wanted[slot, number] += self._events(version, slot, copies)
        events = Counter((copy[2], event) for each in wanted.values() for copy, event in each)
        if Counter(told) != events:
            missing, strange = list(events - Counter(told)), list(Counter(told) - events)
            self._fail(f"{name}: not told {missing[:3]}, told without reason {strange[:3]}")
        for (slot, _), each in wanted.items():
            rest = iter(told)
            if not all((copy[2], event) in rest for copy, event in sorted(each)):
                self._fail(f"{name}: events of slot {slot} are not in order")

    def _events(self, version: Asked, slot: int, copies: list[Copy]) -> list[tuple[EventKey, str]]:
        """What a version says of one value."""
        stay, is_inside = version.stays[slot], False
        query = version.query
        assert isinstance(query, RangeQuery)
        found: list[tuple[Copy, str]] = []
        for copy in copies:
            offset, _, key = copy
            if offset < stay.begin or (stay.end is not None and offset > stay.end):
                continue
            if not version.lives_at(self._objects[key].arrival_ms):
                continue
            was_inside, is_inside = is_inside, self._satisfies(canonical(query), key)
            if is_inside:
                events = ["inside"] if was_inside else ["enter", "inside"]
            else:
                events = ["exit"] if was_inside else []
            if event := next((each for each in events if each in query.events), None):
                found.append((copy, event))
        return found


def _kind(value: Any) -> tuple[str, Any]:
    """A value as a key: true is not 1."""
    return type(value).__name__, value
