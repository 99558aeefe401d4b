"""A token bucket that may be overdrawn: how soon a tenant may publish again."""

from __future__ import annotations

import math


class Bucket:
    """Fills at a rate up to what a second brings; what is taken may leave a debt.

    A debt lets through what is greater than the bucket, and makes whoever comes next wait for it:
    over any time no more passes than the rate, one second's worth, and one request.

    Args:
        rate_per_s: positive.
        now_ms: by any clock that only grows.
    """

    def __init__(self, rate_per_s: float, now_ms: int) -> None:
        self.rate_per_s = rate_per_s
        self._level = rate_per_s
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until something may be taken; 0 if it may be now."""
        self._fill(now_ms)
        return 0 if self._level > 0 else math.floor(-self._level / self.rate_per_s * 1_000) + 1

    def is_full(self, now_ms: int) -> bool:
        """Whether nothing of it is taken: another one would be the same."""
        self._fill(now_ms)
        return self._level >= self.rate_per_s

    def take(self, amount: float, now_ms: int) -> None:
        """Takes an amount, also more than there is."""
        self._fill(now_ms)
        self._level -= amount

    def give_back(self, amount: float) -> None:
        """Gives back what was taken for nothing; no more than a full bucket comes of it."""
        self._level = min(self.rate_per_s, self._level + amount)

    def change(self, rate_per_s: float, now_ms: int) -> None:
        """Another rate from now on; a debt stays."""
        self._fill(now_ms)
        self.rate_per_s = rate_per_s
        self._level = min(self._level, rate_per_s)

    def _fill(self, now_ms: int) -> None:
        came = (now_ms - self._at_ms) / 1_000 * self.rate_per_s
        self._level = min(self.rate_per_s, self._level + came)
        self._at_ms = now_ms
