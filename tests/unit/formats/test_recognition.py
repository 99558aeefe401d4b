"""Formats by name and by content."""

from __future__ import annotations

import pytest

from sirocco.formats.recognition import format_of
from sirocco.model.errors import InvalidArgument

FEATURE = b'{"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}}'


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("a.csv", b"{", "csv"),
        ("A.TSV.GZ", b"", "tsv"),
        ("a.geojson", b"", "geojson"),
        ("a.geojsonl.gz", b"", "geojson"),
        ("a.jsonl", FEATURE, "ndjson"),
        ("a.parquet", b"PAR1", "parquet"),
        ("a", b"PAR1", "parquet"),
        ("a.csv", b"PAR1", "parquet"),
        ("a.json", FEATURE, "geojson"),
        ("a", b"\x1e" + FEATURE, "geojson"),
        ("a", b'\xef\xbb\xbf {\n "type": "FeatureCollection",\n "features": [', "geojson"),
        ("a", b'{"id": 1, "lon": 1, "lat": 2, "type": "Feature"}\n', "ndjson"),
        ("a", b'{"id": 1, "lon": 1, "lat": 2}\n' + FEATURE, "ndjson"),
        ("a", b"id\tlon\tlat\n1\t2\t3\n", "tsv"),
        ("a", b'id;"Longitude";latitude\n', "csv"),
        ("a", b"x,y\r\n", "csv"),
        ("a", b"hello, world\n{", "ndjson"),
        ("a", b"", "ndjson"),
        ("a", b"\x00\xff\x80", "ndjson"),
    ],
)
def test_a_file_is_recognised(name: str, head: bytes, expected: str) -> None:
    assert format_of(name, head) == expected


def test_utf_16_is_refused() -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        with pytest.raises(InvalidArgument, match="UTF-16"):
            format_of("a.csv", "\ufeffid,lon".encode(encoding))
