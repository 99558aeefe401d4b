"""Waits for conditions on the slots, outside the loop that processes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from sirocco.protocol.contract.effects import Effect, Event
from sirocco.runtime.loop.worker import Machine

Condition: TypeAlias = "Callable[[], bool]"


class StepWatch:
    """A machine that reports when a condition on its state holds.

    During a step a slot's position may be ahead of its store, so conditions are checked only
    between steps: at once if no step is running, otherwise after it, in the loop's thread. Without
    waiting conditions, this costs a step two additions.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        # Odd while a step is running.
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
                self._notify()

    def deadline_ms(self) -> int | None:
        """Returns when the machine needs its next step at the latest."""
        return self._machine.deadline_ms()

    def holds(self, condition: Condition) -> bool:
        """Whether a condition certainly holds now; False also if that is unknown."""
        turn = self._turn
        return turn % 2 == 0 and condition() and self._turn == turn

    async def wait(self, condition: Condition, timeout_s: float) -> bool:
        """Waits until a condition holds; returns whether it does, to the gRPC loop.

        Args:
            condition: quick, and safe to evaluate in the machine's loop.
            timeout_s: how long to wait, seconds.
        """
        notified: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[notified] = condition
        try:
            # It may have become true before the wait was registered, and no step may follow.
            if self.holds(condition):
                return True
            await asyncio.wait_for(notified, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(notified, None)
        return True

    def _notify(self) -> None:
        for notified, condition in list(self._waiting.items()):
            if condition() and self._waiting.pop(notified, None) is not None:
                notified.get_loop().call_soon_threadsafe(_settle, notified)


def _settle(notified: asyncio.Future[None]) -> None:
    if not notified.done():
        notified.set_result(None)
