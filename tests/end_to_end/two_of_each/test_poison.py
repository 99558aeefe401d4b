"""Damaged records on every topic, under load: no process ends, and nothing is lost or doubled."""

from __future__ import annotations

import time

import pytest

from sirocco.local.cluster import LocalCluster
from sirocco.local.kafka import KafkaServer
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings
from tests.end_to_end.under_load import WAIT_S, Traffic
from tests.faults.poison import letters, spoil

pytestmark = pytest.mark.kafka

SEED = 20261123


def test_what_makes_no_sense_goes_to_dead_letters(
    cluster: LocalCluster, kafka_server: KafkaServer
) -> None:
    prefix = f"{cluster.settings.cluster}."
    log = KafkaLog(KafkaSettings(bootstrap=kafka_server.address, topic_prefix=prefix))
    with Traffic(cluster.router_addresses, "poison", f"{SEED}") as traffic:
        traffic.await_progress()
        spoilt = set(spoil(log))
        assert len(spoilt) > 100
        traffic.await_progress()
        deadline_s = time.monotonic() + WAIT_S
        while missing := spoilt - letters(log):
            assert time.monotonic() < deadline_s, f"{len(missing)} missing: {sorted(missing)[:5]}"
        traffic.finish()
    log.close()
    assert all(one.running for one in cluster.processes)
