"""CPU time of matching, registration, publishing and searches, of this checkout against another.

usage: python -m benchmarks.against --before PATH [--kernels PATH] [--rounds N]
                                          [--passes PASS …] [--queries N] [--objects N]
                                          [--searches N]

Machines drift by more than a change may cost. So two processes, one in each checkout, run passes
in turns: `matching` by a range index alone, `registration` of new queries in bulk, `publishing`,
until the notifications are received, and `searches` for a range, the nearest, ranked objects and
terms, one after the other, as `bench_search_client`. All but the first contain everything, as the
memory log of `bench_pipeline`, the client included; CPU time is counted, and for searches the time
by the clock as well. `speed` is the median over rounds of before by after: 0.97 means that this
checkout takes 3 % longer. After it come the parts (threads of a service, kinds of searches) that
take most. A difference below some 3 % needs twenty rounds and another run to be credible. Which
process begins first makes up to 7 % of `matching`, by its index's place in memory: so half of the
rounds are of processes that begin in the other order.

Kernels of the other checkout that are not compiled at --kernels (`SIROCCO_KERNEL_CACHE`; by default
as for this one) are compiled first, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import ROOT

WORKER = Path(__file__).with_name("worker.py")

# Parts below this share of a pass get no row.
SHARE_MIN = 0.01

Figures = dict[str, float]


class Side:
    """One checkout and its process; `kernels` holds its compiled ones, None: the default."""

    def __init__(self, root: Path, kernels: Path | None, sizes: Sequence[int]) -> None:
        self._root = root
        self._environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'sdk'}"}
        if kernels is not None:
            self._environment["SIROCCO_KERNEL_CACHE"] = str(kernels.resolve())
        self._sizes = sizes
        self.figures: dict[str, list[Figures]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs a process, which is ready for passes."""
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, self._sizes)],
            cwd=self._root,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.make("set-up")
            yield
        finally:
            self.process.kill()
            self.process.wait()

    def make(self, name: str) -> None:
        """Runs a pass; the set-up is the first, and needs no request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if name != "set-up":
            print(name, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("one of the processes has ended")
        self.figures.setdefault(name, []).append(json.loads(line))

    def median_us(self, name: str, part: str) -> float:
        """Returns the time of a part in a pass."""
        return round(statistics.median(each.get(part, 0.0) for each in self.figures[name]), 2)


def rows(name: str, before: Side, after: Side) -> Iterator[dict[str, object]]:
    """Returns the rows of one kind of pass."""
    pairs = list(zip(before.figures[name], after.figures[name], strict=True))
    speeds = [old["all"] / new["all"] for old, new in pairs]
    low, speed, high = statistics.quantiles(speeds, n=4)
    whole = {"speed": round(speed, 3), "quartiles": [round(low, 3), round(high, 3)]}
    used = {
        part: after.median_us(name, part) for part in {part for _, new in pairs for part in new}
    }
    for part in sorted(used, key=lambda part: -used[part]):
        if used[part] >= SHARE_MIN * used["all"]:
            old_us = before.median_us(name, part)
            row = {"pass": name, "part": part, "before_us": old_us, "after_us": used[part]}
            yield {**row, "rounds": len(pairs), **whole} if part == "all" else row


def main() -> int:
    """Runs the passes and prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    passes = ("matching", "registration", "publishing", "searches")
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--kernels", type=Path, help="where that one has compiled kernels")
    parser.add_argument("--rounds", type=int, default=20, help="two at least")
    parser.add_argument("--passes", nargs="+", choices=passes, default=passes)
    parser.add_argument("--queries", type=int, default=5_000, help="of a registration")
    parser.add_argument("--objects", type=int, default=100_000, help="of a matching or publishing")
    parser.add_argument("--searches", type=int, default=250, help="of each kind in a pass")
    asked = parser.parse_args()
    sizes = (asked.queries, asked.objects, asked.searches)
    sides = [Side(asked.before.resolve(), asked.kernels, sizes), Side(ROOT, None, sizes)]
    half = asked.rounds // 2
    for first, second, rounds in ((*sides, asked.rounds - half), (*reversed(sides), half)):
        with first.running(), second.running():
            for name in asked.passes:
                for number in range(rounds):
                    # Each is first in turn.
                    for side in (first, second) if number % 2 else (second, first):
                        side.make(name)
    for name in asked.passes:
        for row in rows(name, *sides):
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
