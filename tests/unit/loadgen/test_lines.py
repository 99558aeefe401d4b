"""Files of objects: good lines are read fast, bad ones reported with line and field."""

from __future__ import annotations

import gc
import gzip
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.loadgen.clusters import ClusteredShape, ClusteredWorkload
from sirocco.loadgen.lines import numbered_lines, object_lines, read_objects
from sirocco.loadgen.live_lines import CHUNK_BYTES_MAX
from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import MISSING_TS, ObjectRow, concat, parse_object
from sirocco.runtime.process.gzip_files import LINE_BYTES_MAX

GOOD = b'{"id": 1, "lon": 2.5, "lat": 48, "ts": 7, "text": "fire"}'


def _read(path: Path, batch_rows: int = 100) -> tuple[list[ObjectRow], list[int], list[object]]:
    rows: list[ObjectRow] = []
    lines: list[int] = []
    bad: list[object] = []
    for batch in read_objects(path, path.name, batch_rows):
        rows += [batch.objects.row(i) for i in range(len(batch.objects))]
        lines += batch.lines.tolist()
        bad += [(one.line, one.error.field) for one in batch.bad]
    return rows, lines, bad


@pytest.mark.parametrize("packed", [False, True])
def test_written_objects_are_read_back(tmp_path: Path, packed: bool) -> None:
    workload = ClusteredWorkload(4, ClusteredShape(clusters=9, vocabulary=90, arrivals_per_s=5.0))
    batches = list(workload.objects(1_000, batch_rows=300))
    content = b"".join(line + b"\n" for batch in batches for line in object_lines(batch))
    path = tmp_path / "objects.jsonl"
    path.write_bytes(gzip.compress(content) if packed else content)
    back = concat([batch.objects for batch in read_objects(path, "objects.jsonl", 128)])
    whole = concat(batches)
    for name in ("ids", "lon", "lat", "ts", "text", "text_offsets"):
        assert np.array_equal(getattr(back, name), getattr(whole, name)), name


