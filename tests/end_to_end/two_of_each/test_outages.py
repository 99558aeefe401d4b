"""Outages of Kafka and Redis under load: nothing is lost or doubled, and no process ends.

Two of each service run as processes, and a session publishes without pause. The outage begins and
ends meanwhile; then matching has to resume by itself.
"""

from __future__ import annotations

import socket

import pytest

from sirocco.local.cluster import LocalCluster
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.end_to_end.under_load import Traffic

pytestmark = pytest.mark.kafka

SEED = 20261122

LONGER_THAN_A_LEASE_S = 6.0


def assert_all_live(cluster: LocalCluster) -> None:
    ended = [one for one in cluster.processes if not one.running]
    tails = "\n".join(one.process.log_tail() for one in ended)
    assert not ended, f"{[one.name for one in ended]} ended:\n{tails}"


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_a_broker_that_comes_back_has_cost_nothing(
    cluster: LocalCluster, kafka_server: KafkaServer, ending: str
) -> None:
    seed = f"{SEED}-broker-{ending}"
    with Traffic(cluster.router_addresses, f"broker-{ending}", seed) as traffic:
        traffic.await_progress()
        if ending == "killed":
            kafka_server.kill()
        else:
            kafka_server.stop()
        kafka_server.start()
        print(f"broker {ending}: matching resumed after {traffic.await_progress():.1f} s")
        traffic.register_under_way("afterwards")
        traffic.await_progress()
        traffic.finish()
    assert_all_live(cluster)


def flush(redis: RedisServer) -> None:
    """Empties Redis while it still answers, as a failover to an empty replica does."""
    address = redis.url.removeprefix("redis://").partition("/")[0]
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5.0) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(16).startswith(b"+OK")


@pytest.mark.parametrize("ending", ["killed", "flushed"])
def test_redis_may_be_lost_as_a_whole(
    cluster: LocalCluster, redis_server: RedisServer, ending: str
) -> None:
    name = f"redis-{ending}"
    with Traffic(cluster.router_addresses, name, f"{SEED}-{name}") as traffic:
        traffic.await_progress()
        owners = traffic.owners()
        if ending == "flushed":
            flush(redis_server)
        else:
            redis_server.kill()
            # Every lease would have expired meanwhile, and matching continues.
            traffic.await_progress(after_s=LONGER_THAN_A_LEASE_S)
            redis_server.start()
        print(f"redis {ending}: a match after {traffic.await_progress():.1f} s")
        traffic.register_under_way("afterwards")
        # Long enough for the coordinator to act on the new content.
        traffic.await_progress(after_s=LONGER_THAN_A_LEASE_S)
        assert traffic.owners() == owners, "somebody counted as dead who was not"
        traffic.finish()
    assert_all_live(cluster)
