"""A moving hot spot with balancing on and off: how evenly four evaluators are loaded, over time.

usage: python benchmarks/bench_balance.py [--scheme S] [--queries N] [--rate OBJECTS_PER_S]
                                                [--spot-s S] [--spots N] [--plot FILE]

The whole system in one process on the memory log; both runs take the same queries and objects. Most
of the objects, and of the queries, are around a few places; the objects around one at a time, which
changes every `spot-s` seconds. Cores that all services share cannot show the behaviour of
evaluators on separate machines, so the objects that each evaluator handles are counted, second by
second:

    imbalance       objects of the busiest evaluator over the mean
    bottleneck      share of all objects that the busiest evaluator of each second handled: on
                    separate machines it bounds the throughput of the evaluators
    cpu_imbalance   the same for the CPU time of the evaluators' loops, which also run when idle
    changes, moves  changes of the map, and moved slots
    change_s        from a decision to its end

The last row holds the ratio of the bottlenecks, off over on: over the whole time, and over the
second half of the time between moves of the hot spot.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sirocco_client import Client, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.evaluator.service import EvaluatorService

EVALUATORS = 4
SLOTS = 16
LEAVES = 64
SEED = 20261121

HOT_SHARE = 0.8
HOT_DEGREES = 2.0
QUERY_DEGREES = 0.2

# Objects of one burst of the publisher.
BURST = 100

ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class Course:
    """The results of one run, second by second.

    Attributes:
        seconds: since the first object, of each look.
        cpu: seconds of each evaluator's loop between looks.
        handled: objects of each evaluator between looks.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[list[float]] = field(default_factory=list)
    handled: list[list[int]] = field(default_factory=list)
    row: dict[str, Any] = field(default_factory=dict)

    def imbalances(self) -> np.ndarray:
        """Returns the busiest over the mean at each look, by objects."""
        return _imbalances(self.handled)

    def cpu_imbalances(self) -> np.ndarray:
        """Returns the same by CPU time."""
        return _imbalances(self.cpu)

    def bottleneck(self, chosen: np.ndarray) -> float:
        """Returns the share of objects that the busiest evaluator of each look handled."""
        handled = np.array(self.handled)[chosen]
        return float(handled.max(1).sum() / max(handled.sum(), 1))


def _imbalances(loads: list[list[int]] | list[list[float]]) -> np.ndarray:
    each = np.array(loads, np.float64)
    # For a second without work there is no value.
    mean = np.where(each.sum(1) > 0, each.mean(1), np.nan)
    return each.max(1) / mean


