"""Queries with a given begin of their lifetime do not count earlier objects.

The slot reads two intake partitions, one of which lags: when objects arrive that a query counts,
others still arrive that it does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.installs import read_installed, write_installed
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import AT_ONCE_MS, Installed, Routed
from sirocco.protocol.contract.positions import Intervals, position_of
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.query_families import KNN, RANGE, TRACKED
from sirocco.protocol.router.objects.track_copies import followed
from tests.oracle.geometry import distance_m
from tests.support.values import columns_of, installed_of, routed_of, terms_of

SOURCES = 2
EVENTS = {0: "match", 1: "enter", 2: "inside", 3: "exit"}
AREA = {"rect": {"west": 0.0, "south": 0.0, "east": 6.0, "north": 6.0}}

# Query, event, number of the object.
Reported = tuple[str, str, int]


def opened(offset: int = 0) -> Slot:
    slot = Slot(0, 3)
    slot.open(offset, offset, SOURCES, 0)
    return slot


def again(slot: Slot) -> Slot:
    """Returns a successor that begins at a checkpoint of this one."""
    successor = opened(slot.offset)
    state = dict(read_state(write_state(slot_state(slot, 0, ()))))
    restore_slot(successor, state, slot.past.store.slices)
    return successor


def reports_of(slot: Slot, records: list[tuple[int, Routed | Installed]]) -> list[Reported]:
    found: list[Reported] = []
    for report in slot.take(records):
        if not isinstance(report, Report):
            # The end of a list.
            continue
        names = report.table.names(report.query_rows)
        ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
        for i, row in enumerate(report.object_rows.tolist()):
            name = ids[bounds[i] : bounds[i + 1]].decode()
            event = 0 if report.changes is None else int(report.changes[i])
            if not name.startswith("knn"):
                found.append((name, EVENTS[event], int(report.objects.ids[row])))
    return found


def routed_with_copies(
    source: int, offset: int, members: list[dict[str, Any]], arrivals_ms: list[int]
) -> Routed:
    """Returns objects of an intake partition, each with a copy for its van."""
    objects = columns_of(members)
    copies = followed(objects, {"van"}, 1)
    count = len(objects)
    own = np.arange(count)
    rows = np.concatenate([own, own if copies is not None else own[:0]])
    order = np.argsort(rows, kind="stable")
    doubled = objects.take(rows[order])
    plain = Routed(
        map_version=1,
        intervals=Intervals.of(
            [(source, position_of(offset), position_of(offset + 1), arrivals_ms[-1])],
        ),
        objects=doubled,
        events=EventColumns(
            np.full(len(rows), source, np.uint64),
            doubled.ids.copy(),
            np.array(arrivals_ms, np.int64)[rows[order]],
        ),
        positions=position_of(offset) + rows[order],
        interval_rows=np.zeros(len(rows), np.uint32),
        terms=terms_of(doubled),
    )
    return plain if copies is None else copies.mark(plain, order, count)


@dataclass
class Version:
    """The correct events of a query, object by object."""

    members: dict[str, Any]
    begins_ms: float
    ends_ms: float
    inside: dict[int, int] = field(default_factory=dict)
    near: list[tuple[float, int]] = field(default_factory=list)

    def meet(self, one: dict[str, Any], arrival_ms: int) -> list[Reported]:
        if not self.begins_ms <= arrival_ms < self.ends_ms:
            return []
        name, kind = self.members["id"], self.members["kind"]
        if kind == "knn":
            point = self.members["point"]
            metres = distance_m(point["lon"], point["lat"], one["lon"], one["lat"])
            self.near = sorted([*self.near, (round(metres, 3), one["id"])])[: self.members["k"]]
            return []
        holds = 0 <= one["lon"] <= 6 and 0 <= one["lat"] <= 6
        if "track" not in self.members:
            return [(name, "match", one["id"])] if holds else []
        was, van = one["van"] in self.inside, one["van"]
        if holds:
            self.inside[van] = one["id"]
        else:
            self.inside.pop(van, None)
        if holds == was:
            return []
        return [(name, "enter" if holds else "exit", one["id"])]

    def end(self) -> list[Reported]:
        """Values inside leave, each with its last object inside."""
        left, self.inside = list(self.inside.values()), {}
        return [(self.members["id"], "exit", number) for number in left]


@dataclass(kw_only=True)
class Story:
    """A random log and its meaning: groups, each of which comes before the next."""

    rng: np.random.Generator
    records: list[tuple[int, Routed | Installed]] = field(default_factory=list)
    expected: list[list[Reported]] = field(default_factory=list)
    live: dict[str, Version] = field(default_factory=dict)
    times_ms: list[int] = field(default_factory=lambda: [1_000, 1_000])
    offsets: list[int] = field(default_factory=lambda: [0, 0])
    objects: int = 0
    held_back: int = 0

    def draw(self, records: int) -> Story:
        for offset in range(records):
            objects = self.rng.random() < 0.7
            message, meaning = self._objects() if objects else self._queries(offset)
            self.records.append((offset, message))
            self.expected += meaning
        return self

    def _objects(self) -> tuple[Routed, list[list[Reported]]]:
        rng, found = self.rng, list[list[Reported]]()
        # The second partition lags.
        source = 0 if self.times_ms[0] < self.times_ms[1] + 300 else 1
        members, arrivals_ms = [], []
        for _ in range(int(rng.integers(1, 9))):
            self.objects += 1
            self.times_ms[source] += int(rng.integers(0, 120))
            one = {
                "id": self.objects,
                "lon": float(rng.uniform(-4, 10)),
                "lat": float(rng.uniform(-4, 10)),
                "van": int(rng.integers(3)),
            }
            members.append(one)
            arrivals_ms.append(self.times_ms[source])
            for version in self.live.values():
                found.append(version.meet(one, arrivals_ms[-1]))
                self.held_back += arrivals_ms[-1] < version.begins_ms
        self.offsets[source] += 1
        for version in self.live.values():
            if min(self.times_ms) > version.ends_ms:
                found.append(version.end())
        return routed_with_copies(source, self.offsets[source] - 1, members, arrivals_ms), found

    def _queries(self, revision: int) -> tuple[Installed, list[list[Reported]]]:
        rng = self.rng
        name = str(rng.choice([f"{kind}{i}" for kind in ("range", "van", "knn") for i in range(3)]))
        before = self.live.pop(name, None)
        left = [before.end() if before else []]
        if rng.random() < 0.2:
            return installed_of(0, [], [(name, revision)]), left
        members: dict[str, Any] = {"id": name, "kind": "range", "mode": "continuous"}
        if name.startswith("knn"):
            members |= {
                "kind": "knn",
                "point": {"lon": 3.0, "lat": 3.0},
                "k": int(rng.integers(1, 5)),
            }
        else:
            members["region"] = AREA
        if name.startswith("van"):
            members["track"] = "van"
        start_ms = min(self.times_ms) + int(rng.integers(-300, 1_500))
        begins_ms, ends_ms = float(start_ms), float("inf")
        if rng.random() < 0.3:
            members["ttl"] = "600ms"
            ends_ms = start_ms + 600
        if not (is_given := bool(rng.random() < 0.7)):
            begins_ms = float("-inf")
        self.live[name] = Version(members, begins_ms, ends_ms)
        change = (revision, members, "s", start_ms)
        message = installed_of(0, [change], is_start_given=is_given)
        # No change continues the one before: each begins anew.
        return read_installed(write_installed(message)), left


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", ["one by one", "in batches", "with restarts"])
def test_objects_before_the_begin_are_nothing_to_a_query(seed: int, way: str) -> None:
    # init
    story = Story(rng=np.random.default_rng(seed)).draw(120)
    rng, slot, found = np.random.default_rng(seed), opened(), []

    # test
    begin = 0
    while begin < len(story.records):
        end = begin + (1 if way == "one by one" else int(rng.integers(1, 15)))
        found += reports_of(slot, story.records[begin:end])
        if way == "with restarts" and rng.random() < 0.4:
            slot = again(slot)
        begin = end

    # check
    expected = [each for meaning in story.expected for each in meaning]
    assert sorted(found) == sorted(expected), f"seed={seed}"
    assert story.held_back > 50
    # Events of one value are in log order; those that leave together do so in any order.
    for name in {each[0] for each in found if each[0].startswith("van")}:
        own = [each for each in found if each[0] == name]
        for together in story.expected:
            meant = [each for each in together if each[0] == name]
            assert sorted(own[: len(meant)]) == sorted(meant), f"seed={seed}"
            del own[: len(meant)]
    _check_lists(slot, story)
    # None waits for objects that have arrived.
    for family in (RANGE, KNN, TRACKED):
        assert (slot.standing.waiting[family].begins_ms > slot.time_ms).all()


def _check_lists(slot: Slot, story: Story) -> None:
    table = slot.standing.families[KNN].table
    rows = table.live()
    names = table.names(rows)
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    reported = {
        ids[bounds[i] : bounds[i + 1]].decode(): slot.standing.knn.near(row).ids.tolist()
        for i, row in enumerate(rows.tolist())
    }
    expected = {
        name: [number for _, number in version.near]
        for name, version in story.live.items()
        if name.startswith("knn")
    }
    assert reported == expected


def query(name: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "range", "mode": "continuous", "region": AREA, **more}


def objects_at(*arrivals_ms: int, source: int = 0, offset: int = 0, first: int = 1) -> Routed:
    members = [{"id": first + i, "lon": 1.0, "lat": 1.0} for i in range(len(arrivals_ms))]
    return routed_of(source, offset, members, arrivals_ms)


def test_a_begin_that_was_not_given_hides_no_object() -> None:
    """The clock of the registering router may be ahead of that of the router of the objects."""
    slot = opened()
    install = installed_of(0, [(0, query(), "s", 5_000)])
    assert install.begins_ms is None
    found = reports_of(slot, [(0, install), (1, objects_at(4_990, 5_000))])
    assert [number for _, _, number in found] == [1, 2]
    assert not len(slot.standing.waiting[RANGE])


def test_a_query_with_history_begins_that_much_earlier() -> None:
    slot = opened()
    before, behind = objects_at(100, 200), objects_at(290, 300, 999, 1_000, offset=1, first=3)
    install = installed_of(0, [(0, query(), "s", 1_000)], past_ms=800, is_start_given=True)
    assert install.begins_ms is not None
    assert install.begins_ms.tolist() == [200]
    found = reports_of(slot, [(0, before), (1, install), (2, behind)])
    assert [number for _, _, number in found] == [2, 3, 4, 5, 6]
    install = installed_of(
        0, [(1, query(), "s", 5_000)], past_ms=(1 << 63) - 1, is_start_given=True
    )
    assert install.begins_ms is not None
    assert AT_ONCE_MS <= install.begins_ms[0] < -(1 << 62)


def test_a_copy_for_a_change_of_the_map_begins_when_its_query_does() -> None:
    slot = opened()
    install = installed_of(0, [(0, query(), "s", 1_000)], is_start_given=True)
    found = reports_of(slot, [(0, replace(install, copied_at=1)), (1, objects_at(999, 1_000))])
    assert [number for _, _, number in found] == [2]


def test_an_update_ends_the_former_version_and_begins_at_its_start_time() -> None:
    slot = opened()
    first = installed_of(0, [(0, query(), "s", 0)])
    second = installed_of(0, [(1, query(), "s", 1_000)], is_start_given=True)
    found = reports_of(slot, [(0, first), (1, objects_at(1)), (2, second)])
    found += reports_of(slot, [(3, objects_at(2, 1_000, offset=1, first=2))])
    assert [number for _, _, number in found] == [1, 3]


def test_removed_queries_wait_no_longer_and_give_their_rows_to_others() -> None:
    slot = opened()
    far = installed_of(0, [(0, query(), "s", 1 << 40)], is_start_given=True)
    reports_of(slot, [(0, far)])
    assert len(slot.standing.waiting[RANGE]) == 1
    reports_of(slot, [(1, installed_of(0, [], [("q", 1)]))])
    reports_of(slot, [(2, objects_at(1))])
    assert not len(slot.standing.waiting[RANGE])
    found = reports_of(
        slot, [(3, installed_of(0, [(2, query("r"), "s", 0)])), (4, objects_at(2, offset=1))]
    )
    assert [name for name, _, _ in found] == ["r"]
