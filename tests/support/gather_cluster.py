"""A cluster of evaluators as plain data; answers a gathering's requests, and fails as planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import SiroccoError
from sirocco.model.geometry import distance_m, round_mm
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import KnnQuery, Query, parse_query
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.collectors import collector_of
from sirocco.protocol.search.gather import Gather
from sirocco.protocol.search.gather_events import (
    Ask,
    Begin,
    Finish,
    GatherEffect,
    PartArrived,
    RequestMarks,
    SendObjects,
    Stop,
    TakeMore,
    TimePassed,
)
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import DONE, MORE, MOVED, Part
from sirocco.protocol.search.plan import plan_search
from tests.support.values import columns_of, uniform_routing

SLOTS = 6
ROUTING = uniform_routing(SLOTS, 12)
BEGIN_MS = 1_000
SESSION = 7


def snapshot(**members: Any) -> Query:
    return parse_query({"id": "q", "kind": "range", "mode": "snapshot", **members})


def objects_at(places: Sequence[tuple[float, float]], first_id: int = 1) -> ObjectColumns:
    return columns_of(
        [{"id": first_id + i, "lon": lon, "lat": lat} for i, (lon, lat) in enumerate(places)]
    )


def events_of(objects: ObjectColumns) -> EventColumns:
    """Returns event keys; the number within the session is the id."""
    count = len(objects)
    return EventColumns(
        np.full(count, SESSION, np.uint64), objects.ids.copy(), np.full(count, 5, np.int64)
    )


def slots_of(objects: ObjectColumns) -> NDArray[np.int32]:
    """Returns i4[n], the slot of each object."""
    none = np.zeros(len(objects) + 1, np.int64)
    keys = objects.ids
    routes = ROUTING.route_objects(objects.lon, objects.lat, none, np.empty(0, np.uint64), keys)
    return routes.slot


@dataclass
class World:
    """All objects, and the owner of each slot.

    Attributes:
        owners: slot → evaluator; None: no owner.
        rows_a_part: how many objects of a range answer go into a part.
        cheap: slots that are answered for without a request, where that is allowed.
    """

    objects: ObjectColumns
    owners: dict[int, str | None] = field(default_factory=lambda: dict.fromkeys(range(SLOTS), "e"))
    rows_a_part: int = 2
    cheap: frozenset[int] = frozenset(range(SLOTS))

    def owner(self, slot: int) -> str | None:
        return self.owners[slot]

    def parts(self, query: Query, ask: Ask) -> list[Part]:
        """Returns the correct answer of the asked evaluator in the present state."""
        here = [slot for slot in ask.slots if self.owners[slot] == ask.member]
        moved = [slot for slot in ask.slots if slot not in here]
        assert not set(ask.slots) & set(ask.nearby)
        if isinstance(query, KnnQuery):
            cheap = [slot for slot in ask.nearby if slot in self.cheap]
            here += [slot for slot in cheap if self.owners[slot] == ask.member]
            return [self._nearest(query, ask, here, moved)]
        parts = [part for slot in here for part in self._within(slot)]
        parts.append(_states(moved, MOVED, 0))
        return [*parts[:-1], replace(parts[-1], is_last=True)]

    def _within(self, slot: int) -> list[Part]:
        rows = np.flatnonzero(slots_of(self.objects) == slot)
        pieces = [
            rows[begin : begin + self.rows_a_part]
            for begin in range(0, len(rows), self.rows_a_part)
        ] or [rows]
        parts = []
        for piece in pieces:
            objects = self.objects.take(piece)
            state = DONE if piece is pieces[-1] else MORE
            part = _states([slot], state, len(piece))
            parts.append(replace(part, objects=objects, events=events_of(objects)))
        return parts

    def _nearest(self, query: KnnQuery, ask: Ask, here: list[int], moved: list[int]) -> Part:
        chosen, distances_m = self.nearest(query, here, ask.radius_m)
        return Part(
            slots=np.array([*here, *moved], np.uint32),
            states=np.array([DONE] * len(here) + [MOVED] * len(moved), np.uint8),
            objects=chosen,
            events=events_of(chosen),
            distances_m=distances_m,
            is_last=True,
        )

    def nearest(
        self, query: KnnQuery, slots: Sequence[int], radius_m: float | None
    ) -> tuple[ObjectColumns, NDArray[np.float64]]:
        """Returns the k nearest objects of some slots, by a scan of all."""
        objects = self.objects.take(np.flatnonzero(np.isin(slots_of(self.objects), list(slots))))
        distances_m = round_mm(distance_m(query.lon, query.lat, objects.lon, objects.lat))
        near = distances_m <= (np.inf if radius_m is None else radius_m)
        order = [i for i in np.lexsort((objects.ids, distances_m)) if near[i]][: query.k]
        rows = np.array(order, np.int64)
        return objects.take(rows), distances_m[rows]


def moved(slot: int) -> Part:
    """Returns the answer of an evaluator that does not own a slot."""
    return _states([slot], MOVED, 0)


def _states(slots: list[int], state: int, rows: int) -> Part:
    return Part(
        slots=np.array(slots, np.uint32),
        states=np.full(len(slots), state, np.uint8),
        row_ends=np.full(len(slots), rows, np.int64),
    )


class Searching:
    """One gathering and all of its effects."""

    def __init__(
        self,
        world: World,
        query: Query,
        timeout_ms: int = 1_000,
        seed: int = 1,
        limits: SearchLimits = LIMITS,
    ) -> None:
        self.world = world
        self.query = query
        self.now_ms = BEGIN_MS
        self.gather = Gather(
            plan_search(ROUTING, query),
            collector_of(query, 0, limits.kept_bytes_max),
            BEGIN_MS,
            BEGIN_MS + timeout_ms,
            seed,
            limits,
        )
        self.asks: list[Ask] = []
        self.open: dict[int, Ask] = {}
        self.handed: list[int] = []
        self.stopped: list[int] = []
        self.hurries = 0
        self.finish: Finish | None = None

    def begin(self) -> list[Ask]:
        return self.took(self.gather.step(Begin(), self.world.owner, self.now_ms))

    def came(self, ask: Ask, part: Part | SiroccoError) -> list[Ask]:
        """Delivers a part of the answer to a request; returns the new requests."""
        if isinstance(part, SiroccoError) or part.is_last:
            self.open.pop(ask.number, None)
        return self.took(
            self.gather.step(PartArrived(ask.number, part), self.world.owner, self.now_ms)
        )

    def answered(self, ask: Ask) -> list[Ask]:
        """Delivers the whole correct answer; returns the new requests."""
        self.open.pop(ask.number, None)
        asked: list[Ask] = []
        for part in self.world.parts(self.query, ask):
            asked += self.came(ask, part)
        return asked

    def passed(self, duration_ms: int) -> list[Ask]:
        self.now_ms += duration_ms
        return self.took(self.gather.step(TimePassed(), self.world.owner, self.now_ms))

    def until(self, condition: Callable[[list[Ask]], bool]) -> list[Ask]:
        """Advances time from deadline to deadline until the condition holds for the requests."""
        while self.finish is None:
            asked = self.passed(max(1, self.gather.deadline_ms() - self.now_ms))
            if condition(asked):
                return asked
        return []

    def until_request(self) -> list[Ask]:
        return self.until(bool)

    def drive(self) -> Finish:
        """Answers every request correctly, to the end."""
        while self.finish is None:
            for ask in list(self.open.values()) or self.until_request():
                self.answered(ask)
        return self.finish

    def took(self, effects: list[GatherEffect]) -> list[Ask]:
        asked: list[Ask] = []
        for effect in effects:
            assert self.finish is None, "nothing follows the end"
            match effect:
                case Ask():
                    assert effect.number not in {ask.number for ask in self.asks}
                    asked.append(effect)
                    self.open[effect.number] = effect
                case Stop(number):
                    self.stopped.append(number)
                    self.open.pop(number, None)
                case TakeMore(number):
                    assert number in {ask.number for ask in self.asks}
                case SendObjects(objects, events):
                    assert len(objects) == len(events)
                    self.handed += events.numbers.tolist()
                case RequestMarks():
                    self.hurries += 1
                case Finish():
                    self.finish = effect
        self.asks += asked
        return asked
