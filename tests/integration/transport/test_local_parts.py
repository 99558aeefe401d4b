"""The broker and Redis of tests and local clusters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sirocco.local.process import LocalError, LocalProcess
from sirocco.local.redis import RedisServer
from sirocco.transport.redis_map_store import RedisMapStore
from tests.integration.transport.log_reading import until


@pytest.mark.kafka
def test_redis_comes_and_goes(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    url, pid = server.url, server.process.pid
    assert (tmp_path / "redis.pid").read_text() == f"{pid}\n"
    server.start()
    assert server.process.pid == pid, "a second start changes nothing"
    store = RedisMapStore(url)
    store.put("a", b"1")
    server.restart()
    assert (server.url, store.get("a")) == (url, None)
    # Another command finds it by its file, and can stop it.
    other = RedisServer(tmp_path)
    assert other.process.pid == server.process.pid
    other.stop()
    until(lambda: server.process.pid is None, "the first one notices")
    assert not (tmp_path / "redis.pid").exists()
    server.stop()


def test_a_stranger_with_our_number_is_left_alone(tmp_path: Path) -> None:
    process = LocalProcess("part", tmp_path, "a-marker-of-no-command-line", outlive=False)
    process.pid_path.write_text(f"{os.getpid()}\n")
    assert process.pid is None
    process.kill()
    process.pid_path.write_text("garbage")
    assert process.pid is None
    process.stop()


def test_a_part_that_does_not_come_up_is_explained(tmp_path: Path) -> None:
    process = LocalProcess("part", tmp_path, "sh", outlive=False)
    with pytest.raises(LocalError, match="the reason"):
        process.start(["sh", "-c", "echo the reason; exit 1"], ready=lambda: False)
    with pytest.raises(LocalError, match=r"not ready in 0\.2 s"):
        process.start(["sh", "-c", "sleep 60"], ready=lambda: False, timeout_s=0.2)
    assert process.pid is None
