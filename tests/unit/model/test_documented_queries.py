"""The queries in README.md and docs/ can be registered as shown, one on each line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.query import MODES, kind_of, parse_query

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", ROOT / "docs" / "reference" / "queries.md")
SAMPLES = ROOT / "docs" / "tutorials" / "samples"


def _shown(page: Path) -> list[str]:
    return [line for line in page.read_text().splitlines() if line.startswith('{"id": "')]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_queries_that_are_shown_are_lines_of_a_file(page: Path) -> None:
    queries = [json.loads(line) for line in _shown(page)]
    assert queries
    for members in queries:
        if "kind" in members:
            parse_query(members)


def test_the_samples_of_the_first_steps_are_queries() -> None:
    lines = (SAMPLES / "queries.jsonl").read_text().splitlines()
    assert [parse_query(json.loads(line)).id for line in lines] == ["paris-fire", "coffee"]


def test_the_program_of_the_readme_is_the_sample() -> None:
    program = (SAMPLES / "first_steps.py").read_text()
    shown = PAGES[0].read_text().partition("```python\n")[2].partition("```")[0]
    assert program.endswith(f'"""\n\n{shown}')


def test_one_id_twice_is_explained_with_the_way_to_the_latest_alone() -> None:
    readme, reference = (page.read_text() for page in PAGES)
    assert "Two objects with one id are two objects" in readme
    shown = reference.partition("**Two objects with one id")[2]
    program = shown.partition("```python\n")[2].partition("```")[0]

    # The reference's program, for what a search finds, in any order.
    found = [
        SimpleNamespace(object=SimpleNamespace(id=number), arrival_ms=at_ms)
        for number, at_ms in ((7, 20), (7, 30), (8, 5), (7, 10))
    ]
    names: dict[str, Any] = {"client": SimpleNamespace(search=lambda _: found), "query": None}
    exec(program, names)
    assert {one: latest.arrival_ms for one, latest in names["latest"].items()} == {7: 30, 8: 5}


def test_the_language_is_shown_in_all_kinds_and_modes() -> None:
    parsed = [parse_query(json.loads(line)) for line in _shown(PAGES[1])]
    found = {(kind_of(query), query.mode) for query in parsed}
    assert len(found) == 4 * len(MODES)


@pytest.mark.parametrize(
    "bound",
    [
        DEFAULT_LIMITS.text_bytes,
        DEFAULT_LIMITS.attribute_bytes,
        DEFAULT_LIMITS.id_bytes,
        DEFAULT_LIMITS.expression_terms,
        DEFAULT_LIMITS.expression_depth,
        DEFAULT_LIMITS.conjunctions,
        DEFAULT_LIMITS.vertices,
        DEFAULT_LIMITS.k,
        DEFAULT_LIMITS.keywords,
        DEFAULT_LIMITS.conditions,
        DEFAULT_LIMITS.alternatives,
    ],
)
def test_limits_are_named_as_they_are(bound: int) -> None:
    text = PAGES[1].read_text()
    assert f"{bound:,} " in text or f"{bound:,})" in text


def test_the_documented_refusal_is_the_real_one() -> None:
    query = {"id": "q", "kind": "range", "mode": "continuous", "text": "fire OR NOT drill"}
    with pytest.raises(InvalidArgument) as refused:
        parse_query(query)
    assert str(refused.value) in PAGES[1].read_text()
