"""Runs many seeds of `tests.fuzz.tables`.

usage: python -m tests.fuzz [--seeds FROM:TO]
"""

from __future__ import annotations

import argparse
import time

from tests.fuzz.tables import run

# Shorter than anybody takes for a standstill.
TELL_S = 10.0


def main() -> None:
    """Runs the seeds asked for; the one that fails is the last that was said."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", default="0:1000", metavar="FROM:TO")
    first, _, last = parser.parse_args().seeds.partition(":")
    told_s = time.monotonic()
    for seed in range(int(first), int(last)):
        try:
            run(seed)
        except BaseException:
            print(f"seed {seed} failed: python -m tests.fuzz --seeds {seed}:{seed + 1}", flush=True)
            raise
        if time.monotonic() - told_s >= TELL_S:
            told_s = time.monotonic()
            print(f"seed {seed}: well", flush=True)
    print(f"seeds {first} to {last}: all well")


if __name__ == "__main__":
    main()
