"""The jobs read every object of an archive once, whatever other files there are."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

from sirocco_spark import archive, workload
from sirocco_spark.archive import index_archive, read_objects
from sirocco_spark.blobs import Directory
from sirocco_spark.past import read_history
from sirocco_spark.pieces import MANIFEST, Piece, cover, held_now, stored_rows

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.slices import read_slice, write_slice
from sirocco.index.store.merging import merge_slices
from sirocco.index.store.sealing import seal
from sirocco.model.errors import InvalidArgument, Unavailable
from tests.integration.spark.conftest import OBJECTS, SEED, History
from tests.oracle import Objects

pytestmark = pytest.mark.spark

COLUMNS = ("id", "name", "lon", "lat", "ts", "arrival", "text", "attributes", "session", "number")


@pytest.fixture
def copied(history: History, tmp_path: Path) -> Path:
    return Path(shutil.copytree(history.archive, tmp_path / "archive"))


def slices_of(root: Path) -> list[Path]:
    """Returns the largest slot's slices in log order."""
    return sorted(
        max((root / "slices").iterdir(), key=lambda slot: len(list(slot.iterdir()))).iterdir()
    )


def merged_aside(parts: list[Path]) -> Path:
    """Writes two neighbours as the one slice into which the system would merge them."""
    whole = merge_slices([read_slice(part.read_bytes()) for part in parts])
    path = parts[0].with_name(f"{whole.first_seq:016}-{whole.last_seq:016}")
    path.write_bytes(write_slice(whole))
    return path


def newest_checkpoints(root: Path) -> list[Path]:
    """Returns the newest checkpoint of each slot that has objects of its own."""
    slots = (root / "checkpoints" / "slots").iterdir()
    newest = [sorted(slot.iterdir())[-1] for slot in slots]
    found = [path for path in newest if len(stored_rows(read_state(path.read_bytes()))) > 3]
    assert found
    return found


