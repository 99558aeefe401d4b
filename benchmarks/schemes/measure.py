"""Runs all measurements, one after the other, on one thread."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from benchmarks.schemes import routing_times, tornado_adaptive, workloads
from benchmarks.schemes.figures import LEAVES, SLOTS, Figures, Row, load_row, ratio
from benchmarks.schemes.keyword_forwarding import forwarding
from benchmarks.schemes.loads import all_pairs, slot_loads, wanted_share
from benchmarks.schemes.pipeline import ReplayFiles, query_lines, term_names
from benchmarks.schemes.queries import Queries, after_objects, of_frequency, subscriptions
from benchmarks.schemes.searches import Stored, answer_size
from benchmarks.schemes.swarm_rounds import balanced_map
from benchmarks.schemes.timing import seconds_of
from benchmarks.schemes.workloads import Size, Workload
from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sample import Sample

# Tornado 6.2 and SWARM 6: the plain grid is one tile for each machine, whatever its content. The
# scheme of the same name makes many tiles and gives each slot its share of them.
TILE_A_SLOT = "uniform, tile a slot"
# PS2Stream VI-B: its grid has 2^6 x 2^6 cells, which are then distributed.
FINE_GRID = "uniform, 64 x 64"
# Name in the figures → scheme and number of leaves.
VARIANTS = {TILE_A_SLOT: ("uniform-grid", SLOTS), FINE_GRID: ("uniform-grid", 4096)}

# Equal areas after rounds of balancing, see `swarm_rounds`.
SWARM_ROUNDS = "swarm, after rounds"

TEXT_SCHEMES = ("text-frequency", "text-hypergraph", "text-metric")

# PS2Stream VI-C: from 8 workers on, Figure 11.
MORE_SLOTS = (16, 24)
# VI-A: the paper's number of queries for each object is out of reach, but with this multiple our
# evaluators, too, spend most of their time on matching.
MANY_TIMES = 10
SPACE_SCHEMES = (FINE_GRID, "kd-tree", "r-tree")
PS2STREAM_SCHEMES = ("kdt-tree", *TEXT_SCHEMES, *SPACE_SCHEMES)
HYBRID, BEST_TEXT, BEST_SPACE = "kdt-tree", "text-metric", "kd-tree"

# SSTD 7.3: 0.0001 % to 1 % of the area, one to three keywords.
AREAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
KEYWORDS = (1, 2, 3)
SEARCHES = 2_000

# Tornado, Table 1 and Figure 11.
TORNADO_SIDES = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 1.5e-2)
TORNADO_KEYWORDS = (1, 2, 3, 5, 7)
# Figure 8c: from keywords of no object to the most frequent ones.
FREQUENCIES = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)
# Figure 10b: arriving queries, relative to those of a workload; half of them stand when it is
# timed.
FORWARDED_SHARE = 2
# Figure 13: in Tornado an evaluator is a leaf; here it has several.
ADAPTED_LEAVES = (SLOTS, LEAVES)
# SSTD 7.4, Figure 11.
THROUGHPUT_AREAS = (1e-6, 1e-4, 1e-2)
SWEEP_QUERIES_SHARE = 0.2

# Numbers of leaves and of cells along a grid's side, for the growth of routing times.
ROUTING_LEAVES = (16, 64, 256, 1024)
ROUTING_LEAVES_QUICK = (64, 1024)
GRIDS = (128, 256, 512, 1024, 2048)
GRID_LEAVES = 256

# Name in the figures of a map that Tornado's balancer has changed.
ADAPTED = "a-grid, adapted"

Say: TypeAlias = Callable[[str], None]
# Scheme, seconds of building, map, arrays.
Built: TypeAlias = tuple[str, float, PartitionMap, RoutingArrays]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The extent of the measurements.

    Attributes:
        size: Of the workloads.
        seed: For all random draws.
        data: Directory of real data.
        schemes: Names of the schemes.
        replays: (workload, scheme) pairs that are run through the real pipeline.
        more_slots: Further numbers of slots for the schemes that PS2Stream scales.
        routing_leaves: Leaves of the maps whose routing is timed.
        workloads: Names of the workloads; empty for all.
        is_again: Figures of schemes not in `schemes` are kept.
    """

    size: Size
    seed: int
    data: Path
    schemes: tuple[str, ...]
    replays: tuple[tuple[str, str], ...]
    more_slots: tuple[int, ...]
    routing_leaves: tuple[int, ...]
    workloads: tuple[str, ...] = ()
    is_again: bool = False


