"""The Spark session of a job, and the lines that tell how far it is."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import sirocco_spark

# Rows that one task holds at once. A row of a post takes about 400 bytes in Python and as much on
# its way: two tasks a gigabyte at most, whatever the number of rows altogether.
TASK_ROWS_MAX = 524_288

# A line more often than that would bury the result, less often look like a job that hangs.
PROGRESS_S = 5.0

# The driver holds the sample, the index of the archive, and what is collected; Spark's own default
# of 1 GB is too little for 200,000 sampled objects beside a shuffle.
DRIVER_MEMORY = "3g"


def open_session(name: str, master: str = "local[*]", **settings: str) -> SparkSession:
    """Returns the session; one that spark-submit has begun is taken as it is.

    Args:
        name: Of the job.
        master: Where spark-submit names none.
        settings: Further ones of Spark, with `_` for `.`.
    """
    # The executors need not have this directory: what they run travels with the job.
    cloudpickle.register_pickle_by_value(sirocco_spark)  # type: ignore[no-untyped-call]
    builder = SparkSession.builder.appName(f"sirocco {name}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Workers on this machine run what the driver runs, not what the PATH calls python3.
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
    # Numbers of shuffle partitions then follow the bytes that come out of the stage before.
    session.conf.set("spark.sql.adaptive.enabled", "true")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    return session


def java_of(session: SparkSession) -> Any:
    """Returns the packages of the driver's Java, for what Spark does not offer in Python."""
    return session.sparkContext._jvm


@contextmanager
def phase(session: SparkSession, job: str, doing: str) -> Iterator[None]:
    """Tells on stderr what is done, how far it is every few seconds, and how long it took."""
    begun = time.monotonic()
    done = threading.Event()
    session.sparkContext.setJobDescription(doing)

    def tell() -> None:
        while not done.wait(PROGRESS_S):
            finished, total = _tasks(session)
            of = f": {finished} of {total} tasks" if total else ""
            _say(f"{job}: {doing}{of}, {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
    _say(f"{job}: {doing}: {time.monotonic() - begun:.1f} s")


def _tasks(session: SparkSession) -> tuple[int, int]:
    """Returns (tasks finished, tasks) of the stages that run."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
