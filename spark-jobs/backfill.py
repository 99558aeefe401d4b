r"""Answers new queries from the whole archive, as if they had been there from the first object on.

    python spark-jobs/backfill.py --archive URI --queries new.jsonl --out results

Range queries (standing and snapshot) and the nearest objects (snapshot); others are refused and
named. Writes a directory of JSON lines that appears as a whole, in the form of `sirocco replay`:
`{"query": …, "object": …}` for each match of a standing query, `{"query": …, "objects": […]}` for
a snapshot, with `distance_m` for the nearest. Exit status 0; 2 where the input cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sirocco_spark  # noqa: F401 - first: says what is missing

# isort: split
import orjson
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from sirocco_spark import job
from sirocco_spark.archive import Index, index_archive, task_items
from sirocco_spark.inputs import open_specs, refused_of
from sirocco_spark.matching import FOUND_DDL, can_join, joining, prepare
from sirocco_spark.publish import whole_directory
from sirocco_spark.session import in_tasks, phase

from sirocco.model.errors import InvalidArgument
from sirocco.model.query import KnnQuery, Query, identity_of, parse_query

NAME = "backfill"
# The driver compiles them, and every task holds all of them: about 600 bytes each.
QUERIES_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """The job's options; see `--help`."""

    archive: str
    queries: str
    out: str
    start_ms: int | None = None
    now_ms: int | None = None


def backfill(session: SparkSession, options: Options) -> dict[str, Any]:
    """Runs the job; returns the summary.

    Raises:
        InvalidArgument: Nothing can be read, there is no query or no object, or something is at
            `out`.
    """
    with whole_directory(session, options.out) as out:
        with phase(session, NAME, "reading queries"):
            queries, refused = read_queries(session, options.queries)
        with phase(session, NAME, "looking through the archive"):
            index = index_archive(session, options.archive)
        if not index.pieces:
            raise InvalidArgument(f"{options.archive} holds no object", field="archive")
        first_ms, last_ms = index.arrivals_ms
        start_ms = first_ms if options.start_ms is None else options.start_ms
        now_ms = last_ms if options.now_ms is None else options.now_ms
        with phase(session, NAME, f"{len(queries)} queries over {index.rows} objects"):
            found = join(session, index, queries, start_ms, now_ms).persist()
            lines = results(session, found, queries)
            lines.write.text(f"{out}/lines")
            pairs = found.count()
    return {
        "objects": index.rows,
        "refused_objects": job.refusals(index.refused),
        "queries": len(queries),
        "refused_queries": job.refusals(refused),
        "found": pairs,
        "start_ms": start_ms,
        "now_ms": now_ms,
    }


def read_queries(session: SparkSession, source: str) -> tuple[list[Query], list[tuple[str, int]]]:
    """Returns the queries that can be answered, by id, and (reason, count) of the others.

    Raises:
        InvalidArgument: There is none, or there are too many.
    """
    specs = open_specs(session, source).persist()
    refused = refused_of(specs)
    rows = specs.where(F.col("refusal").isNull()).select("spec").limit(QUERIES_MAX + 1).toArrow()
    if rows.num_rows > QUERIES_MAX:
        raise InvalidArgument(f"are more than {QUERIES_MAX}", field="queries")
    chosen: dict[str, Query] = {}
    doubtful: set[str] = set()
    for spec in sorted(rows.column("spec").to_pylist()):
        query = parse_query(orjson.loads(spec))
        reason = can_join(query)
        if reason:
            refused.append((reason, 1))
        elif identity_of(chosen.setdefault(query.id, query)) != identity_of(query):
            doubtful.add(query.id)
    for one in sorted(doubtful):
        # In files that are read in parts, it is unknown which of them came first.
        del chosen[one]
        refused.append((f"{one}: is the id of several queries", 1))
    if not chosen:
        detail = f": {refused[0][0]}" if refused else ""
        raise InvalidArgument(
            f"{source} holds no query that can be answered{detail}", field="queries"
        )
    return list(chosen.values()), refused


def join(
    session: SparkSession, index: Index, queries: Sequence[Query], start_ms: int, now_ms: int
) -> DataFrame:
    """Returns the results of the queries: columns of `matching.FOUND_DDL`, `query` numbers them."""
    joined = prepare(queries, start_ms, now_ms)
    plain = {name: getattr(joined, name) for name in joined.__slots__}
    shared = session.sparkContext.broadcast(plain)
    found = in_tasks(session, task_items(session, index), joining(index.uri, shared), FOUND_DDL)
    limits = [(i, q.k) for i, q in enumerate(queries) if isinstance(q, KnnQuery)]
    if not limits:
        return found
    nearest = session.createDataFrame(limits, "query int, k int")
    order = Window.partitionBy("query").orderBy("place", "id")
    best = (
        found.join(F.broadcast(nearest), "query")
        .withColumn("rank", F.row_number().over(order))
        .where("rank <= k")
        .select("query", "place", "id", "object")
    )
    return found.join(F.broadcast(nearest), "query", "left_anti").unionByName(best)


def results(session: SparkSession, found: DataFrame, queries: Sequence[Query]) -> DataFrame:
    """Returns the lines of the results, column `value`; see `sirocco.cli.replay.results`."""
    kinds = [(i, orjson.dumps(q.id).decode(), _form(q)) for i, q in enumerate(queries)]
    heads = F.broadcast(session.createDataFrame(kinds, "query int, head string, form string"))
    named = found.join(heads, "query")
    singles = named.where("form = 'match'").select(
        F.concat(F.lit('{"query":'), "head", F.lit(',"object":'), "object", F.lit("}")).alias(
            "value"
        )
    )
    lists = (
        heads.where("form != 'match'")
        .join(found, "query", "left")
        .groupBy("query", "head", "form")
        .agg(F.sort_array(F.collect_list(F.struct("place", "id", "object"))).alias("all"))
        .withColumn("all", F.filter("all", lambda one: one["object"].isNotNull()))
    )
    objects = F.array_join(F.transform("all", lambda one: one["object"]), ",")
    metres = F.array_join(F.transform("all", lambda one: one["place"].cast("string")), ",")
    whole = F.concat(F.lit('{"query":'), "head", F.lit(',"objects":['), objects, F.lit("]"))
    ending = F.when(
        F.col("form") == "nearest", F.concat(F.lit(',"distance_m":['), metres, F.lit("]}"))
    ).otherwise(F.lit("}"))
    return singles.unionByName(lists.select(F.concat(whole, ending).alias("value")))


def _form(query: Query) -> str:
    if isinstance(query, KnnQuery):
        return "nearest"
    return "match" if query.mode == "continuous" else "list"


def parse_options(arguments: Sequence[str] | None = None) -> tuple[Options, str]:
    """Returns the options, and the Spark master to use if spark-submit names none."""
    parser = job.parser_of(__doc__)
    parser.add_argument("--archive", required=True, help="URI or directory, or a compacted one")
    parser.add_argument("--queries", required=True, help="JSON lines, or kafka:HOST:PORT[/CLUSTER]")
    parser.add_argument("--out", required=True, help="directory to make; a path or URI of Hadoop")
    parser.add_argument("--start-ms", type=int, help="begin of lifetimes; default: first arrival")
    parser.add_argument("--now-ms", type=int, help="time of snapshots; default: newest arrival")
    values = vars(parser.parse_args(arguments))
    master = values.pop("master")
    return Options(**values), master


def main() -> int:
    """Runs the job."""
    options, master = parse_options()
    return job.run(NAME, master, lambda session: backfill(session, options))


if __name__ == "__main__":
    sys.exit(main())
