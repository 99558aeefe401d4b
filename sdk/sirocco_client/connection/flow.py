"""Limits on data in flight: back-pressure on publishers, credit for subscriptions."""

from __future__ import annotations

from sirocco_client.base.numbers import CREDIT_MAX, read_whole
from sirocco_client.errors import InvalidArgument

# Publishing resumes at this share of the window, not just below full: a caller woken for every
# acknowledged object would spend its time on waking.
RESUME_SHARE = 0.8


class FlowWindow:
    """Pauses when full, resumes at 80 %.

    Attributes:
        is_paused: Whether no more may be accepted now.
    """

    def __init__(self, objects_max: int, bytes_max: int) -> None:
        if objects_max < 1:
            raise InvalidArgument("must be at least 1", field="outstanding_objects_max")
        if bytes_max < 1:
            raise InvalidArgument("must be at least 1", field="outstanding_bytes_max")
        self._objects_max = objects_max
        self._bytes_max = bytes_max
        self.is_paused = False

    def update(self, objects: int, bytes_total: int) -> None:
        """Sets how much is outstanding now."""
        if not self.is_paused:
            self.is_paused = objects >= self._objects_max or bytes_total >= self._bytes_max
        else:
            self.is_paused = (
                objects > self._objects_max * RESUME_SHARE
                or bytes_total > self._bytes_max * RESUME_SHARE
            )


class CreditWindow:
    """Number of matches that a server may still send.

    Credit is returned in halves of the window: often enough that the server never waits for a fast
    consumer, seldom enough that the requests cost nothing.
    """

    def __init__(self, matches: int) -> None:
        self.matches = read_whole(matches, "credit", 1, CREDIT_MAX)
        self._consumed = 0

    def restart(self) -> int:
        """Starts a new stream; returns its initial credit."""
        self._consumed = 0
        return self.matches

    def consume(self, matches: int) -> int:
        """Counts processed matches; returns the credit to give now, often 0."""
        self._consumed += matches
        if 2 * self._consumed < self.matches:
            return 0
        granted, self._consumed = self._consumed, 0
        return granted
