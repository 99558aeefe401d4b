"""Settings of the interpreter and the C library that suit the services, for a whole process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import sys
import threading

# Interval of switches between threads. At the interpreter's 5 ms an acknowledgement waits for a
# batch of the back; below 0.5 ms the switching itself becomes visible.
SWITCH_S = 0.0005

# Thresholds of the collector of cycles. Queries, records and futures under way are young and freed
# by their count; checking them after every 700 took a sixth of a bulk registration's time.
GC_THRESHOLDS = (50_000, 20, 100)

# Settings of the GNU C library's allocator. A page from the system costs up to 4 us on a virtual
# machine, and batches are short-lived: by default each takes new pages, up to a third of an
# evaluator's CPU time. So threads share one heap, whose free end stays. Larger pieces still come
# from the system and are returned to it at once: otherwise the memory of a checkpoint's columns
# would be kept, as much again as a process needs.
MMAP_BYTES_MIN = 4 << 20
HEAP_BYTES_KEPT = 64 << 20
HEAP_BYTES_STEP = 4 << 20
_MALLOPT = {-3: MMAP_BYTES_MIN, -1: HEAP_BYTES_KEPT, -2: HEAP_BYTES_STEP, -8: 1}

# Open files and connections that a process may have, if the system allows as many: a login shell's
# 1,024 are less than the subscribers of one merger.
FILES_MAX = 65_536

# Nice value of threads whose work nobody waits for: they get a tenth of the CPU time that another
# thread gets where both want all of it. With a higher one, their work under the interpreter's lock
# would take so long that all others wait for it.
BACKGROUND_NICE = 10


def tune() -> None:
    """Applies the settings; for processes that run services and little else."""
    allow_files()
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    # Other C libraries do without.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _MALLOPT.items():
            mallopt(option, value)


def allow_files() -> None:
    """Raises the limit on open files to `FILES_MAX`, or to what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    # Some systems allow less than they say.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def files_max() -> int:
    """Returns how many files and connections this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else min(soft, FILES_MAX)


def step_back() -> None:
    """Lets other threads go first where the CPU is short; for work that is not urgent."""
    # Only Linux has a priority for one thread; elsewhere it would apply to the whole process.
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    # Relative to the process's own value: it may have been started with `nice`, and only root may
    # lower that. A sandbox that allows neither is no reason to stop.
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, nice + BACKGROUND_NICE)
