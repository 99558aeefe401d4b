"""Ends a process whose threads may hang: look-ups of host names cannot be cancelled."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)


def end_within(seconds: float, status: int) -> None:
    """Ends the process after a time, unless it has ended by itself.

    Called when all work is finished and saved. Python waits for the threads of executors without a
    limit, both at the end of a loop and at that of the process.
    """
    threading.Thread(target=_end_after, args=(seconds, status), name="leave", daemon=True).start()


def _end_after(seconds: float, status: int) -> None:
    time.sleep(seconds)
    names = sorted(each.name for each in threading.enumerate() if not each.daemon)
    extra = event("threads_left", threads=names[:20])
    logger.warning("threads do not end; the process ends without them", extra=extra)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)
