"""A process that leaves: what it wrote is there, its threads have ended, nothing is taken apart."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading, time
from sirocco.runtime.process.quick_end import leave

class Part:
    def __del__(self):
        print("taken apart", flush=True)

part = Part()
going = threading.Event()

def last():
    going.wait()
    print("the thread has ended")

threading.Thread(target=last).start()
threading.Timer(0.05, going.set).start()
print("written", end=" ")
{end}
"""


def ended(end: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_output_and_threads_are_awaited_and_modules_are_not_freed() -> None:
    assert ended("leave(3)") == (3, "written the thread has ended\n")
    # What the interpreter does by itself.
    assert ended("sys.exit(3)") == (3, "written the thread has ended\ntaken apart\n")
