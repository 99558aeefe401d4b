"""The report in Markdown; all of it is derived from the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.adaptivity.claims import CLAIMS
from benchmarks.adaptivity.cluster import (
    FRONT_RATE,
    HELD_S,
    LOADING_SHARE,
    QUIET_SHARE,
    STORED,
    TICK_S,
)
from benchmarks.adaptivity.measure import FULL_LOAD, LOAD, PART_LOAD, SATURATION
from benchmarks.adaptivity.play import DEFAULTS, EVALUATORS
from benchmarks.adaptivity.plots import TITLES
from benchmarks.adaptivity.sizes import LEAVES, SLOTS
from benchmarks.adaptivity.verdicts import scenes
from benchmarks.schemes.figures import Figures, Row
from benchmarks.schemes.plots import Plot
from benchmarks.schemes.verdicts import Claim, Verdict

HEAD = f"""\
# Adaptivity

Written by `make bench-adaptivity`; the raw figures are in
[adaptivity.json](adaptivity/adaptivity.json). How balancing works and how it is set:
[balancing.md](../explanation/balancing.md).

Two cores cannot show what {EVALUATORS} machines do. So the cluster is played in virtual time, with
{EVALUATORS} evaluators of one core each, {SLOTS} slots, maps of {LEAVES} leaves. What decides is
real: the coordinator's turns and rounds (`sirocco/protocol/coordinator/balance_turns.py` and
`balance_rounds.py`), balancers, what routers and evaluators report (`load_messages.py`), maps and
their routing arrays.
What takes time is measured on real code when the command begins, and is in the first two tables.

- *Queues.* What is offered waits in routers for {1e3 * HELD_S:.0f} ms, then in front of
  its evaluator, first come, first served, until that has the CPU time for it. Fronts let in as much
  as `services/router/admission.py` lets them: while the slowest slot is too far behind, everybody
  waits (one front for each {FRONT_RATE:,} objects/s). A delay is counted from the offer to the end
  of matching; the network, the log and the merger are not in it.
- *A slot that moves*: the next owner loads the slot's share of {STORED:,} past objects, with
  {LOADING_SHARE:.0%} of its core at most; then the owner writes a checkpoint, the grant passes, and
  the next one loads that and matches again what came since. From the grant until then nobody serves
  the slot, and what waits goes with it.
- *A map that changes*: routers look at all standing queries; those that move are read again and
  sent to all slots that one of both maps wants them in (where words decide, all are). A slot that
  has such a query already looks it up, others insert it.
- Objects and queries are real ones, of pools of thousands whose leaves and matches are found by the
  real arrays and a real index; how many come to a slot in a tick is drawn from them.
- *Saturation*: {SATURATION:.1f} times what all cores would bear were they loaded evenly is offered
  all the time. *70 %*: {LOAD:.0%} of what the balanced cluster did then just before the
  measured time or in the second half of it, whichever is less; all ways are offered the same.
  Up to the seventh minute {QUIET_SHARE:.0%} of that comes, in which maps that know nothing of
  the data are balanced.
- *done*: objects/s, mean of the measured time (shaded in the pictures). *busiest/mean*: CPU time of
  the busiest evaluator in each second. *late*: share of the objects offered in that time that
  took longer than 100 ms and than a second, those included that never were done.
- Rounds are the defaults of the product (10 s, wanted in two, 30 s of pause; what is urgent: wanted
  in one of {DEFAULTS.look_ms} ms, as long a pause) but where "rounds of 2 s" are named (4 s of
  pause).
- What waits for a slot while the map changes stays there; of that, evaluators count what is theirs
  by the new map, as real ones do.
- Whatever evaluators are asked comes as long after as it does in a small real cluster; routers
  answer at once (two of them in 3 ms there). A decision is carried out when the CPU time is over
  that it took to think of it. Time goes on by {1e3 * TICK_S:.0f} ms.

