"""Files of objects in all formats give the same objects."""

from __future__ import annotations

import gzip
import json
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from sirocco.formats.column_map import read_map
from sirocco.loadgen.lines import object_lines
from sirocco.loadgen.object_files import read_object_file
from sirocco.model.errors import InvalidArgument

OBJECTS = [
    {"id": number, "lon": number / 8, "lat": 2.5, "text": f"a {number}", "ts": 1_405_123_200_000,
     "size": number}
    for number in range(10)
]  # fmt: skip
MOMENT = "2014-07-12T00:00:00Z"


def read(path: Path, **options: Any) -> tuple[list[Any], list[str]]:
    good, bad = [], []
    for batch in read_object_file(path, path.name, 4, **options):
        good += [json.loads(line) for line in object_lines(batch.objects)]
        bad += [f"{one.file}:{one.line}: {one.error}" for one in batch.bad]
    return good, bad


def contents() -> dict[str, bytes]:
    lines = "".join(json.dumps(each | {"ts": MOMENT}) + "\n" for each in OBJECTS)
    table = "id,lon,lat,text,ts,size\n" + "".join(
        f"{each['id']},{each['lon']},{each['lat']},{each['text']},{MOMENT},{each['size']}\n"
        for each in OBJECTS
    )
    features = [
        {
            "type": "Feature",
            "id": each["id"],
            "geometry": {"type": "Point", "coordinates": [each["lon"], each["lat"]]},
            "properties": {"text": each["text"], "ts": MOMENT, "size": each["size"]},
        }
        for each in OBJECTS
    ]
    return {
        "a.ndjson": lines.encode(),
        "a.csv": table.encode(),
        "a.tsv": table.replace(",", "\t").encode(),
        "a.geojson": json.dumps({"type": "FeatureCollection", "features": features}).encode(),
        "a.json": "\n".join(map(json.dumps, features)).encode(),
    }


@pytest.mark.parametrize("name", contents())
@pytest.mark.parametrize("packed", [False, True])
def test_every_format_gives_the_same_objects(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    content = contents()[name]
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read(path) == (OBJECTS, [])


def test_parquet_gives_the_same_objects(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(pa.Table.from_pylist(OBJECTS), path)
    assert read(path) == (OBJECTS, [])


def test_bad_rows_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,lon,lat\n1,2,3\n2,200,3\n3,2,3\n4,2,x\n5,2,3\n" + "6,2\n")
    good, bad = read(path)
    assert [one["id"] for one in good] == [1, 3, 5]
    assert bad == [
        "a.csv:3: lon: 200.0 is outside [-180, 180]",
        "a.csv:5: lat: 'x' is no number",
        "a.csv:7: object: has 2 cells, the header has 3",
    ]


def test_text_in_another_encoding_is_refused_by_feature(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    path.write_bytes(
        b'{"type":"Feature","id":1,"geometry":{"type":"Point","coordinates":[1,2]},'
        b'"properties":{"text":"caf\xe9"}}\n' + contents()["a.json"].splitlines()[0]
    )
    good, bad = read(path)
    assert [one["id"] for one in good] == [0]
    assert bad == ["a.geojson:1: text: is no Unicode text: lone surrogate at character 3"]


def test_damage_is_reported_after_what_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    rows = b"".join(b"%d,2,3\n" % number for number in range(200_000))
    path.write_bytes(gzip.compress(b"id,lon,lat\n" + rows)[:-50_000])
    good = 0
    for batch in read_object_file(path, "a", 4_096):
        good += len(batch.lines)
        bad = batch.bad
    assert good > 50_000
    assert len(bad) == 1
    assert bad[0].line == good + 2
    assert "is damaged from here on" in str(bad[0].error)


def test_a_bomb_is_refused_by_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb") as out:
        out.write(b"id,lon,lat\n1,2,3\n")
        for _ in range(100):
            out.write(b"x" * (1 << 20))
        out.write(b"\n2,2,3\n")
    tracemalloc.start()
    good, bad = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert [one["id"] for one in good] == [1, 2]
    assert len(bad) == 1
    assert bad[0].startswith("a.csv.gz:3: object: is longer than")


@pytest.mark.parametrize("name", contents())
@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_recognised_by_its_content(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    content = gzip.compress(contents()[name]) if packed else contents()[name]
    form = None if packed else {"a.json": "geojson"}.get(name, name.removeprefix("a."))
    for given in {None, form}:
        writer = threading.Thread(target=path.write_bytes, args=(content,))
        writer.start()
        assert read(path, form=given) == (OBJECTS, [])
        writer.join()


def test_an_empty_pipe_and_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for content, errors in ((b"", 0), (gzip.compress(contents()["a.csv"])[:60], 1)):
        writer = threading.Thread(target=path.write_bytes, args=(content,))
        writer.start()
        good, bad = read(path)
        assert (good[:1], len(bad)) == ([], errors)
        writer.join()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("")
    with pytest.raises(InvalidArgument, match="is for tables"):
        read(path, chosen=read_map("lon=x"))
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(b"PAR1",))
    writer.start()
    with pytest.raises(InvalidArgument, match="not from a pipe"):
        read(fifo)
    writer.join()
