r"""Reports on a workload: how skewed it is, and what each scheme would make of it.

    python spark-jobs/report.py --objects archive:URI --queries kafka:HOST:PORT --out report.html

Builds the map of every scheme (or of those named) from the same sample, sends the sample by it,
and writes one HTML file with tables and plots, whole or not at all. Exit status 0; 2 where the
input cannot be used.
"""

from __future__ import annotations

import base64
import html
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sirocco_spark  # noqa: F401 - first: says what is missing

# isort: split
import numpy as np
from pyspark.sql import SparkSession
from sirocco_spark import drawing, job
from sirocco_spark.comparison import Outcome, lorenz, try_scheme, unbalanced
from sirocco_spark.history import doubts
from sirocco_spark.options import MapOptions, map_parser, parsed
from sirocco_spark.past import Past, read_history
from sirocco_spark.publish import write_whole
from sirocco_spark.session import phase

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.scheme import SCHEMES, scheme_named

NAME = "report"

_COLUMNS = {
    "leaves": "leaves",
    "load_max_over_mean": "expected load, max / mean",
    "load_max_over_min": "Lmax / Lmin",
    "objects_max_over_mean": "objects sent, max / mean",
    "object_copies": "slots an object",
    "query_copies": "slots a query",
    "map_bytes": "map, bytes",
    "routing_bytes": "routing arrays, bytes",
    "build_seconds": "built in, s",
}
_STYLE = (
    "body{font-family:sans-serif;max-width:62em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-size:90%}td,th{border:1px solid #bbb;padding:.3em .6em;"
    "text-align:right}td:first-child,th:first-child{text-align:left}img{max-width:100%}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MapOptions):
    """The job's options; see `--help`."""

    schemes: tuple[str, ...] = tuple(SCHEMES)


def report(session: SparkSession, options: Options) -> tuple[str, dict[str, Any]]:
    """Runs the job; returns the page and the summary, writes nothing.

    Raises:
        InvalidArgument: A scheme is unknown, nothing can be read, or there is no object.
    """
    for name in options.schemes:
        scheme_named(name)
    past = read_history(
        session, NAME, options.objects, options.queries, options.sample, options.seed
    )
    kinds = past.workload.where("refusal IS NULL").groupBy("kind").count().toArrow().to_pylist()
    maps, outcomes = [], []
    for name in options.schemes:
        with phase(session, NAME, f"building {name}"):
            made, outcome = try_scheme(name, past.sample, options.leaves, options.slots)
        maps.append(made)
        outcomes.append(outcome)
    warnings = doubts(past.sample, past.sample.queries, options.leaves)
    warnings += [doubt for made in maps for doubt in unbalanced(made)]
    raster = past.counts.raster()
    summary = {
        "objects": past.counts.total,
        "refused_objects": job.refusals(past.counts.refused),
        "sampled_objects": len(past.sample),
        "queries_by_kind": job.by_kind(kinds),
        "refused_queries": job.refusals(past.refused_queries),
        "gini_of_cells": lorenz(raster[raster > 0])[1],
        "schemes": [one.members() for one in outcomes],
        "warnings": [asdict(one) for one in warnings],
    }
    extent = drawing.extent_of(past.sample.lon, past.sample.lat)
    plots = [
        drawing.density(raster),
        drawing.skew(raster, np.unique(past.sample.terms, return_counts=True)[1]),
        drawing.balance(outcomes),
        *(drawing.leaves(one, extent) for one in maps),
    ]
    return page(options, past, summary, outcomes, plots), summary


def page(
    options: Options,
    past: Past,
    summary: dict[str, Any],
    outcomes: Sequence[Outcome],
    plots: Sequence[bytes],
) -> str:
    """Returns the report as HTML that needs no other file."""
    density, skew, balance, *leaves = plots
    days = past.counts.span_ms / 86_400_000
    kinds = ", ".join(f"{n} {kind}" for kind, n in summary["queries_by_kind"].items()) or "none"
    refused = summary["refused_objects"]["count"] + summary["refused_queries"]["count"]
    findings = [
        f"{summary['objects']:,} objects over {days:.2f} days, {summary['sampled_objects']:,} of "
        "them sampled",
        f"queries: {kinds}",
        f"left out: {refused} lines, files or records",
        *(f"{one['code']}: {one['message']}" for one in summary["warnings"]),
    ]
    parts = [
        f"<!doctype html><meta charset=utf-8><title>Workload</title><style>{_STYLE}</style>",
        f"<h1>Workload of {html.escape(options.objects)}</h1>",
        "<ul>" + "".join(f"<li>{html.escape(one)}</li>" for one in findings) + "</ul>",
        "<h2>Where and about what</h2>",
        _image(density, "objects over the world"),
        _image(skew, "skew of places and terms"),
        f"<h2>Schemes, {options.leaves} leaves asked for, {options.slots} slots</h2>",
        "<p>Expected load is that of each scheme's own model, in its own unit, of which matches "
        "may be no part (kdt-tree: PS2Stream's Definition 1); the other figures come from sending "
        "the sample by the map.</p>",
        _table(outcomes),
        _image(balance, "balance and copies of all schemes"),
        "<h2>Leaves</h2>",
        *(_image(one, "leaves of a scheme") for one in leaves),
    ]
    return "\n".join(parts) + "\n"


def _table(outcomes: Sequence[Outcome]) -> str:
    head = "".join(f"<th>{title}</th>" for title in ("scheme", *_COLUMNS.values()))
    rows = []
    for one in outcomes:
        values = one.members()
        cells = [one.scheme, *("–" if values[n] is None else f"{values[n]:,}" for n in _COLUMNS)]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _image(png: bytes, what: str) -> str:
    return f'<p><img alt="{what}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def parse_options(arguments: Sequence[str] | None = None) -> tuple[Options, str]:
    """Returns the options, and the Spark master to use if spark-submit names none."""
    parser = map_parser(__doc__, "HTML file")
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=sorted(SCHEMES))
    values, master = parsed(parser, arguments)
    return Options(**{**values, "schemes": tuple(values["schemes"])}), master


def main() -> int:
    """Runs the job."""
    options, master = parse_options()

    def work(session: SparkSession) -> dict[str, Any]:
        if not options.out.parent.is_dir():
            raise InvalidArgument(f"there is no directory {options.out.parent}", field="out")
        made, summary = report(session, options)
        write_whole(options.out, made.encode())
        return summary

    return job.run(NAME, master, work)


if __name__ == "__main__":
    sys.exit(main())