Left out: the loop's work beside objects and queries (polls, marks, routine checkpoints), the work
of telling, what routers do; text cuts share an object's matches evenly among its copies. Noise of a
real machine is missing, too: delays of a real cluster are longer, not shorter.
"""


def render(figures: Figures, plots: Sequence[Plot]) -> str:
    """Returns the report."""
    shown = {plot.path.stem: plot for plot in plots}
    sections = [HEAD, _about(figures), _reading(figures), _costs(figures), _claims(figures)]
    for name, title in TITLES.items():
        if figures.all("runs", experiment=name):
            sections.append(_experiment(figures, name, title, shown.get(name)))
    if figures.all("standing"):
        sections.append(_standing(figures))
    sections.append(_why_waiting(figures))
    return "\n".join(section.rstrip() + "\n" for section in sections)


def write(figures: Figures, plots: Sequence[Plot], path: Path) -> None:
    """Writes the report."""
    path.write_text(render(figures, plots))


def verdicts_of(figures: Figures) -> list[tuple[Claim, Verdict]]:
    """Returns each claim with its verdict."""
    return [(claim, claim.verdict(figures)) for claim in CLAIMS]


def _about(figures: Figures) -> str:
    lines = [
        f"`{about['command']}`  \n{about['when']} UTC, revision {about['revision']}, seed "
        f"{about['seed']}, {about['seconds']:,} s, load average {about['load']}"
        for about in figures.about["runs"]
    ]
    notes = [f"Note: {note}." for note in figures.skipped]
    return "  \n".join([*lines, figures.about["machine"], *notes])


def _reading(figures: Figures) -> str:
    """Explains the delays: moves, which are short, and waits until a move happens."""
    rows = [row for row in figures.all("runs", load=PART_LOAD) if row["changes_all"]]
    pauses = [row["paused_s_max"] for row in rows if row["paused_s_max"] is not None]
    calm = [row for row in rows if row["late"][0] < 0.01]
    return f"""\
