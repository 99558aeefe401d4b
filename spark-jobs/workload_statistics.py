r"""Computes what the cost model knows of a history: query distribution statistics and frequencies.

    python spark-jobs/workload_statistics.py \
        --objects archive:URI --queries kafka:HOST:PORT --out DIR

Writes a directory that appears as a whole: `cells` (Parquet: the quadtree J of SSTD 4.1.1, a cell
a row, with probabilities and workload per kind, arrivals, windows, keywords), `terms` (Parquet:
objects per term), `grid` (Parquet: objects per cell of the counting grid) and `summary.json`.
Exit status 0; 2 where the input cannot be used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sirocco_spark  # noqa: F401 - first: says what is missing
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sirocco_spark import job
from sirocco_spark.distribution import DEPTH_MAX, distribution
from sirocco_spark.frequencies import term_frequencies, words_of
from sirocco_spark.history import GRID, SAMPLE_OBJECTS_MAX, doubts
from sirocco_spark.options import history_parser, parsed
from sirocco_spark.past import read_history
from sirocco_spark.publish import whole_directory, write_text
from sirocco_spark.session import phase

NAME = "workload_statistics"
# Listed in the summary with their words, which are looked up in some texts.
TOP_TERMS = 50
_TEXTS = 20_000
DEPTH = 6


@dataclass(frozen=True, slots=True)
class Options:
    """The job's options; see `--help`."""

    objects: str
    out: str
    queries: str | None = None
    depth: int = DEPTH
    sample: int = SAMPLE_OBJECTS_MAX
    seed: int = 0


def statistics(session: SparkSession, options: Options) -> dict[str, Any]:
    """Runs the job; returns the summary.

    Raises:
        InvalidArgument: Nothing can be read, there is no object, or something is at `out`.
    """
    with whole_directory(session, options.out) as out:
        past = read_history(
            session, NAME, options.objects, options.queries, options.sample, options.seed
        )
        with phase(session, NAME, "computing the distribution of queries"):
            cells = distribution(
                session, past.workload, past.counts, past.sample, options.depth
            ).persist()
            cells.repartition(1).sortWithinPartitions("level", "row", "column").write.parquet(
                f"{out}/cells"
            )
        with phase(session, NAME, "counting terms"):
            terms = term_frequencies(past.objects).persist()
            terms.sort(F.desc("objects"), "term").write.parquet(f"{out}/terms")
        grid = list(zip(past.counts.cells.tolist(), past.counts.objects.tolist(), strict=True))
        session.createDataFrame(grid, "cell long, objects long").coalesce(1).write.parquet(
            f"{out}/grid"
        )
        top = terms.sort(F.desc("objects"), "term").limit(TOP_TERMS).toArrow().to_pylist()
        texts = past.objects.read(("text",)).where("refusal IS NULL AND text != ''").limit(_TEXTS)
        words = words_of(texts, {row["term"] & (1 << 64) - 1 for row in top})
        kinds = past.workload.where("refusal IS NULL").groupBy("kind").count().toArrow()
        summary = {
            "objects": past.counts.total,
            "refused_objects": job.refusals(past.counts.refused),
            "sampled_objects": len(past.sample),
            "span_ms": past.counts.span_ms,
            "grid": list(GRID),
            "grid_cells": len(past.counts.cells),
            "queries": sum(row["count"] for row in kinds.to_pylist()),
            "queries_by_kind": job.by_kind(kinds.to_pylist()),
            "refused_queries": job.refusals(past.refused_queries),
            "cells": cells.count(),
            "terms": terms.count(),
            "top_terms": [
                {"term": words.get(row["term"] & (1 << 64) - 1), "objects": row["objects"]}
                for row in top
            ],
            "warnings": [asdict(one) for one in doubts(past.sample, past.sample.queries, 1)],
        }
        write_text(session, f"{out}/summary.json", json.dumps(summary) + "\n")
    return summary


def parse_options(arguments: Sequence[str] | None = None) -> tuple[Options, str]:
    """Returns the options, and the Spark master to use if spark-submit names none."""
    parser = history_parser(__doc__)
    parser.add_argument("--out", required=True, help="directory to make; a path or URI of Hadoop")
    parser.add_argument("--depth", type=int, default=DEPTH, help="level of J's least cells")
    values, master = parsed(parser, arguments)
    if not 0 <= values["depth"] <= DEPTH_MAX:
        parser.error(f"--depth: not from 0 to {DEPTH_MAX}")
    return Options(**values), master


def main() -> int:
    """Runs the job."""
    options, master = parse_options()
    return job.run(NAME, master, lambda session: statistics(session, options))


if __name__ == "__main__":
    sys.exit(main())
