"""Queries from lines, from JSON over several lines, from arrays; a bad line affects no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sirocco.cli.files.query_file import QueryLine, read_queries
from sirocco.loadgen.lines import BadLine

REGION = {"rect": {"west": 1.0, "south": 1.0, "east": 2.0, "north": 2.0}}


def query(name: str, **members: Any) -> dict[str, Any]:
    text = '"a{[b" AND c'
    kept = {"id": name, "kind": "range", "mode": "continuous", "region": REGION, "text": text}
    return kept | members


def found(path: Path, text: str) -> tuple[list[tuple[int, str]], list[int]]:
    path.write_text(text)
    lines = list(read_queries(path, "f"))
    good = [(one.line, one.query.id) for one in lines if isinstance(one, QueryLine)]
    return good, [one.line for one in lines if isinstance(one, BadLine)]


A, B, C = (json.dumps(query(name)) for name in "abc")
PRETTY_A, PRETTY_B = (json.dumps(query(name), indent=2) for name in "ab")
PRETTY_LINES = PRETTY_A.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        (f"{A}\n\n{B}", [(1, "a"), (3, "b")], []),
        (PRETTY_A, [(1, "a")], []),
        (f"{PRETTY_A}\n{PRETTY_B}\n{C}\n", [(1, "a"), (1 + PRETTY_LINES, "b"),
                                            (1 + 2 * PRETTY_LINES, "c")], []),
        (f"\n\n{PRETTY_A}\n\n{PRETTY_B}", [(3, "a"), (4 + PRETTY_LINES, "b")], []),
        (f"[{A}, {B}]", [(1, "a"), (1, "b")], []),
        (f"[\n{A},\n{B}\n]\n{C}", [(2, "a"), (3, "b"), (5, "c")], []),
        (json.dumps([query("a"), query("b")], indent=1), [(2, "a"), (2 + PRETTY_LINES, "b")], []),
        # A broken document is one bad line; the lines after it are not lost.
        (f"{A}\n{B[:40]}\n{C}", [(1, "a"), (3, "c")], [2]),
        (f"{{\n{A}\n{{\n{{", [(2, "a")], [1, 3, 4]),
        (f"[\n{A}\n{B}\n[", [(2, "a"), (3, "b")], [1, 4]),
        (f"[1, 2]\n[]\n[[]]\n7\n{A}", [(5, "a")], [1, 2, 3, 4]),
        (f"{PRETTY_A.replace(',', ',,', 1)}\n{B}", [(1 + PRETTY_LINES, "b")], [1]),
        (f"[{A}, {B}", [], [1]),
        (f"{A} {B}\n{C}", [(2, "c")], [1]),
        # Repeats, also within one line.
        (f"[{A}, {A}, {json.dumps(query('a', text='x'))}]", [(1, "a")], [1]),
    ],
)  # fmt: skip
def test_each_query_has_the_line_it_begins_on(
    tmp_path: Path, text: str, good: list[tuple[int, str]], bad: list[int]
) -> None:
    assert found(tmp_path / "q", text) == (good, bad)


def test_lines_that_all_begin_something_are_read_in_linear_time(tmp_path: Path) -> None:
    from sirocco.cli.files import query_documents  # noqa: PLC0415

    looks = 0
    gather = query_documents._gather

    def counted(held: Any, again: Any, lines: Any) -> bool:
        nonlocal looks
        is_one = gather(held, again, lines)
        looks += len(held)
        return is_one

    path = tmp_path / "q"
    path.write_text(' {"a": 1,\n' * 2_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_documents, "_gather", counted)
        found = read_queries(path, "f", looks_max=10_000)
        assert sum(isinstance(one, BadLine) for one in found) == 2_000
    assert looks <= 12_000
