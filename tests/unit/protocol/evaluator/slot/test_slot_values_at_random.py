"""A slot with tracked queries, compared with the simulator's ledger, over random logs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sirocco.model.query import query_handle
from sirocco.protocol.contract.columns import ENTERS, LEAVES
from sirocco.protocol.contract.messages import NO_REVISION, Installed
from tests.oracle import Region
from tests.simulation.query_versions import EventKey, versions_of
from tests.simulation.slot_truth import SlotTruth
from tests.simulation.track_ledger import TrackLedger, values_of
from tests.simulation.world import World
from tests.support.values import change_of, installed_of, request_of
from tests.unit.protocol.evaluator.slot.test_slot_values import Log, installed, tracker

CHANGES = {"enter": ENTERS, "exit": LEAVES}


class Objects:
    """The published objects, as the ledger knows them."""

    def __init__(self) -> None:
        self.known: dict[EventKey, Any] = {}

    def add(self, number: int, members: dict[str, Any], arrival_ms: int) -> None:
        self.known[7, number] = SimpleNamespace(
            members=members, places={0: (0, 0)}, begin_ms=0.0, end_ms=0.0, arrival_ms=arrival_ms
        )

    def satisfies(self, members: dict[str, Any], key: EventKey) -> bool:
        one = self.known[key].members
        has_text = "text" not in members or members["text"] in one["text"]
        return has_text and Region(members["region"]).contains(one["lon"], one["lat"])


def members_at_random(rng: np.random.Generator) -> dict[str, Any]:
    west = float(rng.integers(-2, 2) * 5)
    more: dict[str, Any] = {}
    if rng.random() < 0.3:
        more["text"] = "red"
    if rng.random() < 0.4:
        more["ttl"] = f"{int(rng.integers(5, 25))}ms"
    if rng.random() < 0.2:
        more["events"] = ["enter"]
    return tracker(west, west + 10, **more)


@pytest.mark.parametrize("seed", range(16))
def test_a_slot_reports_what_the_plain_rules_report(seed: int) -> None:
    rng, log, objects = np.random.default_rng(seed), Log(), Objects()
    registry: dict[int, Any] = {}
    begun, newest, standing = NO_REVISION, NO_REVISION, False
    for step in range(60):
        now_ms = 1_000 + log._objects
        choice = rng.random()
        revision = 10 + step
        if choice < 0.1 and standing:
            log.install(installed_of(0, [], removed=[("q", revision)]))
            standing = False
        elif choice < 0.3:
            goes_on = standing and rng.random() < 0.8
            members, subscriber = members_at_random(rng), str(rng.choice(["s", "s", "s", "t"]))
            since = begun if goes_on else NO_REVISION
            begun = begun if goes_on else revision
            change = change_of(request_of("register", members, subscriber, now_ms), newest)
            stored = SimpleNamespace(offset=revision, message=replace(change, since=since))
            registry[revision] = stored
            log.install(installed(revision, members, since, subscriber, now_ms))
            newest, standing = revision, True
        else:
            number = 100 + step
            lon, bus = float(rng.integers(-25, 25)), str(rng.choice(["a", "b", "c"]))
            text = str(rng.choice(["red", "red", "blue"]))
            objects.add(number, {"lon": lon, "lat": 0.0, "bus": bus, "text": text}, now_ms)
            log.move(number, lon, bus, text=text)
    reported = log.all_reported()
    for way in ("at once", "with restarts"):
        assert log.all_reported(way) == reported, f"seed={seed} {way}"

    def fail(why: str) -> None:
        raise AssertionError(f"seed={seed}: {why}")

    truth = SlotTruth(1)
    world = cast(World, SimpleNamespace(shape=SimpleNamespace(slots=1), life_starts={"q": []}))
    ledger = TrackLedger(world, truth, objects.known, objects.satisfies, fail)
    for offset, message in log.records:
        if isinstance(message, Installed):
            truth.installed(0, offset, message)
            continue
        truth.routed(0, message)
        truth.note_time(0, offset)
        for row in range(len(message.objects)):
            key = int(message.events.sessions[row]), int(message.events.numbers[row])
            for member, value in values_of(message, row):
                ledger.copied(0, offset, row, member, value, key)
    handle = query_handle("q")
    for _, subscriber, number, event in reported:
        ledger.add_sent(subscriber, handle, (7, number), CHANGES[event])
    ledger.check(lambda _: versions_of(handle, truth, cast(Any, registry)))
    assert reported
