"""The papers' claims about adapting, and the reasons where they do not hold here."""

from __future__ import annotations

from benchmarks.adaptivity import verdicts
from benchmarks.schemes.verdicts import Claim

SLOW_ROUNDS = (
    "what comes at once is seen within a twentieth of a second and measured for as long, a change "
    "takes some more, and the next one is measured behind it: what an evaluator cannot bear "
    "meanwhile waits, and is done by the share of its time that is free"
)
OTHER_UNITS = (
    "SWARM's cost is objects times queries, what our evaluators spend is by objects and matches: "
    "what it calls even is not even in CPU time; and while its ladder says to do nothing, which "
    "hangs on whether more came than in the round before, nothing is done"
)
FROM_HISTORY = (
    "at the edges of the hot spot the map made from history is the better one: it was cut where "
    "the cities are"
)
RELIEVED = (
    "40 % of the objects leave the cities for an empty corner, which relieves whatever has the "
    "cities: more is done, not less, also by the static map"
)
BOUNDED = (
    "the busiest evaluator of the static map has less than twice the mean: an even one bears no "
    "more than that"
)
AIM = "less than 1 % delayed by more than 100 ms, none by more than a second"


def _objects(scene: str) -> bool:
    return scene.startswith("objects")


def _queries(scene: str) -> bool:
    return scene.startswith("queries")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "SWARM 6.2, Fig. 12-16",
        "SWARM bears more than a static grid in each of five hot spots; twice as much",
        verdicts.throughput("swarm", 2.0),
        SLOW_ROUNDS,
    ),
    Claim(
        "our question",
        "so it does by its paper's own cost (N Q R) and ladder",
        verdicts.throughput("swarm", 2.0, way="balanced by N Q R"),
        OTHER_UNITS,
    ),
    Claim(
        "SWARM 6.2, Fig. 12",
        "and more than a static grid that is based on history",
        verdicts.history,
        FROM_HISTORY,
    ),
    Claim(
        "SWARM 6.2, Fig. 12",
        "which is the worst of all in the synthetic hot spot",
        verdicts.worst,
        "the grid made from history still parts the cities, which remain; the uniform one does not",
    ),
    Claim(
        "SWARM 6.2, Fig. 13",
        "a hot spot of normal distribution is harder than a uniform one",
        verdicts.harder,
        "leaves are cut where equally many objects lie, a peak as well as a plain",
    ),
    Claim(
        "SWARM 6.2, Fig. 14",
        "a step brings a sudden drop, which SWARM overcomes",
        verdicts.recovers,
        RELIEVED,
    ),
    Claim(
        "SWARM 6.2, Fig. 15",
        "two overlapping hot spots of half the size are as one",
        verdicts.similar("overlapping", "uniform"),
        SLOW_ROUNDS,
    ),
    Claim(
        "SWARM 6.2, Fig. 16",
        "a second hot spot behind the first is as the first",
        verdicts.again,
        SLOW_ROUNDS,
    ),
    Claim("SWARM 6.1, Fig. 11b", "four times lower latency", verdicts.latency(4.0), SLOW_ROUNDS),
    Claim("our aim", f"SWARM's hot spots: {AIM}", verdicts.late("swarm", "balanced"), SLOW_ROUNDS),
    Claim(
        "Tornado 6.4, Fig. 13a",
        "adaptive cuts keep the throughput at all factors",
        verdicts.stable,
        SLOW_ROUNDS,
    ),
    Claim(
        "Tornado 6.4, Fig. 13a",
        "static ones lose it, the more the smaller the factor",
        verdicts.falls,
        "where the densest cities come to lie decides, too",
    ),
    Claim(
        "Tornado 6.4, Fig. 13a",
        "adaptive cuts bear twice what static ones do",
        verdicts.throughput("tornado", 2.0),
        SLOW_ROUNDS,
    ),
    Claim(
        "our aim", f"Tornado's factors: {AIM}", verdicts.late("tornado", "balanced"), SLOW_ROUNDS
    ),
    Claim(
        "SSTD 7.6, Fig. 14d",
        "many objects in a region: an adjustment brings 78 to 98 % more throughput",
        verdicts.throughput("sstd", 1.78, _objects),
        BOUNDED,
    ),
    Claim(
        "SSTD 7.6, Fig. 15d",
        "many queries in a region: it often brings more than twice the throughput",
        verdicts.throughput("sstd", 2.0, _queries),
        BOUNDED,
    ),
    Claim(
        "SSTD 7.6, Fig. 14a",
        "PM moves the fewest queries, FG the most; PM+FM+FG no more than FG",
        verdicts.cheap,
        "each is tried with whole slots first, and a slot that moves brings all its queries",
    ),
    Claim("SSTD 7.6", "PM+FM+FG is as effective as FG", verdicts.as_good, BOUNDED),
    Claim("SSTD 7.6", "Lmax/Lmin comes below 6, the threshold", verdicts.below, BOUNDED),
    Claim("our aim", f"SSTD's imbalances: {AIM}", verdicts.late("sstd", "balanced"), SLOW_ROUNDS),
    Claim(
        "PS2Stream VI-D, Fig. 12b",
        "GR and DP migrate 30 to 40 % less than SI and RA",
        verdicts.less,
        "whole slots are tried first, of which an evaluator has four: there is little to choose",
    ),
    Claim(
        "PS2Stream VI-D, Fig. 12a", "DP takes much longer to choose than GR", verdicts.choosing, ""
    ),
    Claim(
        "PS2Stream VI-D, Fig. 12c",
        "GR delays fewer tuples than SI (10 % more of them) and RA (20 % more)",
        verdicts.fewest,
        "what moves is small, whichever balancer chooses it",
    ),
    Claim(
        "PS2Stream VI-D, Fig. 12c",
        "20 % delayed by more than 100 ms, 4 % by more than a second; our aim: 1 % and none",
        verdicts.late("ps2stream", "GR"),
        SLOW_ROUNDS,
    ),
    Claim(
        "PS2Stream VI-D, Fig. 12c",
        "the same, of what came while a migration was under way",
        verdicts.late("ps2stream", "GR", "late_changing"),
        SLOW_ROUNDS,
    ),
)
