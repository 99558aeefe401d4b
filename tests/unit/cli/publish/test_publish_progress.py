"""Progress has a total if it is known quickly from the file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sirocco.cli.terminal.progress import Bar, lines_total


@pytest.mark.parametrize(
    ("data", "total"),
    [(b"", 0), (b"a\n", 1), (b"a\nb", 2), (b"a\n" * 2_000_000, 2_000_000), (None, None)],
)
def test_lines_are_counted_where_somebody_looks(
    tmp_path: Path, data: bytes | None, total: int | None
) -> None:
    path = tmp_path / "o"
    path.write_bytes(gzip.compress(b"a\n") if data is None else data)
    bar = Bar()
    assert lines_total(path, bar) is None
    bar.is_shown = True
    assert lines_total(path, bar) == total
    assert lines_total(Path("/dev/null"), bar) is None
