"""Which tests of a pair of processes run together, and in which order."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = runpy.run_path(str(ROOT / "scripts/pytest_pairs.py"))
SPARK, LONG, LASTING = PLUGIN["SPARK"], PLUGIN["LONG"], PLUGIN["LASTING"]
group_of, place_of = PLUGIN["group_of"], PLUGIN["place_of"]


def test_what_is_named_is_there() -> None:
    for start in (*LONG, LASTING):
        assert list(ROOT.glob(f"{start}*")), start


@pytest.mark.parametrize("start", SPARK)
def test_spark_is_in_one_process_and_begins_first(start: str) -> None:
    test_id = start + ("" if start.endswith(".py") else "test_a.py") + "::test_it"
    assert group_of(test_id) == "Spark"
    assert place_of(test_id) < place_of("tests/end_to_end/test_replay.py::test_it")


def test_a_file_is_a_group_and_a_cluster_that_lasts_comes_last() -> None:
    one = "tests/end_to_end/test_searches.py::test_it[a::b]"
    assert group_of(one) == "tests/end_to_end/test_searches.py"
    lasting = LASTING + "test_kills.py::test_it"
    assert group_of(lasting) == group_of(LASTING + "test_outages.py::test_it") == LASTING
    assert place_of("tests/end_to_end/test_replay.py::test_it") < place_of(one) < place_of(lasting)