def replace_checkpoint(old: Path) -> None:
    """Does what the system does over time: older objects are sealed, newer ones are in a newer
    checkpoint, and the old one is removed."""
    state = read_state(old.read_bytes())
    rows = stored_rows(state)
    third, most = (int(rows.seqs.min()) + len(rows) * part // 6 for part in (1, 2))
    slot = old.parents[3] / "slices" / old.parent.name
    slot.mkdir(parents=True, exist_ok=True)
    for first, last in ((int(rows.seqs.min()), third), (third + 1, most)):
        inside = np.flatnonzero((rows.seqs >= first) & (rows.seqs <= last))
        sealed = seal(rows.take(inside))
        (slot / f"{first:016}-{last:016}").write_bytes(write_slice(sealed))
    left = rows.take(np.flatnonzero(rows.seqs > most)).columns()
    offset, epoch = old.name.split("-")
    newer = write_state({**state, **{f"store.{name}": column for name, column in left.items()}})
    old.with_name(f"{int(offset) + 9:016}-{epoch}").write_bytes(newer)
    old.unlink()


def numbers_of(table) -> Counter[int]:
    return Counter(table.column("number").to_pylist())


def test_every_object_comes_once_with_all_that_was_published(spark, history):
    index = index_archive(spark, str(history.archive))
    assert index.rows == OBJECTS
    assert index.refused == ()
    kinds = Counter(piece.name.partition("/")[0] for piece in index.pieces)
    assert kinds["slices"] > 5, "the newest objects are in checkpoints, the others in slices"
    assert kinds["checkpoints"] >= 2
    table = read_objects(spark, index, COLUMNS).toArrow().sort_by("number")
    assert table.column("number").to_pylist() == list(range(1, OBJECTS + 1)), f"seed {SEED}"
    reported = Objects(history.objects)
    assert table.column("lon").to_pylist() == reported.lon.tolist()
    assert table.column("arrival").to_pylist() == reported.arrivals.tolist()
    assert index.arrivals_ms == (reported.start_ms, reported.now_ms)
    for row, one in zip(table.to_pylist(), history.objects, strict=True):
        assert row["refusal"] is None
        assert row["name"] == (one["id"] if isinstance(one["id"], str) else "")
        assert row["text"] == one.get("text", "")
        assert row["ts"] == one.get("ts")
        assert ("size" in one) == bool(row["attributes"])


def test_truncated_or_misnamed_slices_are_left_out_and_reported(spark, copied):
    slot = slices_of(copied)
    whole = merged_aside(slot[:2])
    # The copy of the merged slice is incomplete: its parts are still there.
    whole.write_bytes(whole.read_bytes()[:-7])
    lost = slot[-1]
    lost_rows = len(read_slice(lost.read_bytes()))
    lost.write_bytes(lost.read_bytes()[:100])
    (lost.parent / f"{lost.name}.tmp~1").write_bytes(b"PAR1")
    checkpoint = next((copied / "checkpoints" / "slots").rglob("*-*"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    index = index_archive(spark, str(copied))
    reasons = dict(index.refused)
    assert len(reasons) == 4
    assert sum("has no name of a slice" in reason for reason in reasons) == 1
    assert sum("is damaged or cut off" in reason for reason in reasons) == 3
    assert any(str(checkpoint.relative_to(copied)) in reason for reason in reasons)
    found = numbers_of(read_objects(spark, index, ("number",)).toArrow())
    assert set(found.values()) == {1}
    assert index.rows == found.total() <= OBJECTS - lost_rows


def test_a_merged_slice_beside_its_parts_doubles_nothing(spark, copied):
    slot = slices_of(copied)
    before = index_archive(spark, str(copied))
    merged = merged_aside(slot[:2])
    index = index_archive(spark, str(copied))
    assert index.rows == OBJECTS
    assert len(index.pieces) == len(before.pieces) - 1
    assert any(merged.name in piece.name for piece in index.pieces)
    # Slices merged after the listing of names are read from the merged one.
    slot[0].unlink()
    slot[1].unlink()
    for one in (before, index):
        found = numbers_of(read_objects(spark, one, ("number",)).toArrow())
        assert (found.total(), set(found.values())) == (OBJECTS, {1})


def test_objects_of_a_checkpoint_that_was_replaced_are_read_from_its_heirs(spark, copied):
    index = index_archive(spark, str(copied))
    for _ in range(2):
        for path in newest_checkpoints(copied):
            replace_checkpoint(path)
        found = numbers_of(read_objects(spark, index, ("number",)).toArrow())
        assert (found.total(), set(found.values())) == (OBJECTS, {1})


def test_what_is_replaced_between_listing_and_reading_is_counted(spark, copied, monkeypatch):
    looks: list[int] = []

    def replacing(names):
        """Lists names; listed blobs are then replaced, except the third time."""

        def listed(blobs):
            found = names(blobs)
            looks.append(len(found))
            for path in newest_checkpoints(copied) if len(looks) in (1, 2, 4) else ():
                replace_checkpoint(path)
            if len(looks) == 1:
                parts = slices_of(copied)[:2]
                merged_aside(parts)
                for part in parts:
                    part.unlink()
            return found

        return listed

    source = f"archive:{copied}"
    still = read_history(spark, "test", source, source, 100, SEED)
    monkeypatch.setattr(archive, "piece_names", replacing(archive.piece_names))
    monkeypatch.setattr(workload, "checkpoint_names", replacing(workload.checkpoint_names))
    past = read_history(spark, "test", source, source, 100, SEED)
    assert (past.counts.total, past.counts.refused, past.refused_queries) == (OBJECTS, [], [])
    assert len(looks) == 4, "three looks for objects, the last of them undisturbed; one for queries"
    assert set(past.sample.event_keys.tolist()) == set(still.sample.event_keys.tolist())
    assert past.workload.count() == still.workload.count() > 0


def test_objects_that_are_nowhere_any_more_are_no_gap_in_silence(spark, copied):
    index = index_archive(spark, str(copied))
    lost = slices_of(copied)[0]
    lost.unlink()
    removed = next(piece for piece in index.pieces if piece.name.endswith(lost.name))
    with pytest.raises(Unavailable, match="begin it again"):
        held_now(Directory(copied), removed)


def test_what_is_no_archive_is_refused(spark, tmp_path):
    for uri, why in ((tmp_path / "nowhere", "there is no directory"), (tmp_path, "no slices/")):
        with pytest.raises(InvalidArgument, match=why):
            index_archive(spark, str(uri))
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InvalidArgument, match="is damaged"):
        index_archive(spark, str(tmp_path))


def piece(slot: int, first: int, last: int) -> Piece:
    return Piece(
        name=f"{slot}/{first}-{last}",
        slot=slot,
        first=first,
        last=last,
        rows=last - first + 1,
        bytes=1,
        arrival_first=0,
        arrival_last=0,
    )


@pytest.mark.parametrize(
    ("pieces", "chosen"),
    [
        ([(0, 0, 9), (0, 0, 4), (0, 5, 9)], [(0, 0, 9)]),
        ([(0, 0, 4), (0, 5, 9), (1, 0, 4)], [(0, 0, 4), (0, 5, 9), (1, 0, 4)]),
        ([(0, 0, 4), (0, 3, 9), (0, 4, 5)], [(0, 0, 4), (0, 5, 9)]),
        ([(0, 5, 9), (0, 20, 29), (0, 22, 23)], [(0, 5, 9), (0, 20, 29)]),
        ([(0, 0, -1), (1, 0, 0)], [(1, 0, 0)]),
    ],
)
def test_a_cover_holds_every_object_once(pieces, chosen):
    found = cover([piece(*one) for one in pieces])
    assert [(one.slot, one.first, one.last) for one in found] == chosen
