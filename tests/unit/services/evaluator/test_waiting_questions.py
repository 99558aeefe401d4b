"""The search pool's work: several results a turn of the loop, and none waits for a long one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sirocco.services.evaluator.waiting_questions import WaitingQuestions
from tests.support.waiting import until


def in_loop(test: Callable[[ThreadPoolExecutor], Any]) -> None:
    with ThreadPoolExecutor(2) as pool:
        asyncio.run(asyncio.wait_for(test(pool), 60))


def test_each_gets_its_own_result_or_error() -> None:
    async def test(pool: ThreadPoolExecutor) -> None:
        waiting: WaitingQuestions[int] = WaitingQuestions(pool, 2)
        made: dict[int, int | BaseException] = {}

        def work(number: int) -> int:
            if number % 7 == 0:
                raise ValueError(number)
            return number * number

        for number in range(500):
            waiting.put(
                lambda number=number: work(number),
                lambda result, number=number: made.__setitem__(number, result),
            )
            if number % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(made) == 500)
        for number, result in made.items():
            assert repr(result) == repr(ValueError(number) if number % 7 == 0 else number * number)

    in_loop(test)


def test_what_waits_while_a_thread_works_is_delivered_in_one_turn() -> None:
    async def test(pool: ThreadPoolExecutor) -> None:
        # Nothing is delivered before its thread has nothing left to do.
        waiting: WaitingQuestions[int] = WaitingQuestions(pool, 1, group_s=60)
        begins = threading.Event()
        turns: list[int] = []
        turn = 0

        def are_all_made() -> bool:
            nonlocal turn
            turn += 1
            return len(turns) == 21

        waiting.put(lambda: begins.wait(120.0) and 0, lambda _: turns.append(turn))
        for number in range(20):
            waiting.put(lambda number=number: number, lambda _: turns.append(turn))
        begins.set()
        await until(are_all_made)
        assert len(set(turns)) == 1

    in_loop(test)


def test_a_long_question_holds_nothing_back() -> None:
    async def test(pool: ThreadPoolExecutor) -> None:
        waiting: WaitingQuestions[int] = WaitingQuestions(pool, 1)
        ends = threading.Event()
        made: list[int | BaseException] = []
        waiting.put(lambda: 1, made.append)
        waiting.put(lambda: ends.wait(120.0) and 2, made.append)
        await until(lambda: made)
        assert made == [1]
        ends.set()
        await until(lambda: len(made) == 2)

    in_loop(test)


def test_two_threads_work_at_a_time() -> None:
    async def test(pool: ThreadPoolExecutor) -> None:
        waiting: WaitingQuestions[int] = WaitingQuestions(pool, 2)
        meet = threading.Barrier(2)
        made: list[int | BaseException] = []
        for _ in range(2):
            waiting.put(lambda: meet.wait(120.0), made.append)
        await until(lambda: len(made) == 2)
        assert set(made) == {0, 1}

    in_loop(test)


def test_further_parts_of_long_answers_have_their_turns() -> None:
    """They wait in the same pool: questions that never end must not keep them out."""

    async def test(_pool: ThreadPoolExecutor) -> None:
        now_s = 0.0
        begins = threading.Event()
        done: list[int] = []

        def work(number: int) -> None:
            nonlocal now_s
            begins.wait(120.0)
            now_s += 0.001
            done.append(number)

        with ThreadPoolExecutor(1) as pool:
            waiting: WaitingQuestions[None] = WaitingQuestions(pool, 1, clock_s=lambda: now_s)
            made: list[Any] = []
            for number in range(2_000):
                waiting.put(lambda number=number: work(number), made.append)
            part = asyncio.get_running_loop().run_in_executor(pool, lambda: len(done))
            begins.set()
            assert await part < 10
            await until(lambda: len(made) == 2_000)

    in_loop(test)
