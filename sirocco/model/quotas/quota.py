"""Rates: a token bucket of one caller that may be overdrawn, and a rate that hosts share."""

from __future__ import annotations

import math
from collections import OrderedDict

# What one host may have taken, as a multiple of what is left for others: as for `Shares`.
HOST_SHARE = 3


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


class SharedRate:
    """A rate that strangers share: a host that asks without end leaves some to others.

    What was taken counts less and less, by e a second. A host may take while its own counts no more
    than three times what is left of the whole: alone it gets three quarters, and one that has taken
    nothing finds something, however many others there are.

    Args:
        rate_per_s: of all; as many may be taken at once.
        hosts_max: whose amounts are remembered, the latest.
    """

    def __init__(self, rate_per_s: float, hosts_max: int) -> None:
        self._rate_per_s = rate_per_s
        self._hosts_max = hosts_max
        # (amount, time it is of) of all and of each host, the one that took last at the end.
        self._whole = (0.0, 0)
        self._taken: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_ms(self, host: str, now_ms: int) -> int:
        """Milliseconds until a host may take one; 0 if now."""
        own = _left_of(self._taken.get(host, (0.0, now_ms)), now_ms)
        whole = _left_of(self._whole, now_ms)
        excess = max(
            (own + HOST_SHARE * whole) / (HOST_SHARE * self._rate_per_s),
            (whole + 1) / self._rate_per_s,
        )
        return 0 if excess <= 1 else math.floor(1_000 * math.log(excess)) + 1

    def take(self, host: str, now_ms: int) -> None:
        """Takes one."""
        self._whole = (_left_of(self._whole, now_ms) + 1, now_ms)
        own = _left_of(self._taken.pop(host, (0.0, now_ms)), now_ms)
        self._taken[host] = (own + 1, now_ms)
        while len(self._taken) > self._hosts_max:
            self._taken.popitem(last=False)


def _left_of(taken: tuple[float, int], now_ms: int) -> float:
    amount, at_ms = taken
    return amount * math.exp((at_ms - now_ms) / 1_000)