def progress_printer() -> Say:
    """Returns a function that prints progress on stderr, with the time since now."""
    begin_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin_s:6.0f} s  {text}", file=sys.stderr, flush=True)

    return say


def measure(plan: Plan, figures: Figures, say: Say, keep: Callable[[], None]) -> None:
    """Measures everything but the real pipeline.

    Args:
        plan: The extent.
        figures: Gets the rows.
        say: Prints progress.
        keep: Called after each workload.
    """
    if not list(plan.data.glob("*.jsonl.gz")):
        figures.skipped.append(f"real data: no *.jsonl.gz in {plan.data.name}")
    for name in sorted(set(SCHEMES) - set(plan.schemes)) if not plan.is_again else ():
        figures.skipped.append(f"scheme {name}: not asked for")
    for workload in workloads.workloads(plan.size, plan.seed, plan.data):
        if plan.workloads and workload.name not in plan.workloads:
            if not figures.all("workloads", workload=workload.name):
                figures.skipped.append(f"workload {workload.name}: not asked for")
            continue
        say(workload.name)
        _Bench(plan, figures, workload, say).run()
        keep()


class _Bench:
    """Measures one workload."""

    def __init__(self, plan: Plan, figures: Figures, workload: Workload, say: Say) -> None:
        self._plan, self._figures, self._workload, self._say = plan, figures, workload, say
        self._sample = workload.sample.sample(workload.sample_queries.sample())
        self._expected = all_pairs(workload.objects, workload.queries)
        self._maps: dict[tuple[str, int, int], tuple[float, PartitionMap, RoutingArrays]] = {}

    def run(self) -> None:
        """Measures everything that this workload is used for."""
        name = self._workload.name
        self._figures.add(
            "workloads",
            workload=name,
            about=self._workload.about,
            sample=len(self._workload.sample),
            sample_queries=len(self._workload.sample_queries),
            objects=len(self._workload.objects),
            queries=len(self._workload.queries),
            matches=len(self._expected),
        )
        self._loads()
        if name in {"q1", "q2", "q3"}:
            self._more_slots()
            self._more_queries()
        if name in {"q2", "tornado", "sstd"}:
            self._routing()
        if name == "tornado":
            if not self._plan.is_again:
                # Independent of schemes.
                self._grids()
            self._tornado_sweeps()
            self._tornado_queries()
            self._tornado_adapting()
        if name.startswith("sstd"):
            self._searches()
        if name == "sstd":
            self._sstd_sweep()

    def _built(
        self, schemes: tuple[str, ...], leaves: int = LEAVES, slots: int = SLOTS
    ) -> Iterator[Built]:
        """Yields (scheme, seconds of building, map, arrays)."""
        for name in schemes:
            scheme, count = VARIANTS.get(name, (name, leaves))
            if scheme not in SCHEMES or (self._plan.is_again and name not in self._plan.schemes):
                continue
            key = (scheme, count, slots)
            if key not in self._maps:
                self._maps[key] = build(scheme, self._sample, count, slots)
            yield (name, *self._maps[key])

    def _loads(self) -> None:
        made = list(self._built((*self._plan.schemes, *VARIANTS)))
        is_swarm = not self._plan.is_again or "swarm" in self._plan.schemes
        if self._workload.name in {"swarm", "hotspot", "tornado"} and is_swarm:
            made.append(self._swarm_rounds())
        self._add_loads(made)

    def _swarm_rounds(self) -> Built:
        workload, sample = self._workload, self._sample
        if workload.name == "hotspot":
            # SWARM has already seen other objects of the hotspot, the static maps have not.
            queries = workloads.swarm(4, workload.stored, len(workload.sample_queries))
            sample = workload.stored.sample(queries.sample())
        seconds, made = seconds_of(lambda: balanced_map(sample, SLOTS))
        return SWARM_ROUNDS, seconds, made, compile_map(made)

    def _add_loads(self, made: Iterable[Built]) -> None:
        workload, made = self._workload, list(made)
        arrays = [(name, arrays) for name, _, _, arrays in made]
        found = slot_loads(arrays, workload.objects, workload.queries, self._expected)
        for name, seconds, partition_map, routing in made:
            row = load_row(found[name], len(workload.objects), len(workload.queries))
            self._add_load(name, "", seconds, partition_map, routing, row)

    def _add_load(
        self,
        name: str,
        case: str,
        seconds: float,
        partition_map: PartitionMap,
        arrays: RoutingArrays,
        row: Row,
    ) -> None:
        self._figures.add(
            "loads",
            workload=self._workload.name,
            scheme=name,
            case=case,
            slots=arrays.slots,
            build_s=round(seconds, 3),
            leaves=len(partition_map.leaves),
            text_nodes=len(partition_map.text_nodes),
            keyword_nodes=len(partition_map.keyword_nodes),
            map_bytes=len(to_bytes(partition_map)),
            array_bytes=arrays.nbytes(),
            expected_imbalance=_expected_imbalance(partition_map),
            **row,
        )

    def _more_slots(self) -> None:
        for slots in self._plan.more_slots:
            chosen = (HYBRID, BEST_TEXT, BEST_SPACE)
            self._add_loads(self._built(chosen, leaves=max(LEAVES, 4 * slots), slots=slots))

    def _more_queries(self) -> None:
        """Does the work of PS2Stream's schemes with so many queries that matching dominates."""
        workload = self._workload
        self._say(f"{workload.name}: {MANY_TIMES} times the queries")
        count = MANY_TIMES * self._plan.size.queries
        queries = subscriptions(6, workload.objects, count, workload.name)
        objects = workload.objects.take(np.arange(max(1, len(workload.objects) // MANY_TIMES)))
        expected = all_pairs(objects, queries)
        made = list(self._built(PS2STREAM_SCHEMES))
        arrays = [(name, arrays) for name, _, _, arrays in made]
        found = slot_loads(arrays, objects, queries, expected, with_checks=False)
        for name, seconds, partition_map, routing in made:
            row = load_row(found[name], len(objects), len(queries))
            self._add_load(name, "many", seconds, partition_map, routing, row)

    def _routing(self) -> None:
        self._say(f"{self._workload.name}: routing")
        objects = self._workload.objects
        for leaves in self._plan.routing_leaves:
            for name, seconds, partition_map, arrays in self._built(self._plan.schemes, leaves):
                row = {"workload": self._workload.name, "scheme": name, "asked": leaves}
                found = routing_times.route_objects(partition_map, arrays, objects)
                self._figures.add("objects", **row, build_s=round(seconds, 3), **asdict(found))
                for one in routing_times.route_regions(arrays, objects):
                    self._figures.add("regions", **row, **asdict(one))

    def _grids(self) -> None:
        for row in routing_times.route_on_grids(self._sample, GRIDS, GRID_LEAVES):
            self._figures.add("grids", workload="tornado", **asdict(row))

    def _sweep(
        self, case: str, member: str, value: float, queries: Queries, schemes: tuple[str, ...]
    ) -> None:
        """Routes other queries by the maps of this workload."""
        objects = self._workload.objects
        expected = all_pairs(objects, queries)
        arrays = [(name, arrays) for name, _, _, arrays in self._built(schemes)]
        found = slot_loads(arrays, objects, queries, expected, with_checks=False)
        for name, loads in found.items():
            self._figures.add(
                "sweeps",
                workload=self._workload.name,
                scheme=name,
                case=case,
                **{member: value},
                **load_row(loads, len(objects), len(queries)),
            )

    def _tornado_sweeps(self) -> None:
        self._say("tornado: sizes, keywords, frequencies")
        objects = self._workload.objects
        count = int(SWEEP_QUERIES_SHARE * self._plan.size.queries)
        for side in TORNADO_SIDES:
            queries = after_objects(3, objects, count, side, workloads.TORNADO_KEYWORDS)
            self._sweep("side", "side", side, queries, ("a-grid",))
        for keywords in TORNADO_KEYWORDS:
            queries = after_objects(3, objects, count, workloads.TORNADO_SIDE, keywords)
            self._sweep("keywords", "keywords", keywords, queries, ("a-grid",))
        for name, _, _, arrays in self._built(("a-grid",)):
            for level in FREQUENCIES:
                queries = of_frequency(3, objects, count, workloads.TORNADO_SIDE, level)
                share = wanted_share(arrays, objects, queries)
                self._figures.add(
                    "filters", workload="tornado", scheme=name, level=level, wanted=share
                )

    def _tornado_queries(self) -> None:
        self._say("tornado: queries that come to routing units")
        objects = self._workload.objects
        for name, _, _, arrays in self._built(("a-grid",)):
            queries = workloads.tornado(4, objects, FORWARDED_SHARE * self._plan.size.queries)
            found = forwarding(arrays, query_lines(queries, term_names(objects)))
            self._figures.add("forwarding", workload="tornado", scheme=name, **asdict(found))

    def _tornado_adapting(self) -> None:
        """Measures static and changed maps when everything is moved to a part of the world."""
        self._say("tornado: adapting")
        workload = self._workload
        past = tornado_adaptive.Past.of(workload.sample, workload.queries)
        for scale in tornado_adaptive.SCALES:
            made: list[tuple[str, int, RoutingArrays]] = []
            for leaves in ADAPTED_LEAVES:
                for name, _, static, arrays in self._built(("a-grid",), leaves):
                    adapted, found = tornado_adaptive.adapt(static, past, scale, self._plan.seed)
                    made += [(name, leaves, arrays), (ADAPTED, leaves, compile_map(adapted))]
                    self._figures.add(
                        "adapting", workload="tornado", scheme=name, scale=scale, asked=leaves,
                        **asdict(found),
                    )  # fmt: skip
            self._scaled_loads(scale, made)

    def _scaled_loads(self, scale: float, made: list[tuple[str, int, RoutingArrays]]) -> None:
        objects = tornado_adaptive.scaled_places(self._workload.objects, scale)
        queries = tornado_adaptive.scaled_boxes(self._workload.queries, scale)
        arrays = [(f"{name}/{leaves}", arrays) for name, leaves, arrays in made]
        expected = all_pairs(objects, queries)
        found = slot_loads(arrays, objects, queries, expected, with_checks=False)
        for name, leaves, _ in made:
            self._figures.add(
                "sweeps", workload="tornado", scheme=name, case="scale", scale=scale, asked=leaves,
                **load_row(found[f"{name}/{leaves}"], len(objects), len(queries)),
            )  # fmt: skip

    def _sstd_sweep(self) -> None:
        self._say("sstd: sizes")
        objects = self._workload.objects
        count = int(SWEEP_QUERIES_SHARE * self._plan.size.queries)
        for area in THROUGHPUT_AREAS:
            queries = after_objects(3, objects, count, float(np.sqrt(area)), 1)
            self._sweep("area", "area", area, queries, ("qt-tree", "a-grid", "kdt-tree"))

    def _searches(self) -> None:
        self._say(f"{self._workload.name}: searches")
        stored = self._workload.stored
        asked = [(area, workloads.SSTD_KEYWORDS) for area in AREAS]
        asked += [(workloads.SSTD_AREA, keywords) for keywords in KEYWORDS[1:]]
        cases = []
        for area, keywords in asked:
            queries = after_objects(5, stored, SEARCHES, float(np.sqrt(area)), keywords)
            cases.append((area, keywords, queries, answer_size(stored, queries)))
        for name, _, _, arrays in self._built(self._plan.schemes):
            leaves = Stored(arrays, stored)
            for area, keywords, queries, found in cases:
                self._figures.add(
                    "searches",
                    workload=self._workload.name,
                    scheme=name,
                    area=area,
                    keywords=keywords,
                    stored=len(stored),
                    **asdict(leaves.visits(queries, found)),
                )


def replay(plan: Plan, figures: Figures, say: Say, keep: Callable[[], None]) -> None:
    """Runs workloads through the real pipeline; arguments as for `measure`."""
    names = {name for name, _ in plan.replays}
    for workload in workloads.workloads(plan.size, plan.seed, plan.data):
        if not names:
            return
        if workload.name not in names:
            continue
        names.remove(workload.name)
        with tempfile.TemporaryDirectory(prefix="sirocco-schemes-") as directory:
            files = ReplayFiles(Path(directory), workload)
            for name, scheme in plan.replays:
                if name == workload.name and scheme in SCHEMES:
                    say(f"{name}: replay with {scheme}")
                    _replay(figures, name, scheme, files)
                    keep()


def _expected_imbalance(partition_map: PartitionMap) -> float | None:
    load = partition_map.load_of_slot()
    return ratio(float(load.max()), float(load.min()))


def _replay(figures: Figures, workload: str, scheme: str, files: ReplayFiles) -> None:
    if any(row["error"] for row in figures.all("replays", scheme=scheme)):
        reason = "it failed on another workload"
        figures.skipped.append(f"replay of {workload} with {scheme}: {reason}")
        return
    found = files.replay(scheme, LEAVES, SLOTS)
    figures.add("replays", workload=workload, scheme=scheme, **asdict(found))


def build(
    scheme: str, sample: Sample, leaves: int, slots: int
) -> tuple[float, PartitionMap, RoutingArrays]:
    """Builds a map; returns (seconds, map, arrays)."""
    chosen = SCHEMES[scheme]
    seconds, made = seconds_of(lambda: chosen.build(sample, leaves, slots))
    return seconds, made, chosen.compile(made)
