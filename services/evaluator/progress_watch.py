"""How far the slots have come, asked from outside the loop that moves them on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from sirocco.protocol.contract.effects import Effect, Event
from sirocco.runtime.loop.worker import Machine

Condition: TypeAlias = "Callable[[], bool]"


class StepWatch:
    """A machine that tells when a condition on its state holds.

    In the middle of a step a slot's position may be ahead of what is stored of it, so conditions
    are looked at between steps alone: at once when no step is under way, else behind it, in the
    loop's own thread. Without anybody waiting a step costs two additions more.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        # Odd while a step is under way.
        self._turn = 0
        self._waiting: dict[asyncio.Future[None], Condition] = {}

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Steps the machine; called by its loop."""
        self._turn += 1
        try:
            return self._machine.step(event, now_ms)
        finally:
            self._turn += 1
            if self._waiting:
                self._tell()

    def deadline_ms(self) -> int | None:
        """When the machine wants to be stepped at the latest."""
        return self._machine.deadline_ms()

    def holds(self, condition: Condition) -> bool:
        """Whether a condition is known to hold now; False also when it cannot be told."""
        turn = self._turn
        return turn % 2 == 0 and condition() and self._turn == turn

    async def wait(self, condition: Condition, timeout_s: float) -> bool:
        """Waits until a condition holds; returns whether it does, to the gRPC loop.

        Args:
            condition: quick, and safe to ask in the machine's loop.
            timeout_s: how long to wait.
        """
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[told] = condition
        try:
            # It may have come to hold before it was waited for, and no step may follow.
            if self.holds(condition):
                return True
            await asyncio.wait_for(told, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(told, None)
        return True

    def _tell(self) -> None:
        for told, condition in list(self._waiting.items()):
            if condition() and self._waiting.pop(told, None) is not None:
                told.get_loop().call_soon_threadsafe(_settle, told)


def _settle(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
