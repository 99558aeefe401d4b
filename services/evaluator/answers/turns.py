"""Turns of the questions that share the threads of the search pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from sirocco.model.errors import DeadlineExceeded


class Turns:
    """Gives the thread to other questions at intervals, and ends one whose caller has gone."""

    def __init__(self, is_over: Callable[[], bool], slice_s: float) -> None:
        self._is_over = is_over
        self._slice_s = slice_s
        self._begin_s = time.monotonic()

    def pause(self) -> Iterator[None]:
        """Yields None if it is time to give the thread away.

        Raises:
            DeadlineExceeded: the caller does not wait any more.
        """
        if self._is_over():
            raise DeadlineExceeded("nobody waits for the answer any more")
        if time.monotonic() - self._begin_s > self._slice_s:
            yield None
            self._begin_s = time.monotonic()

    def restart(self) -> None:
        """Begins a new slice of time: sending a part gave the thread away."""
        self._begin_s = time.monotonic()
