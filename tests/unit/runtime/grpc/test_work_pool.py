"""Expensive input is read beside the loop, in turns between the senders."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sirocco.model.access import Grant
from sirocco.model.errors import InvalidArgument, ResourceExhausted
from sirocco.runtime.grpc import authentication, edge, work_pool
from sirocco.runtime.grpc.authentication import Caller
from sirocco.runtime.grpc.work_pool import WorkPool
from tests.support.waiting import until


def with_pool(test: Callable[[WorkPool], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def run() -> None:
        pool = WorkPool("test", **settings)
        try:
            await test(pool)
        finally:
            pool.close()

    asyncio.run(run())


def asks(pool: WorkPool, job: Callable[[], Any], tenant: str = "", connection: str = "") -> Any:
    """Returns a task of a caller."""

    async def ask() -> Any:
        authentication._CALLER.set(Caller(Grant(tenant, tenant, frozenset(), None)))
        edge._CONNECTION.set(connection)
        return await pool.run(job)

    return asyncio.create_task(ask())


def busy(cpu_s: float) -> None:
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass


def test_results_and_errors_come_back() -> None:
    async def test(pool: WorkPool) -> None:
        assert await pool.run(lambda: threading.current_thread().name) == "test_0"

        def refuse() -> None:
            raise InvalidArgument("no", field="text")

        with pytest.raises(InvalidArgument, match="text: no"):
            await pool.run(refuse)
        assert await pool.map(lambda number: 2 * number, range(1_000)) == [*range(0, 2_000, 2)]
        assert not pool.waiting

    with_pool(test)


@pytest.mark.parametrize("by", ["tenant", "connection"])
def test_turns_rotate_between_callers(by: str) -> None:
    """A sender of one job waits for one of each other, however many these have sent."""

    async def test(pool: WorkPool) -> None:
        order: list[str] = []
        gate = threading.Event()
        first = asks(pool, gate.wait)
        many = [asks(pool, lambda: order.append("many"), **{by: "many"}) for _ in range(50)]
        await asyncio.sleep(0)
        one = asks(pool, lambda: order.append("one"), **{by: "one"})
        await until(lambda: pool.waiting >= 51)
        gate.set()
        await asyncio.gather(first, one, *many)
        assert order.index("one") <= 1

    with_pool(test, threads=1)


def test_many_callers_do_not_look_at_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job looked at all that wait: 4,000 of 0.1 ms took the loop 4 s."""
    looks: list[int] = []
    is_done = work_pool._Sender.is_done

    def count(sender: Any, now_ms: int) -> bool:
        looks.append(now_ms)
        return is_done(sender, now_ms)

    monkeypatch.setattr(work_pool._Sender, "is_done", count)

    async def test(pool: WorkPool) -> None:
        done = [asks(pool, lambda: None, connection=f"ipv4:10.0.0.1:{port}") for port in range(300)]
        await asyncio.gather(*done)
        assert not pool._senders

    with_pool(test)
    assert len(looks) < 4 * 300


def test_many_items_of_one_caller_are_worked_off_in_turns() -> None:
    async def test(pool: WorkPool) -> None:
        order: list[int] = []
        gate = threading.Event()
        first = asks(pool, gate.wait)
        many = asyncio.create_task(pool.map(order.append, range(20)))
        one = asks(pool, lambda: order.append(-1), connection="one")
        await until(lambda: pool.waiting >= 2)
        gate.set()
        await asyncio.gather(first, many, one)
        assert order.index(-1) <= 1

    # Every item takes longer than a turn.
    with_pool(test, threads=1, turn_s=-1.0)


def test_a_tenant_over_its_time_waits_and_others_do_not() -> None:
    async def test(pool: WorkPool) -> None:
        await asks(pool, lambda: busy(0.2), "acme")
        late = asks(pool, lambda: "late", "acme")
        await asyncio.sleep(0)
        assert await asks(pool, lambda: "beta", "beta") == "beta"
        assert not late.done()
        with pytest.raises(ResourceExhausted) as caught:
            await late
        assert caught.value.retry_after_ms

    with_pool(test, tenant_ms_per_s=10.0, wait_s=0.3)


def test_a_debt_is_worked_off() -> None:
    async def test(pool: WorkPool) -> None:
        await asks(pool, lambda: busy(0.06), "acme")
        assert await asks(pool, lambda: "again", "acme") == "again"

    with_pool(test, tenant_ms_per_s=50.0)


def test_what_waits_is_bounded() -> None:
    async def test(pool: WorkPool) -> None:
        gate = threading.Event()
        running = asks(pool, gate.wait, "acme")
        await asyncio.sleep(0)
        waiting = [asks(pool, lambda: None, "acme") for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhausted):
            await asks(pool, lambda: None, "acme")
        beta = asks(pool, lambda: None, "beta")
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(running, beta, *waiting)

    with_pool(test, threads=1, waiting_each_max=3)


def test_no_work_is_done_for_a_caller_that_has_gone() -> None:
    async def test(pool: WorkPool) -> None:
        gate = threading.Event()
        running = asks(pool, gate.wait, "acme")
        await asyncio.sleep(0)
        seen: list[str] = []
        removed = asks(pool, lambda: seen.append("gone"), "acme")
        await asyncio.sleep(0)
        removed.cancel()
        after = asks(pool, lambda: seen.append("after"), "acme")
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(running, after)
        assert seen == ["after"]
        assert not pool._senders["acme", ""].jobs

    with_pool(test, threads=1)


def test_the_loop_turns_while_much_is_read() -> None:
    async def test(pool: WorkPool) -> None:
        work = asyncio.create_task(pool.map(lambda _: busy(0.002), range(200)))
        turns = 0
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 200

    with_pool(test)