**How to read it.** Changing costs little: at 70 % no slot that moved was without service for longer
than {1e3 * max(pauses, default=0.0):.0f} ms. What is late waited for an evaluator that had more to
do than it can, until rounds had noticed and relieved it, step by step: less than 1 % of the objects
in {len(calm)} of {len(rows)} balanced runs. Where the load came at once, what had come before the
changes were in force took its time behind them. Static maps do not recover at all while the load
stays where it is."""


def _costs(figures: Figures) -> str:
    names = {
        "object_s": ("an object", 1e6, "µs"),
        "probe_s": ("an object more for 1,000 queries of its slot", 1e9, "µs"),
        "hit_s": ("a match", 1e6, "µs"),
        "insert_s": ("a query, new in a slot", 1e6, "µs"),
        "repeat_s": ("a query that a slot is sent again", 1e6, "µs"),
        "remove_s": ("a query that leaves", 1e6, "µs"),
        "save_s": ("a query in a checkpoint written", 1e6, "µs"),
        "load_s": ("a query in a checkpoint loaded", 1e6, "µs"),
        "slice_s": ("a past object loaded", 1e6, "µs"),
        "query_bytes": ("memory of a query", 1.0, "bytes"),
        "object_bytes": ("an object in a record", 1.0, "bytes"),
        "error_share": ("fit of the first three, mean error", 100.0, "%"),
    }
    rows = figures.all("costs")
    many = figures.all("standing_costs")
    rows += [row for row in many if row["queries"] == max(each["queries"] for each in many)]
    table = _table(
        ["CPU time of an evaluator", *map(_costs_title, rows)],
        (
            # Kept figures of an earlier release lack some.
            [label, *(f"{factor * row[name]:.3g} {unit}" if name in row else "" for row in rows)]
            for name, (label, factor, unit) in names.items()
        ),
    )
    settling = {
        "save_s": "checkpoint of a slot, until it is safe",
        "grant_s": "grant, until the former owner stops",
        "begin_s": "until the next one matches",
        "prepare_s": "map, from the proposal until it is in force",
        "retire_s": "from then until the change is over",
        "ask_s": "evaluators' answer to the coordinator",
    }
    found = figures.one("settling")
    each = {
        "look_s": ("another map, for each standing query", "{:.2f} µs"),
        "copy_s": ("the same, for each that moves", "{:.0f} µs"),
    }
    if "look_s" not in found:
        # Kept figures of an earlier release, which copied all of them.
        each = {"copy_s": ("copying for another map, for each standing query", "{:.0f} µs")}
    clock = _table(
        ["on the clock, small real cluster in one process", "median"],
        [
            *([label, f"{1e3 * found[name]:,.0f} ms"] for name, label in settling.items()),
            *([label, form.format(1e6 * found[name])] for name, (label, form) in each.items()),
        ],
    )
    return f"## What things take\n\n{table}\n\n{clock}"


def _costs_title(row: Row) -> str:
    queries = f", {row['queries']:,} queries" if "queries" in row else ""
    return row["experiment"] + queries


def _claims(figures: Figures) -> str:
    found = verdicts_of(figures)
    count = Counter(verdict.state for _, verdict in found)
    summary = ", ".join(f"{number} {state}" for state, number in count.most_common())
    rows = (
        [
            claim.source,
            claim.says,
            f"**{verdict.state}**",
            verdict.figure,
            "" if verdict.state == "reproduced" else claim.why_not,
        ]
        for claim, verdict in found
    )
    table = _table(["source", "claim", "verdict", "measured", "why not"], rows)
    return f"## What the papers claim\n\n{len(found)} claims: {summary}.\n\n{table}"


def _experiment(figures: Figures, name: str, title: str, plot: Plot | None) -> str:
    parts = [f"## {title.partition(';')[0]}"]
    if plot is not None:
        parts.append(f"![{plot.title}](adaptivity/{plot.path.name})")
    parts += [
        "### Throughput at saturation",
        _rows(figures, name, FULL_LOAD, _SATURATED),
        "### At 70 % of what the balanced cluster bears",
        _rows(figures, name, PART_LOAD, _LOADED),
        "### What changes cost, at 70 %",
        _rows(figures, name, PART_LOAD, _CHANGED, lambda row: row["changes_all"] > 0),
    ]
    if name == "ps2stream":
        parts += ["### Choosing what migrates", _choosing(figures)]
    return "\n\n".join(parts)


def _millions(row: Row, member: str) -> str:
    return f"{row[member] / 1e6:.2f}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{1e3 * value:,.0f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _late(row: Row, member: str = "late") -> str:
    return " / ".join(f"{share:.2%}" for share in row[member])


Column = tuple[str, Callable[[Row], str]]

_SATURATED: tuple[Column, ...] = (
    ("done, million/s", lambda row: _millions(row, "done")),
    ("second half", lambda row: _millions(row, "done_settled")),
    ("busiest/mean", lambda row: f"{row['imbalance']:.2f}"),
    ("objects × queries, 10⁹/s", lambda row: f"{row['products'] / 1e9:.1f}"),
    ("changes", lambda row: f"{row['changes']}"),
)
_LOADED: tuple[Column, ...] = (
    ("offered, million/s", lambda row: _millions(row, "rate")),
    ("p50, ms", lambda row: _ms(row["p50_s"])),
    ("p99, ms", lambda row: _ms(row["p99_s"])),
    ("greatest, ms", lambda row: _ms(row["greatest_s"])),
    ("late", _late),
    ("late while changing", lambda row: _late(row, "late_changing") if row["changing_s"] else ""),
    ("busiest/mean", lambda row: f"{row['imbalance']:.2f}"),
    ("Lmax/Lmin", lambda row: f"{row['spread']:.1f}"),
)
_CHANGED: tuple[Column, ...] = (
    ("changes", lambda row: f"{row['changes_all']}"),
    ("slots moved", lambda row: f"{row['slots']}"),
    ("queries loaded", lambda row: f"{row['loaded']:,}"),
    ("greatest pause of a slot, ms", lambda row: _ms(row["paused_s_max"])),
    ("maps", lambda row: f"{row['maps']}"),
    ("queries copied", lambda row: f"{row['copied']:,}"),
    ("sent in all", lambda row: f"{row['sent_queries']:,}"),
    ("seconds, mean", lambda row: f"{row['change_s']:.1f}"),
    ("greatest", lambda row: f"{row['change_s_max']:.1f}"),
    (
        "first one over after, s",
        lambda row: "–" if row["first_s"] is None else f"{row['first_s']:.0f}",
    ),
    ("a round's CPU, ms", lambda row: _ms(row["round_s_max"])),
)


def _rows(
    figures: Figures,
    name: str,
    load: str,
    columns: Sequence[Column],
    chosen: Callable[[Row], bool] = lambda row: True,
) -> str:
    rows = [row for row in figures.all("runs", experiment=name, load=load) if chosen(row)]
    rows.sort(key=lambda row: scenes(figures, name).index(row["scene"]))
    return _table(
        ["", "way", *(title for title, _ in columns)],
        ([row["scene"], row["way"], *(show(row) for _, show in columns)] for row in rows),
    )


_STANDING: tuple[Column, ...] = (
    ("standing", lambda row: f"{row['stood']:,}"),
    ("way", lambda row: row["way"]),
    *_LOADED[:5],
    ("changes", lambda row: f"{row['changes_all']}"),
    ("queries copied", lambda row: f"{row['copied']:,}"),
    ("seconds of a change, greatest", lambda row: _seconds(row["change_s_max"])),
    ("past objects loaded before, s", lambda row: _seconds(row["warmed_s_max"])),
    ("greatest pause of a slot, ms", lambda row: _ms(row["paused_s_max"])),
)


def _standing(figures: Figures) -> str:
    rows = figures.all("standing", load=PART_LOAD)
    rows.sort(key=lambda row: list(TITLES).index(row["experiment"]))
    table = _table(
        ["paper", "scene", *(title for title, _ in _STANDING)],
        ([row["experiment"], row["scene"], *(show(row) for _, show in _STANDING)] for row in rows),
    )
    return f"""\
