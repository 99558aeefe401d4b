"""Slots of one evaluator that share radii of knn queries send fewer candidates and equal lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.protocol.contract.control_records import Granted, LeaderElected
from sirocco.protocol.contract.effects import (
    Append,
    ControlRead,
    Effect,
    Entry,
    Load,
    Loaded,
    Polled,
    SaveCheckpoint,
    SaveRequest,
    State,
    Tick,
)
from sirocco.protocol.contract.messages import NO_PAST, SLOTS, Found, Installed, Routed
from sirocco.protocol.contract.query_specs import read_spec
from sirocco.protocol.contract.record_sizes import RecordLimits
from sirocco.protocol.evaluator.limits import EvaluatorLimits
from sirocco.protocol.evaluator.machine import EvaluatorMachine, EvaluatorSettings
from sirocco.protocol.merger.limits import MergerLimits
from tests.support.list_records import ListChange
from tests.support.merger_cluster import MergerCluster
from tests.support.values import installed_of, map_activated, routed_of

SLOTS_COUNT = 4
LIMITS = EvaluatorLimits(records=RecordLimits(matches_max=3))
# A window is written at the end of each poll, and at no other time.
WINDOWS = MergerLimits(window_ms=1_000, progress_interval_ms=1_000)
Message = Routed | Installed


class Process:
    """An evaluator that owns some slots; `saved` holds its checkpoints: offset, state."""

    def __init__(self, slots: range) -> None:
        settings = EvaluatorSettings(intake_partitions=1, partials_partitions=1, limits=LIMITS)
        self.machine = EvaluatorMachine("m", settings)
        self.saved: dict[int, tuple[int, State]] = {}
        self._control = 0
        self._now_ms = 1_000_000
        self.control(LeaderElected("c"))
        self.control(map_activated(0))
        self.slots = slots

    def begin(self, saved: dict[int, tuple[int, State]]) -> None:
        """Loads all slots from the newest checkpoints."""
        for slot in self.slots:
            for effect in self.control(Granted(0, SLOTS, slot, "m")):
                assert isinstance(effect, Load)
                offset, state = saved.get(slot, (0, None))
                loaded = Loaded(
                    topic=SLOTS, partition=slot, epoch=effect.epoch, offset=offset,
                    state=state, slices=() if state is not None else None,
                )  # fmt: skip
                self.machine.step(loaded, self._now_ms)

    def control(self, declaration: Any) -> list[Effect]:
        self._control += 1
        return self.machine.step(ControlRead(self._control - 1, declaration), self._now_ms)

    def poll(self, entries: list[tuple[int, int, Message]]) -> list[Found]:
        """Takes (slot, offset, message) entries and marks; returns what it appends."""
        polled = Polled(tuple(Entry(SLOTS, *entry) for entry in entries))
        self._now_ms += 1_000
        return self._carry_out(
            [*self.machine.step(polled, self._now_ms), *self.machine.step(Tick(), self._now_ms)]
        )

    def save(self, slot: int) -> list[Found]:
        return self._carry_out(self.machine.step(SaveRequest((slot,)), self._now_ms))

    def _carry_out(self, effects: list[Effect]) -> list[Found]:
        appended = []
        for effect in effects:
            if isinstance(effect, Append):
                assert isinstance(effect.message, Found)
                appended.append(effect.message)
            elif isinstance(effect, SaveCheckpoint):
                state = dict(read_state(write_state(effect.state)))
                self.saved[effect.partition] = effect.offset, state
        return appended


class World:
    """Logs of slots: queries that begin, change and end in all of them, and objects in one each."""

    def __init__(self, seed: int, *, past: bool) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.logs: list[list[Message]] = [[] for _ in range(SLOTS_COUNT)]
        self.live: dict[str, int] = {}
        waiting: list[list[Message]] = [[] for _ in range(SLOTS_COUNT)]
        revision = 0
        for number in range(1, 400):
            if rng.random() < 0.06:
                name = f"q{rng.integers(6)}"
                revision += 1
                if self.live.get(name, -1) >= 0 and rng.random() < 0.3:
                    message = installed_of(0, [], [(name, revision)])
                    self.live[name] = -1
                else:
                    message = self._query(name, revision, past=past)
                    self.live[name] = revision
                for own in waiting:
                    own.append(message)
            # Each slot learns of a change at its time, and of all changes in their order.
            for slot, own in enumerate(waiting):
                while own and rng.random() < 0.3:
                    self.logs[slot].append(own.pop(0))
            slot = int(rng.integers(SLOTS_COUNT))
            members = {
                "id": number,
                # Slots are stripes of the world; some objects have equal distances.
                "lon": float(rng.integers(-20, 20)) / 8 + 10 * slot,
                "lat": float(rng.integers(-20, 20)) / 8,
                "text": "coffee" if rng.random() < 0.7 else "tea",
            }
            self.logs[slot].append(routed_of(0, number, [members], [number], begin=0))
        for slot, own in enumerate(waiting):
            self.logs[slot] += own

    def _query(self, name: str, revision: int, *, past: bool) -> Installed:
        rng = self.rng
        members = {
            "id": name,
            "kind": "knn",
            "mode": "continuous",
            "point": {"lon": float(rng.integers(0, 30)), "lat": float(rng.integers(-2, 3))},
            "k": int(rng.choice([1, 2, 5, 9])),
        }
        if rng.random() < 0.5:
            members["text"] = "coffee"
        # Each slot is asked for all that it has.
        past_ms = 1_000 if past and rng.random() < 0.5 else NO_PAST
        return installed_of(0, [(revision, members, "s", 0)], past_ms=past_ms)

    def polls(self, slots: range) -> Iterator[list[tuple[int, int, Message]]]:
        """Yields what the owner of some slots reads from now on, poll by poll."""
        heads = dict.fromkeys(slots, 0)
        while any(heads[slot] < len(self.logs[slot]) for slot in slots):
            entries = []
            for slot in slots:
                count = int(self.rng.integers(0, 12))
                end = min(heads[slot] + count, len(self.logs[slot]))
                entries += [(slot, at, self.logs[slot][at]) for at in range(heads[slot], end)]
                heads[slot] = end
            yield entries


class Lists:
    """What a merger makes of a log of `partials`, window by window."""

    def __init__(self) -> None:
        self.log: list[Found] = []
        self.cluster = MergerCluster(log=self.log, slots=SLOTS_COUNT, limits=WINDOWS)
        self.last: dict[str, tuple[Any, ...]] = {}
        self.rng = np.random.default_rng(1)

    def window(self, appended: list[Found]) -> list[ListChange]:
        """Merges some more records; returns the lists that have changed."""
        if not appended:
            return []
        self.log += appended
        self.cluster.read(len(self.log), self.rng)
        sent = [each for each in self.cluster.commit() if isinstance(each, ListChange)]
        self.last |= {each.query: each.entries for each in sent}
        return sorted(sent, key=lambda each: each.query)


def candidates(log: list[Found]) -> int:
    return sum(len(found.matches) for found in log)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("past", [False, True])
def test_each_window_has_the_lists_that_it_would_have_without(seed: int, past: bool) -> None:
    """The records of one process are in one order: its radii never run ahead of its reports."""
    world = World(seed, past=past)
    every = range(SLOTS_COUNT)
    process = Process(every)
    process.begin({})
    alone = [Process(range(slot, slot + 1)) for slot in every]
    for each in alone:
        each.begin({})
    lists, wanted = Lists(), Lists()
    for number, entries in enumerate(world.polls(every)):
        expected = [found for each in alone for found in each.poll(entries)]
        assert lists.window(process.poll(entries)) == wanted.window(expected), number
    assert wanted.last
    if not past:
        assert candidates(lists.log) < 0.9 * candidates(wanted.log)


@pytest.mark.parametrize("seed", range(12))
def test_lists_are_exact_whatever_a_successor_knows(seed: int) -> None:
    """Processes die in the middle of what they append; their last records may follow later."""
    world = World(seed, past=False)
    rng = np.random.default_rng(seed)
    lists = Lists()

    halves = [range(2), range(2, SLOTS_COUNT)]
    saved: dict[int, tuple[int, State]] = {}
    late: list[Found] = []
    runs = [_Run(Process(half), saved) for half in halves]
    while not all(run.is_done(world) for run in runs):
        number = int(rng.integers(len(runs)))
        run = runs[number]
        appended = run.poll(world, rng)
        if rng.random() < 0.08:
            kept = int(rng.integers(len(appended) + 1))
            lists.window(appended[:kept])
            # A zombie, which was only suspended, appends the others when its successor is at work.
            late += appended[kept:]
            runs[number] = _Run(Process(run.slots), saved)
        else:
            lists.window(appended)
            if rng.random() < 0.2:
                slot = int(rng.choice(run.slots))
                lists.window(run.process.save(slot))
                saved |= run.process.saved
        if late and rng.random() < 0.3:
            lists.window([late.pop(0)])
    for (name, k), nearest in found_alone(world).items():
        wanted = tuple((number, distance_m) for distance_m, number in sorted(nearest)[:k])
        assert lists.last[name] == wanted, name


def found_alone(world: World) -> dict[tuple[str, int], list[tuple[float, int]]]:
    """Returns what slots without radii report of the last version of each (query, k)."""
    found: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for slot, log in enumerate(world.logs):
        process = Process(range(slot, slot + 1))
        process.begin({})
        for record in process.poll([(slot, at, message) for at, message in enumerate(log)]):
            specs = [read_spec(text) for text in record.queries.specs or ()]
            bounds, ids = record.queries.id_offsets.tolist(), record.queries.ids.tobytes()
            matches = record.matches
            for i, query in enumerate(matches.queries.tolist()):
                name = ids[bounds[query] : bounds[query + 1]].decode()
                if specs[query].revision == world.live[name]:
                    assert matches.distances_m is not None
                    number = int(record.objects.ids[matches.objects[i]])
                    found[name, specs[query].k].append((float(matches.distances_m[i]), number))
    return found


class _Run:
    """A process and how far it has read each slot."""

    def __init__(self, process: Process, saved: dict[int, tuple[int, State]]) -> None:
        self.process = process
        self.slots = process.slots
        self.heads = {slot: saved[slot][0] if slot in saved else 0 for slot in self.slots}
        process.begin(saved)

    def is_done(self, world: World) -> bool:
        return all(self.heads[slot] == len(world.logs[slot]) for slot in self.slots)

    def poll(self, world: World, rng: np.random.Generator) -> list[Found]:
        entries = []
        for slot in self.slots:
            end = min(self.heads[slot] + int(rng.integers(0, 12)), len(world.logs[slot]))
            entries += [(slot, at, world.logs[slot][at]) for at in range(self.heads[slot], end)]
            self.heads[slot] = end
        return self.process.poll(entries)
