"""When to try again after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sirocco_client.base.numbers import read_real, read_whole
from sirocco_client.errors import SiroccoError, Unauthenticated

# Seconds reserved for the last try within a time limit: a refused connection takes far less.
LAST_TRY_S = 0.1

# More tries than anybody has time for, a pause of a day, and growth to it in one step: beyond these
# the arithmetic of pauses overflows.
ATTEMPTS_MAX = 1 << 53
PAUSE_MS_MAX = 86_400_000.0
FACTOR_MAX = 1e9


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon a failed call is retried.

    The defaults wait about 45 s in all, longer than a coordinator's failover (about 6 s) and the
    restart of a broker. Each pause is shortened by a random part, or lengthened by one if the
    server names a pause, so that clients that failed together do not return together.

    Attributes:
        attempts: Tries without any progress before giving up, at least 1.
        initial_ms: Longest first pause.
        factor: Growth of the longest pause per failure.
        longest_ms: Longest pause of all.
        jitter: Share of a pause that is random, in [0, 1].
    """

    attempts: int = 20
    initial_ms: float = 100.0
    factor: float = 1.5
    longest_ms: float = 5_000.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        read_whole(self.attempts, "retry.attempts", 1, ATTEMPTS_MAX)
        read_real(self.longest_ms, "retry.longest_ms", 0, PAUSE_MS_MAX)
        read_real(self.initial_ms, "retry.initial_ms", 0, self.longest_ms)
        read_real(self.factor, "retry.factor", 1, FACTOR_MAX)
        read_real(self.jitter, "retry.jitter", 0, 1)


class Backoff:
    """Counts the failures of one retried operation."""

    def __init__(
        self,
        retry: Retry,
        random: Callable[[], float],
        *,
        reach_s: float | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins without failures.

        Args:
            retry: Number and length of pauses.
            random: Returns numbers in [0, 1).
            reach_s: How long to retry until the first progress, seconds; None: by `retry`.
            clock_s: The time, seconds.
        """
        self._retry = retry
        self._random = random
        self._failures = 0
        self._reach_s = reach_s
        self._clock_s = clock_s
        self._until_s: float | None = None

    def begin(self) -> None:
        """Starts the time of the first try; calling it again does nothing."""
        if self._reach_s is not None and self._until_s is None:
            self._until_s = self._clock_s() + self._reach_s

    def progressed(self) -> None:
        """Forgets the failures so far."""
        self._failures = 0
        self._reach_s = self._until_s = None

    def pause_s(self, error: SiroccoError) -> float:
        """Returns the seconds to wait before the next try.

        Raises:
            SiroccoError: The given error, if another try is useless.
        """
        self.begin()
        self._failures += 1
        # A token that is refused is renewed once.
        tries = 2 if isinstance(error, Unauthenticated) else self._retry.attempts
        if not error.retryable or self._failures >= min(tries, self._retry.attempts):
            raise error
        # The exponent is bounded: otherwise many attempts would overflow a float.
        growth = self._retry.factor ** min(self._failures - 1, 64)
        pause_ms = min(self._retry.initial_ms * growth, self._retry.longest_ms)
        spread = self._retry.jitter * self._random()
        # The server's pause is the minimum; it names the same one to all clients that it refuses.
        asked_ms = min(float(error.retry_after_ms or 0), PAUSE_MS_MAX)
        asked_ms += spread * min(asked_ms, self._retry.longest_ms)
        pause_s = max(pause_ms * (1 - spread), asked_ms) / 1_000
        if self._until_s is None:
            return pause_s
        return within(pause_s, self._until_s - self._clock_s(), error)


def within(pause_s: float, left_s: float, error: SiroccoError) -> float:
    """Returns a pause that leaves time for a last try.

    Raises:
        SiroccoError: The given error, if no time is left for one, or the server names a longer
            pause.
    """
    if pause_s < left_s - LAST_TRY_S:
        return pause_s
    if error.retry_after_ms is not None or left_s < 2 * LAST_TRY_S:
        raise error
    return left_s - LAST_TRY_S
