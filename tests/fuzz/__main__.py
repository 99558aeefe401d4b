"""Runs many seeds of `tests.fuzz.tables`, `indexes`, `readers` and `texts`.

usage: python -m tests.fuzz [--seeds FROM:TO] [--only WORK]
"""

from __future__ import annotations

import argparse
import time
from random import Random

from tests.fuzz import indexes, readers, tables, texts

ALL = (*tables.WORKS, *indexes.WORKS, *readers.WORKS, *texts.WORKS)
WORKS = {work.__name__: work for work in ALL}

# Short enough that no user takes the silence for a standstill.
TELL_S = 10.0


def main() -> None:
    """Runs the requested seeds; the one that fails is the last that was printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", default="0:1000", metavar="FROM:TO")
    parser.add_argument("--only", action="append", choices=sorted(WORKS), metavar="WORK")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition(":")
    works = [WORKS[name] for name in arguments.only or WORKS]
    told_s = time.monotonic()
    for seed in range(int(first), int(last)):
        for work in works:
            try:
                work(Random(f"{seed} {work.__name__}"))
            except BaseException:
                again = f"python -m tests.fuzz --seeds {seed}:{seed + 1} --only {work.__name__}"
                print(f"seed {seed} failed: {again}", flush=True)
                raise
        if time.monotonic() - told_s >= TELL_S:
            told_s = time.monotonic()
            print(f"seed {seed}: well", flush=True)
    print(f"seeds {first} to {last}: all well")


if __name__ == "__main__":
    main()
