"""Random tests draw from one seed, which repeats a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import seeds

ROOT = Path(__file__).resolve().parents[2]


def test_a_seed_repeats_what_a_test_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(seed: str, test: str) -> list[int]:
        monkeypatch.setenv(seeds.VARIABLE, seed)
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (call)")
        seeds._draws.clear()
        return [seeds.drawn_seed() for _ in range(3)]

    first = drawn("7", "a.py::test")
    assert drawn("7", "a.py::test") == first
    assert len({*first, *drawn("8", "a.py::test"), *drawn("7", "b.py::test")}) == 9
    assert all(0 <= seed < 1 << 32 for seed in first)


def test_property_tests_have_the_seed_of_the_run(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("--hypothesis-seed") is not None


def test_no_test_draws_by_itself() -> None:
    own = re.compile(
        r"\brandom\.(?:SystemRandom|seed|randrange|random|randint|choice|shuffle)\("
        r"|\brandom\.Random\(\)"
    )
    texts = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts.items()
        if "\nimport random\n" in text
        for number, line in enumerate(text.splitlines(), 1)
        if own.search(line)
    ]
    assert found == []
