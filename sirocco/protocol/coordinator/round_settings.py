"""Settings of the rounds of balancing. The settings of a cluster have the same defaults."""

from __future__ import annotations

from dataclasses import dataclass

# An evaluator is relieved without delay if its excess over the mean is so many times the excess
# that it may keep: from 1.4 times the mean by default. In a cluster used to 70 % such an evaluator
# is at its limit, and objects queue up. Chance does not reach that: balancers propose only what
# gains more than three standard deviations, and a round has thousands of objects.
URGENT_EXCESS = 2.0

# Measurements within a round; an urgent imbalance ends the round at the first one. One each
# twentieth of a second of the default ten: a queue that an evaluator builds up takes several times
# as long to work off. Where few objects arrive (`objects_min`) several measurements count as one.
LOOKS = 200


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """When a plan is carried out.

    Attributes:
        interval_ms: length of a round; an urgent one ends at its first measurement.
        cooldown_ms: from the end of a change to the next one; no longer than an urgent round if
            that is urgent. Rounds begin after the change, so only figures from after it are used.
        rounds: in how many rounds in a row a change has to be proposed, so that one burst is not
            enough. An urgent one needs a single round.
        objects_min: objects of a round, or of a measurement, below which nothing is decided: they
            are too few to tell load from chance, and nobody suffers.
        imbalance_min: load of the most loaded evaluator over the mean, up to which nothing changes.
    """

    interval_ms: int = 10_000
    cooldown_ms: int = 30_000
    rounds: int = 2
    objects_min: int = 2_000
    imbalance_min: float = 1.2

    @property
    def look_ms(self) -> int:
        """The least time that a measurement covers."""
        return max(self.interval_ms // LOOKS, 1)

    def is_urgent(self, imbalance: float) -> bool:
        """Whether an evaluator has so much more to do than others that it cannot wait."""
        return imbalance - 1 >= URGENT_EXCESS * (self.imbalance_min - 1)


ROUNDS = RoundSettings()
