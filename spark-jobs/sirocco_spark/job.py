"""The frame of every job: options, exit status, typed messages, the summary.

Exit status: 0 done (the summary and stderr list what was left out); 2 the input or an option cannot
be used, and nothing was written; 1 any other error, and nothing was written either.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.schemes.workload.sample import QueryKind
from sirocco_spark.session import open_session
from sirocco_spark.telemetry import report

# Reasons that are printed one by one; a damaged history could fill the screen with them.
REASONS_SHOWN = 10

SOURCES = (
    "archive:URI (a directory, s3://…, gs://… that evaluators write to), "
    "kafka:HOST:PORT[/CLUSTER] (its topics), or a file, directory or pattern of JSON lines"
)


@dataclass(frozen=True, slots=True)
class Warning:
    """A property of the input that makes the result less useful.

    Attributes:
        code: For programs: `one-place`, `no-text`, `no-queries`, `small-sample`, `unbalanced`.
        message: For people.
    """

    code: str
    message: str


def refusals(found: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Returns the summary of what was left out: the total, and counts by reason."""
    counts: Counter[str] = Counter()
    for reason, count in found:
        counts[reason] += count
    return {"count": counts.total(), "reasons": dict(counts.most_common(REASONS_SHOWN))}


def by_kind(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Returns counts by the kinds' names, of rows with `kind` and `count`."""
    return {QueryKind(row["kind"]).name.lower(): row["count"] for row in rows}


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of all jobs."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--master", default="local[*]", help="where not run by spark-submit")
    return parser


def run(name: str, master: str, work: Callable[[SparkSession], dict[str, Any]]) -> int:
    """Runs a job in a session of its own; prints its summary as the last line of stdout."""
    with report.serving(name):
        status, outcome, summary = _outcome(name, master, work)
        report.ended(name, outcome, summary)
        if status == 0:
            print_summary(name, summary)
            print(json.dumps(summary), flush=True)
    return status


def _outcome(
    name: str, master: str, work: Callable[[SparkSession], dict[str, Any]]
) -> tuple[int, str, dict[str, Any]]:
    """Returns the exit status, the outcome of the job in a word, and its summary."""
    session = open_session(name, master)
    try:
        return 0, "done", work(session)
    except SiroccoError as error:
        print(f"{name}: {error}", file=sys.stderr)
        is_input = isinstance(error, InvalidArgument)
        return (2, "refused", {}) if is_input else (1, "failed", {})
    except AnalysisException as error:
        print(f"{name}: {error.getCondition()}: {error}".splitlines()[0], file=sys.stderr)
        return 2, "refused", {}
    except BaseException:
        report.ended(name, "failed", {})
        raise
    finally:
        session.stop()


def print_summary(name: str, summary: dict[str, Any]) -> None:
    """Prints on stderr what was left out and what is doubtful."""
    for what in ("refused_objects", "refused_queries"):
        refused = summary.get(what)
        if refused and refused["count"]:
            print(f"{name}: {what.replace('_', ' ')}: {refused['count']}", file=sys.stderr)
            for reason, count in refused["reasons"].items():
                print(f"{name}:   {count} × {reason}", file=sys.stderr)
    for warning in summary.get("warnings", ()):
        print(f"{name}: warning: {warning['code']}: {warning['message']}", file=sys.stderr)
