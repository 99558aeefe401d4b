"""Signals that end a command as ^C does: it cleans up, and says how far it came."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# Of `kill`, `timeout`, services that are stopped; of a terminal that is closed.
_ENDING = (signal.SIGTERM, signal.SIGHUP)

# Shells add the signal's number to this for the status of a process that it ended.
STATUS_BASE = 128


class EndedBySignal(KeyboardInterrupt):
    """The process is to end.

    Attributes:
        signal: the one that arrived.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raises `EndedBySignal` in the block for these signals, unless they are ignored (`nohup`)."""
    if threading.current_thread() is not threading.main_thread():
        # Only there does Python take signals.
        yield
        return
    ours = [one for one in _ENDING if signal.getsignal(one) is signal.SIG_DFL]
    for one in ours:
        signal.signal(one, _end)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise EndedBySignal(number)
