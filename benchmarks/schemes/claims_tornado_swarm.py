"""The findings of Tornado (section 6) and SWARM (section 6), compared with our figures."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.schemes.figures import LEAVES, SLOTS, Figures, Row
from benchmarks.schemes.keyword_forwarding import UNITS, Forwarding
from benchmarks.schemes.measure import ADAPTED, SWARM_ROUNDS, TILE_A_SLOT
from benchmarks.schemes.verdicts import Claim, Verdict, graded, held

# Routing that grows by less than this while leaves become 64 times as many, or cells 256 times, is
# flat: cache effects alone cost as much.
FLAT = 2.0
# Tornado 6.3 calls a throughput "not significantly affected": a fifth less counts as that, half as
# much does not.
SLIGHT = 0.8
HALF = 0.5
# 6.4 calls an overhead "much less"; we require half as much.
MUCH = 2.0


def ratio_of_capacity(
    figures: Figures, workload: str, better: str, worse: str, case: str = ""
) -> float:
    """Returns the objects a second that one scheme bears over those of the other."""
    value: float = figures.load(workload, better, case=case)["load_capacity"]
    return value / float(figures.load(workload, worse, case=case)["load_capacity"])


def _a_grid_and_uniform(figures: Figures) -> Verdict:
    value = ratio_of_capacity(figures, "tornado", "a-grid", TILE_A_SLOT)
    most = [figures.load("tornado", name)["load_max_over_mean"] for name in ("a-grid", TILE_A_SLOT)]
    return Verdict(
        graded(value, 2),
        f"{value:.2f}x; the busiest slot has {most[0]:.2f} and {most[1]:.2f} times the mean",
    )


def _a_grid_and_text(figures: Figures) -> Verdict:
    value = ratio_of_capacity(figures, "tornado", "a-grid", "text-frequency")
    copies = figures.load("tornado", "text-frequency")["object_copies"]
    return Verdict(graded(value, 2), f"{value:.2f}x; an object goes to {copies:.2f} slots by text")


def _filter(figures: Figures) -> Verdict:
    rows = sorted(figures.all("filters", scheme="a-grid"), key=lambda row: row["level"])
    if not rows:
        figures.one("filters", scheme="a-grid")
    shares = [row["wanted"] for row in rows]
    rises = all(a <= b for a, b in pairwise(shares))
    reported = ", ".join(f"{row['level']:.0%}: {row['wanted']:.1%}" for row in rows)
    return Verdict(
        held(rises and shares[0] < shares[-1]), f"objects that a filter would send, {reported}"
    )


def _growth(figures: Figures, scheme: str) -> float:
    rows = figures.all("objects", workload="tornado", scheme=scheme)
    if not rows:
        figures.one("objects", workload="tornado", scheme=scheme)
    few, many = (choose(rows, key=lambda row: int(row["asked"])) for choose in (min, max))
    return float(few["objects_per_s"]) / float(many["objects_per_s"])


def _flat_points(figures: Figures) -> Verdict:
    found = {name: _growth(figures, name) for name in ("a-grid", "uniform-grid")}
    reported = ", ".join(f"{name} {value:.2f}x" for name, value in found.items())
    return Verdict(
        held(max(found.values()) <= FLAT),
        f"time of an object from few to 1,024 leaves: {reported}; up to {FLAT:g}x is the same",
    )


def _r_tree_points(figures: Figures) -> Verdict:
    value = _growth(figures, "r-tree")
    return Verdict(held(value > FLAT), f"{value:.2f}x from few to 1,024 leaves")


def _grids(figures: Figures) -> tuple[list[Row], float]:
    rows = figures.all("grids")
    if not rows:
        figures.one("grids")
    return rows, max(row["side"] for row in rows)


def _neighbour_search(figures: Figures) -> Verdict:
    rows, side = _grids(figures)
    own = sorted((row for row in rows if row["side"] == side), key=lambda row: row["grid"])
    per_leaf = [row["ns_per_region"] / row["leaves_hit"] for row in own]
    growth = per_leaf[-1] / per_leaf[0]
    scan = own[-1]["scan_ns_per_region"] / own[0]["scan_ns_per_region"]
    cells = f"{own[0]['grid']}² to {own[-1]['grid']}² cells"
    return Verdict(
        held(growth <= FLAT),
        f"{growth:.2f}x a leaf hit from {cells} ({per_leaf[0]:.0f} to {per_leaf[-1]:.0f} ns, "
        f"regions of {side:.0%}); scanning the cells: {scan:.0f}x",
    )


def _neighbour_and_scan(figures: Figures) -> Verdict:
    rows, _ = _grids(figures)
    # The paper's 1000 x 1000 cells and its sizes, 0.05 % to 1.5 %.
    own = sorted(
        (row for row in rows if row["grid"] == 1024 and row["side"] <= 0.015),
        key=lambda row: row["side"],
    )
    gains = [row["scan_ns_per_region"] / row["ns_per_region"] for row in own]
    reported = ", ".join(
        f"{row['side']:.2%}: {gain:.2f}x" for row, gain in zip(own, gains, strict=True)
    )
    finest = max(row["grid"] for row in rows)
    large = max((row for row in rows if row["grid"] == finest), key=lambda row: row["side"])
    gain = large["scan_ns_per_region"] / large["ns_per_region"]
    return Verdict(
        held(min(gains) > 1, partly=max(gains) > 1),
        f"{reported}; not a size of the paper: {large['side']:.0%} on {finest}²: {gain:.1f}x",
    )


def _sweep(figures: Figures, case: str) -> Verdict:
    rows = figures.all("sweeps", workload="tornado", scheme="a-grid", case=case)
    if not rows:
        figures.one("sweeps", workload="tornado", scheme="a-grid", case=case)
    rows.sort(key=lambda row: row[case])
    first, last = rows[0]["capacity"], rows[-1]["capacity"]
    least = min(row["capacity"] for row in rows) / max(row["capacity"] for row in rows)
    matches = [sum(row["by_slot"]["matches"]) / sum(row["by_slot"]["homes"]) for row in rows]
    copies = [row["query_copies"] for row in rows]
    return Verdict(
        held(least >= SLIGHT, partly=least >= HALF),
        f"matches an object {matches[0]:.2f} to {matches[-1]:.2f}, slots a query {copies[0]:.2f} "
        f"to {copies[-1]:.2f}; {last / first:.2f}x at {rows[-1][case]:g} of what it is at "
        f"{rows[0][case]:g}; least by greatest {least:.2f}, from {SLIGHT:g} on hardly affected",
    )


def forwarded(figures: Figures) -> Forwarding:
    """Returns the cost of queries at routing units; raises MissingFigureError."""
    row = figures.one("forwarding", scheme="a-grid")
    return Forwarding(**{name: row[name] for name in Forwarding.__slots__})


def _forward_and_broadcast(figures: Figures) -> Verdict:
    found = forwarded(figures)
    rates = {
        units: [
            found.queries_per_s(us, units, SLOTS)
            for us in (found.forward_us(units), found.broadcast_us(units))
        ]
        for units in UNITS
    }
    gains = ", ".join(f"{units}: {new / old:.1f}x" for units, (new, old) in rates.items())
    most, (new, old) = max(rates.items(), key=lambda item: item[1][0] / item[1][1])
    return Verdict(
        graded(new / old, 5),
        f"by routing units {gains}; {new / 1e3:.0f} instead of {old / 1e3:.0f} thousand queries/s "
        f"at {most}; another unit's {found.receive_us:.1f} µs to receive a query, "
        f"{found.write_us + found.take_us:.2f} to receive its keyword if it is new, "
        f"{found.again_us:.2f} if it is sent in any case: what saves is to send keywords instead "
        "of queries",
    )


def adapted_capacities(figures: Figures, scheme: str, leaves: int) -> dict[float, float]:
    """Returns scale → capacity over that of the static map unscaled; raises MissingFigureError."""
    about = {"workload": "tornado", "case": "scale", "asked": leaves}
    whole = figures.one("sweeps", **about, scheme="a-grid", scale=1.0)["load_capacity"]
    rows = figures.all("sweeps", **about, scheme=scheme)
    found = {row["scale"]: row["load_capacity"] / whole for row in rows}
    return dict(sorted(found.items(), reverse=True))


def _adaptive_and_static(figures: Figures) -> Verdict:
    # In Tornado an evaluator is a leaf; the effect of several leaves for each slot is reported too.
    static, adapted = (adapted_capacities(figures, name, SLOTS) for name in ("a-grid", ADAPTED))
    several = adapted_capacities(figures, ADAPTED, LEAVES)
    gains = [adapted[scale] / static[scale] for scale in static if scale < 1]
    is_stable = min(adapted.values()) >= SLIGHT > min(static.values())
    reported = (
        ", ".join(f"{scale:g}: {value:.2f}" for scale, value in each.items())
        for each in (static, adapted, several)
    )
    static_said, adapted_said, several_said = reported
    return Verdict(
        held(is_stable and min(gains) > 1, partly=min(gains) > 1),
        f"capacity by that of the map's own workload, a leaf an evaluator: static {static_said}; "
        f"adaptive {adapted_said}; adaptive with {LEAVES} leaves {several_said}",
    )


def _static_sinks(figures: Figures) -> Verdict:
    found = {leaves: adapted_capacities(figures, "a-grid", leaves) for leaves in (SLOTS, LEAVES)}
    sinks = [all(more > less for more, less in pairwise(each.values())) for each in found.values()]
    reported = "; ".join(
        f"{leaves} leaves " + ", ".join(f"{scale:g}: {value:.2f}" for scale, value in each.items())
        for leaves, each in found.items()
    )
    ends = [each[min(each)] < each[max(each)] for each in found.values()]
    return Verdict(held(sinks[0], partly=all(ends)), reported)


def _decentralised(figures: Figures) -> Verdict:
    rows = figures.all("adapting", scheme="a-grid", asked=SLOTS)
    if not rows:
        figures.one("adapting", scheme="a-grid", asked=SLOTS)
    several = figures.all("adapting", scheme="a-grid", asked=LEAVES)
    gains, more = (
        [row["central_bytes"] / row["reported_bytes"] for row in each] for each in (rows, several)
    )
    reported = max(row["reported_bytes"] for row in rows)
    return Verdict(
        graded(min(gains), MUCH),
        f"{min(gains):.1f} to {max(gains):.1f} times fewer bytes a round with a leaf an evaluator "
        f"(at most {reported / 1e3:.0f} kB), {min(more):.1f} to {max(more):.1f} times with "
        f"{LEAVES} leaves; {MUCH:g} times is much",
    )


def _replicated_and_static(figures: Figures) -> Verdict:
    values = [
        ratio_of_capacity(figures, "swarm", "replicated", name) for name in (TILE_A_SLOT, "a-grid")
    ]
    return Verdict(
        held(min(values) > 1, partly=max(values) > 1),
        f"{values[0]:.2f}x the uniform grid, {values[1]:.2f}x a grid made from history (a-grid)",
    )


def _replicated_memory(figures: Figures) -> Verdict:
    most = figures.load("swarm", "replicated")["index_bytes_total"]
    value = most / figures.load("swarm", "swarm")["index_bytes_total"]
    return Verdict(graded(value, SLOTS / 2), f"{value:.1f}x the memory of all indexes of swarm")


def _swarm_and_static(figures: Figures) -> Verdict:
    uniform = ratio_of_capacity(figures, "swarm", SWARM_ROUNDS, TILE_A_SLOT)
    history = ratio_of_capacity(figures, "swarm", SWARM_ROUNDS, "a-grid")
    return Verdict(
        graded(history, 3) if history > 1 else held(False, partly=uniform > 1),
        f"{uniform:.2f}x the uniform grid, {history:.2f}x a grid made from history (a-grid)",
    )


def _hotspot_static(figures: Figures) -> Verdict:
    names = (TILE_A_SLOT, "a-grid", "kd-tree")
    grown = [
        figures.load("hotspot", name)["products_max"] / figures.load("swarm", name)["products_max"]
        for name in names
    ]
    reported = ", ".join(f"{name} {value:.1f}x" for name, value in zip(names, grown, strict=True))
    return Verdict(
        held(min(grown[1:]) > 1.5),
        f"objects times queries of the busiest slot, against calm: {reported}",
    )


def _hotspot_swarm(figures: Figures) -> Verdict:
    values = {
        name: figures.load("hotspot", name)["products_max"]
        / figures.load("hotspot", SWARM_ROUNDS)["products_max"]
        for name in (TILE_A_SLOT, "a-grid", "kd-tree")
    }
    reported = ", ".join(f"{name} {value:.1f}x" for name, value in values.items())
    return Verdict(
        held(min(values.values()) > 1, partly=max(values.values()) > 1),
        f"objects times queries of the busiest slot, against swarm's: {reported}",
    )


CLAIMS = (
    Claim(
        "Tornado 6.2, Fig. 8a",
        "A-Grid bears twice what one equal tile a machine does",
        _a_grid_and_uniform,
        "the largest of eight equal tiles has that many times the mean of the objects, and no "
        "more; Tornado's space is cut for more machines",
    ),
    Claim(
        "Tornado 6.2, Fig. 8a",
        "A-Grid bears twice what routing by text does",
        _a_grid_and_text,
    ),
    Claim(
        "Tornado 6.2, Fig. 8c",
        "the rarer the queries' keywords, the fewer objects are forwarded",
        _filter,
    ),
    Claim(
        "Tornado 6.2, Fig. 9a",
        "the time to route a point stays the same on Grid and A-Grid while partitions grow",
        _flat_points,
    ),
    Claim(
        "Tornado 6.2, Fig. 9a",
        "and grows on the R-tree",
        _r_tree_points,
        "our routers do not walk the tree: the leaves of every scheme are compiled to the same "
        "flat arrays",
    ),
    Claim(
        "Tornado 3.1, Lemma 1",
        "routing a range takes O(leaves hit), however fine the grid is",
        _neighbour_search,
    ),
    Claim(
        "Tornado 6.2, Fig. 9b",
        "the neighbour-based search routes ranges faster than looking at all cells of the Grid",
        _neighbour_and_scan,
        "a region of Tornado's sizes lies on few cells, and a compiled loop over so few takes a "
        "nanosecond or two each; the search pays where regions hold thousands of cells",
    ),
    Claim(
        "Tornado 6.3, Fig. 11a",
        "throughput is hardly affected by regions of 0.01 % to 1.5 %",
        lambda figures: _sweep(figures, "side"),
        "a larger region lies on more of the slots, and its query is inserted in each of them, one "
        "for ten objects; that and the longer lists are what grows, not the matches",
    ),
    Claim(
        "Tornado 6.3, Fig. 11b",
        "or by 1 to 7 keywords",
        lambda figures: _sweep(figures, "keywords"),
    ),
    Claim(
        "Tornado 6.2, Fig. 10b",
        "forwarding new keywords instead of broadcasting queries: up to 5x the queries",
        _forward_and_broadcast,
        "reading a query again at each unit costs no more than what it costs anyway where it came",
    ),
    Claim(
        "Tornado 6.4, Fig. 13a",
        "adaptive cuts keep the throughput that static ones lose where all comes to 0.7 to 0.4 of "
        "the space",
        _adaptive_and_static,
        "one operation a round, and only where it saves more than it moves, does not even all out",
    ),
    Claim(
        "Tornado 6.4, Fig. 13a: static",
        "the smaller the scale factor, the less static cuts bear",
        _static_sinks,
        "where the densest cities come to lie decides, and not only how many leaves are left",
    ),
    Claim(
        "Tornado 6.4, Fig. 13b",
        "its decentralised balancing sends much less than every cell's statistics",
        _decentralised,
        "details by column and row are sent of few leaves, but few leaves are most of the map",
    ),
    Claim(
        "SWARM 6.1, Fig. 11",
        "Replicated bears more than both static grids, being balanced better",
        _replicated_and_static,
        "it holds against a tile for each machine; a grid made from history of the same stream "
        "is balanced well enough, and its indexes are much smaller",
    ),
    Claim(
        "SWARM 6.1, Fig. 11",
        "but fails for memory, as every machine holds every query",
        _replicated_memory,
    ),
    Claim(
        "SWARM 6.1, Fig. 11a",
        "SWARM bears more than the static grids, 3x the one made from history",
        _swarm_and_static,
        "history and test are the same calm stream here, so a map from history is as good as it "
        "will ever be; the paper's stream goes on for hours with thousands of hotspots",
    ),
    Claim(
        "SWARM 6.2, Fig. 12-13",
        "static grids suffer in a hotspot of 40 %",
        _hotspot_static,
    ),
    Claim(
        "SWARM 6.2, Fig. 12-13",
        "SWARM, which rebalances, outperforms them there",
        _hotspot_swarm,
    ),
)
