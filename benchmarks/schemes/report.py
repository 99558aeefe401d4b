"""The report in Markdown: claims, tables, plots; all of it is derived from the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.schemes import claims_ps2stream, claims_sstd, claims_tornado_swarm
from benchmarks.schemes.claims_tornado_swarm import forwarded
from benchmarks.schemes.figures import LEAVES, SLOTS, Figures, Row, ratio
from benchmarks.schemes.keyword_forwarding import UNITS
from benchmarks.schemes.measure import ADAPTED, AREAS
from benchmarks.schemes.plots import Plot
from benchmarks.schemes.tornado_adaptive import GRID_SIDE, ROUNDS
from benchmarks.schemes.verdicts import (
    DIRECTION,
    REFUTED,
    REPRODUCED,
    SAME,
    Claim,
    Verdict,
)

CLAIMS: tuple[Claim, ...] = (
    *claims_tornado_swarm.CLAIMS,
    *claims_sstd.CLAIMS,
    *claims_ps2stream.CLAIMS,
)

BAR_WORDS = {REPRODUCED: "met", REFUTED: "missed"}

HEAD = f"""\
# The schemes compared

Written by `make bench-schemes`; the raw figures are in [schemes.json](schemes/schemes.json).

Each scheme builds a map of {LEAVES} leaves on {SLOTS} slots from a sample. Then *other* objects and
queries of the same kind are routed by it, and the work of each slot is really done, one slot
after the other on one thread: its objects are gathered, encoded and decoded, and matched in a
range index that holds its queries. All slots together must find exactly the pairs that one
index of everything finds; a scheme that missed one or made one up would end the run.

- *load* of a slot: its objects, matches and queries, each times what one costs; PS2Stream's
  Definition 1. The constants are taken by least squares from the CPU times of all slots of all
  schemes on a workload, and are below. Queries are inserted at the rate of one for ten objects, as
  in PS2Stream VI-A.
- *capacity*: objects a second that {SLOTS} cores would bear, one a slot: all objects by the load of
  the busiest slot. *Clocked* capacity takes each slot's own CPU time instead.
- *Lmax/Lmin*: load of the busiest slot by that of the idlest. What the scheme's own model expects
  is about the sample that the map was built from, in its own unit; what comes of it is measured on
  other objects. The model of `kdt-tree` is Definition 1, which has no term for matches: an object
  is charged for all queries of its slot, dense or not (c1 |O_i| |Q_i|). Slots that are even by it
  may differ in matches by ten times and more.
- *copies*: slots that an object, or a query, is sent to on average.
- *objects × queries*: the sum over slots of |O_i| |Q_i|, the first term of PS2Stream's load
  (Definition 1) and SWARM's units of work: the checks of a worker without an index.

