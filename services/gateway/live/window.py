"""How far back a sample of the arriving objects looks."""

from __future__ import annotations

# Objects that are sent of a sample. A map shows no more each second.
SENT = 250

# Objects that a sample aims at. More than are sent: publishers send batches, and all objects of one
# arrive in the same millisecond, so that a shorter window would hold a whole batch or nothing.
WANTED = 4 * SENT

# Below, the clocks of routers and mergers differ by more than the window.
_MS_MIN = 10

# A sample is taken each second: a window of two finds every object of a slow stream.
_MS_MAX = 2_000

_MS_FIRST = 50

# At most so much wider at once: a silent stream may begin again with very many objects.
_GROWTH_MAX = 4.0

# Part of the last sample in the rate that is expected.
_NEW_PART = 0.5


class SampleWindow:
    """The age of the oldest object of a sample, chosen by what the last samples found.

    Attributes:
        ms: of the next sample.
    """

    def __init__(self) -> None:
        self.ms = _MS_FIRST
        self._per_ms = 0.0

    def found(self, count: int) -> None:
        """Records how many objects the window held."""
        per_ms = count / self.ms
        # A burst shortens the window at once, silence widens it step by step.
        is_burst = count > 2 * WANTED
        part = 1.0 if is_burst or not self._per_ms else _NEW_PART
        self._per_ms += part * (per_ms - self._per_ms)
        wanted_ms = WANTED / self._per_ms if self._per_ms else float(_MS_MAX)
        self.ms = int(max(_MS_MIN, min(_MS_MAX, wanted_ms, self.ms * _GROWTH_MAX)))