def main() -> None:
    """Runs both, prints rows, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheme", default="qt-tree")
    parser.add_argument("--queries", type=int, default=6_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--spot-s", type=float, default=50.0)
    parser.add_argument("--spots", type=int, default=2)
    parser.add_argument(
        "--plot", type=Path, default=ROOT / "docs" / "results" / "balancing" / "imbalance.png"
    )
    args = parser.parse_args()
    courses = {is_on: run(args, is_on=is_on) for is_on in (False, True)}
    for course in courses.values():
        print(json.dumps(course.row))
    print(json.dumps(compared(args, courses)))
    draw(args, courses)


def run(args: argparse.Namespace, *, is_on: bool) -> Course:
    """Runs one cluster under the moving hot spot."""
    settings = ClusterSettings(
        slots=SLOTS,
        leaves=LEAVES,
        scheme=args.scheme,
        balances=is_on,
        balance_interval_ms=1_000,
        balance_cooldown_ms=1_000,
        balance_objects_min=500,
        retention_ms=60_000,
    )
    rng = np.random.default_rng(SEED)
    spots = rng.uniform((-150, -60), (150, 60), (args.spots, 2))
    course = Course()
    cluster = EmbeddedCluster(settings, evaluators=EVALUATORS)
    with cluster, Client(cluster.router_address) as client:
        register(client, rng, spots, args.queries)
        evaluators = [each for each in cluster.services if isinstance(each, EvaluatorService)]
        ending, published = threading.Event(), [0]
        looking = threading.Thread(target=look, args=(evaluators, ending, course), daemon=True)
        looking.start()
        publish(client, rng, spots, args, published)
        ending.set()
        looking.join()
        balance = client.balance()
    imbalances = course.imbalances()
    done = [one for one in balance.decisions if one.outcome == "done"]
    course.row = {
        "balancing": "on" if is_on else "off",
        "scheme": args.scheme,
        "objects": published[0],
        "queries": args.queries,
        "imbalance_mean": round(float(np.nanmean(imbalances)), 2),
        "imbalance_p95": round(float(np.nanquantile(imbalances, 0.95)), 2),
        "cpu_imbalance_mean": round(float(np.nanmean(course.cpu_imbalances())), 2),
        "bottleneck": round(course.bottleneck(np.ones(len(imbalances), np.bool_)), 3),
        "changes": balance.map_changes_total,
        "moves": balance.moves_total,
        "change_s_max": round(max((one.seconds for one in done), default=0.0), 1),
    }
    return course


def register(client: Client, rng: np.random.Generator, spots: np.ndarray, count: int) -> None:
    """Registers small rectangles, most of them around the places of later objects."""
    centres = places(rng, spots, count, rng.integers(len(spots), size=count))
    half = rng.exponential(QUERY_DEGREES / 2, (count, 2)) + 0.01
    west, south = np.clip(centres - half, (-180, -90), (179, 89)).T
    east, north = np.clip(centres + half, (-179, -89), (180, 90)).T
    queries = (
        query_from_json(
            {
                "id": f"q{n}",
                "kind": "range",
                "mode": "continuous",
                "region": {
                    "rect": {
                        "west": float(west[n]),
                        "south": float(south[n]),
                        "east": float(east[n]),
                        "north": float(north[n]),
                    }
                },
            },
            f"s{n % 8}",
        )
        for n in range(count)
    )
    for result in client.register_many(queries):
        assert result.error is None, result.error


def publish(
    client: Client,
    rng: np.random.Generator,
    spots: np.ndarray,
    args: argparse.Namespace,
    published: list[int],
) -> None:
    """Publishes a steady stream around one place after the other."""
    begin_s = due_s = time.monotonic()
    with client.publisher() as publisher:
        while (now_s := time.monotonic()) < begin_s + args.spots * args.spot_s:
            spot = np.full(BURST, int((now_s - begin_s) / args.spot_s))
            for lon, lat in places(rng, spots, BURST, spot).tolist():
                publisher.publish({"id": published[0], "lon": lon, "lat": lat, "text": "hot"})
                published[0] += 1
            due_s = max(due_s + BURST / args.rate, time.monotonic() - 0.5)
            time.sleep(max(0.0, due_s - time.monotonic()))
        publisher.flush(60)


def places(rng: np.random.Generator, spots: np.ndarray, count: int, spot: np.ndarray) -> np.ndarray:
    """Returns f8[count, 2], most of them around the given spots, the others anywhere."""
    found = rng.uniform((-180, -90), (180, 90), (count, 2))
    is_hot = rng.random(count) < HOT_SHARE
    near = rng.normal(0.0, HOT_DEGREES, (count, 2)) + spots[np.minimum(spot, len(spots) - 1)]
    return np.clip(np.where(is_hot[:, None], near, found), (-179.9, -89.9), (179.9, 89.9))


def look(evaluators: list[EvaluatorService], ending: threading.Event, course: Course) -> None:
    """Records every second the work that the evaluators have done."""
    begin_s = time.monotonic()
    cpu, handled = used(evaluators)
    while not ending.wait(1.0):
        cpu_now, handled_now = used(evaluators)
        course.seconds.append(time.monotonic() - begin_s)
        course.cpu.append([b - a for a, b in zip(cpu, cpu_now, strict=True)])
        course.handled.append([b - a for a, b in zip(handled, handled_now, strict=True)])
        cpu, handled = cpu_now, handled_now


def used(evaluators: list[EvaluatorService]) -> tuple[list[float], list[int]]:
    """Returns CPU seconds and objects of each evaluator so far."""
    return (
        [each.worker.cpu_seconds for each in evaluators],
        [each.machine.objects_total for each in evaluators],
    )


def compared(args: argparse.Namespace, courses: dict[bool, Course]) -> dict[str, Any]:
    """Returns the ratio of the bounds of the throughput."""
    shown: dict[str, Any] = {"balancing": "off/on", "scheme": args.scheme}
    for name, share in (("all the time", 0.0), ("second half of each hot spot", 0.5)):
        found = {}
        for is_on, course in courses.items():
            seconds = np.array(course.seconds)
            chosen = (seconds % args.spot_s) / args.spot_s >= share
            found[is_on] = course.bottleneck(chosen)
        shown[f"throughput ratio, {name}"] = round(found[False] / found[True], 2)
    return shown


def draw(args: argparse.Namespace, courses: dict[bool, Course]) -> None:
    """Draws the imbalance over time."""
    import matplotlib as mpl  # noqa: PLC0415 -- only drawing needs it

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    for is_on, colour in ((False, "tab:gray"), (True, "tab:blue")):
        course, name = courses[is_on], "on" if is_on else "off"
        axes.plot(course.seconds, course.imbalances(), color=colour, label=f"balancing {name}")
    for spot in range(1, args.spots):
        axes.axvline(spot * args.spot_s, color="tab:red", linewidth=0.8, linestyle=":")
    axes.axhline(1.0, color="black", linewidth=0.5)
    axes.set(
        xlabel="seconds (dotted: the hot spot jumps)",
        ylabel="objects, busiest over mean",
        title=f"{EVALUATORS} evaluators, {args.scheme}, {args.queries:,} queries",
        ylim=(0.9, EVALUATORS + 0.1),
    )
    axes.legend(loc="center right")
    args.plot.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(args.plot, dpi=110)


if __name__ == "__main__":
    main()
