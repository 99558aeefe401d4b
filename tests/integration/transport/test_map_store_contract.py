"""The contract of every map store: the same scenarios on memory and on Redis."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from sirocco.local.redis import RedisServer
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.map_store import MapStore
from sirocco.transport.memory_map_store import MemoryMapStore
from sirocco.transport.redis_map_store import RedisMapStore
from tests.integration.transport.log_reading import until


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.kafka)])
def store(request: pytest.FixtureRequest) -> Iterator[MapStore]:
    made: MapStore
    if request.param == "memory":
        made = MemoryMapStore()
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        made = RedisMapStore(server.url, prefix=f"test-{uuid.uuid4().hex[:12]}")
    yield made
    made.close()


def test_a_lease_has_one_holder(store: MapStore) -> None:
    assert store.acquire("leader", "a", 60_000)
    assert not store.acquire("leader", "b", 60_000)
    assert store.acquire("leader", "a", 60_000), "repeating is harmless"
    assert store.holders("") == {"leader": "a"}
    assert not store.renew("leader", "b", 60_000)
    assert not store.release("leader", "b")
    assert store.renew("leader", "a", 60_000)
    assert store.release("leader", "a")
    assert not store.release("leader", "a")
    assert not store.renew("leader", "a", 60_000), "what was released is not renewed"
    assert store.holders("") == {}
    assert store.acquire("leader", "b", 60_000)


def test_an_expired_lease_can_be_taken_and_its_holder_learns_it(store: MapStore) -> None:
    assert store.acquire("leader", "a", 100)
    until(lambda: store.acquire("leader", "b", 60_000), "b takes the lease when a's has expired")
    assert not store.renew("leader", "a", 60_000)
    assert not store.release("leader", "a")
    assert store.holders("lead") == {"leader": "b"}


def test_a_renewed_lease_outlives_its_first_time(store: MapStore) -> None:
    assert store.acquire("long", "a", 50)
    assert store.renew("long", "a", 60_000)
    assert store.acquire("short", "a", 100)
    until(lambda: store.holders("") == {"long": "a"}, "only the renewed lease lives")


def test_holders_are_found_by_prefix(store: MapStore) -> None:
    for name in ("slot/1", "slot/12", "slot/2", "slots", "other/1", "slot*", "slot?/[a]"):
        assert store.acquire(name, f"of {name}", 60_000)
    assert store.holders("slot/") == {n: f"of {n}" for n in ("slot/1", "slot/12", "slot/2")}
    assert store.holders("slot/1") == {n: f"of {n}" for n in ("slot/1", "slot/12")}
    assert store.holders("slot*") == {"slot*": "of slot*"}
    assert store.holders("slot?/[") == {"slot?/[a]": "of slot?/[a]"}
    assert store.holders("none") == {}


def test_one_of_many_gets_a_free_lease(store: MapStore) -> None:
    start = threading.Barrier(8)
    winners: list[int] = []

    def attempt(number: int) -> None:
        start.wait()
        if store.acquire("contested", str(number), 60_000):
            winners.append(number)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert store.holders("contested") == {"contested": str(winners[0])}


def test_the_last_value_wins(store: MapStore) -> None:
    assert store.get("map/1") is None
    store.put("map/1", b"old")
    store.put("map/1", b"\x00new\xff")
    store.put("map/2", b"")
    store.put("maps", b"other")
    assert store.get("map/1") == b"\x00new\xff"
    assert store.scan("map/") == {"map/1": b"\x00new\xff", "map/2": b""}
    store.delete("map/1")
    store.delete("map/1")
    assert store.get("map/1") is None
    assert store.scan("map") == {"map/2": b"", "maps": b"other"}


def test_values_expire_and_puts_reset_their_time(store: MapStore) -> None:
    store.put("load/1", b"x", ttl_ms=100)
    store.put("load/2", b"x", ttl_ms=100)
    store.put("load/2", b"y")
    until(lambda: store.get("load/1") is None, "the value expires")
    assert store.scan("load/") == {"load/2": b"y"}


def test_leases_and_values_do_not_mix(store: MapStore) -> None:
    store.put("a", b"value")
    assert store.acquire("a", "holder", 60_000)
    assert store.get("a") == b"value"
    store.delete("a")
    assert store.holders("") == {"a": "holder"}


def test_many_values_are_all_scanned(store: MapStore) -> None:
    wanted = {f"n/{i}": b"%d" % i for i in range(3000)}
    for key, value in wanted.items():
        store.put(key, value)
    assert store.scan("n/") == wanted


@pytest.mark.kafka
def test_two_clusters_in_one_redis_do_not_mix(redis_server: RedisServer) -> None:
    one = RedisMapStore(redis_server.url, prefix=f"one-{uuid.uuid4().hex[:12]}")
    two = RedisMapStore(redis_server.url, prefix=f"two-{uuid.uuid4().hex[:12]}")
    assert one.acquire("leader", "a", 60_000)
    assert two.acquire("leader", "b", 60_000)
    assert (one.holders(""), two.holders("")) == ({"leader": "a"}, {"leader": "b"})


@pytest.mark.kafka
def test_a_dead_redis_is_unavailable_and_comes_back_empty(redis_server: RedisServer) -> None:
    store = RedisMapStore(redis_server.url, prefix=f"test-{uuid.uuid4().hex[:12]}")
    assert store.acquire("leader", "a", 60_000)
    redis_server.kill()
    try:
        calls = (
            lambda: store.acquire("leader", "a", 60_000),
            lambda: store.holders(""),
            lambda: store.put("key", b"value"),
            lambda: store.scan(""),
        )
        for call in calls:
            with pytest.raises(TransportUnavailable) as caught:
                call()
            assert caught.value.retryable
    finally:
        redis_server.start()
    assert not store.renew("leader", "a", 60_000), "the lease was lost with the server"
    assert store.acquire("leader", "a", 60_000), "the scripts are loaded anew"


@pytest.mark.kafka
@pytest.mark.parametrize("stale", ["yes", "no"])
def test_connections_to_a_master_that_became_a_replica_are_given_up(
    tmp_path: Path, stale: str
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    store = RedisMapStore(server.url)
    assert store.acquire("leader", "a", 60_000)
    control = redis.Redis.from_url(server.url)
    control.config_set("replica-serve-stale-data", stale)
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", b"1"),
        lambda: store.acquire("slot", "a", 60_000),
        lambda: store.renew("leader", "a", 60_000),
        lambda: store.release("leader", "a"),
    ]
    for call in calls:
        control.replicaof("NO", "ONE")
        store.put("a", b"0")
        (before,) = _connections(control)
        # As by a failover; the client's connection stays open.
        control.replicaof("127.0.0.1", "1")
        with pytest.raises(TransportUnavailable):
            call()
        until(lambda: not _connections(control), "the connection is closed")
        control.replicaof("NO", "ONE")
        store.put("a", b"1")
        assert _connections(control) != [before], "a service in front would choose anew"
    control.close()
    store.close()
    server.stop()


def _connections(control: redis.Redis) -> list[str]:
    """Returns the ids of the connections to Redis that are not the test's own."""
    own = str(control.client_id())
    clients: list[dict[str, str]] = control.client_list()
    return [each["id"] for each in clients if each["id"] != own and each["flags"] == "N"]


@pytest.mark.kafka
def test_what_is_no_text_hides_no_other_entry(redis_server: RedisServer) -> None:
    prefix = f"test-{uuid.uuid4().hex[:12]}"
    store = RedisMapStore(redis_server.url, prefix=prefix)
    assert store.acquire("member/a", "a", 60_000)
    store.put("member/a", b"\xff")
    with redis.Redis.from_url(redis_server.url) as client:
        for key in (b":lease:member/\xff", b":lease:member/b", b":value:member/\xff"):
            client.set(prefix.encode() + key, b"\xff")
        client.lpush(f"{prefix}:lease:member/c", "of another type")
    assert store.holders("member/") == {"member/a": "a"}
    assert store.scan("member/") == {"member/a": b"\xff"}
    store.close()
