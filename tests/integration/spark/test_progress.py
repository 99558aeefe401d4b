"""A job reports its progress while it works."""

from __future__ import annotations

import re
import time

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

from sirocco_spark import session as module

pytestmark = pytest.mark.spark

TASKS = 6


def test_finished_tasks_are_printed_while_others_run(spark, capfd):
    def slowly(items):
        for item in items:
            time.sleep(0.5)
            yield pa.RecordBatch.from_pylist([{"item": item}])

    with module.phase(spark, "test", "waiting", progress_s=0.2):
        frame = module.in_tasks(spark, [str(i) for i in range(TASKS)], slowly, "item string")
        assert sorted(row["item"] for row in frame.collect()) == [str(i) for i in range(TASKS)]
    output = capfd.readouterr().err
    reported = re.findall(rf"test: waiting: (\d+) of {TASKS} tasks, \d+ s", output)
    done = [int(count) for count in reported]
    assert done == sorted(done)
    # Neither nothing nor all: in between.
    assert any(0 < count < TASKS for count in done), output
    assert re.search(r"test: waiting: \d+\.\d s\n", output)
