"""How far back a sample of the arriving objects looks."""

from __future__ import annotations

# Objects that a sample aims at. A map shows no more each second.
WANTED = 250

# Below, the clocks of routers and mergers differ by more than the window.
_MS_MIN = 10

# A sample is taken each second: a window of two finds every object of a slow stream.
_MS_MAX = 2_000

_MS_FIRST = 50

# At most so much wider at once: a silent stream may begin again with very many objects.
_GROWTH_MAX = 4.0


class SampleWindow:
    """The age of the oldest object of a sample, chosen by what the last samples found.

    Attributes:
        ms: of the next sample.
    """

    def __init__(self) -> None:
        self.ms = _MS_FIRST

    def found(self, count: int) -> None:
        """Records how many objects the window held."""
        factor = _GROWTH_MAX if not count else min(_GROWTH_MAX, WANTED / count)
        self.ms = max(_MS_MIN, min(_MS_MAX, int(self.ms * factor)))
