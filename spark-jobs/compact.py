r"""Merges the small slices of an archive into large ones, by slot and time, along the curve.

    python spark-jobs/compact.py --archive URI --out URI

Writes a dataset of its own (`compacted/SLOT/FIRST-LAST`, Parquet in the form of the archive) and at
last its manifest `compacted.json`, without which readers see nothing; the archive is left alone, so
the system may run. The dataset can be given to the other jobs as `archive:OUT`. A job that was
killed is repeated with the same command. Exit status 0; 2 where the input cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sirocco_spark  # noqa: F401 - first: says what is missing
from pyspark.sql import SparkSession
from sirocco_spark import compaction, job
from sirocco_spark.archive import index_archive
from sirocco_spark.blobs import place_of
from sirocco_spark.session import phase

from sirocco.model.errors import InvalidArgument

NAME = "compact"


@dataclass(frozen=True, slots=True)
class Options:
    """The job's options; see `--help`."""

    archive: str
    out: str
    rows: int = compaction.ROWS_MAX


def run(session: SparkSession, options: Options) -> dict[str, Any]:
    """Runs the job; returns the summary.

    Raises:
        InvalidArgument: The archive is empty, or something is at `out`.
    """
    out = options.out if "://" in options.out else str(Path(options.out).absolute())
    if place_of(out) == place_of(options.archive):
        raise InvalidArgument("must not be the archive itself", field="out")
    archive = compaction.open_output(out)
    with phase(session, NAME, "looking through the archive"):
        index = index_archive(session, options.archive)
    if not index.pieces:
        raise InvalidArgument(f"{options.archive} holds no object", field="archive")
    with phase(session, NAME, f"merging {len(index.pieces)} pieces of {index.rows} objects"):
        written = compaction.compact(session, index, out, options.rows)
    compaction.publish(archive, {"archive": options.archive, "slices": written})
    return {
        "objects": index.rows,
        "refused_objects": job.refusals(index.refused),
        "pieces": len(index.pieces),
        "bytes": sum(piece.bytes for piece in index.pieces),
        "compacted_slices": len(written),
        "compacted_bytes": sum(one["bytes"] for one in written),
    }


def parse_options(arguments: Sequence[str] | None = None) -> tuple[Options, str]:
    """Returns the options, and the Spark master to use if spark-submit names none."""
    parser = job.parser_of(__doc__)
    parser.add_argument("--archive", required=True, help="URI or directory")
    parser.add_argument("--out", required=True, help="URI or directory of the compacted dataset")
    parser.add_argument(
        "--rows", type=int, default=compaction.ROWS_MAX, help="objects of a slice at most"
    )
    values = vars(parser.parse_args(arguments))
    master = values.pop("master")
    if not 0 < values["rows"] <= 1 << 22:
        parser.error(f"--rows: not from 1 to {1 << 22}")
    return Options(**values), master


def main() -> int:
    """Runs the job."""
    options, master = parse_options()
    return job.run(NAME, master, lambda session: run(session, options))


if __name__ == "__main__":
    sys.exit(main())
