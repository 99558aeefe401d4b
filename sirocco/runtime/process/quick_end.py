"""Ends a process without the interpreter's clean-up."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Ends the process once its threads have ended; the system takes back its memory.

    The interpreter would free modules and compiled kernels one by one, which takes a quarter of
    what their import takes. A program calls this last: functions that it has registered with
    `atexit` are not called.
    """
    # The last one registered is called first, after the interpreter has waited for threads.
    atexit.register(_end, status)
    sys.exit(status)


def _end(status: int) -> None:
    # If a pipe is closed, this raises, and the interpreter reports it as usual.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
