"""Requests of other threads to a loop: taken up between two turns; futures have the answers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from sirocco.model import errors
from sirocco.protocol.contract.effects import Effect, Event, Outcome
from sirocco.runtime.process.clock import now_ms

T = TypeVar("T")

# CPU time of a turn for what clients ask; a request of 10,000 changes takes half a second. What is
# left waits for the next turn: objects are routed, and leases kept, between the two.
ASKED_CPU_S = 0.1

Turn = Callable[[], list[Effect]]
"""Something that the loop does at its next turn; it carries out what that returns."""


class LoopInbox:
    """The inbox of a loop, and the futures that wait for its contents.

    Args:
        step: Gives an event to the machine; called in the loop.
        is_open: Whether the loop runs and will continue to run.
        cpu_s: CPU time of the loop's thread.
    """

    def __init__(
        self,
        step: Callable[[Event], list[Effect]],
        is_open: Callable[[], bool],
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._machine_step = step
        self._is_open = is_open
        self._cpu_s = cpu_s
        # The process's own events do not wait for what clients ask.
        self._own: queue.SimpleQueue[Turn] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Turn] = queue.SimpleQueue()
        self._answers: dict[int, Future[Sequence[Outcome]]] = {}
        # Futures of all other requests.
        self._waiting: set[Future[Any]] = set()
        self._is_closed = False
        self._tokens = 0
        self._token_lock = threading.Lock()

    # --- from other threads

    def put(self, turn: Turn) -> None:
        """Makes the loop do something at its next turn."""
        self._own.put(turn)

    def post(self, event: Event) -> None:
        """Makes the machine take an event at the loop's next turn."""
        self._own.put(lambda: self._machine_step(event))

    def fail(self, error: Exception) -> None:
        """Ends the loop at its next turn, as an error of its own would."""
        self._own.put(partial(_raise, error))

    def ask(
        self, event_of: Callable[[int], Event], deadline_ms: int | None
    ) -> Future[Sequence[Outcome]]:
        """Gives an event to the machine; the future has the outcomes of its answer.

        Args:
            event_of: Returns the event for the token of its answer.
            deadline_ms: Epoch ms; after it the event is dropped.
        """
        with self._token_lock:
            self._tokens += 1
            token = self._tokens
        answer: Future[Sequence[Outcome]] = Future()
        if not self._is_open():
            answer.set_exception(errors.Unavailable("this process is ending; try another one"))
            return answer

        def take_up() -> list[Effect]:
            if not answer.set_running_or_notify_cancel():
                del self._answers[token]
                return []
            if deadline_ms is not None and now_ms() > deadline_ms:
                late = errors.DeadlineExceeded("the owner came to it too late; nothing was changed")
                self._answers.pop(token).set_exception(late)
                return []
            return self._machine_step(event_of(token))

        self._answers[token] = answer
        self._asked.put(take_up)
        self._end_if_closed()
        return answer

    def look(self, at: Callable[[], T]) -> Future[T]:
        """Calls a function in the loop, between two steps; the future has what it returns."""
        found: Future[T] = Future()

        def call() -> list[Effect]:
            self._waiting.discard(found)
            if found.set_running_or_notify_cancel():
                try:
                    found.set_result(at())
                except Exception as error:
                    found.set_exception(error)
            return []

        if self._is_open():
            self._waiting.add(found)
            self._asked.put(call)
            self._end_if_closed()
        else:
            found.set_exception(errors.Unavailable("this process is ending; try another one"))
        return found

    def settled(self, after_all: Callable[[Callable[[], None]], None]) -> Future[None]:
        """Returns a future that ends when the log has all that was appended up to now.

        Args:
            after_all: Makes something be done then; called in the loop.
        """
        done: Future[None] = Future()
        # A waiting caller may give up, but the loop could not complete a cancelled future.
        done.set_running_or_notify_cancel()
        self._waiting.add(done)

        def settle() -> None:
            self._waiting.discard(done)
            done.set_result(None)

        def wait() -> list[Effect]:
            after_all(settle)
            return []

        # Behind what was asked before: that appends as well.
        self._asked.put(wait)
        self._end_if_closed()
        return done

    # --- in the loop

    def take_up(self) -> Iterator[list[Effect]]:
        """Runs what is here, one after the other; yields the effects of each.

        What comes meanwhile waits for the next turn, as does what clients ask beyond `ASKED_CPU_S`:
        they decide how much that is.
        """
        own, asked = self._own.qsize(), self._asked.qsize()
        for _ in range(own):
            yield self._own.get()()
        begin_s = self._cpu_s()
        for _ in range(asked):
            yield self._asked.get()()
            if self._cpu_s() - begin_s >= ASKED_CPU_S:
                return

    @property
    def has_more(self) -> bool:
        """Whether anything waits for the next turn."""
        return not (self._own.empty() and self._asked.empty())

    def answer(self, token: int, outcomes: Sequence[Outcome]) -> None:
        """Passes on the machine's answer."""
        self._answers.pop(token).set_result(outcomes)

    def close(self) -> None:
        """Fails all waiting and all later requests: the loop has ended."""
        self._is_closed = True
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        """Called after each request too: the loop may have ended while it was put."""
        if not self._is_closed:
            return
        gone = errors.Unavailable("this process has ended; try another one")
        with self._token_lock:
            waiters: list[Future[Any]] = [*self._answers.values(), *self._waiting]
            for waiter in waiters:
                if waiter.done():
                    continue
                if waiter.running() or waiter.set_running_or_notify_cancel():
                    waiter.set_exception(gone)


def _raise(error: Exception) -> list[Effect]:
    raise error
