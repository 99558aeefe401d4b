"""A registry partition and its owner, whose appends are read back when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    AppendChanges,
    ChangeRequest,
    Effect,
    Outcome,
)
from sirocco.protocol.contract.messages import (
    INTAKE,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    TrackedMember,
    TrackedMemberSet,
)
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.schemes.map.routing import RoutingArrays
from tests.support.values import uniform_routing

# Adjacent tiles, each in a slot of its own.
SLOTS_COUNT = 5
ROUTING = uniform_routing(SLOTS_COUNT, SLOTS_COUNT)


def query(query_id: str, west: float = -180, east: float = 180, **more: Any) -> dict[str, Any]:
    region = {"rect": {"west": west, "south": -1, "east": east, "north": 1}}
    return {"id": query_id, "kind": "range", "mode": "continuous", "region": region, **more}


class Log:
    """A registry partition and its owner; appends are read back on request."""

    def __init__(
        self,
        offset: int = 0,
        *,
        routing: RoutingArrays = ROUTING,
        limits: RouterLimits = LIMITS,
    ) -> None:
        self._routings = {1: routing}
        # The owner has read a record of its own.
        self.registry = Registry(partition=3, offset=offset, floor=offset, epoch=7, limits=limits)
        self.registry.validation.epoch_seen = 7
        self.records: list[Change] = []
        self.answers: dict[int, Sequence[Outcome]] = {}
        self.installs: list[tuple[int, Installed]] = []
        # Intake partition, and the records about members that queries track.
        self.members: list[tuple[int, TrackedMember | TrackedMemberSet]] = []
        self.order: list[str] = []
        self._tokens = 0
        self._begin = offset

    @property
    def head(self) -> int:
        return self._begin + len(self.records)

    def request(self, *requests: ChangeRequest) -> int:
        self._tokens += 1
        self.carry_out(self.registry.take_requests(self._tokens, requests))
        return self._tokens

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(topic, partition, Change() as change):
                    assert (topic, partition) == (REGISTRY, 3)
                    self.records.append(change)
                case AppendChanges(partition, changes):
                    assert partition == 3
                    self.records += [changes.change(row) for row in range(len(changes))]
                case Append(topic, slot, Installed() as message):
                    assert topic == SLOTS
                    self.installs.append((slot, message))
                    self.order.append("install")
                case Append(topic, partition, TrackedMember() | TrackedMemberSet() as members):
                    assert topic == INTAKE
                    self.members.append((partition, members))
                    self.order.append("published")
                case Answer(token, outcomes):
                    assert token not in self.answers
                    self.answers[token] = outcomes
                    self.order.append("answer")
                case _:
                    raise AssertionError(effect)

    def read(self, upto: int | None = None) -> None:
        """Gives the owner its next records in one batch, then those that it appends thereupon."""
        while self.registry.offset < (self.head if upto is None else upto):
            end = self.head if upto is None else upto
            begin = self.registry.offset
            batch = [(o, self.records[o - self._begin]) for o in range(begin, end)]
            self.carry_out(self.registry.read(batch, self._routings))

    def read_one(self) -> None:
        """Gives the owner its next record; records that it appends thereupon are lost."""
        offset = self.registry.offset
        effects = self.registry.read([(offset, self.records[offset - self._begin])], self._routings)
        self.carry_out([e for e in effects if not (isinstance(e, Append) and e.topic == REGISTRY)])

    def outcome(self, token: int) -> Outcome:
        (outcome,) = self.answers[token]
        return outcome

    def ask(self, request: ChangeRequest) -> Outcome:
        token = self.request(request)
        self.read()
        return self.outcome(token)

    @property
    def changes(self) -> int:
        """Returns the number of records that are not probes."""
        return sum(not change.is_probe for change in self.records)

    def installed_ids(self) -> dict[int, dict[str, int]]:
        """Returns slot → query id → revision, by the slots' own rule, from the sent records."""
        return slots_after(self.installs)


def slots_after(installs: list[tuple[int, Installed]]) -> dict[int, dict[str, int]]:
    """Models a slot: the greatest revision per query wins, removals included."""
    newest: dict[tuple[int, int], tuple[int, str | None]] = {}
    for slot, message in installs:
        ids, bounds = message.names.ids.tobytes(), message.names.id_offsets.tolist()
        rows: list[tuple[int, int, str | None]] = [
            (int(handle), int(revision), ids[bounds[i] : bounds[i + 1]].decode())
            for i, (handle, revision) in enumerate(
                zip(message.names.handles, message.revisions, strict=True)
            )
        ]
        removed = zip(message.removed.tolist(), message.removed_revisions.tolist(), strict=True)
        rows += [(handle, revision, None) for handle, revision in removed]
        for handle, revision, query_id in rows:
            if revision > newest.get((slot, handle), (-1, None))[0]:
                newest[slot, handle] = revision, query_id
    found: dict[int, dict[str, int]] = {}
    for (slot, _), (revision, query_id) in newest.items():
        if query_id is not None:
            found.setdefault(slot, {})[query_id] = revision
    return found
