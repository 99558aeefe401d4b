"""Admission: how much may be in flight between a front and the evaluators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sirocco.model.errors import ResourceExhausted
from sirocco.protocol.contract.positions import position_of
from sirocco.runtime.process.membership import LEASE_TIMES, LEASES, MemberInfo
from sirocco.runtime.service import Parts
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.router.admission import RETRY_AFTER_MS, Admission, AdmissionLimits, taken
from sirocco.services.router.service import RouterService
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.memory_log import MemoryLog
from sirocco.transport.memory_map_store import MemoryMapStore
from tests.support.waiting import until

LIMIT_BYTES = 1_000
WAIT_S = 120.0


LIMITS = AdmissionLimits(
    under_way_bytes_max=LIMIT_BYTES, waiting_bytes_max=LIMIT_BYTES, look_s=0.001
)


class Cluster:
    """The processes' reports: how far each evaluator has taken each intake partition."""

    def __init__(self) -> None:
        self.reached: dict[str, dict[int, int]] = {}
        self.is_away = False
        self.looks = 0

    def members(self) -> dict[str, MemberInfo]:
        self.looks += 1
        if self.is_away:
            raise TransportUnavailable("the map store is away")
        return {
            name: MemberInfo(
                id=name,
                service=name.partition("-")[0],
                address="host:1",
                http_address="host:2",
                started_ms=0,
                taken={str(p): position_of(offset) for p, offset in offsets.items()},
            )
            for name, offsets in self.reached.items()
        }


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), WAIT_S))


async def let_in(admission: Admission, partition: int, offset: int, size: int) -> None:
    """Admits an object and appends it."""
    await admission.room(size)
    admission.appended(partition, offset, size)


async def looked(cluster: Cluster, times: int = 3) -> None:
    """Returns after some more looks."""
    seen = cluster.looks
    await until(lambda: cluster.looks >= seen + times)


