"""Large slices hold the content of the small ones, and appear all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

import compact as job
from sirocco_spark import compaction
from sirocco_spark.archive import index_archive, read_objects
from sirocco_spark.blobs import place_of

from sirocco.codec.slices import read_slice
from sirocco.index.base.query_rows import QueryRows  # noqa: F401 - the form that searches take
from sirocco.index.store.store import SlotStore
from sirocco.index.store.store_search import search_range
from sirocco.model.errors import InvalidArgument
from tests.integration.spark.conftest import OBJECTS, History

pytestmark = pytest.mark.spark


def test_the_objects_are_the_same_in_fewer_slices(spark, history: History, tmp_path):
    out = tmp_path / "compacted"
    before = index_archive(spark, str(history.archive))
    # A run that was killed before its end: some of its parts, and one of another archive.
    compaction.compact(spark, before, str(out), 1_000)
    stray = out / "compacted" / "00099" / f"{0:016}-{0:016}"
    stray.parent.mkdir()
    stray.write_bytes(b"")
    with pytest.raises(InvalidArgument, match="an unfinished compaction"):
        index_archive(spark, str(out))
    summary = job.run(spark, job.Options(str(history.archive), str(out), rows=1_000))
    assert not stray.exists()
    assert summary["objects"] == OBJECTS
    assert summary["compacted_slices"] < summary["pieces"] / 2
    after = index_archive(spark, str(out))
    assert after.refused == ()
    assert max(piece.rows for piece in after.pieces) <= 1_000
    columns = ("id", "name", "lon", "lat", "ts", "arrival", "text", "attributes", "number")
    rows = [read_objects(spark, index, columns).toArrow() for index in (before, after)]
    assert rows[0].sort_by("number").equals(rows[1].sort_by("number"))
    with pytest.raises(InvalidArgument, match="already"):
        job.run(spark, job.Options(str(history.archive), str(out)))


def test_the_archive_itself_is_no_place_for_the_dataset(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "past").mkdir()
    (tmp_path / "link").symlink_to("past")
    here = str(tmp_path / "past")
    for archive in ("past", "./past/", "link", here, f"file://{here}/"):
        for out in ("past", "../" + tmp_path.name + "/past", here, f"file://{here}"):
            with pytest.raises(InvalidArgument, match="must not be the archive itself"):
                job.run(spark, job.Options(archive, out))
    for archive, out in (("s3://b/x", "s3a://b/x/"), ("s3a://k:s@b/x", "s3://b/x?region=eu")):
        with pytest.raises(InvalidArgument, match="must not be the archive itself"):
            job.run(spark, job.Options(archive, out))
    assert place_of("s3://b/x") != place_of("s3://b/y")
    assert place_of("gs://b/x") != place_of("s3://b/x")


def test_searches_read_the_large_slices(spark, history: History, tmp_path):
    out = tmp_path / "compacted"
    job.run(spark, job.Options(str(history.archive), str(out)))
    manifest = json.loads((out / "compacted.json").read_text())
    found = 0
    for one in manifest["slices"]:
        slice_ = read_slice(Path(out / one["name"]).read_bytes())
        store = SlotStore()
        store = SlotStore.restore({**store.state(), "first_seq": _after(slice_)})
        store.adopt(slice_)
        found += len(search_range(store.view()))
    assert found == OBJECTS
    assert len(manifest["slices"]) == 3, "a slice a slot"


def _after(slice_):
    import numpy as np  # noqa: PLC0415

    return np.array([slice_.last_seq + 1], np.int64)
