"""Links between documents lead somewhere, and so do the documents that code names.

`make docs` checks links within the site; here are those of README, the chart and the client, too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "docs",
    "charts",
    "sdk",
    "services",
    "sirocco",
    "spark-jobs",
    "scripts",
    "tests",
    "benchmarks",
)
TEXTS = {".md", ".py", ".sh", ".yaml", ".yml", ".tpl", ".json"}


def _files(suffixes: set[str]) -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.suffix in suffixes and path.is_file())
    for folder in FOLDERS:
        found = (ROOT / folder).rglob("*")
        yield from (path for path in found if path.suffix in suffixes and path.is_file())


def test_relative_links_lead_to_files() -> None:
    dead = [
        f"{path.relative_to(ROOT)}: {link}"
        for path in _files({".md"})
        for link in re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", path.read_text())
        if not re.match(r"[a-z]+:", link) and not (path.parent / link).exists()
    ]
    assert dead == []


def test_documents_that_are_named_exist() -> None:
    named = re.compile(r"(?<![\w/])docs/[\w/-]+\.md\b")
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*_files(TEXTS), ROOT / "Makefile"]
        for name in named.findall(path.read_text())
        if not (ROOT / name).exists()
    ]
    assert dead == []


def test_code_that_documents_name_exists() -> None:
    """A path in backticks from the top level, or below `tests/unit`; modules without suffix."""
    top = "benchmarks|charts|console|loadgen|proto|scripts|sdk|services|sirocco|spark-jobs|tests"
    named = re.compile(rf"`((?:{top})/[\w./-]+)`")
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in _files({".md"})
        for name in named.findall(path.read_text())
        if not any(
            (root / each).exists()
            for root in (ROOT, ROOT / "tests/unit")
            for each in (name, f"{name}.py")
        )
    ]
    assert dead == []