def test_below_the_limit_no_caller_waits_and_no_request_is_sent() -> None:
    async def test() -> None:
        cluster = Cluster()
        admission = Admission(cluster.members, LIMITS)
        await let_in(admission, 0, 0, LIMIT_BYTES // 4 - 1)
        assert (admission.bytes_under_way, cluster.looks) == (LIMIT_BYTES // 4 - 1, 0)

    run(test)


def test_waiting_callers_continue_when_all_evaluators_have_taken_enough() -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.reached = {"evaluator-a": {0: 0}, "evaluator-b": {0: 0}}
        admission = Admission(cluster.members, LIMITS)
        for offset in range(5):
            await let_in(admission, 0, offset, LIMIT_BYTES // 5)
        waiting = asyncio.create_task(admission.room(1))
        await looked(cluster)
        assert not waiting.done()
        # The slowest decides: b holds slots that have not received it yet.
        cluster.reached["evaluator-a"] = {0: 5}
        await looked(cluster)
        assert not waiting.done()
        assert admission.bytes_under_way == LIMIT_BYTES
        cluster.reached["evaluator-b"] = {0: 1}
        await waiting
        assert admission.bytes_under_way == 4 * LIMIT_BYTES // 5 + 1

    run(test)


def test_each_intake_partition_is_counted_by_itself() -> None:
    async def test() -> None:
        cluster = Cluster()
        admission = Admission(cluster.members, LIMITS)
        await let_in(admission, 0, 90, 300)
        await let_in(admission, 1, 3, 400)
        await let_in(admission, 1, 4, 300)
        cluster.reached = {"evaluator-a": {0: 90, 1: 4}}
        # The record at an offset is taken once the position is past it.
        await until(lambda: admission.bytes_under_way == 600)
        cluster.reached = {"evaluator-a": {0: 91, 1: 4}}
        await until(lambda: admission.bytes_under_way == 300)

    run(test)


def test_without_the_map_store_callers_wait_and_it_is_read_again() -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.is_away = True
        admission = Admission(cluster.members, LIMITS)
        await let_in(admission, 0, 0, LIMIT_BYTES)
        waiting = asyncio.create_task(admission.room(1))
        await looked(cluster)
        assert not waiting.done()
        cluster.is_away, cluster.reached = False, {"evaluator-a": {0: 1}}
        await waiting
        assert admission.bytes_under_way == 1

    run(test)


def test_while_no_evaluator_is_there_everything_is_under_way() -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.reached = {"router-a": {}, "evaluator-idle": {}}
        admission = Admission(cluster.members, LIMITS)
        await let_in(admission, 0, 0, LIMIT_BYTES)
        waiting = asyncio.create_task(admission.room(1))
        await looked(cluster)
        assert not waiting.done()
        waiting.cancel()

    run(test)


def test_all_waiting_callers_continue_together_and_watching_ends_and_restarts() -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.reached = {"evaluator-a": {0: 0}}
        admission = Admission(cluster.members, LIMITS)
        for wave in (1, 2):
            await let_in(admission, 0, wave - 1, LIMIT_BYTES)
            waiting = [asyncio.create_task(admission.room(1)) for _ in range(7)]
            await looked(cluster)
            assert not any(each.done() for each in waiting)
            cluster.reached = {"evaluator-a": {0: wave}}
            await asyncio.gather(*waiting)
            assert admission.bytes_under_way == len(waiting)
            for _ in waiting:
                admission.failed(1)
            # A look that was under way may still end; then no process is asked any more.
            await until(lambda: admission._watching is not None and admission._watching.done())

    run(test)


def test_taken_is_the_least_of_all_reports() -> None:
    cluster = Cluster()
    cluster.reached = {"evaluator-a": {0: 5, 1: 9}, "evaluator-b": {0: 7}, "router-a": {}}
    assert taken(cluster.members()) == {0: position_of(5), 1: position_of(9)}
    assert taken({}) == {}


def test_callers_that_wait_too_long_receive_a_retry_time() -> None:
    async def test() -> None:
        # init: full, and no evaluator takes anything.
        cluster = Cluster()
        cluster.reached = {"evaluator-a": {0: 0}}
        admission = Admission(cluster.members, replace(LIMITS, shed_after_s=0.01))
        await let_in(admission, 0, 0, LIMIT_BYTES)

        # test
        with pytest.raises(ResourceExhausted) as caught:
            await admission.room(1)

        # check: it does not count, and later callers are admitted again.
        assert caught.value.retry_after_ms == RETRY_AFTER_MS
        assert caught.value.retryable
        assert admission.bytes_under_way == LIMIT_BYTES
        cluster.reached = {"evaluator-a": {0: 1}}
        await until(lambda: admission.bytes_under_way == 0)
        await admission.room(1)

    run(test)


def test_what_waits_is_bounded_and_the_first_to_come_is_the_first_to_go() -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.reached = {"evaluator-a": {0: 0}}
        admission = Admission(cluster.members, LIMITS)
        await let_in(admission, 0, 0, LIMIT_BYTES)
        went: list[int] = []

        async def wait(number: int, size: int) -> None:
            await admission.room(size)
            went.append(number)

        # However large, one may wait; then as many as fit the bound.
        waiting = [asyncio.create_task(wait(0, 2 * LIMIT_BYTES))]
        await looked(cluster)
        with pytest.raises(ResourceExhausted):
            await admission.room(1)
        waiting[0].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        waiting = [asyncio.create_task(wait(i, LIMIT_BYTES // 4)) for i in range(4)]
        await looked(cluster)
        with pytest.raises(ResourceExhausted):
            await admission.room(1)
        cluster.reached = {"evaluator-a": {0: 1}}
        await asyncio.gather(*waiting)
        assert went == [0, 1, 2, 3]
        assert admission.bytes_under_way == LIMIT_BYTES

    run(test)


def test_callers_that_hang_up_or_fail_leave_no_state() -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.reached = {"evaluator-a": {0: 0}}
        admission = Admission(cluster.members, LIMITS)
        await let_in(admission, 0, 0, LIMIT_BYTES)
        leaving = asyncio.create_task(admission.room(LIMIT_BYTES))
        await looked(cluster)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        cluster.reached = {"evaluator-a": {0: 1}}
        await until(lambda: admission.bytes_under_way == 0)
        await admission.room(LIMIT_BYTES)
        admission.failed(LIMIT_BYTES)
        assert admission.bytes_under_way == 0

    run(test)


def test_positions_of_a_dead_evaluator_hold_no_caller_up() -> None:
    log, store, settings = MemoryLog(), MemoryMapStore(), ClusterSettings(slots=2)
    log.create_topics(settings.topics())
    router = RouterService(Parts(settings=settings, log=log, store=store, archive=MemoryArchive()))
    for name, offset in (("evaluator-dead", 3), ("evaluator-heir", 90)):
        info = MemberInfo(
            id=name,
            service="evaluator",
            address="a:1",
            http_address="a:2",
            started_ms=0,
            taken={"0": position_of(offset)},
        )
        store.put(f"member/{name}", info.form())
    # One evaluator's lease has expired, others own its slots; its last report is still there.
    store.acquire(LEASES + "evaluator-heir", "evaluator-heir", LEASE_TIMES.lease_ms)
    assert taken(router._admission._members()) == {0: position_of(90)}
    router._appender.close()
    log.close()
