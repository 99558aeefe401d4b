"""A token bucket that may be overdrawn: when a tenant may publish again."""

from __future__ import annotations

import math


class Bucket:
    """Fills at a rate, up to one second's amount; taking may leave a debt.

    A debt admits a request larger than the bucket, and the next request waits for it: over any time
    at most the rate, one second's amount, and one request pass.

    Args:
        rate_per_s: positive.
        now_ms: from any monotonic clock.
    """

    def __init__(self, rate_per_s: float, now_ms: int) -> None:
        self.rate_per_s = rate_per_s
        self._level = rate_per_s
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until something may be taken; 0 if now."""
        self._fill(now_ms)
        return 0 if self._level > 0 else math.floor(-self._level / self.rate_per_s * 1_000) + 1

    def is_full(self, now_ms: int) -> bool:
        """Whether it is full, and thus equal to a new bucket."""
        self._fill(now_ms)
        return self._level >= self.rate_per_s

    def take(self, amount: float, now_ms: int) -> None:
        """Takes an amount, possibly more than there is."""
        self._fill(now_ms)
        self._level -= amount

    def give_back(self, amount: float) -> None:
        """Returns an unused amount, up to a full bucket."""
        self._level = min(self.rate_per_s, self._level + amount)

    def change(self, rate_per_s: float, now_ms: int) -> None:
        """Sets another rate from now on; a debt stays."""
        self._fill(now_ms)
        self.rate_per_s = rate_per_s
        self._level = min(self._level, rate_per_s)

    def _fill(self, now_ms: int) -> None:
        earned = (now_ms - self._at_ms) / 1_000 * self.rate_per_s
        self._level = min(self.rate_per_s, self._level + earned)
        self._at_ms = now_ms
