"""The simulated log, in small."""

from __future__ import annotations

from sirocco.protocol.messages import INTAKE, Tracked
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
                producer.append(INTAKE, 0, Tracked("car"), lambda _: None, lambda: None)
        doomed_ms = scheduler.now_ms + 50
        healthy.heal()
        for _ in range(20):
            healthy.append(INTAKE, 0, Tracked("car"), lambda _: None, lambda: None)
        scheduler.run_until(doomed_ms)
        assert not healthy.is_refused
        assert doomed.is_refused
        assert log.partition(INTAKE, 0).high == 59
