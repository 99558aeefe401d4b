"""Runs seeds: `python -m tests.simulation --seed 7 --profile storm`, or `--seeds 0:1000`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.cluster import simulate
from tests.simulation.faults import PROFILES
from tests.simulation.ledger import BrokenPromiseError


def main() -> int:
    """Parses the command line; exit status 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with the trace of its failure")
    parser.add_argument("--seeds", default="0:100", help="FIRST:END, many seeds with progress")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="of faults; default: all")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    profiles = [options.profile] if options.profile else list(PROFILES)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    else:
        first, end = (int(part) for part in options.seeds.split(":"))
        seeds = range(first, end)
    return campaign(seeds, profiles, trace=options.seed is not None, keep_going=options.keep_going)


def campaign(seeds: range, profiles: list[str], *, trace: bool, keep_going: bool) -> int:
    """Runs all seeds under all profiles; prints a line every few seconds."""
    begun = told = time.monotonic()
    runs = objects = notifications = failures = 0
    virtual_ms = 0.0
    for seed in seeds:
        for profile in profiles:
            try:
                report = simulate(seed, profile)
            except BrokenPromiseError as failure:
                failures += 1
                print(f"FAILED seed {seed}, {profile}: {failure}", flush=True)
                if trace:
                    traceback.print_exception(failure)
                if not keep_going:
                    return 1
                continue
            runs += 1
            objects += report.objects
            notifications += report.notifications
            virtual_ms += report.virtual_ms
            if trace:
                print(report)
        if time.monotonic() - told > 5:
            told = time.monotonic()
            print(
                f"seed {seed}: {runs} runs, {virtual_ms / 3_600_000:.1f} virtual h, "
                f"{failures} failures, {told - begun:.0f} s",
                flush=True,
            )
    seconds = time.monotonic() - begun
    print(
        f"{runs} runs ok, {failures} failed; {objects} objects, {notifications} notifications, "
        f"{virtual_ms / 3_600_000:.2f} virtual h in {seconds:.1f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
