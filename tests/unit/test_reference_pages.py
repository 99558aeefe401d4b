"""The reference pages agree with the code."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["PAGES"]
# The prefix of several names, and a variable of the tests.
NO_SETTINGS = {"SIROCCO_KAFKA_", "SIROCCO_TEST_STARTED"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_generates(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == PAGES[name](), f"docs/reference/{name} is out of date: make reference"


def test_each_variable_of_the_code_is_on_the_page_of_settings() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    used: set[str] = set()
    for folder in ("sirocco", "services", "spark-jobs", "loadgen", "sdk"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r"SIROCCO_[A-Z_]+", path.read_text()))
    assert {name for name in used - NO_SETTINGS if f"`{name}`" not in page} == set()
