"""Compares all schemes and writes the report.

python -m benchmarks.schemes                  some fifteen minutes
python -m benchmarks.schemes --quick          two minutes, small and rough
python -m benchmarks.schemes --render         the report anew from the figures there are
python -m benchmarks.schemes --only-replays   the real pipeline anew
python -m benchmarks.schemes --again --schemes kdt-tree   one scheme anew
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import ROOT, describe_machine, revision
from benchmarks.schemes.definition_1 import settle
from benchmarks.schemes.figures import Figures
from benchmarks.schemes.measure import (
    MORE_SLOTS,
    ROUTING_LEAVES,
    ROUTING_LEAVES_QUICK,
    Plan,
    measure,
    progress_printer,
    replay,
)
from benchmarks.schemes.plots import draw_all
from benchmarks.schemes.report import CLAIMS, verdicts_of, write
from benchmarks.schemes.workloads import Size
from sirocco.schemes.builders.scheme import SCHEMES

# Sizes for which the whole run takes at most twenty minutes on two cores, or two minutes.
FULL = Size(sample=40_000, sample_queries=20_000, objects=25_000, queries=25_000, stored=150_000)
QUICK = Size(sample=6_000, sample_queries=3_000, objects=6_000, queries=6_000, stored=20_000)

# Real data is not part of the repository.
DATA = Path(os.environ.get("SIROCCO_DATA", ROOT.parent / "shared" / "data"))

REPLAYED_WORKLOADS = ("q1", "q2", "nsw")


def main(arguments: list[str] | None = None) -> int:
    """Measures, or reads earlier figures, and writes the report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, one replay")
    parser.add_argument("--render", action="store_true", help="only write the report anew")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--data", type=Path, default=DATA, help="directory of real data")
    parser.add_argument(
        "--out", type=Path, help="directory of the report (docs/results; quick: .run)"
    )
    parser.add_argument("--only-replays", action="store_true", help="the real pipeline anew")
    parser.add_argument("--no-replays", action="store_true", help="without the real pipeline")
    parser.add_argument("--schemes", nargs="+", choices=tuple(SCHEMES), default=tuple(SCHEMES))
    parser.add_argument(
        "--again", action="store_true", help="measure --schemes anew, keep all others"
    )
    parser.add_argument(
        "--workloads", nargs="+", default=(), help="measure these anew, keep the others"
    )
    options = parser.parse_args(arguments)
    # A rough report must not replace the kept one.
    out = options.out or ROOT / (".run" if options.quick else "docs/results")
    pictures = out / "schemes"
    pictures.mkdir(parents=True, exist_ok=True)
    raw = pictures / "schemes.json"
    if options.render:
        figures = Figures.read(raw)
    else:
        old = raw.exists() and (options.only_replays or options.workloads or options.again)
        figures = Figures.read(raw) if old else Figures()
        figures.is_again = options.again
        if not (options.only_replays or options.again):
            figures.forget(options.workloads)
        _measure(options, sys.argv[1:] if arguments is None else arguments, figures, raw)
    figures.sort()
    settle(figures)
    figures.write(raw)
    write(figures, draw_all(figures, pictures), out / "schemes.md")
    for claim, verdict in verdicts_of(figures, CLAIMS):
        print(f"{verdict.state:15} {claim.source}: {claim.says}: {verdict.figure}")
    return 0


def _measure(options: argparse.Namespace, given: list[str], figures: Figures, raw: Path) -> None:
    """Measures and writes the figures; existing ones are written even if a replay fails."""
    begin_s = time.monotonic()
    replays: tuple[tuple[str, str], ...] = tuple(
        (workload, scheme)
        for workload in REPLAYED_WORKLOADS
        for scheme in options.schemes
        if not options.workloads or workload in options.workloads
    )
    plan = Plan(
        size=QUICK if options.quick else FULL,
        seed=options.seed,
        data=options.data,
        schemes=tuple(options.schemes),
        workloads=tuple(options.workloads),
        is_again=options.again,
        replays=replays[:1] if options.quick else replays,
        more_slots=MORE_SLOTS[:1] if options.quick else MORE_SLOTS,
        routing_leaves=ROUTING_LEAVES_QUICK if options.quick else ROUTING_LEAVES,
    )
    say = progress_printer()
    if not options.only_replays:
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        if figures.about:
            chosen = (*options.workloads, *(options.schemes if options.again else ()))
            names = " ".join(chosen)
            line = f"{names} again: {when} UTC, revision {revision()}, load average {_load()}"
            figures.about.setdefault("again", []).append(line)
        figures.about = figures.about or {
            "command": shlex.join(["python", "-m", "benchmarks.schemes", *given]),
            "when": when,
            "load": _load(),
            "machine": describe_machine(),
            "revision": revision(),
            "seed": options.seed,
        }

        def keep() -> None:
            if "again" not in figures.about:
                figures.about["seconds"] = round(time.monotonic() - begin_s)
            figures.write(raw)

        measure(plan, figures, say, keep)
    if not options.no_replays:
        kept = [
            row
            for row in figures.all("replays")
            if (row["workload"], row["scheme"]) not in plan.replays
        ]
        figures.rows["replays"] = kept
        replay(plan, figures, say, lambda: figures.write(raw))
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        line = f"replays: {when} UTC, revision {revision()}, load average {_load()}"
        figures.about.setdefault("again", []).append(line)
        figures.write(raw)


def _load() -> str:
    """Returns the processes that were ready to run in the last minutes."""
    return f"{os.getloadavg()[1]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