def test_ids_and_attributes_survive(tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_bytes(
        b'{"id": "cafe-7", "lon": 1, "lat": 2, "open": true, "size": 3}\n'
        b'{"id": 18446744073709551615, "lon": 1, "lat": 2}\n'
    )
    rows, _, bad = _read(path)
    assert not bad
    assert [row.name for row in rows] == ["cafe-7", ""]
    assert rows[0] == parse_object(path.read_bytes().splitlines()[0])
    assert rows[1].id == 2**64 - 1
    again = [orjson.loads(x) for b in read_objects(path, "x") for x in object_lines(b.objects)]
    assert again[0] == {"id": "cafe-7", "lon": 1, "lat": 2, "text": "", "open": True, "size": 3}


def test_bad_lines_are_reported_separately_and_the_rest_continues(tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    lines = [
        b"\xef\xbb\xbf" + GOOD,
        b"",
        b'{"id": 2, "lon": 200, "lat": 0}',
        b'{"id": -1, "lon": 0, "lat": 0}',
        b"{broken",
        b'{"id": 3, "lon": 0, "lat": 0, "text": "\xff"}',
        b'{"id": 4, "lon": NaN, "lat": 0}',
        b'{"id": 5, "lat": 0}',
        b'{"id": true, "lon": 0, "lat": 0}',
        b'{"id": 6, "lon": 0, "lat": 0, "ts": null, "text": null}',
        b"[]",
        GOOD,
    ]
    path.write_bytes(b"\n".join(lines))
    for batch_rows in (1, 3, 100):
        rows, numbers, bad = _read(path, batch_rows)
        assert numbers == [1, 10, 12]
        assert rows[1].ts == MISSING_TS
        assert bad == [
            (3, "lon"),
            (4, "id"),
            (5, "object"),
            (6, "object"),
            (7, "object"),
            (8, "lon"),
            (9, "id"),
            (11, "object"),
        ]


def test_an_endless_line_does_not_take_all_memory(tmp_path: Path) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_bytes(b'{"id": 1, "text": "' + b"x" * (3 * LINE_BYTES_MAX) + b'"}\n' + GOOD + b"\n")
    rows, numbers, bad = _read(path)
    assert bad == [(1, "object")]
    assert numbers == [2]
    assert rows[0].text == "fire"


def test_a_packed_file_that_breaks_off_gives_what_it_holds(tmp_path: Path) -> None:
    workload = ClusteredWorkload(4, ClusteredShape(clusters=9, vocabulary=9_000))
    content = b"".join(x + b"\n" for b in workload.objects(2_000) for x in object_lines(b))
    path = tmp_path / "objects.jsonl.gz"
    packed = gzip.compress(content)
    path.write_bytes(packed[: len(packed) // 2])
    rows, numbers, bad = _read(path)
    assert 100 < len(rows) < 2_000
    assert len(bad) == 1
    assert bad[0] == (numbers[-1] + 1, "object")


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=5)
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.one_of(st.integers(0, 2**64 - 1), st.text(min_size=1, max_size=5), values)},
            optional={
                "lon": st.one_of(st.floats(-180, 180), values),
                "lat": st.one_of(st.floats(-90, 90), values),
                "ts": st.one_of(st.integers(0, 2**40), values),
                "text": values,
                "size": values,
            },
        ),
        max_size=6,
    )
)
def test_reading_many_at_once_decides_like_reading_singly(
    tmp_path_factory: pytest.TempPathFactory, members: list[dict[str, object]]
) -> None:
    import json  # noqa: PLC0415 - writes what orjson refuses: NaN, integers of any size

    path = tmp_path_factory.mktemp("lines") / "objects.jsonl"
    encoded = [json.dumps(one).encode() for one in members]
    path.write_bytes(b"\n".join(encoded))
    rows, numbers, bad = _read(path)
    for number, line in enumerate(encoded, 1):
        if number in numbers:
            assert rows[numbers.index(number)] == parse_object(line)
        else:
            with pytest.raises(InvalidArgument) as refused:
                parse_object(line)
            assert (number, refused.value.field) in bad


@pytest.mark.parametrize(
    ("member", "field"),
    [('"a": ' + "[" * 300 + "]" * 300, "attributes"), ('"ts": -9223372036854775808', "ts")],
)
def test_what_many_at_once_cannot_take_is_read_singly(
    tmp_path: Path, member: str, field: str
) -> None:
    path = tmp_path / "objects.jsonl"
    path.write_text(
        '{"id": 1, "lon": 1, "lat": 2}\n{"id": 2, "lon": 1, "lat": 2, ' + member + "}\n"
    )
    rows, _, bad = _read(path)
    assert (len(rows), bad) == (1, [(2, field)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lines", [[], [b'{"id": 1}\n', b'{"id": 2}\n']])
def test_a_pipe_is_read_as_a_file_is(tmp_path: Path, lines: list[bytes], packed: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = b"".join(lines)
    written = gzip.compress(content) if packed else content
    writer = threading.Thread(target=pipe.write_bytes, args=(written,), daemon=True)
    writer.start()
    assert [line for _, line in numbered_lines(pipe)] == lines
    writer.join(120.0)


def test_many_long_lines_do_not_take_all_memory(tmp_path: Path) -> None:
    """A gzip of megabytes holds gigabytes of lines, each as long as a line may be."""
    path = tmp_path / "long.ndjson.gz"
    line = orjson.dumps({"id": 1, "lon": 0, "lat": 0, "text": "a " * 450_000}) + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(150):
            file.write(line)
    # The test must not depend on garbage collection.
    gc.disable()
    tracemalloc.start()
    try:
        bad = [each.line for batch in read_objects(path, "long") for each in batch.bad]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert bad == list(range(1, 151))
    assert peak < 10 * CHUNK_BYTES_MAX
