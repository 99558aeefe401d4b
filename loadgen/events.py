"""Sudden local events: something happens in a city, and for a while people there write about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The words that people write about it. The first word is in most posts; `drill` in some posts about
# fires gives NOT an effect.
TOPICS: dict[str, tuple[str, ...]] = {
    "fire": ("fire", "smoke", "evacuate", "firefighters", "burning", "sirens", "drill"),
    "flood": ("flood", "water", "river", "rising", "evacuate", "bridge", "closed"),
    "earthquake": ("earthquake", "shaking", "felt", "aftershock", "strong", "seconds"),
    "storm": ("storm", "wind", "hail", "trees", "down", "roof", "thunder"),
    "outage": ("outage", "power", "dark", "blackout", "street", "lights"),
    "traffic": ("accident", "traffic", "closed", "highway", "police", "stuck", "hours"),
    "concert": ("concert", "stage", "crowd", "singing", "tonight", "encore", "free"),
    "match": ("goal", "match", "stadium", "fans", "score", "final", "penalty"),
    "coffee": ("coffee", "free", "opening", "queue", "downtown", "morning"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEvent:
    """One event.

    Attributes:
        topic: Key of `TOPICS`.
        city: Row of the cities.
        begin_ms: Event time of its beginning.
        lon, lat: Degrees, its middle.
        spread_m: Standard deviation of the places of its posts.
        decay_ms: Interest falls to 1/e in this time.
    """

    topic: str
    city: int
    begin_ms: int
    lon: float
    lat: float
    spread_m: float
    decay_ms: float

    def interest(self, at_ms: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Returns how much people write about it at a time, 1 at the beginning, 0 before."""
        age_ms = np.asarray(at_ms, np.float64) - self.begin_ms
        return np.where(age_ms >= 0, np.exp(-np.maximum(age_ms, 0) / self.decay_ms), 0.0)

    def is_over(self, at_ms: float) -> bool:
        """Returns whether hardly any posts about it follow."""
        return at_ms - self.begin_ms > 5 * self.decay_ms
