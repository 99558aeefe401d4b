"""The end of a process that does not take itself apart."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Ends the process once its threads have ended, and leaves its memory to the system.

    The interpreter would free its modules and compiled kernels one by one: a quarter of what their
    import takes. For programs, as the last thing that they do; what is registered with `atexit`
    before is not called.
    """
    # Called first of all that is registered; the interpreter has waited for threads before.
    atexit.register(_end, status)
    sys.exit(status)


def _end(status: int) -> None:
    # A closed pipe is an error here, as it is to the interpreter, which then ends in its own way.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
