"""Compares all schemes and writes the report.

python -m tests.benchmarks.schemes                 some twenty minutes
python -m tests.benchmarks.schemes --quick         two minutes, small and rough
python -m tests.benchmarks.schemes --render        the report anew from the figures there are
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from sirocco.schemes.scheme import SCHEMES
from tests.benchmarks.report import ROOT, describe_machine, revision
from tests.benchmarks.schemes.figures import Figures
from tests.benchmarks.schemes.measure import (
    MORE_SLOTS,
    REPLAYED,
    ROUTING_LEAVES,
    ROUTING_LEAVES_QUICK,
    Plan,
    measure,
)
from tests.benchmarks.schemes.plots import draw_all
from tests.benchmarks.schemes.report import CLAIMS, judged, write
from tests.benchmarks.schemes.workloads import Size

# Sizes at which the whole run stays within twenty minutes of two cores, and within two.
FULL = Size(sample=40_000, sample_queries=20_000, objects=40_000, queries=40_000, stored=300_000)
QUICK = Size(sample=6_000, sample_queries=3_000, objects=6_000, queries=6_000, stored=20_000)

# Real data does not belong to the repository.
DATA = Path(os.environ.get("SIROCCO_DATA", ROOT.parent / "shared" / "data"))

REPLAYED_WORKLOADS = ("q1", "q2")


def main(arguments: list[str] | None = None) -> int:
    """Measures, or reads what was measured, and writes the report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, one replay")
    parser.add_argument("--render", action="store_true", help="only write the report anew")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--data", type=Path, default=DATA, help="directory of real data")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="directory of the report")
    parser.add_argument("--no-replays", action="store_true", help="without the real pipeline")
    parser.add_argument("--schemes", nargs="+", choices=tuple(SCHEMES), default=tuple(SCHEMES))
    options = parser.parse_args(arguments)
    pictures = options.out / "schemes"
    pictures.mkdir(parents=True, exist_ok=True)
    raw = pictures / "schemes.json"
    if options.render:
        figures = Figures.read(raw)
    else:
        figures = _measure(options)
        figures.write(raw)
    write(figures, draw_all(figures, pictures), options.out / "schemes.md")
    for claim, verdict in judged(figures, CLAIMS):
        print(f"{verdict.state:15} {claim.source}: {claim.says}: {verdict.figure}")
    return 0


def _measure(options: argparse.Namespace) -> Figures:
    begin_s = time.monotonic()
    replays: tuple[tuple[str, str], ...] = (("q1", "kd-tree"),) if options.quick else tuple(
        (workload, scheme) for workload in REPLAYED_WORKLOADS for scheme in REPLAYED
    )  # fmt: skip
    if options.no_replays:
        replays = ()
    plan = Plan(
        size=QUICK if options.quick else FULL,
        seed=options.seed,
        data=options.data,
        schemes=tuple(options.schemes),
        replays=replays,
        more_slots=MORE_SLOTS[:1] if options.quick else MORE_SLOTS,
        routing_leaves=ROUTING_LEAVES_QUICK if options.quick else ROUTING_LEAVES,
    )
    figures = measure(plan)
    words = ["--quick"] if options.quick else []
    figures.about = {
        "command": shlex.join(["python", "-m", "tests.benchmarks.schemes", *words]),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "machine": describe_machine(),
        "revision": revision(),
        "seed": options.seed,
        "seconds": round(time.monotonic() - begin_s),
    }
    return figures


if __name__ == "__main__":
    sys.exit(main())
