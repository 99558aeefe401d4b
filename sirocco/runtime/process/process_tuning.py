"""Settings of the interpreter and the C library that suit the services, for a whole process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading

# Between the threads of a process. At the interpreter's 5 ms an acknowledgement waits behind a
# batch that the back is working on; shorter than 0.5 ms the switching itself shows.
SWITCH_S = 0.0005

# Of the collector of cycles. What is under way (queries, records, futures) is young and is freed
# by its count; looking through it after every 700 took a sixth of a bulk registration's time.
GC_THRESHOLDS = (50_000, 20, 100)

# Of the GNU C library's allocator. A page that comes from the system costs up to 4 us on a virtual
# machine, and batches come and go: by default each takes its pages anew, up to a third of an
# evaluator's CPU time. So threads share one heap, whose free end stays. Larger pieces still come
# from the system and go back to it at once: what a checkpoint's columns took would be kept
# otherwise, as much again as a process needs.
MMAP_BYTES_MIN = 4 << 20
HEAP_BYTES_KEPT = 64 << 20
HEAP_BYTES_STEP = 4 << 20
_MALLOPT = {-3: MMAP_BYTES_MIN, -1: HEAP_BYTES_KEPT, -2: HEAP_BYTES_STEP, -8: 1}

# By how much threads step back whose work nobody waits for: they get a tenth of the CPU time that
# another thread gets where both want all of it. Much further back, and what such a thread does
# under the interpreter's lock would take so long that all others wait for it.
BACKGROUND_NICE = 10


def tune() -> None:
    """Applies them; for processes that run services and little else."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    # Other C libraries go without.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _MALLOPT.items():
            mallopt(option, value)


def step_back() -> None:
    """Lets other threads go first where the CPU is short; for threads nobody waits for."""
    # Linux alone knows the priority of one thread; elsewhere it would be the whole process's.
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    # From where the process stands: somebody may have started it with `nice`, and only root may
    # take of that back. A sandbox that allows neither is no reason not to work.
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, nice + BACKGROUND_NICE)
