"""The tries of one call: the time that is left, and what follows a failure.

No I/O; the time is an argument. The same for both clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sirocco_client.calls.router_calls import RouterCall
from sirocco_client.connection.contact import NEWER_CALLS
from sirocco_client.connection.retry import Backoff, Retry, within
from sirocco_client.errors import DeadlineExceeded, NotFound, SiroccoError, Unimplemented


class Attempts:
    """Decides whether and when a call is tried again."""

    def __init__(self, retry: Retry, random: Callable[[], float], deadline_s: float) -> None:
        """Begins without failures; times are of a clock that does not go back, seconds."""
        self._backoff = Backoff(retry, random)
        self._deadline_s = deadline_s
        self._last: SiroccoError | None = None

    def left_s(self, now_s: float) -> float:
        """Returns the time limit of the next try."""
        return self._deadline_s - now_s

    def is_unknown_call(self, call: RouterCall[Any], error: SiroccoError) -> bool:
        """Whether the server lacks a call that older routers lack too."""
        return isinstance(error, Unimplemented) and call.method in NEWER_CALLS

    def has_removed(self, call: RouterCall[Any], error: SiroccoError) -> bool:
        """Whether an earlier try may have removed what is missing; its answer was lost."""
        return call.is_removal and isinstance(error, NotFound) and self._last is not None

    def pause_s(self, error: SiroccoError, now_s: float) -> float:
        """Returns the seconds to wait before the next try.

        Raises:
            SiroccoError: Another try is useless, or there is no time for it.
        """
        pause_s = self._backoff.pause_s(error)
        if isinstance(error, DeadlineExceeded):
            # The earlier error says more than that the time is over.
            raise self._last or error
        self._last = error
        return within(pause_s, self.left_s(now_s), error)