Counts (copies, products, checks, visits, bytes) do not vary. Times are CPU times of one thread, the
best of some passes in which all schemes take turns. Alone on a machine they vary by a tenth; beside
other work, which the load average shows, single ones are off by up to a half. So loads are
made of counts, with constants that hundreds of times agree on. Less than a tenth is called no
difference.
"""


def render(figures: Figures, plots: Sequence[Plot]) -> str:
    """Returns the report."""
    sections = [
        HEAD,
        _about(figures),
        _claims(figures),
        _workloads(figures),
        _loads(figures),
        _maps(figures),
        _routing(figures),
        _tornado(figures),
        _searches(figures),
        _replays(figures),
        _pictures(plots),
        _skipped(figures),
    ]
    return "\n".join(section.rstrip() + "\n" for section in sections if section)


def verdicts_of(figures: Figures, claims: Iterable[Claim]) -> list[tuple[Claim, Verdict]]:
    """Returns each claim with its verdict."""
    return [(claim, claim.verdict(figures)) for claim in claims]


def _about(figures: Figures) -> str:
    about = figures.about
    again = "".join(f"  \n{line}" for line in about.get("again", ()))
    return (
        f"`{about.get('command', '')}`  \n{about.get('when', '')} UTC, revision "
        f"{about.get('revision', '')}, seed {about.get('seed', '')}, "
        f"{about.get('seconds', 0):.0f} s  \n{about.get('machine', '')}, load average "
        f"{about.get('load', 'unknown')}{again}\n"
    )


def _claims(figures: Figures) -> str:
    found = verdicts_of(figures, CLAIMS)
    count = Counter(verdict.state for _, verdict in found)
    summary = ", ".join(f"{number} {state}" for state, number in count.most_common())
    return "\n\n".join(
        [
            "## What the papers claim",
            f"{len(found)} claims: {summary}.",
            _claim_table(found),
            "### The bars of the design",
            _claim_table(verdicts_of(figures, claims_ps2stream.BARS), BAR_WORDS),
        ]
    )


def _claim_table(found: list[tuple[Claim, Verdict]], words: dict[str, str] | None = None) -> str:
    names = words or {}
    rows = [
        (
            claim.source,
            claim.says,
            f"**{names.get(verdict.state, verdict.state)}**",
            verdict.figure,
            claim.why_not if verdict.state in {REFUTED, DIRECTION, SAME} else "",
        )
        for claim, verdict in found
    ]
    return table(("source", "claim", "verdict", "measured", "why not"), rows)


def _workloads(figures: Figures) -> str:
    rows = [
        (
            row["workload"],
            row["about"],
            f"{row['sample']:,} / {row['sample_queries']:,}",
            f"{row['objects']:,} / {row['queries']:,}",
            f"{row['matches']:,}",
        )
        for row in figures.all("workloads")
    ]
    head = ("workload", "what it is", "map from objects / queries", "measured on", "matches")
    return "## Workloads\n\n" + table(head, rows)


def _ratio(value: float | None) -> str:
    return "∞" if value is None else f"{value:.2f}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return max(values), min(values)


_MATRICES: tuple[tuple[str, str, Callable[[Row], str]], ...] = (
    (
        "Capacity, thousand objects a second",
        "load_capacity",
        lambda row: f"{row['load_capacity'] / 1e3:,.0f}",
    ),
    (
        "Balance, Lmax/Lmin (∞: a slot has nothing to do)",
        "load_imbalance",
        lambda row: _ratio(row["load_imbalance"]),
    ),
    (
        "Balance that the scheme's own model expects, Lmax/Lmin (empty: of a run that did not keep "
        "it)",
        "expected_imbalance",
        lambda row: _ratio(row["expected_imbalance"]) if "expected_imbalance" in row else "",
    ),
    (
        "Matches of a slot, most by least",
        "by_slot",
        lambda row: _ratio(ratio(*_ends(row["by_slot"]["matches"]))),
    ),
    (
        "Clocked capacity, thousand objects a second",
        "capacity",
        lambda row: f"{row['capacity'] / 1e3:,.0f}",
    ),
    (
        "Copies of an object",
        "object_copies",
        lambda row: f"{row['object_copies']:.2f}",
    ),
    ("Copies of a query", "query_copies", lambda row: f"{row['query_copies']:.2f}"),
    (
        "Total workload, CPU microseconds an object",
        "load_work_s",
        lambda row: f"{1e6 * row['load_work_s'] / sum(row['by_slot']['homes']):.2f}",
    ),
    (
        "Total workload, objects × queries, millions",
        "products_total",
        lambda row: f"{row['products_total'] / 1e6:,.0f}",
    ),
    (
        "Checks that PS2Stream's workers would make of an object (lists of GI²)",
        "checks_total",
        lambda row: f"{row['checks_total'] / sum(row['by_slot']['homes']):,.1f}",
    ),
)


def _loads(figures: Figures) -> str:
    parts = ["## Load of the slots"]
    rows = figures.all("loads", case="", slots=SLOTS)
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    by_pair = {(row["scheme"], row["workload"]): row for row in rows}
    for title, _, cell in _MATRICES:
        body = [
            (
                scheme,
                *(
                    cell(by_pair[scheme, workload]) if (scheme, workload) in by_pair else ""
                    for workload in workloads
                ),
            )
            for scheme in schemes
        ]
        parts += [f"### {title}", table(("", *workloads), body)]
    parts += ["### Constants, CPU microseconds", _constants(figures)]
    return "\n\n".join(parts)


def _constants(figures: Figures) -> str:
    cases = {"": "", "many": "ten times the queries", "side": "sizes", "area": "sizes",
             "scale": "scaled"}  # fmt: skip
    rows = [
        (
            row["workload"],
            cases.get(row["case"], row["case"]),
            f"{row['object_us']:.2f}",
            f"{row['match_us']:.3f}",
            f"{row['query_us']:.2f}",
            f"{row['error']:.0%}",
        )
        for row in figures.all("constants")
    ]
    head = ("workload", "", "an object received", "a match", "a query inserted",
            "mean deviation of a slot's clock")  # fmt: skip
    return table(head, rows)


def _maps(figures: Figures) -> str:
    rows = [
        (
            row["workload"],
            row["scheme"],
            f"{row['build_s']:.2f}",
            row["leaves"],
            row["text_nodes"],
            row["keyword_nodes"],
            f"{row['map_bytes'] / 1e3:.1f}",
            f"{row['array_bytes'] / 1e3:.1f}",
            f"{row['index_bytes_total'] / 1e6:.1f}",
        )
        for row in figures.all("loads", case="", slots=SLOTS)
        if row["workload"] in {"q3", "sstd"}
    ]
    head = ("workload", "scheme", "build, CPU s", "leaves", "text nodes", "keyword nodes",
            "map, kB", "routing arrays, kB", "all indexes, MB")  # fmt: skip
    return "## Maps\n\n" + table(head, rows)


def _routing(figures: Figures) -> str:
    objects = [
        (
            row["workload"],
            row["scheme"],
            row["asked"],
            row["leaves"],
            f"{row['objects_per_s'] / 1e6:.1f}",
            f"{1e9 / row['objects_per_s']:.0f}",
            f"{row['copies']:.2f}",
            f"{row['array_bytes'] / 1e3:.1f}",
            f"{row['build_s']:.2f}",
        )
        for row in figures.all("objects")
        if row["asked"] in {64, 1024}
    ]
    head = ("workload", "scheme", "leaves asked", "leaves", "million objects/s", "ns an object",
            "slots an object", "arrays, kB", "build, CPU s")  # fmt: skip
    regions = figures.all("regions", workload="tornado", asked=1024)
    sides = sorted({row["side"] for row in regions})
    by_scheme: dict[str, dict[float, Row]] = {}
    for row in regions:
        by_scheme.setdefault(row["scheme"], {})[row["side"]] = row
    region_rows = [
        (
            scheme,
            *(f"{own[s]['ns_per_region']:,.0f} ({own[s]['leaves_hit']:.1f})" for s in sides),
        )
        for scheme, own in by_scheme.items()
    ]
    return "\n\n".join(
        [
            "## Routing, one core",
            "### Objects",
            table(head, objects),
            "### Regions, nanoseconds (leaves hit); 1,024 leaves asked for, workload tornado",
            table(("", *(f"side {side:.2%}" for side in sides)), region_rows),
        ]
    )


def _tornado(figures: Figures) -> str:
    if not figures.all("forwarding") or not figures.all("adapting"):
        return ""
    found = forwarded(figures)
    queries = [
        (
            units,
            *(f"{us:.0f}" for us in both),
            *(f"{found.queries_per_s(us, units, SLOTS) / 1e3:,.0f}" for us in both),
        )
        for units in UNITS
        for both in [(found.broadcast_us(units), found.forward_us(units))]
    ]
    adapting = []
    for row in figures.all("adapting"):
        about = {"case": "scale", "scale": row["scale"], "asked": row["asked"]}
        pair = [figures.one("sweeps", **about, scheme=name) for name in (row["scheme"], ADAPTED)]
        adapting.append(
            (
                row["asked"],
                f"{row['scale']:g}",
                *(f"{each['load_capacity'] / 1e3:,.0f}" for each in pair),
                *(_ratio(each["load_imbalance"]) for each in pair),
                row["operations"],
                f"{row['reported_bytes'] / 1e3:.1f}",
                f"{row['central_bytes'] / 1e3:.1f}",
            )
        )
    return "\n\n".join(
        [
            "## Tornado's routing units and its balancer",
            "### Queries that come to routing units",
            f"Summaries of {SLOTS} slots, {found.standing:,} queries that stand, {found.queries:,} "
            "that come and are clocked. A record of a query has "
            f"{found.query_bytes:.0f} bytes, one of new keywords {found.keyword_bytes:.1f} a "
            f"query, of which {found.new_share:.2f} bring one. Each unit and each evaluator has a "
            f"core; a query takes {found.own_us:.0f} µs where it comes to and {found.slots_us:.1f} "
            "of evaluators. Left out, as it is alike for both: gRPC and the log.",
            table(
                ("units", "broadcast, CPU µs a query at all units", "forward", "broadcast, "
                 "thousand queries/s", "forward"),
                queries,
            ),
            "### Adapting",
            f"All of workload tornado moved to a part of the space; {ROUNDS} rounds of "
            "Tornado's balancer, at most one operation each, before other objects are measured. "
            "Reported: by all evaluators in a round; cells: what a report of each cell would take, "
            "of a grid of "
            f"{GRID_SIDE:,} x {GRID_SIDE:,} that has an object or a query.",
            table(
                ("leaves", "scale", "static, thousand objects/s", "adaptive",
                 "static, Lmax/Lmin", "adaptive", "operations", "reported, kB", "cells, kB"),
                adapting,
            ),
        ]
    )  # fmt: skip


def _searches(figures: Figures) -> str:
    parts = ["## Snapshot queries: objects that a query visits"]
    parts.append(
        "A search of a leaf that holds all its keywords visits the objects of the leaf: the cost "
        "of SSTD's model, counted on real objects. Our evaluators search by postings and visit "
        "far fewer; what the map alone decides is compared here."
    )
    for workload in figures.names("searches", "workload"):
        rows = figures.all("searches", workload=workload, keywords=1)
        by_pair = {(row["scheme"], row["area"]): row for row in rows}
        schemes = list(dict.fromkeys(row["scheme"] for row in rows))
        body = [
            (scheme, *(f"{by_pair[scheme, area]['objects']:,.0f}" for area in AREAS))
            for scheme in schemes
        ]
        stored = rows[0]["stored"]
        parts += [
            f"### {workload}, {stored:,} objects",
            table(("", *(f"{100 * area:g} %" for area in AREAS)), body),
        ]
    return "\n\n".join(parts) if len(parts) > 2 else ""


def _replays(figures: Figures) -> str:
    rows = figures.all("replays")
    if not rows:
        return ""
    services = list(dict.fromkeys(name for row in rows for name in row["cpu_us"]))
    body = [
        (
            row["workload"],
            row["scheme"],
            row["error"] or f"{row['objects_per_s']:,.0f}",
            f"{row['registered_per_s']:,.0f}",
            _notified(row),
            *(f"{row['cpu_us'].get(name, 0):.1f}" for name in services),
        )
        for row in rows
    ]  # fmt: skip
    head = ("workload", "scheme", "objects/s", "queries registered/s", "notifications",
            *(f"{name}, CPU µs an object" for name in services))  # fmt: skip
    return (
        "## The real pipeline\n\n`sirocco replay`: all services in one process on the memory log, "
        "on all cores of this machine. The map is built from objects alone, for the command knows "
        "no queries beforehand. A process of its own for each run: the first second of warming up "
        "is in all figures, the registration of the queries in the CPU times. Notifications: "
        "*exact*: pair by pair those of one index of everything; *as many as due*: counted, "
        "and no more.\n\n" + table(head, body)
    )


def _notified(row: Row) -> str:
    """Compares the results of a replay with those of one index of everything."""
    if row["notifications"] != row["expected"]:
        return f"{row['notifications']:,} of {row['expected']:,}"
    wrong = row.get("wrong")
    if wrong is None:
        # For a run that only counted them.
        return "as many as due"
    return f"{wrong:,} wrong" if wrong else "exact"


def _pictures(plots: Sequence[Plot]) -> str:
    parts = ["## Pictures"]
    parts += [f"![{plot.title}](schemes/{plot.path.name})\n\n{plot.title}" for plot in plots]
    return "\n\n".join(parts) if plots else ""


def _skipped(figures: Figures) -> str:
    if not figures.skipped:
        return ""
    return "## Left out\n\n" + "\n".join(f"- {reason}" for reason in figures.skipped)


def table(head: Sequence[object], body: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ("---",) * len(head), *body]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def write(figures: Figures, plots: Sequence[Plot], path: Path) -> None:
    """Writes the report."""
    path.write_text(render(figures, plots))
