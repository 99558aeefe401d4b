"""The coordinator's metrics of balancing rounds, and when they are outdated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from sirocco.protocol.coordinator.balance_requests import Measured, RoundResult
from sirocco.runtime.service import Parts
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.balance.base.view import LeafLoads
from sirocco.schemes.balance.base.work import work
from sirocco.services.coordinator.service import CoordinatorService
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.memory_log import MemoryLog
from sirocco.transport.memory_map_store import MemoryMapStore
from tests.support.values import uniform_map

MAP = uniform_map(2, 2)
OWNERS = ("a", "b")


@pytest.fixture
def service() -> Iterator[CoordinatorService]:
    log = MemoryLog()
    settings = ClusterSettings(slots=2, balance_objects_min=2_000)
    log.create_topics(settings.topics())
    parts = Parts(settings=settings, log=log, store=MemoryMapStore(), archive=MemoryArchive())
    yield CoordinatorService(parts, b"a map", 1)
    log.close()


def lead(service: CoordinatorService, monkeypatch: pytest.MonkeyPatch, leads: bool) -> None:
    monkeypatch.setattr(type(service.machine), "leading", leads)


def report(service: CoordinatorService, objects: float) -> None:
    """Reports a round with all objects in the leaf of one of two evaluators."""
    loads = LeafLoads(*[np.array([objects, 0.0])] * 6)
    measured = Measured(
        at_ms=0,
        round_ms=10_000,
        map=MAP,
        owners=OWNERS,
        loads=loads,
        cost=work(loads),
        imbalance=2.0,
    )
    assert service.balancing is not None
    service.balancing._log_round(RoundResult("sstd", measured, "", None, False))


def imbalance(service: CoordinatorService) -> float | None:
    service.refresh()
    return service.registry.get_sample_value("sirocco_coordinator_imbalance_ratio")


def leaves(service: CoordinatorService) -> int:
    service.refresh()
    families = {one.name: one for one in service.registry.collect()}
    return len(families["sirocco_coordinator_leaf_load_ratio"].samples)


def test_a_former_leader_shows_no_old_loads(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead(service, monkeypatch, True)
    report(service, 50_000)
    assert (imbalance(service), leaves(service)) == (2.0, 2)
    lead(service, monkeypatch, False)
    assert (imbalance(service), leaves(service)) == (0.0, 0)


@pytest.mark.parametrize(("objects", "shown"), [(1_999, 0.0), (2_000, 2.0)])
def test_chance_among_few_objects_is_no_imbalance(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch, objects: int, shown: float
) -> None:
    lead(service, monkeypatch, True)
    report(service, objects)
    assert imbalance(service) == shown
