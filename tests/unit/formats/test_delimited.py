"""CSV and TSV: what rows become, and which of them are refused."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pytest

from sirocco.formats import delimited
from sirocco.formats.column_map import read_map
from sirocco.formats.delimited import RECORD_BYTES_MAX, read_delimited, value_of
from sirocco.model.errors import InvalidArgument


def rows(data: str | bytes, chosen: str = "", delimiter: str | None = None) -> list[Any]:
    raw = data if isinstance(data, bytes) else data.encode()
    lines = enumerate(raw.splitlines(keepends=True), 1)
    found = read_delimited(iter(lines), read_map(chosen) if chosen else {}, delimiter)
    return [(line, str(row) if isinstance(row, InvalidArgument) else row) for line, row in found]


def test_cells_are_numbers_booleans_or_text() -> None:
    cells = {
        "5": 5, "-0.5": -0.5, "1e3": 1000.0, "true": True, "false": False, "007": "007",
        "+1": "+1", "1_0": "1_0", "nan": "nan", "1e999": "1e999", "TRUE": "TRUE", "-": "-",
        "18446744073709551615": 2**64 - 1, "18446744073709551616": "18446744073709551616",
        "１": "１",
    }  # fmt: skip
    for cell, value in cells.items():
        found = value_of(cell)
        assert (found, type(found)) == (value, type(value)), cell


def test_quotes_marks_blank_lines_and_cells_of_several_lines() -> None:
    table = (
        '\ufeffid,"lon",lat,text,note\r\n'
        '1,2.5,48,"a ""b"", c",x\r\n'
        "\r\n"
        '"02",+2.5, 48 ,"two\r\n\r\nlines",\r\n'
        "3,1,2,,\r\n"
    )
    assert rows(table) == [
        (2, {"id": 1, "lon": 2.5, "lat": 48.0, "text": 'a "b", c', "note": "x"}),
        (4, {"id": "02", "lon": 2.5, "lat": 48.0, "text": "two\r\n\r\nlines"}),
        (7, {"id": 3, "lon": 1.0, "lat": 2.0, "text": ""}),
    ]


def test_delimiters_and_chosen_columns() -> None:
    expected = [(2, {"id": "a", "lon": 1.0, "lat": 2.0, "text": "one two", "ts": "2026-01-01"})]
    for delimiter, given in ((",", None), (";", None), ("\t", "\t")):
        table = delimiter.join(["key", "x", "y", "t", "u", "when"]) + "\n"
        table += delimiter.join(["a", "1", "2", "one", "two", "2026-01-01"]) + "\n"
        assert rows(table, "id=key,text=t+u,ts=when", given) == expected


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("1,2", "object: has 2 cells, the header has 4"),
        ("1,2,3,4,5", "object: has 5 cells, the header has 4"),
        ("1,two,3,x", "lon: 'two' is no number"),
        ("1,2,nan,x", "lat: 'nan' is no number"),
        ("1,2,3,caf\xe9", "object: is no UTF-8: byte 0xe9 at 9"),
        ("1,2,3,\0", "object: has a zero byte"),
        ('1,2,3,"x"y', "object: ',' expected after '\"'"),
    ],
)
def test_a_bad_row_does_not_disturb_those_around_it(bad: str, message: str) -> None:
    table = f"id,lon,lat,text\n1,2,3,a\n{bad}\n2,2,3,b\n".encode("latin-1")
    good = {"id": 1, "lon": 2.0, "lat": 3.0, "text": "a"}
    assert rows(table) == [(2, good), (3, message), (4, good | {"id": 2, "text": "b"})]


def test_a_quote_that_is_not_closed_takes_one_line() -> None:
    table = 'id,lon,lat,text\n1,2,3,"a\n' + "2,2,3,b\n" * 5
    found = rows(table)
    assert [line for line, _ in found] == [2, 3, 4, 5, 6, 7]
    assert found[0][1].startswith("object: unexpected end of data")
    long = rows('id,lon,lat,text\n1,2,3,"a\n' + f"2,2,3,{'b' * 1_000}\n" * 2_000)
    assert len(long) == 2_001
    assert "field larger than field limit" in long[0][1]


def test_a_record_has_a_bound() -> None:
    wide = ",".join(["x" * 100_000] * 20)
    table = f"id,lon,lat,text\n1,2,3,{wide}\n2,2,3,b\n"
    found = rows(table)
    assert [line for line, _ in found] == [2, 3]
    assert found[0][1].startswith(f"object: is longer than {RECORD_BYTES_MAX} bytes")


def test_a_header_in_another_encoding_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is no UTF-8: byte 0xe9 at 3"):
        rows(b"caf\xe9,lon,lat\n")
    assert rows("") == rows("\n\n") == []


def test_what_a_writer_of_csv_writes_is_read() -> None:
    seed = 20261126
    dice = random.Random(seed)
    texts = ["".join(dice.choices('ab ,;"\n\r\té', k=dice.randrange(12))) for _ in range(500)]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["id", "lon", "lat", "text"])
    writer.writerows([i, i / 4, 1, text] for i, text in enumerate(texts))
    # Lines end at LF alone here, as readers of files split them.
    raw = out.getvalue().encode().split(b"\n")
    lines = enumerate((line + b"\n" for line in raw[:-1]), 1)
    found = [row for _, row in read_delimited(iter(lines), {})]
    got = [row["text"] for row in found if isinstance(row, dict)]
    assert got == texts, f"seed {seed}"


def test_lines_after_open_quotes_are_read_again_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0
    following = delimited._Lines.__next__

    def counted(lines: delimited._Lines) -> str:
        nonlocal read
        read += 1
        return following(lines)

    monkeypatch.setattr(delimited._Lines, "__next__", counted)
    # Each line ends within quotes, whether it begins within quotes or not.
    found = rows("id,lon,lat\n" + 'a",b,"c\n' * 2_000)
    assert [line for line, _ in found] == list(range(2, 2_002))
    assert read < 20_000
    # One such line takes no other with it.
    found = rows('id,lon,lat\n"1,2,3\n' + "2,2,3\n" * 1_000)
    assert [line for line, row in found if isinstance(row, str)] == [2]
    assert len(found) == 1_001


@pytest.mark.parametrize(
    "header", ["id,lon,lat," + "x" * 200_000, "id,lon,lat,a\rb", "," * 2_000_000]
)
def test_a_header_that_cannot_be_read_is_refused(header: str) -> None:
    with pytest.raises(InvalidArgument, match=r"header: (cannot be read|is longer)"):
        list(read_delimited(iter([(1, header.encode())]), {}))
