"""The report contains every scheme."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'sirocco[spark]'")

import numpy as np
import report as job
from sirocco_spark.comparison import lorenz

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.scheme import SCHEMES
from tests.integration.spark.conftest import OBJECTS, History

pytestmark = pytest.mark.spark


def test_every_scheme_has_its_row_and_its_plot(spark, history: History):
    options = job.Options(
        objects=history.source, out=Path("unused"), queries=history.source, leaves=8, slots=4
    )
    page, summary = job.report(spark, options)
    assert summary["objects"] == OBJECTS
    assert [one["scheme"] for one in summary["schemes"]] == list(SCHEMES)
    assert page.count("<img ") == 3 + len(SCHEMES)
    for one in summary["schemes"]:
        assert f"<td>{one['scheme']}</td>" in page
        assert one["load_max_over_mean"] >= 1
        assert 1 <= one["objects_max_over_mean"] <= 4
        assert 1 <= one["object_copies"] <= 4
        assert 1 <= one["query_copies"] <= 4
    by_name = {one["scheme"]: one for one in summary["schemes"]}
    assert by_name["qt-tree"]["object_copies"] == 1
    # Most objects are around one city: equal tiles are unbalanced.
    even, tree = (by_name[n]["objects_max_over_mean"] for n in ("uniform-grid", "qt-tree"))
    assert even > tree
    with pytest.raises(InvalidArgument, match="no-such"):
        job.report(
            spark, job.Options(objects=history.source, out=Path("unused"), schemes=("no-such",))
        )


def test_a_curve_of_equal_cells_is_the_diagonal():
    shares, gini = lorenz(np.array([5, 5, 5, 5]))
    assert shares.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert gini == 0
    assert lorenz(np.array([0, 0, 0, 12]))[1] == pytest.approx(0.75)
