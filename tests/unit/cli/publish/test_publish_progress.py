"""Progress has a total if it is known quickly from the file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.cli.__main__ import main
from sirocco.cli.terminal.progress import Bar, lines_total
from tests.support.fake_cluster import FakeCluster


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


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.stop()


def test_commands_that_read_files_show_the_total(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int | None]] = []

    class Shown(Bar):
        """Of somebody who looks."""

        def __init__(self) -> None:
            super().__init__()
            self.is_shown = True

        def begin(self, what: str, total: int | None = None) -> None:
            begun.append((what, total))

    for module in ("publish.run", "queries"):
        monkeypatch.setattr(f"sirocco.cli.{module}.Bar", Shown)
    queries, objects = tmp_path / "q", tmp_path / "o"
    one = {"kind": "range", "mode": "continuous", "text": "fire"}
    queries.write_text("".join(json.dumps(one | {"id": f"q{i}"}) + "\n" for i in range(3)))
    objects.write_text('{"id": 1, "lon": 1, "lat": 2}\n' * 5)
    router = ("--router", cluster.router)
    assert main(["publish", str(objects), *router]) == 0
    assert main(["queries", "register", str(queries), "--subscriber", "s", *router]) == 0
    assert main(["queries", "update", str(queries), "--subscriber", "s", *router]) == 0
    assert main(["queries", "remove", "--file", str(queries), *router]) == 0
    assert begun == [
        ("publishing objects", 5),
        ("registering queries", 3),
        ("updating queries", 3),
        ("removing queries", 3),
    ]
