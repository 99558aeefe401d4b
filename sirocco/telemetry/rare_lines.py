"""Warnings that strangers cause by the thousand: the log gets the first of a kind in a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

# Between two warnings of one kind.
PAUSE_S = 10.0

# Kinds that are distinguished; beyond it all begin anew.
_KINDS_MAX = 64


class RareLines(logging.Filter):
    """Lets warnings, and what is less, of one kind pass once in `PAUSE_S`; errors always.

    Args:
        now_s: monotonic time, seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        # Text without its values → when it passed last.
        self._passed_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if record.levelno > logging.WARNING:
            return True
        kind, now_s = str(record.msg), self._now_s()
        before_s = self._passed_s.get(kind)
        if before_s is not None and now_s - before_s < PAUSE_S:
            return False
        if len(self._passed_s) >= _KINDS_MAX:
            self._passed_s.clear()
        self._passed_s[kind] = now_s
        return True
