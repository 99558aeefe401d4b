"""The answers to probes about a loop that is stuck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sirocco.runtime import service as service_module
from sirocco.runtime.limits import ProcessLimits
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.membership import LeaseTimes
from sirocco.runtime.service import Parts, Service
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.services.coordinator.service import CoordinatorService
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.memory_log import MemoryLog
from sirocco.transport.memory_map_store import MemoryMapStore
from tests.support.values import uniform_map
from tests.support.waiting import eventually

STUCK_MS = 3_000
LIMITS = ProcessLimits(leases=LeaseTimes(stuck_ms=STUCK_MS))


@pytest.fixture
def service() -> Iterator[Service]:
    log = MemoryLog()
    settings = ClusterSettings(slots=2, balances=False)
    log.create_topics(settings.topics())
    parts = Parts(
        settings=settings,
        log=log,
        store=MemoryMapStore(),
        archive=MemoryArchive(),
        limits=LIMITS,
    )
    service = CoordinatorService(parts, to_bytes(uniform_map(2, 2)), 1)
    service.start()
    yield service
    service.stop()
    log.close()


def status(service: Service, path: str) -> int:
    try:
        with urlopen(f"http://{service.http_address}{path}", timeout=120.0) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_loop_that_has_lost_its_lease_by_standing_still_is_not_healthy(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually(lambda: status(service, "/readyz") == 200, "is not ready")
    assert status(service, "/healthz") == 200
    # The loop runs, but here its last turn seems long ago.
    monkeypatch.setattr(service_module, "monotonic_ms", lambda: monotonic_ms() + STUCK_MS + 1_000)
    assert status(service, "/healthz") == 503


def test_a_grpc_loop_that_stands_still_is_not_healthy(service: Service) -> None:
    go_on = threading.Event()
    eventually(lambda: status(service, "/healthz") == 200)
    service.server.loop.call_soon_threadsafe(go_on.wait)
    try:
        eventually(lambda: status(service, "/healthz") == 503)
    finally:
        go_on.set()
    eventually(lambda: status(service, "/healthz") == 200)
