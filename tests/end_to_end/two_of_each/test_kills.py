"""kill -9 of each service under load, on real Kafka and Redis: nothing is lost or doubled.

Two of each service run as processes. While one session publishes and one subscriber receives, a
process is killed; the other of its kind takes over. Then it is restarted and gets its share again.
"""

from __future__ import annotations

import os
import signal

import pytest

from sirocco.local.cluster import LocalCluster
from tests.end_to_end.under_load import Traffic

pytestmark = pytest.mark.kafka

SEED = 20261121


@pytest.mark.parametrize("victim", ["evaluator-0", "router-0", "merger-0", "coordinator-0"])
def test_a_kill_under_load_loses_and_doubles_nothing(cluster: LocalCluster, victim: str) -> None:
    with Traffic(cluster.router_addresses, victim, f"{SEED}-{victim}") as traffic:
        traffic.await_progress()
        cluster.kill(victim)
        print(f"{victim} killed: matching resumed after {traffic.await_progress():.1f} s")
        assert cluster.mend() == [victim]
        next(one for one in cluster.processes if one.name == victim).await_ready()
        traffic.await_progress()
        traffic.finish()


def test_what_a_process_writes_that_stood_still_does_not_count(cluster: LocalCluster) -> None:
    victim = next(one for one in cluster.processes if one.name == "evaluator-0")
    pid = victim.process.pid
    assert pid is not None
    with Traffic(cluster.router_addresses, "zombie", f"{SEED}-zombie") as traffic:
        traffic.await_progress()
        os.kill(pid, signal.SIGSTOP)
        try:
            traffic.await_progress()
        finally:
            os.kill(pid, signal.SIGCONT)
        # Its unfinished work arrives now, after the records of its successors.
        traffic.await_progress()
        traffic.finish()
    assert victim.process.pid == pid
