"""Runs seeds: `python -m tests.simulation --seed 7 --profile storm`, or `--seeds 0:1000`.

Without `--profile` each seed meets one profile, seed after seed the next, so that a thousand seeds
are a thousand different worlds; `--profile all` lets each seed meet all of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable

from tests.simulation.faults import PROFILES
from tests.simulation.runs import Run, run, settle


def main() -> int:
    """Parses the command line; exit status 1 when a seed failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="one seed, with the trace of its failure")
    parser.add_argument("--seeds", default="0:100", help="FIRST:END, many seeds with progress")
    parser.add_argument(
        "--profile",
        choices=[*sorted(PROFILES), "all"],
        help="of faults; default: one after the other",
    )
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one a processor"
    )
    options = parser.parse_args()
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    else:
        first, end = (int(part) for part in options.seeds.split(":"))
        seeds = range(first, end)
    wanted = [(seed, profile) for seed in seeds for profile in _met(seed, options.profile)]
    if options.jobs == 1 or len(wanted) == 1:
        settle()
        return campaign(
            map(run, wanted), trace=options.seed is not None, keep_going=options.keep_going
        )
    with multiprocessing.get_context("spawn").Pool(options.jobs, settle) as pool:
        return campaign(pool.imap(run, wanted), trace=False, keep_going=options.keep_going)


def _met(seed: int, profile: str | None) -> list[str]:
    """Returns the profiles that a seed runs under."""
    profiles = list(PROFILES)
    if profile is None:
        return [profiles[seed % len(profiles)]]
    return profiles if profile == "all" else [profile]


def campaign(runs: Iterable[Run], *, trace: bool, keep_going: bool) -> int:
    """Sums up the results of runs; prints a line every few seconds."""
    begun = reported = time.monotonic()
    done = objects = notifications = failures = 0
    virtual_ms = 0.0
    for each in runs:
        if each.report is None:
            failures += 1
            print(f"FAILED --seed {each.seed} --profile {each.profile}: {each.failure}", flush=True)
            if trace:
                print(each.trace, file=sys.stderr)
            if not keep_going:
                return 1
            continue
        done += 1
        objects += each.report.objects
        notifications += each.report.notifications
        virtual_ms += each.report.virtual_ms
        if trace:
            print(each.report)
        if time.monotonic() - reported > 5:
            reported = time.monotonic()
            print(
                f"seed {each.seed}: {done} runs, {virtual_ms / 3_600_000:.1f} virtual h, "
                f"{failures} failures, {reported - begun:.0f} s",
                flush=True,
            )
    seconds = time.monotonic() - begun
    print(
        f"{done} runs ok, {failures} failed; {objects} objects, {notifications} notifications, "
        f"{virtual_ms / 3_600_000:.2f} virtual h in {seconds:.1f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
