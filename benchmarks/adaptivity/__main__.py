"""Shows how the cluster adapts, and writes the report.

python -m benchmarks.adaptivity                  some fifteen minutes of one core
python -m benchmarks.adaptivity --only tornado   one paper's anew, the others are kept
python -m benchmarks.adaptivity --only standing  a scene of each while up to a million queries stand
python -m benchmarks.adaptivity --quick          a minute or two, too small to say anything
python -m benchmarks.adaptivity --render         the report anew from the figures there are
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.adaptivity import change_times, standing
from benchmarks.adaptivity.change_times import Settling
from benchmarks.adaptivity.measure import EXPERIMENTS, measure
from benchmarks.adaptivity.plots import draw_all
from benchmarks.adaptivity.report import verdicts_of, write
from benchmarks.adaptivity.sizes import FULL, QUICK
from benchmarks.report import ROOT, describe_machine, revision
from benchmarks.schemes.figures import Figures

# The name of the runs with many standing queries, and how many stand.
STANDING = "standing"
NUMBERS = (20_000, 200_000, 1_000_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, or reads earlier figures, and writes the report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small scenes; the report is in .run")
    parser.add_argument("--render", action="store_true", help="only write the report anew")
    parser.add_argument("--only", nargs="+", choices=(*EXPERIMENTS, STANDING), default=())
    parser.add_argument("--standing", type=int, nargs="+", default=list(NUMBERS), metavar="N")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument(
        "--out", type=Path, help="directory of the report (docs/results; quick: .run)"
    )
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    # A rough report must not replace the kept one.
    out = options.out or ROOT / (".run" if options.quick else "docs/results")
    pictures = out / "adaptivity"
    pictures.mkdir(parents=True, exist_ok=True)
    raw = pictures / "adaptivity.json"
    keeps = raw.exists() and (options.only or options.render)
    figures = Figures.read(raw) if keeps else Figures(about={"runs": []})
    if not options.render:
        _measure(options, given, figures, raw)
    write(figures, draw_all(figures, pictures), out / "adaptivity.md")
    for claim, verdict in verdicts_of(figures):
        print(f"{verdict.state:15} {claim.source}: {claim.says}: {verdict.figure}")
    return 0


def _measure(options: argparse.Namespace, given: list[str], figures: Figures, raw: Path) -> None:
    """Measures the wanted experiments; writes the figures after each paper."""
    begin_s = time.monotonic()
    names = list(options.only) or [*EXPERIMENTS, STANDING]
    for kind, rows in figures.rows.items():
        is_standing = kind in {"standing", "standing_costs"}
        rows[:] = [
            row for row in rows if (STANDING if is_standing else row.get("experiment")) not in names
        ]
    if not figures.all("settling") or set(figures.one("settling")) != {*Settling.__slots__}:
        _say("a small real cluster")
        # Those of an earlier release lack some.
        figures.rows.pop("settling", None)
        figures.add("settling", **asdict(change_times.measure()))
    found = Settling(**figures.one("settling"))
    about = {
        "command": shlex.join(["python", "-m", "benchmarks.adaptivity", *given]),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "revision": revision(),
        "seed": options.seed,
        "load": f"{os.getloadavg()[1]:.1f}",
        "seconds": 0,
    }
    figures.about["machine"] = describe_machine()
    # Earlier runs are listed only if all of their figures are kept.
    figures.about["runs"] = [*figures.about["runs"], about] if options.only else [about]
    size = QUICK if options.quick else FULL
    for name in names:
        if name == STANDING:
            steps = standing.measure(options.standing, size, found, options.seed, figures, _say)
            for _ in steps:
                about["seconds"] = round(time.monotonic() - begin_s)
                figures.write(raw)
        else:
            measure(name, size, found, options.seed, figures, _say)
        about["seconds"] = round(time.monotonic() - begin_s)
        figures.write(raw)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
