"""Processor time and memory that a process of this machine has used."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process used since its start.

    Attributes:
        cpu_seconds: Time on processors, user and system.
        peak_memory_bytes: Greatest resident size.
    """

    cpu_seconds: float
    peak_memory_bytes: int


def usage_of(pid: int) -> Usage:
    """Returns what another process has used; nothing when it is gone."""
    try:
        # The name in parentheses may hold blanks; what follows it does not.
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return Usage(0.0, 0)
    ticks = int(values[11]) + int(values[12])
    peak = next((line for line in status if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) * 1024)


def usage_here() -> Usage:
    """Returns what this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
