"""Decides what to do after a try to deliver a batch. Outcome and time in, decision out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeAlias

# A growth of pauses beyond this exponent would overflow before it is cut to the longest pause.
_GROWTHS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon a batch is sent again.

    Attributes:
        attempts: Tries that the receiver refused, by a status that says that the request is wrong.
        outage_s: How long a batch is tried while the receiver fails or cannot be reached.
        first_s: Longest first pause.
        longest_s: Longest pause, also of those that a receiver asks for.
    """

    attempts: int = 5
    outage_s: float = 86_400.0
    first_s: float = 0.5
    longest_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Answered:
    """A receiver's answer.

    Attributes:
        status: Of HTTP.
        retry_after: The header; None without it.
    """

    status: int
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """There was no answer in time.

    Attributes:
        reason: One word, for metrics.
    """

    reason: str


Outcome: TypeAlias = Answered | Failed


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has the batch."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The same batch is sent again after a pause.

    Attributes:
        pause_s: Seconds from now on.
        reason: One word, for metrics.
    """

    pause_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The batch is a dead letter.

    Attributes:
        reason: One word, for metrics.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The receiver wants no more."""


Decision: TypeAlias = Delivered | TryAgain | GiveUp | Gone

# The receiver may accept the same request later.
_LATER = frozenset({408, 425, 429})


class Tries:
    """The tries of one batch.

    Attributes:
        failures: Tries so far, the successful one included.

    Args:
        policy: how often and how soon.
        begin_s: time of the first try.
        random: returns numbers in [0, 1).
    """

    def __init__(self, policy: RetryPolicy, begin_s: float, random: Callable[[], float]) -> None:
        self._policy = policy
        self._begin_s = begin_s
        self._random = random
        self.failures = 0
        self._refusals = 0

    def after(self, outcome: Outcome, now_s: float, wall_s: float) -> Decision:
        """Returns what to do.

        Args:
            outcome: Of the last try.
            now_s: The time, of the same clock as `begin_s`.
            wall_s: The time since 1970: receivers may name a date.
        """
        self.failures += 1
        if isinstance(outcome, Failed):
            return self._later(outcome.reason, 0.0, now_s)
        status = outcome.status
        if 200 <= status < 300:
            return Delivered()
        if status == 410:
            return Gone()
        if status >= 500 or status in _LATER:
            asked_s = retry_after_s(outcome.retry_after, wall_s)
            return self._later(str(status), asked_s, now_s)
        # Redirects belong here: the receiver is not where the operator says.
        self._refusals += 1
        if self._refusals >= self._policy.attempts:
            return GiveUp(str(status))
        return TryAgain(self._pause_s(0.0), str(status))

    def _later(self, reason: str, asked_s: float, now_s: float) -> Decision:
        pause_s = self._pause_s(asked_s)
        if now_s + pause_s >= self._begin_s + self._policy.outage_s:
            return GiveUp(reason)
        return TryAgain(pause_s, reason)

    def _pause_s(self, asked_s: float) -> float:
        return pause_s(
            self.failures, self._policy.first_s, self._policy.longest_s, self._random, asked_s
        )


def pause_s(
    failures: int,
    first_s: float,
    longest_s: float,
    random: Callable[[], float],
    asked_s: float = 0.0,
) -> float:
    """Returns a pause that doubles with each failure, half of it at random.

    A pause that the other side asks for is the least one, and is lengthened at random instead: it
    asks all senders for the same.
    """
    longest = min(first_s * 2.0 ** min(failures - 1, _GROWTHS_MAX), longest_s)
    own_s = longest * (1 - 0.5 * random())
    asked_s = min(asked_s, longest_s)
    return max(own_s, asked_s * (1 + 0.1 * random()))


def retry_after_s(header: str | None, wall_s: float) -> float:
    """Returns the seconds that a header Retry-After asks for; 0 if it cannot be read."""
    if header is None:
        return 0.0
    text = header.strip()
    if text.isascii() and text.isdigit():
        # Longer ones are no pause but a mistake; the caller has a bound.
        return float(text[:10])
    try:
        named = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    if named.tzinfo is None:
        named = named.replace(tzinfo=UTC)
    return max(0.0, named.timestamp() - wall_s)