## With more standing queries, at 70 %

One scene of each paper. The queries stand before it begins, or as many are updated in it; in the
middle of the measured time stand those of the column *standing*. Costs are measured anew for each
number.

{table}"""


def _choosing(figures: Figures) -> str:
    rows = [row for row in figures.all("runs", experiment="ps2stream") if "choose_s" in row]
    return _table(
        ["load", "way", "choices", "cells at most", "CPU, µs", "greatest", "queries a change"],
        (
            [
                row["load"],
                row["way"],
                f"{row['choices']}",
                f"{row['cells_max']}",
                f"{1e6 * row['choose_s']:.0f}",
                f"{1e6 * row['choose_s_max']:.0f}",
                f"{(row['loaded'] + row['copied']) / max(row['changes_all'], 1):,.0f}",
            ]
            for row in rows
        ),
    )


def _why_waiting(figures: Figures) -> str:
    """Lists the reports of rounds, of all runs at 70 %."""
    rows = []
    for name in TITLES:
        found: Counter[str] = Counter()
        for course in figures.all("courses", experiment=name, load=PART_LOAD):
            if course["way"] in {"balanced", "GR"}:
                for state, number in course["states"].items():
                    found[_plain(state)] += number
        total = sum(found.values())
        rows += [[name, state, f"{n / total:.0%}"] for state, n in found.most_common()]
    return "## What the rounds decided, at 70 %\n\n" + _table(["paper", "a round", "share"], rows)


def _plain(state: str) -> str:
    former, now = "nothing was told", "no report for"
    return f"{now} some slots" if state.startswith((former, now)) else state


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
