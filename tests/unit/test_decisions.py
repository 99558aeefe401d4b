"""Decision records: a page each, of known sections, in an index by topic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
INDEX = (FOLDER / "README.md").read_text()

# A page. Figures are in docs/results, and what the code says is in the code.
WORDS_MAX = 600

SECTIONS = ("Context", "Decision", "Consequences")

_REPLACED = re.compile(r"superseded by \[(?:ADR )?(\d+)\]", re.IGNORECASE)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_decision_is_a_page_with_its_reasons(path: Path) -> None:
    text = path.read_text()
    title = re.match(r"# (\d+)\. \S", text)
    assert title is not None
    assert int(title[1]) == int(path.name[:4])
    assert "\n**Status:** " in text
    assert set(SECTIONS) <= set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert len(text.split()) <= WORDS_MAX


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_index_names_each_decision_once_below_a_topic(path: Path) -> None:
    assert INDEX.count(f"({path.name})") == 1
    assert INDEX.index("\n## ") < INDEX.index(f"({path.name})")


def test_what_supersedes_a_decision_exists_and_is_later() -> None:
    numbers = {int(path.name[:4]) for path in RECORDS}
    for path in RECORDS:
        for later in _REPLACED.findall(path.read_text()):
            assert int(later) in numbers
            assert int(later) > int(path.name[:4])
