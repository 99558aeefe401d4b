"""The Spark session of a job, and its lines of progress."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import sirocco_spark
from sirocco_spark.telemetry import report

# Rows that one task holds at once. A row of a post takes about 400 bytes in Python and as much when
# it is sent: two tasks a gigabyte at most, whatever the total number of rows.
TASK_ROWS_MAX = 524_288

# Parts of a shuffle for each core: slower cores get fewer of them.
SHUFFLES_A_CORE = 4

# More frequent lines would bury the result, rarer ones look like a job that hangs.
PROGRESS_S = 5.0

# The driver holds the sample, the index of the archive, and collected rows; Spark's default of 1 GB
# is too little for 200,000 sampled objects beside a shuffle.
DRIVER_MEMORY = "3g"


def open_session(name: str, master: str = "local[*]", **settings: str) -> SparkSession:
    """Returns the session; one that spark-submit has created is used as it is.

    Args:
        name: Of the job.
        master: Used if spark-submit names none.
        settings: Further settings of Spark, with `_` for `.`.
    """
    # The executors need not have this directory: its code is sent with the job.
    cloudpickle.register_pickle_by_value(sirocco_spark)  # type: ignore[no-untyped-call]
    builder = SparkSession.builder.appName(f"sirocco {name}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Workers on this machine run the driver's Python, not the PATH's python3.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master(master)
            .config("spark.driver.memory", os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
        )
        for key, value in settings.items():
            builder = builder.config(key.replace("_", "."), value)
    session = builder.getOrCreate()
    # The number of shuffle partitions then follows the output bytes of the stage before; the rows
    # shuffled here are summed up already, so Spark's default of 200 is far too many.
    session.conf.set("spark.sql.adaptive.enabled", "true")
    if not session.sparkContext.getConf().contains("spark.sql.shuffle.partitions"):
        first = SHUFFLES_A_CORE * session.sparkContext.defaultParallelism
        session.conf.set("spark.sql.shuffle.partitions", str(first))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    return session


def java_of(session: SparkSession) -> Any:
    """Returns the packages of the driver's Java, for features that Spark lacks in Python."""
    return session.sparkContext._jvm


def in_tasks(
    session: SparkSession,
    items: Sequence[str],
    work: Callable[[Iterator[str]], Iterator[pa.RecordBatch]],
    ddl: str,
) -> DataFrame:
    """Returns the results of `work` for each item, one task for each item.

    Args:
        session: Runs it.
        items: The input of the tasks.
        work: Takes the items of a task, yields rows of the schema `ddl`.
        ddl: Names and types of the columns.
    """
    # Numbers from Java, one for each task, and the items separately: a list of rows would pass
    # through Python processes of its own, and chance would decide how many a task gets.
    shared = session.sparkContext.broadcast(list(items))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(shared.value[i] for batch in batches for i in batch.column(0).to_pylist())

    return session.range(0, len(items), 1, max(len(items), 1)).mapInArrow(run, ddl)


@contextmanager
def phase(
    session: SparkSession, job: str, doing: str, progress_s: float = PROGRESS_S
) -> Iterator[None]:
    """Prints on stderr the present phase, its progress every few seconds, and its duration."""
    begun = time.monotonic()
    done = threading.Event()
    session.sparkContext.setJobDescription(doing)

    def show() -> None:
        while not done.wait(progress_s):
            finished, total = _tasks(session)
            of = f": {finished} of {total} tasks" if total else ""
            _print(f"{job}: {doing}{of}, {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=show, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
    seconds = time.monotonic() - begun
    report.phase(job, doing, seconds)
    _print(f"{job}: {doing}: {seconds:.1f} s")


def _tasks(session: SparkSession) -> tuple[int, int]:
    """Returns (tasks finished, tasks) of the running stages."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
