"""Tests the simulated log."""

from __future__ import annotations

from sirocco.protocol.contract.control_records import CheckpointTaken
from sirocco.protocol.contract.messages import CONTROL, INTAKE, TrackedMember
from tests.simulation.log import Delays, Producer, SimLog
from tests.simulation.scheduler import Scheduler


def test_a_producer_is_refused_nothing_when_all_is_well_again() -> None:
    for seed in range(20):
        scheduler = Scheduler(seed)
        log = SimLog(scheduler, Delays(), is_coded=False)
        healthy, doomed = Producer(log), Producer(log)
        for producer in (healthy, doomed):
            producer.refuse()
            for _ in range(20):
                producer.append(INTAKE, 0, TrackedMember("car"), lambda _: None, lambda: None)
        doomed_ms = scheduler.now_ms + 50
        healthy.heal()
        for _ in range(20):
            healthy.append(INTAKE, 0, TrackedMember("car"), lambda _: None, lambda: None)
        scheduler.run_until(doomed_ms)
        assert not healthy.is_refused
        assert doomed.is_refused
        assert log.partition(INTAKE, 0).high == 59


def test_a_checkpoint_stays_until_changes_without_effect_after_it_are_replaced() -> None:
    log = SimLog(Scheduler(0), Delays(), is_coded=False)
    producer = Producer(log)

    def kept(*offsets: int) -> list[int]:
        for offset in offsets:
            taken = CheckpointTaken(INTAKE, 0, 1, offset, "name", 1)
            producer.append(CONTROL, 0, taken, lambda _: None, lambda: None)
        log.scheduler.run_until(log.scheduler.now_ms + 60_000)
        log.compact_control()
        messages = [stored.message for stored in log.read(CONTROL, 0, 0, 100)[0]]
        return [each.offset for each in messages if isinstance(each, CheckpointTaken)]

    assert kept(5, 20) == [20]
    assert log.is_control_true()
    # A former owner's checkpoint arrives late; a new owner has to find the one before.
    assert kept(9) == [20, 9]
    assert not log.is_control_true()
    assert kept(20) == [20]
    assert log.is_control_true()
