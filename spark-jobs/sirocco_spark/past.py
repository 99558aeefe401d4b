"""The first passes of all jobs: count objects, draw objects, draw queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.workload.sample import Sample
from sirocco_spark.history import SAMPLE_QUERIES_MAX, Counts, count_cells, draw_objects
from sirocco_spark.inputs import Objects, open_objects, refused_of
from sirocco_spark.session import phase
from sirocco_spark.workload import Setting, draw_queries, read_workload


@dataclass(frozen=True, slots=True)
class Past:
    """The facts about a history.

    Attributes:
        objects: The source.
        counts: Over all objects.
        sample: Of the objects and of the queries.
        workload: All queries, see `workload.WORKLOAD_DDL`; cached by Spark.
        refused_queries: (reason, count) of those that are invalid.
    """

    objects: Objects
    counts: Counts
    sample: Sample
    workload: DataFrame
    refused_queries: list[tuple[str, int]]


def read_history(
    session: SparkSession, job: str, objects: str, queries: str | None, sample: int, seed: int
) -> Past:
    """Reads objects and queries of some sources, see `job.SOURCES`.

    Raises:
        InvalidArgument: Nothing can be read, or there is no object.
    """
    source = open_objects(session, objects, job)
    with phase(session, job, "counting objects"):
        counts = count_cells(source)
    if counts.total == 0:
        left_out = sum(count for _, count in counts.refused)
        why = f"{left_out} lines or files were refused" if left_out else "it is empty"
        first = f", the first: {counts.refused[0][0]}" if left_out else ""
        raise InvalidArgument(f"{objects} holds no object: {why}{first}", field="objects")
    with phase(session, job, f"drawing {min(sample, counts.total)} of {counts.total} objects"):
        drawn = draw_objects(source, counts.total, sample, seed)
    with phase(session, job, "reading queries"):
        setting = Setting(drawn, counts.total, counts.span_ms)
        workload = read_workload(session, queries, setting).persist()
        refused = refused_of(workload)
        drawn = replace(drawn, queries=draw_queries(workload, SAMPLE_QUERIES_MAX, seed))
    return Past(source, counts, drawn, workload, refused)
