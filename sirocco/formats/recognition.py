"""Which format a file has: by its name, else by how it begins."""

from __future__ import annotations

import re

from sirocco.formats.column_map import has_place
from sirocco.model.errors import InvalidArgument

FORMATS = ("ndjson", "geojson", "csv", "tsv", "parquet")

# Bytes of a file that decide.
HEAD_BYTES = 1 << 16

_SUFFIXES = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".geojson": "geojson",
    ".geojsonl": "geojson",
    ".geojsons": "geojson",
    ".geojsonseq": "geojson",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".geoparquet": "parquet",
}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MARK = b"\xef\xbb\xbf"
_FEATURE = re.compile(rb'"type"\s*:\s*"Feature(?:Collection)?"')


def format_of(name: str, head: bytes) -> str:
    """Returns the format of a file, one of `FORMATS`.

    Args:
        name: Its name; `.gz` at its end says nothing.
        head: Its first bytes, unpacked; fewer than `HEAD_BYTES` if it has no more.

    Raises:
        InvalidArgument: It is a text in UTF-16; no reader here reads it.
    """
    if head.startswith(_UTF_16):
        raise InvalidArgument("is in UTF-16: convert it to UTF-8", field="file")
    if head.startswith(b"PAR1"):
        return "parquet"
    plain = name.lower().removesuffix(".gz")
    for suffix, known in _SUFFIXES.items():
        if plain.endswith(suffix):
            return known
    begin = head.removeprefix(_MARK).lstrip()
    if begin.startswith(b"\x1e"):
        return "geojson"
    line = begin.partition(b"\n")[0]
    if begin.startswith((b"{", b"[")):
        return "geojson" if _is_geojson(begin, line) else "ndjson"
    # A damaged file of lines must not pass for a table without columns.
    for delimiter, known in ((b"\t", "tsv"), (b",", "csv"), (b";", "csv")):
        names = line.decode(errors="replace").split(delimiter.decode())
        if len(names) > 1 and has_place([name.strip().strip('"') for name in names]):
            return known
    return "ndjson"


def _is_geojson(begin: bytes, line: bytes) -> bool:
    # An object on one line may have an attribute `type`; a Feature has no `lon`.
    if _FEATURE.search(line) is not None:
        return b'"lon"' not in line or b'"geometry"' in line
    is_open = line.count(b"{") > line.count(b"}")
    return is_open and _FEATURE.search(begin) is not None
